// Components: preact with templates by htm, and small elements that several views share.

import { h } from "./vendor/preact.js";
import { useLayoutEffect, useReducer, useRef } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { render } from "./vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export const html = htm.bind(h);

/** Show a key; screen readers use aria-keyshortcuts instead. */
export const Key = ({ of }) => html`<kbd aria-hidden="true">${of}</kbd>`;

/** A button that shows its key, such as "Undo u". */
export const KeyButton = ({ text, keys, ...rest }) =>
  html`<button type="button" aria-keyshortcuts=${keys} ...${rest}>
    <span>${text}</span><${Key} of=${keys.replace("Shift+", "⇧")} />
  </button>`;

/** Render again at every one of these events of a target. */
export function useEvents(target, ...names) {
  const [, update] = useReducer((number) => number + 1, 0);
  useLayoutEffect(() => {
    for (const name of names) target.addEventListener(name, update);
    return () => names.forEach((name) => target.removeEventListener(name, update));
  }, [target]);
}

/** Call the newest version of a function at an event of the document or window. */
export function useListener(target, name, listener) {
  const newest = useRef(listener);
  newest.current = listener;
  useLayoutEffect(() => {
    const call = (event) => newest.current(event);
    target.addEventListener(name, call);
    return () => target.removeEventListener(name, call);
  }, [target, name]);
}
