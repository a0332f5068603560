// Values in localStorage. If it is unavailable (private window, full disk), the page still works
// while it stays open.

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
  /** All names with this prefix, sorted. */
  names: (start) =>
    attempt(() => Object.keys(localStorage), [])
      .filter((key) => key.startsWith(PREFIX + start))
      .map((key) => key.slice(PREFIX.length))
      .sort(),
  /** A stored JSON value, or `otherwise` if it is missing or invalid. */
  read: (name, otherwise) => attempt(() => JSON.parse(kept.get(name)) ?? otherwise, otherwise),
};

/** The name of a value that another page removed, from a storage event, or null. */
export function removedElsewhere(event) {
  return event.newValue === null && event.key?.startsWith(PREFIX) ? event.key.slice(PREFIX.length) : null;
}
