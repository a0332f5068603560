// Messages: in the corner for a few seconds, and for screen readers without moving the focus.

import { sentence } from "./format.js";

/** Announce a text to screen readers. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = text === live.textContent ? `${text}\u00a0` : text; // forces a repeat
}

let hiding = 0;

/** Show and announce a message. */
export function notice(text, kind = "") {
  const box = document.getElementById("notice");
  box.textContent = sentence(text);
  box.className = kind;
  box.hidden = false;
  announce(box.textContent);
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    box.hidden = true;
  }, 4000);
}
