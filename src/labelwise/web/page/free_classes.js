// The classes of a campaign that was not told them: whatever people name. They keep their places,
// and so their keys, however many others are added, here or elsewhere.

import { kept } from "./kept.js";

const place = (session) => `classes/${session.id}`;

/** Put the classes that this browser knows first, in its own order, and the server's new ones last. */
export function arrange(session) {
  if (!session.free) return session;
  const known = kept.read(place(session), []);
  session.classes = known.concat(session.classes.filter((one) => !has(known, one.name)));
  return session;
}

/** Add classes that are not there yet; whether there were any. */
export function addClasses(session, classes) {
  const added = classes.filter((one) => !has(session.classes, one.name));
  session.classes.push(...added);
  kept.set(place(session), JSON.stringify(session.classes));
  return added.length > 0;
}

function has(classes, name) {
  return classes.some((one) => one.name === name);
}
