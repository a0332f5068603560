// Keys: assignment to classes, and shortcuts of the page.

import { useListener } from "./html.js";
import { kept } from "./kept.js";

// Letters that are not shortcuts of the page: g grid, i items, l label, m guess, r review, s skip,
// u undo. Shift and a letter is never the key of a class.
const LETTERS = "abcdefhjknopqtvwxyz";
const ROW = "1234567890";

/**
 * One key or null per class: its name, if that is a key; its first letter, if no other class begins
 * with it; the digit of its place; or a free letter.
 */
export function assignKeys(names) {
  const free = new Set([...ROW, ...LETTERS]);
  const take = (key) => (free.delete(key) ? key : null);
  const own = names.map((name) => take(name.toLowerCase()));
  const firsts = names.map((name) => name[0]?.toLowerCase());
  const unique = (letter) => LETTERS.includes(letter) && firsts.indexOf(letter) === firsts.lastIndexOf(letter);
  const short = names.map((_, place) => own[place] ?? (unique(firsts[place]) ? take(firsts[place]) : null));
  const digits = short.map((key, place) => key ?? (place < ROW.length ? take(ROW[place]) : null));
  // Not a letter that another class begins with.
  const rest = [...free].filter((key) => LETTERS.includes(key) && !firsts.includes(key));
  return digits.map((key) => key ?? rest.shift() ?? null);
}

/** The place of a class by its keys: its own, and the digit of its place unless another class has it. */
export function placeByKey(keys) {
  const digits = [...ROW].slice(0, keys.length).map((digit, place) => [digit, place]);
  return new Map([...digits, ...keys.map((key, place) => [key, place])]);
}

const FIELDS = "input:not([type=checkbox]), textarea, select, [contenteditable]";

/** Whether a key press types into a field. A field for a number leaves letters to shortcuts. */
function isTyping({ target, key }) {
  if (!(target instanceof HTMLElement) || !target.matches(FIELDS)) return false;
  const number = target.matches("[inputmode=decimal]");
  return !(number && key.length === 1 && !/[-+0-9.,eE ]/.test(key));
}

/** Whether single keys are shortcuts; can be switched off for users of speech input. */
export const singleKeys = {
  get on() {
    return kept.get("keys") !== "off";
  },
  set on(on) {
    kept.set("keys", on ? "on" : "off");
  },
};

const used = new WeakSet(); // key presses

/**
 * Handle key presses that nothing else has used; `handle(event)` returns true if it used one, or
 * "type" if it moved the focus to a field that gets the key. A component's shortcuts come before
 * those of the components around it.
 */
export function useShortcuts(handle) {
  useListener(document, "keydown", (event) => {
    if (used.has(event) || event.defaultPrevented || document.querySelector("dialog[open]") || isTyping(event)) return;
    if (event.altKey || ((event.ctrlKey || event.metaKey) && event.key !== "a")) return;
    const single = event.key.length === 1 && event.key !== " ";
    if (single && !singleKeys.on && event.key !== "?" && !event.ctrlKey && !event.metaKey) return;
    const result = handle(event);
    if (result) used.add(event);
    if (result === true) event.preventDefault();
  });
}
