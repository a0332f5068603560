// Items view: all items with label, prediction, annotator and batch; a class key relabels one.

import { post } from "./api.js";
import { ClassBar } from "./class_bar.js";
import { count, percent, tidy } from "./format.js";
import { html, KeyButton, useEffect, useEvents, useLayoutEffect, useListener, useMemo, useRef, useState } from "./html.js";
import { FullItem } from "./item.js";
import { announce, notice } from "./messages.js";
import { RowSource } from "./rows.js";

const ROW = 64; // height of a row in pixels
const TALLEST = 8_000_000; // browsers limit the height of an element
const PAUSE = 120; // milliseconds after the last key before a search begins

const SHOW = {
  all: "All items",
  labelled: "Labelled",
  open: "Not selected yet",
  waiting: "In a batch, without a label",
  skipped: "Skipped",
  disputed: "Disagreements",
  surprising: "Label differs from the prediction",
  noted: "With a note",
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
  const [place, setPlace] = useState(null); // the selected row
  const change = (values) => {
    setPlace(null);
    // The most doubtful labels first, where they are asked for.
    const surprising = values.show === "surprising" ? { sort: "confidence", descending: true } : {};
    setQuery((before) => ({ ...before, ...surprising, ...values }));
  };
  useEffect(() => {
    source.list(query);
  }, [query]);
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

  const row = place === null ? null : source.row(place);
  const label = async (value, name) => {
    if (!row) return notice("Select an item first, then press its class");
    const others = row.by.some((by) => by !== desk.session.name);
    try {
      if (others && ["labelled", "disputed"].includes(row.status))
        await post("/api/resolve", { id: row.id, label: value });
      else await post("/api/labels", { labels: [{ id: row.id, label: value }], anything: true });
      desk.relabelled(row);
      notice(`Item ${row.id} is now ${name}`);
      await source.reload(place);
    } catch (error) {
      notice(error.message, "bad");
    }
  };

  return html`<div class="items">
    <${Filters} desk=${desk} query=${query} change=${change} />
    <${VirtualList} source=${source} query=${query} change=${change} place=${place} setPlace=${setPlace} desk=${desk} />
    <div class="detail">
      ${row
        ? html`<div class="stage" data-item=${row.id}>
              <${FullItem} key=${row.id} item=${row} numbers=${desk.session.regression} />
            </div>
            <p class="why">${row.name ?? `Item ${row.id}`}: press a class to change its label</p>
            ${row.notes.map((note) => html`<p class="note">${note}</p>`)}
            <${ClassBar} desk=${desk} choose=${label} enter=${() => true} />`
        : html`<p class="why">Select an item to see it and to change its label.</p>`}
      <div class="actions" role="group" aria-label="Actions">
        <${KeyButton} text="Undo" keys="u" onclick=${undo} />
      </div>
    </div>
  </div>`;
}

function Filters({ desk, query, change }) {
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
  </div>`;
}

/** Only the rows in view exist; the others are an empty space of the right height. */
function VirtualList({ source, query, change, place, setPlace, desk }) {
  const box = useRef();
  const [view, setView] = useState({ top: 0, height: 400 });
  const look = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
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

  const select = (next) => {
    setPlace(next);
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
    select(Math.min(total - 1, Math.max(0, place === null ? Math.floor(first) : place + step)));
  };

  const rows = [];
  for (let at = begin; at < end; at += 1) {
    const y = scaled ? view.top + (at - first) * ROW : at * ROW;
    rows.push(html`<${Row}
      key=${at}
      row=${source.row(at)}
      at=${at}
      y=${y}
      selected=${at === place}
      choose=${() => select(at)}
      desk=${desk}
    />`);
  }
  const sort = (name) => change({ sort: name, descending: query.sort === name && !query.descending });
  return html`<div class="list" role="grid" aria-label="Items" aria-rowcount=${total}>
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
    <div
      ref=${box}
      class="scroll"
      role="rowgroup"
      tabindex="0"
      aria-label="Rows"
      aria-activedescendant=${place === null ? null : `row-${place}`}
      onscroll=${look}
      onkeydown=${key}
    >
      <div class="space" role="presentation" style=${{ height: `${tall}px` }}>${rows}</div>
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
  const name = row.name ?? row.text ?? Object.values(row.columns ?? {}).map(tidy).join(" · ");
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
      <span class="clip" dir="auto">${row.notes.length ? "✎ " : ""}${name || `Item ${row.id}`}</span>
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
