// What this browser keeps between visits. Where it keeps nothing (a private window, a full disk),
// the page works all the same, as long as it stays open.

const PREFIX = "labelwise/";

function attempt(action, otherwise) {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

export const kept = {
  get: (name) => attempt(() => localStorage.getItem(PREFIX + name), null),
  set: (name, value) => attempt(() => localStorage.setItem(PREFIX + name, value)),
  remove: (name) => attempt(() => localStorage.removeItem(PREFIX + name)),
  /** The names that begin so, sorted. */
  names: (start) =>
    attempt(() => Object.keys(localStorage), [])
      .filter((key) => key.startsWith(PREFIX + start))
      .map((key) => key.slice(PREFIX.length))
      .sort(),
  /** A kept value that is JSON, or something else if it is not there or broken. */
  read: (name, otherwise) => attempt(() => JSON.parse(kept.get(name)) ?? otherwise, otherwise),
};

/** The name of a thing another page of this browser has removed, or null. */
export function removedElsewhere(event) {
  return event.newValue === null && event.key?.startsWith(PREFIX) ? event.key.slice(PREFIX.length) : null;
}
