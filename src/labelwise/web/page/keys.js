// Which key chooses which class.

// The letters left over by the page's own keys: g grid, l label, m guess, r review, s skip, u undo.
const LETTERS = "abcdefhijknopqtvwxyz";
const ROW = "1234567890";

/** One key or null per class. A class that is called like a key has that one: 3 labels a 3. */
export function assignKeys(names) {
  const free = new Set([...ROW, ...LETTERS]);
  const own = names.map((name) => (free.delete(name.toLowerCase()) ? name.toLowerCase() : null));
  const rest = [...free];
  return own.map((key) => key ?? rest.shift() ?? null);
}

/** Whether a key press is meant for a field, not for the page. */
export function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}
