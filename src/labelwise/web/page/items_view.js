// Items view: all items with label, prediction, annotator and batch; a class key relabels one.

import { get, post } from "./api.js";
import { ClassBar } from "./class_bar.js";
import { count, percent, tidy } from "./format.js";
import { html, KeyButton, useEffect, useEvents, useLayoutEffect, useListener, useMemo, useRef, useState } from "./html.js";
import { describeItem, FullItem } from "./item.js";
import { useShortcuts } from "./keys.js";
import { MapView } from "./map_view.js";
import { announce, notice } from "./messages.js";
import { RowSource } from "./rows.js";

const ROW = 64; // height of a row in pixels
const TALLEST = 8_000_000; // browsers limit the height of an element
const PAUSE = 20; // milliseconds after the last key before a search begins
const MOST_CHOSEN = 500; // items that are selected, and labelled in one call
const MOST_ROWS = 100; // rows of one answer
const MOST_THUMBS = 60;
const DECIDED = ["labelled", "disputed"];

const SHOW = {
  all: "All items",
  labelled: "Labelled",
  open: "Not selected yet",
  waiting: "In a batch, without a label",
  skipped: "Skipped",
  disputed: "Disagreements",
  surprising: "Label differs from the prediction",
  noted: "With a note",
  duplicates: "Near-duplicates, grouped",
};
const COLUMNS = [
  ["id", "Item"],
  ["label", "Label"],
  ["prediction", "Prediction"],
  ["confidence", "Sure"],
  ["by", "By"],
  ["batch", "Batch"],
];
const START = { search: "", show: "all", label: "", prediction: "", by: "", sort: "id", descending: false };

export function ItemsView({ desk, undo }) {
  const source = useMemo(() => new RowSource(), []);
  useEvents(source, "change");
  const [query, setQuery] = useState(START);
  const [place, setPlace] = useState(null); // the current row of the list
  const [chosen, setChosen] = useState([]); // ids of the selected items
  const [rows, setRows] = useState([]); // theirs
  const [onMap, setOnMap] = useState(false);
  const words = useMemo(() => {
    const given = Object.entries(query).filter(([, value]) => value !== "" && value !== false);
    return String(new URLSearchParams(given));
  }, [query]);
  const change = (values) => {
    setPlace(null);
    // The most doubtful labels first, where they are asked for.
    const surprising = values.show === "surprising" ? { sort: "confidence", descending: true } : {};
    setQuery((before) => ({ ...before, ...surprising, ...values }));
  };
  useEffect(() => {
    source.list(words);
  }, [words]);
  const length = desk.state?.length;
  const known = useRef(length);
  useEffect(() => {
    if (known.current === length) return undefined;
    known.current = length;
    const timer = setTimeout(() => source.reload(place ?? 0), 300); // others may have labelled items
    return () => clearTimeout(timer);
  }, [length]);
  useEffect(() => {
    if (source.total !== null) announce(count(source.total, "item"));
  }, [source.total]);
  useEffect(() => {
    let gone = false;
    const load = async () => {
      const found = [];
      for (let at = 0; at < chosen.length; at += MOST_ROWS)
        found.push(...(await get(`/api/items?limit=${MOST_ROWS}&ids=${chosen.slice(at, at + MOST_ROWS)}`)).rows);
      if (!gone) setRows(found);
    };
    load().catch((error) => notice(error.message, "bad"));
    if (chosen.length > 1) announce(`${chosen.length} items selected`);
    return () => (gone = true);
  }, [chosen, length]);

  /** Select items by their ids, in addition to those that are selected already if `add`. */
  const choose = (ids, add = false) => {
    const all = [...new Set(add ? [...chosen, ...ids] : ids)];
    if (all.length > MOST_CHOSEN)
      notice(`${all.length.toLocaleString("en")} items: the first ${MOST_CHOSEN} are selected`);
    setChosen(all.slice(0, MOST_CHOSEN));
  };
  const go = async (next, from) => {
    setPlace(next);
    if (from !== null) return choose(await source.ids(Math.min(from, next), Math.max(from, next)));
    const row = source.row(next) ?? { id: (await source.ids(next, next))[0] };
    choose(row.id === undefined ? [] : [row.id]);
  };
  const found = rows.filter((row) => chosen.includes(row.id)); // a single one has its whole text
  const listed = place !== null && chosen.length === 1 ? source.row(place) : null;
  const shown = !found.length && listed && listed.id === chosen[0] ? [listed] : found;

  const label = async (value, name) => {
    if (!shown.length) return notice("Select an item first");
    const others = (row) => DECIDED.includes(row.status) && row.by.some((by) => by !== desk.session.name);
    const mine = shown.filter((row) => !others(row) && !(row.label === value && row.by.length));
    try {
      if (shown.length === 1 && others(shown[0])) {
        await post("/api/resolve", { id: shown[0].id, label: value });
        mine.push(shown[0]);
      } else if (mine.length)
        await post("/api/labels", { labels: mine.map((row) => ({ id: row.id, label: value })), anything: true });
      if (mine.length) desk.relabelled(mine);
      const left = shown.filter((row) => others(row) && row.label !== value && !mine.includes(row)).length;
      const rest = left ? `; ${count(left, "item")} with a label of someone else stayed as they are` : "";
      notice(shown.length === 1 ? `Item ${shown[0].id} is now ${name}` : `${count(mine.length, "item")} labelled ${name}${rest}`);
      await source.reload(place ?? 0);
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  useShortcuts(({ key }) => {
    if (key === "M") return (setOnMap(!onMap), true);
    return key === "Escape" && chosen.length > 1 && (setChosen([]), true);
  });

  const [row] = shown;
  return html`<div class="items">
    <${Filters} desk=${desk} query=${query} change=${change} onMap=${onMap} setOnMap=${setOnMap} />
    ${onMap
      ? html`<${MapView} desk=${desk} query=${words} version=${length} chosen=${chosen} choose=${choose} />`
      : html`<${VirtualList} source=${source} query=${query} change=${change} place=${place} go=${go} chosen=${chosen} desk=${desk} />`}
    <div class="detail">
      ${shown.length > 1 ? html`<${SelectionNote} rows=${shown} chosen=${chosen} choose=${choose} desk=${desk} />` : null}
      ${shown.length === 1
        ? html`<div class="stage" data-item=${row.id}>
              <${FullItem} key=${row.id} item=${row} numbers=${desk.session.regression} />
            </div>
            <p class="why">${row.name ?? `Item ${row.id}`}: ${desk.session.regression ? "enter a value" : "press a class"} to change its label</p>
            ${row.notes.map((note) => html`<p class="note">${note}</p>`)}
            ${row.duplicates.length
              ? html`<button type="button" onclick=${() => choose([row.id, ...row.duplicates])}>
                  Select its ${count(row.duplicates.length, "near-duplicate")} too
                </button>`
              : null}`
        : null}
      ${shown.length
        ? html`<${ClassBar} desk=${desk} choose=${label} enter=${() => true} />`
        : html`<p class="why">Select an item to see it and to change its label.</p>`}
      <div class="actions" role="group" aria-label="Actions">
        <${KeyButton} text="Undo" keys="u" onclick=${undo} />
      </div>
    </div>
  </div>`;
}

/** Several selected items: the first ones, and their labels. */
function SelectionNote({ rows, chosen, choose, desk }) {
  const labels = new Map();
  for (const { label } of rows) {
    const name = label === null ? "without a label" : nameOf(desk, label);
    labels.set(name, (labels.get(name) ?? 0) + 1);
  }
  const summary = [...labels].sort((a, b) => b[1] - a[1]).map(([name, number]) => `${number} ${name}`);
  return html`<div class="selection">
    <p>
      <strong>${count(chosen.length, "item")} selected</strong>: ${summary.slice(0, 6).join(", ")}. Press a class to
      label all of them.
    </p>
    <button type="button" onclick=${() => choose([])}>Select none</button>
    <ul class="thumbs" aria-label="Selected items">
      ${rows.slice(0, MOST_THUMBS).map(
        (row) =>
          html`<li>
            <button type="button" class="plain" data-item=${row.id} title=${describeItem(row)} onclick=${() => choose([row.id])}>
              ${row.image ? html`<img src=${row.image} alt=${describeItem(row)} loading="lazy" />` : html`<span class="clip">${nameRow(row)}</span>`}
            </button>
          </li>`,
      )}
    </ul>
    ${rows.length > MOST_THUMBS ? html`<p class="soft">and ${count(rows.length - MOST_THUMBS, "other item")}</p>` : null}
  </div>`;
}

function Filters({ desk, query, change, onMap, setOnMap }) {
  const timer = useRef();
  const search = (event) => {
    const { value } = event.target;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ search: value }), PAUSE);
  };
  const names = desk.session.classes.map((one) => String(one.name));
  const people = (desk.state?.annotators ?? []).map((one) => one.name);
  const Select = ({ name, title, options }) =>
    html`<select aria-label=${title} value=${query[name]} onchange=${(event) => change({ [name]: event.target.value })}>
      <option value="">${title}</option>
      ${options.map((one) => html`<option value=${one}>${one}</option>`)}
    </select>`;
  return html`<div class="filters" role="search" aria-label="Items">
    <input type="search" placeholder="Search" aria-label="Search" autocomplete="off" spellcheck="false" defaultValue=${query.search} oninput=${search} />
    <select aria-label="Show" value=${query.show} onchange=${(event) => change({ show: event.target.value })}>
      ${Object.entries(SHOW).map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
    ${names.length ? html`<${Select} name="label" title="Any label" options=${names} />` : null}
    ${names.length ? html`<${Select} name="prediction" title="Any prediction" options=${names} />` : null}
    ${people.length > 1 ? html`<${Select} name="by" title="Anyone" options=${people} />` : null}
    <${KeyButton} text="Map" keys="Shift+M" aria-pressed=${String(onMap)} onclick=${() => setOnMap(!onMap)} />
  </div>`;
}

/** Only the rows in view exist; the others are an empty space of the right height. */
function VirtualList({ source, query, change, place, go, chosen, desk }) {
  const anchor = useRef(null); // where a range begins
  const box = useRef();
  const [view, setView] = useState({ top: 0, height: 400 });
  const look = () => {
    const { scrollTop: top, clientHeight, firstElementChild: titles } = box.current;
    setView({ top, height: clientHeight - titles.offsetHeight });
  };
  useLayoutEffect(look, []);
  useListener(window, "resize", look);
  useEffect(() => {
    box.current.scrollTop = 0;
  }, [query]);
  const total = source.total ?? 0;
  const tall = Math.min(total * ROW, TALLEST);
  const scaled = tall < total * ROW;
  const fits = view.height / ROW;
  const share = tall > view.height ? view.top / (tall - view.height) : 0;
  const first = scaled ? share * Math.max(total - fits, 0) : view.top / ROW;
  const begin = Math.max(0, Math.floor(first) - 2);
  const end = Math.min(total, Math.ceil(first + fits) + 2);
  useEffect(() => {
    if (end > begin) source.need(begin, end - 1);
  });

  const select = (next, range = false) => {
    if (!range) anchor.current = null;
    else anchor.current ??= place ?? next;
    go(next, anchor.current);
    const offset = next - first;
    if (offset < 0 || offset > fits - 1) {
      const goal = offset < 0 ? next : next - fits + 1;
      box.current.scrollTop = scaled ? (goal / Math.max(total - fits, 1)) * (tall - view.height) : goal * ROW;
    }
  };
  const key = (event) => {
    const page = Math.max(1, Math.floor(fits) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -total, End: total };
    const step = steps[event.key];
    if (!step || !total) return;
    event.preventDefault();
    select(Math.min(total - 1, Math.max(0, place === null ? Math.floor(first) : place + step)), event.shiftKey);
  };

  const rows = [];
  for (let at = begin; at < end; at += 1) {
    const y = scaled ? view.top + (at - first) * ROW : at * ROW;
    rows.push(html`<${Row}
      key=${at}
      row=${source.row(at)}
      at=${at}
      y=${y}
      selected=${chosen.includes(source.row(at)?.id)}
      choose=${(event) => select(at, event.shiftKey)}
      desk=${desk}
    />`);
  }
  const sort = (name) => change({ sort: name, descending: query.sort === name && !query.descending });
  return html`<div class="list">
    <div
      ref=${box}
      class="scroll"
      role="grid"
      tabindex="0"
      aria-multiselectable="true"
      aria-label="Items"
      aria-rowcount=${total}
      aria-activedescendant=${place === null ? null : `row-${place}`}
      onscroll=${look}
      onkeydown=${key}
    >
      <div class="row titles" role="row">
        ${COLUMNS.map(
          ([name, title]) =>
            html`<span role="columnheader" class="column-${name}" aria-sort=${query.sort === name ? (query.descending ? "descending" : "ascending") : null}>
              <button type="button" class="plain" onclick=${() => sort(name)}>
                ${title}${query.sort === name ? html`<span aria-hidden="true">${query.descending ? "↓" : "↑"}</span>` : null}
              </button>
            </span>`,
        )}
      </div>
      <div class="space" role="rowgroup" style=${{ height: `${tall}px` }}>${rows}</div>
      ${source.total === 0 ? html`<p class="soft nothing">No item matches.</p>` : null}
      ${source.error ? html`<p class="bad nothing">${source.error}</p>` : null}
    </div>
    <p class="soft total">${source.total === null ? "Loading…" : count(total, "item")}</p>
  </div>`;
}

function Row({ row, at, y, selected, choose, desk }) {
  const style = { transform: `translateY(${y}px)` };
  if (!row) return html`<div class="row" role="row" aria-rowindex=${at + 1} style=${style}><span role="gridcell" class="soft">…</span></div>`;
  const differs = row.label !== null && row.prediction !== null && String(row.label) !== String(row.prediction);
  return html`<div
    id="row-${at}"
    class="row"
    role="row"
    aria-rowindex=${at + 1}
    aria-selected=${String(selected)}
    data-item=${row.id}
    style=${style}
    onclick=${choose}
  >
    <span role="gridcell" class="column-id">
      ${row.image ? html`<img src=${row.image} alt="" loading="lazy" />` : null}
      <span class="clip" dir="auto">${row.notes.length ? "✎ " : ""}${nameRow(row)}</span>
      ${row.duplicates.length ? html`<span class="soft copies" title="Near-duplicates">×${row.duplicates.length + 1}</span>` : null}
    </span>
    <span role="gridcell" class="column-label">
      ${row.label !== null ? html`<strong>${nameOf(desk, row.label)}</strong>` : html`<span class="soft">${describeStatus(row)}</span>`}
    </span>
    <span role="gridcell" class="column-prediction ${differs ? "differs" : ""}">${row.prediction === null ? "" : nameOf(desk, row.prediction)}</span>
    <span role="gridcell" class="column-confidence soft">${row.confidence === null ? "" : percent(row.confidence)}</span>
    <span role="gridcell" class="column-by soft clip">${row.by.join(", ")}</span>
    <span role="gridcell" class="column-batch soft">${row.batch ?? ""}</span>
  </div>`;
}

const nameOf = (desk, label) => (typeof label === "number" ? tidy(label) : desk.nameClass(label));

function describeStatus({ status, reason }) {
  if (status === "skipped") return reason ? `skipped: ${reason}` : "skipped";
  return { disputed: "disagreement", waiting: "in a batch" }[status] ?? "";
}

const nameRow = ({ id, name, text, columns }) =>
  (name ?? text ?? Object.values(columns ?? {}).map(tidy).join(" · ")) || `Item ${id}`;
