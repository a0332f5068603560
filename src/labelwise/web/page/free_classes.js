// Classes of a campaign without fixed classes: annotators add them while labelling. Existing
// classes keep their positions and keys when others are added.

import { kept } from "./kept.js";

const place = (session) => `classes/${session.id}`;

/** Sort classes: those stored in this browser first, then new ones from the server. */
export function arrange(session) {
  if (!session.free) return session;
  const known = kept.read(place(session), []);
  session.classes = known.concat(session.classes.filter((one) => !has(known, one.name)));
  return session;
}

/** Add unknown classes; returns whether there were any. */
export function addClasses(session, classes) {
  const added = classes.filter((one) => !has(session.classes, one.name));
  session.classes.push(...added);
  kept.set(place(session), JSON.stringify(session.classes));
  return added.length > 0;
}

function has(classes, name) {
  return classes.some((one) => one.name === name);
}
