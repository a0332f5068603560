// Assignment of keys to classes.

// Letters that are not shortcuts of the page: g grid, l label, m guess, r review, s skip, u undo.
const LETTERS = "abcdefhijknopqtvwxyz";
const ROW = "1234567890";

/** One key or null per class. A class whose name is a free key gets that key. */
export function assignKeys(names) {
  const free = new Set([...ROW, ...LETTERS]);
  const own = names.map((name) => (free.delete(name.toLowerCase()) ? name.toLowerCase() : null));
  const rest = [...free];
  return own.map((key) => key ?? rest.shift() ?? null);
}

/** Whether the target of a key press is an input field. */
export function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}
