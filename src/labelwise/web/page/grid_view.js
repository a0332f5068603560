// Grid view: select similar items, then choose their class.

import { ClassBar, nextElement } from "./class_bar.js";
import { count } from "./format.js";
import { html, KeyButton, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { SmallItem } from "./item.js";
import { useShortcuts } from "./keys.js";
import { announce, notice } from "./messages.js";
import { Stopwatch } from "./stopwatch.js";
import { Waiting } from "./waiting.js";

export function GridView({ desk, undo, confirm }) {
  const groups = groupItems(desk);
  const items = groups.flatMap((group) => group.items); // in the order of the tiles
  const grid = useRef();
  const watch = useMemo(() => new Stopwatch(), []);
  const [chosen, setChosen] = useState(() => new Set()); // items
  const [stop, setStop] = useState(null); // the item that Tab leads to
  const anchor = useRef(null); // where a range begins
  const selected = items.filter((item) => chosen.has(item));
  const reached = items.includes(stop) ? stop : items[0];

  useLayoutEffect(() => {
    desk.screenful = countTiles(grid.current);
  }, []);
  const tiles = () => [...grid.current.querySelectorAll(".tile")];
  const focus = (item) => {
    setStop(item);
    tiles()[items.indexOf(item)]?.focus();
  };
  const toggle = (item) => {
    anchor.current = item;
    setChosen(new Set(chosen.has(item) ? selected.filter((one) => one !== item) : [...selected, item]));
  };
  /** Select a range of items, both ends included. */
  const select = (from, to) => {
    const [begin, end] = [items.indexOf(from), items.indexOf(to)].sort((a, b) => a - b);
    setChosen(new Set([...selected, ...items.slice(Math.max(begin, 0), end + 1)]));
  };
  const selectAll = () => setChosen(new Set(items));
  const selectNone = () => setChosen(new Set());

  const note = selected.length
    ? `${selected.length} of ${count(items.length, "item")} selected: press their class`
    : "Select the items that are alike, then press their class. Shift selects a range.";
  useEffect(() => {
    if (items.length) announce(note);
  }, [note, items.length > 0]);

  // A labelled tile disappears with the focus; the next one gets it.
  const had = useRef(false);
  useLayoutEffect(() => {
    if (had.current && document.activeElement === document.body) tiles()[0]?.focus();
    had.current = false;
  });

  const labelAll = (some, value, name) => {
    const seconds = watch.seconds / some.length;
    had.current = grid.current.contains(document.activeElement);
    anchor.current = null;
    watch.restart();
    selectNone();
    desk.label(some, value, seconds);
    notice(`${count(some.length, "item")} labelled ${name}`);
  };
  const label = (value, name) => {
    if (!selected.length) return notice("Select items first, then press their class");
    labelAll(selected, value, name);
  };
  /** Confirm the prediction of a group, except for selected items: these look different. */
  const confirmAll = (members, value, name) => {
    const alike = members.filter((item) => !chosen.has(item));
    if (alike.length) labelAll(alike, value, name);
  };

  const click = (event, item) => {
    if (event.shiftKey && anchor.current) select(anchor.current, item);
    else toggle(item);
    focus(item);
  };
  /** Arrows move the focus, Shift + arrows select, Space toggles. */
  const move = (event, item) => {
    if (event.ctrlKey || event.metaKey) return;
    if (event.key === " " || event.key === "Enter") toggle(item);
    else if (event.key.startsWith("Arrow")) {
      const all = tiles();
      const next = items[all.indexOf(nextElement(all, items.indexOf(item), event.key))];
      if (event.shiftKey) select((anchor.current ??= item), next);
      focus(next);
    } else return;
    event.preventDefault();
  };

  useShortcuts((event) => {
    if (event.key === "Escape") return (selectNone(), true);
    if (event.ctrlKey || event.metaKey) return event.key === "a" && (selectAll(), true);
    return false;
  });

  return html`<div class="many${items.length ? "" : " empty"}">
    <div ref=${grid} class="grid">
      ${items.length ? null : html`<${Waiting} desk=${desk} />`}
      ${groups.map(
        ({ name, value, items: members }) =>
          html`<div key=${name} class="group">
            ${name
              ? html`<div class="heading">
                  <span>${name === NONE ? NONE : `${count(members.length, "item")} ${members.length === 1 ? "looks" : "look"} like ${name}`}</span>
                  ${name === NONE
                    ? null
                    : html`<button type="button" class="main" onclick=${() => confirmAll(members, value, name)}>
                        Confirm ${describeRest(members.length, members.filter((item) => !chosen.has(item)).length)}
                      </button>`}
                </div>`
              : null}
            <div role="listbox" aria-multiselectable="true" aria-label=${name || "Items"} class="group">
              ${members.map(
                (item) =>
                  html`<div
                    key=${item.id}
                    class="tile"
                    role="option"
                    tabindex=${item === reached ? 0 : -1}
                    aria-selected=${String(chosen.has(item))}
                    data-item=${item.id}
                    onclick=${(event) => click(event, item)}
                    onkeydown=${(event) => move(event, item)}
                  >
                    <${SmallItem} item=${item} />
                  </div>`,
              )}
            </div>
          </div>`,
      )}
    </div>
    <div class="about"><p class="why">${note}</p></div>
    <${ClassBar} desk=${desk} choose=${label} enter=${() => items.length > 0 && (focus(reached), true)} />
    <div class="actions" role="group" aria-label="Actions">
      <${KeyButton} text="Undo" keys="u" onclick=${undo} />
      <button type="button" onclick=${selectAll}>Select all</button>
      <button type="button" onclick=${selectNone}>Select none</button>
      ${desk.session.regression
        ? null
        : html`<${KeyButton} text="Confirm mode" keys="Shift+C" aria-pressed=${String(desk.confirm)} onclick=${confirm} />`}
    </div>
  </div>`;
}

const NONE = "Choose yourself";

const describeRest = (all, rest) => (rest < all ? `the other ${rest}` : all === 1 ? "it" : `all ${all}`);

/** In confirm mode: items by predicted class, most confident first; otherwise one group. */
function groupItems(desk) {
  if (!desk.confirm) return [{ name: "", items: desk.items }];
  const groups = new Map();
  for (const item of desk.items) {
    const name = item.suggestion ? desk.nameClass(item.suggestion.label) : NONE;
    if (!groups.has(name)) groups.set(name, { name, value: item.suggestion?.label, items: [] });
    groups.get(name).items.push(item);
  }
  for (const { items } of groups.values())
    items.sort((a, b) => (b.suggestion?.confidence ?? 0) - (a.suggestion?.confidence ?? 0));
  return [...groups.values()].sort((a, b) => (a.name === NONE) - (b.name === NONE) || b.items.length - a.items.length);
}

/** The number of tiles that fit without scrolling; the server lends at most 50 items. */
function countTiles(grid) {
  const columns = getComputedStyle(grid).gridTemplateColumns.split(" ");
  const height = grid.querySelector(".tile")?.offsetHeight || parseFloat(columns[0]) || 112;
  return Math.min(50, columns.length * Math.max(2, Math.floor(grid.clientHeight / (height + 8))));
}
