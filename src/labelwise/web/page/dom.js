// Elements without markup: every text goes in as text, so nothing a user wrote can become HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("button", {class: "main", onclick: go, disabled: true}, "Go"). */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for the parts of a drawing. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** A button with its key, as "Undo u". */
export function keyButton(text, key, onclick, properties = {}) {
  return h(
    "button",
    { type: "button", onclick, "aria-keyshortcuts": key, ...properties },
    h("span", {}, text),
    cap(key),
  );
}

/** The picture of a key; screen readers get aria-keyshortcuts instead. */
export function cap(key) {
  return h("kbd", { "aria-hidden": "true" }, key);
}

/** Say something to a screen reader, without moving the focus. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = text === live.textContent ? `${text}\u00a0` : text; // the same words twice are news too
}

let hiding = 0;

/** A line in the corner for a few seconds. */
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

/** Replace what is inside an element only if `value` is new, so that focus and selection stay. */
export function refresh(element, value, make) {
  const text = JSON.stringify(value);
  if (element.shown === text) return;
  element.shown = text;
  const unfolded = element.querySelector("details")?.open;
  element.replaceChildren(...[make(value)].flat().filter(Boolean));
  if (unfolded) element.querySelector("details")?.setAttribute("open", "");
}

/** The same text with a capital letter at its beginning. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** 3 labels, 1 label. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** 0.8812 as 88.1 %. */
export function percent(share) {
  return `${(100 * share).toFixed(1).replace(/\.0$/, "")} %`;
}

/** 75 s, 12 min, 1.5 h. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
