// Numbers and words as people read them.

/** Capitalize the first letter, and keep numbers and % on one line. */
export const sentence = (text) => (text.charAt(0).toUpperCase() + text.slice(1)).replaceAll(" %", "\u00a0%");

/** Format a count: 3 labels, 1 label. */
export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** Format a share: 0.8812 as 88.1 %. */
export const percent = (share) => `${(100 * share).toFixed(1).replace(/\.0$/, "")}\u00a0%`;

/** Format a duration: 75 s, 12 min, 1.5 h. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Format a value of a table with six significant digits. */
export function tidy(value) {
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(6)));
}
