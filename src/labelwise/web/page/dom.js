// DOM helpers. All text is inserted as text nodes, so user input cannot become HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: h("button", {class: "main", onclick: go, disabled: true}, "Go"). */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Create an SVG element. */
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

/** Create a button that shows its key, such as "Undo u". */
export function keyButton(text, key, onclick, properties = {}) {
  return h(
    "button",
    { type: "button", onclick, "aria-keyshortcuts": key, ...properties },
    h("span", {}, text),
    cap(key),
  );
}

/** Show a key; screen readers use aria-keyshortcuts instead. */
export function cap(key) {
  return h("kbd", { "aria-hidden": "true" }, key);
}

/** Announce a text to screen readers without moving the focus. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = text === live.textContent ? `${text}\u00a0` : text; // forces a repeat
}

let hiding = 0;

/** Show a message in the corner for a few seconds. */
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

/** Replace an element's contents only if `value` changed, to keep focus and selection. */
export function refresh(element, value, make) {
  const text = JSON.stringify(value);
  if (element.shown === text) return;
  element.shown = text;
  const unfolded = element.querySelector("details")?.open;
  element.replaceChildren(...[make(value)].flat().filter(Boolean));
  if (unfolded) element.querySelector("details")?.setAttribute("open", "");
}

/** Capitalize the first letter. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Format a count: 3 labels, 1 label. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Format a share: 0.8812 as 88.1 %. */
export function percent(share) {
  return `${(100 * share).toFixed(1).replace(/\.0$/, "")} %`;
}

/** Format a duration: 75 s, 12 min, 1.5 h. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
