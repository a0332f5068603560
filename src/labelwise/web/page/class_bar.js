// The class bar: one button with its key per class, or a field for a number.

import { addClasses } from "./free_classes.js";
import { html, Key, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { assignKeys, placeByKey, useShortcuts } from "./keys.js";

const MANY = 16; // with more classes than this, the bar has a search field

/**
 * Calls `choose(value, name)` with the chosen label; arrow keys first call `enter`, if given.
 * In confirm mode, `suggested` is the prediction of `item`: its button has the focus, so that Enter
 * and Space accept it; null if there is none. Otherwise it is undefined.
 */
export function ClassBar({ desk, choose, enter, suggested, item }) {
  return html`<div class="classes">
    ${desk.session.regression
      ? html`<${NumberField} choose=${choose} />`
      : html`<${Choices} desk=${desk} choose=${choose} enter=${enter} suggested=${suggested} item=${item} />`}
  </div>`;
}

function Choices({ desk, choose, enter, suggested, item }) {
  const { session } = desk;
  const { classes } = session;
  const list = useRef();
  const find = useRef();
  const field = useRef();
  const [text, setText] = useState("");
  const [stop, setStop] = useState(0); // the class that Tab leads to
  const names = classes.map((one) => String(one.name));
  const keys = useMemo(() => assignKeys(names), [names.join("\n")]);
  const byKey = useMemo(() => placeByKey(keys), [keys]);
  const allKeys = (place) => [...byKey].filter(([key, at]) => key && at === place).map(([key]) => key).join(" ");
  const words = text.toLowerCase().split(/\s+/);
  const matches = names.map((name) => words.every((word) => name.toLowerCase().includes(word)));
  const first = matches.indexOf(true);
  const buttons = () => [...list.current.querySelectorAll(".choice:not([hidden])")];

  const preselected = suggested === undefined ? -1 : classes.findIndex((one) => one.value === suggested);
  useLayoutEffect(() => {
    if (suggested === undefined) return;
    const { activeElement } = document;
    if (preselected >= 0) list.current.children[preselected].focus({ preventScroll: true });
    else if (list.current.contains(activeElement)) activeElement.blur(); // Enter must not repeat a label
  }, [preselected, item]);

  const pick = (place) => {
    const button = list.current.children[place];
    button?.classList.remove("chosen");
    requestAnimationFrame(() => button?.classList.add("chosen"));
    choose(classes[place].value, names[place]);
  };

  useShortcuts((event) => {
    if (event.ctrlKey || event.metaKey) return false;
    if (!classes.length && /^[^\s?]$/.test(event.key)) return (field.current?.focus(), "type");
    const place = byKey.get(event.key.toLowerCase());
    if (place !== undefined && !event.shiftKey) return (event.repeat || pick(place), true);
    if (event.key === "/" && find.current) return (find.current.focus(), true);
    if (!event.key.startsWith("Arrow") || event.shiftKey || !classes.length) return false;
    const shown = buttons();
    const at = shown.indexOf(document.activeElement);
    if (at < 0 && enter?.()) return true;
    (at < 0 ? shown[0] : nextElement(shown, at, event.key))?.focus();
    return shown.length > 0;
  });

  const search = (event) => {
    if (event.key === "ArrowDown" && first >= 0)
      return (event.preventDefault(), list.current.children[first].focus());
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter" && text && first >= 0) pick(first);
    find.current.value = "";
    setText("");
    if (event.key === "Escape") find.current.blur();
  };

  const add = (event) => {
    event.preventDefault();
    const name = field.current.value.trim();
    if (!name) return;
    addClasses(session, [{ value: name, name }]);
    field.current.value = "";
    desk.classesChanged();
    const place = classes.findIndex((one) => one.name === name);
    queueMicrotask(() => list.current?.children[place]?.focus()); // Enter now labels with it
  };

  const finder =
    classes.length > MANY
      ? html`<input
          ref=${find}
          type="search"
          placeholder="Find a class"
          aria-label="Find a class"
          aria-keyshortcuts="/"
          autocomplete="off"
          spellcheck="false"
          oninput=${(event) => setText(event.target.value)}
          onkeydown=${search}
        />`
      : null;
  const adder =
    session.free || !classes.length
      ? html`<form class="adder" onsubmit=${add}>
          <input
            ref=${field}
            placeholder=${classes.length ? "Another class" : "Name the first class"}
            aria-label="New class"
            autocomplete="off"
            maxlength="200"
          />
          <button type="submit">Add</button>
        </form>`
      : null;
  const longest = Math.max(2, ...names.map((name) => name.length));
  const kinds = ["choices", longest <= 2 && "short", classes.length > MANY && "fixed"];
  return html`${finder || adder ? html`<div class="fields">${finder}${adder}</div>` : null}
    <div
      ref=${list}
      class=${kinds.filter(Boolean).join(" ")}
      role="group"
      aria-label="Classes"
      style=${{ "--longest": `${Math.min(longest, 24)}ch`, "--count": Math.max(2, names.length) }}
    >
      ${names.map(
        (name, place) =>
          html`<button
            type="button"
            key=${name}
            class=${`choice${(text && place === first) || place === preselected ? " first" : ""}`}
            aria-keyshortcuts=${allKeys(place) || null}
            title=${classes[place].description ? `${name}: ${classes[place].description}` : name}
            hidden=${!matches[place]}
            tabindex=${place === (matches[stop] ? stop : first) ? 0 : -1}
            onclick=${() => pick(place)}
            onfocus=${() => setStop(place)}
          >
            ${keys[place] && keys[place] !== name ? html`<${Key} of=${keys[place]} />` : null}
            <span>${name}</span>
          </button>`,
      )}
    </div>`;
}

function NumberField({ choose }) {
  const field = useRef();
  const send = (event) => {
    event.preventDefault();
    const text = field.current.value.trim();
    const value = Number(text.replace(",", "."));
    field.current.setCustomValidity(text && Number.isFinite(value) ? "" : "Enter a number such as 3.5");
    if (!field.current.reportValidity()) return;
    field.current.value = "";
    choose(value, String(value));
  };
  // The browser then types the key into the field.
  useShortcuts((event) => /^[-0-9.]$/.test(event.key) && (field.current.focus(), "type"));
  return html`<form class="adder" onsubmit=${send}>
    <input
      ref=${field}
      inputmode="decimal"
      autocomplete="off"
      aria-label="Value"
      placeholder="Value, then Enter"
      oninput=${() => field.current.setCustomValidity("")}
    />
    <button type="submit" class="main">Confirm</button>
  </form>`;
}

/** The next element in the direction of an arrow key. */
export function nextElement(elements, at, key) {
  if (key === "ArrowLeft") return elements[Math.max(at - 1, 0)];
  if (key === "ArrowRight") return elements[Math.min(at + 1, elements.length - 1)];
  const { offsetLeft, offsetTop } = elements[at];
  const beyond = elements.filter((one) =>
    key === "ArrowDown" ? one.offsetTop > offsetTop : one.offsetTop < offsetTop,
  );
  const distance = (one) => 1000 * Math.abs(one.offsetTop - offsetTop) + Math.abs(one.offsetLeft - offsetLeft);
  return beyond.sort((a, b) => distance(a) - distance(b))[0] ?? elements[at];
}
