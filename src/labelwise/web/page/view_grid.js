// Grid view: select similar items, then choose their class.

import { ClassBar, step } from "./classes.js";
import { announce, count, h, keyButton, notice } from "./dom.js";
import { showItem } from "./item.js";
import { Stopwatch } from "./stopwatch.js";
import { waiting, waitIsOver } from "./waiting.js";

export class GridView {
  constructor(desk, undo) {
    this.desk = desk;
    this.selected = new Set(); // items
    this.bar = new ClassBar(
      desk.session,
      (value, name) => this.#label(value, name),
      () => desk.classesChanged(),
    );
    this.grid = h("div", {
      class: "grid",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": "Items",
      onclick: (event) => this.#click(event),
      onkeydown: (event) => this.#move(event),
    });
    this.note = h("p", { class: "why" });
    this.actions = h(
      "div",
      { class: "actions", role: "group", "aria-label": "Actions" },
      keyButton("Undo", "u", undo),
      h("button", { type: "button", onclick: () => this.selectAll() }, "Select all"),
      h("button", { type: "button", onclick: () => this.clear() }, "Select none"),
    );
    this.element = h(
      "div",
      { class: "many" },
      this.grid,
      h("div", { class: "about" }, this.note),
      this.bar.element,
      this.actions,
    );
    this.tiles = new Map(); // item -> tile
    this.watch = new Stopwatch();
  }

  get items() {
    return this.desk.items;
  }

  update() {
    this.element.classList.toggle("empty", !this.items.length);
    if (!this.items.length) return (this.tiles.clear(), waiting(this.grid, this.desk));
    waitIsOver(this.grid);
    const tiles = this.items.map((item) => this.tiles.get(item) ?? this.#tile(item));
    this.tiles = new Map(this.items.map((item, index) => [item, tiles[index]]));
    for (const item of this.selected) if (!this.tiles.has(item)) this.selected.delete(item);
    const had = this.grid.contains(document.activeElement) ? document.activeElement : null;
    const unchanged =
      tiles.length === this.grid.children.length &&
      tiles.every((tile, index) => this.grid.children[index] === tile);
    if (!unchanged) this.grid.replaceChildren(...tiles);
    if (had) (had.isConnected ? had : tiles[0]).focus();
    if (!tiles.some((tile) => tile.tabIndex === 0)) tiles[0].tabIndex = 0;
    this.#mark();
  }

  #tile(item) {
    const shown = item.image ? showItem({ ...item, picture: undefined }) : showItem(item);
    shown.removeAttribute("tabindex");
    return h(
      "div",
      { class: "tile", role: "option", tabindex: "-1", "aria-selected": "false", "data-item": item.id },
      shown,
    );
  }

  #label(value, name) {
    const chosen = this.items.filter((item) => this.selected.has(item));
    if (!chosen.length) return notice("Select items first, then press their class");
    const seconds = this.watch.seconds / chosen.length;
    this.selected.clear();
    this.anchor = null;
    this.watch.restart();
    this.desk.label(chosen, value, seconds);
    notice(`${count(chosen.length, "item")} labelled ${name}`);
  }

  #click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const item = this.#itemOf(tile);
    if (event.shiftKey && this.anchor) this.#run(this.anchor, item);
    else this.#toggle(item);
    this.#focus(tile);
  }

  #itemOf(tile) {
    return this.items.find((item) => this.tiles.get(item) === tile);
  }

  #toggle(item) {
    if (!this.selected.delete(item)) this.selected.add(item);
    this.anchor = item;
    this.#mark();
  }

  /** Select a range of items, both ends included. */
  #run(from, to) {
    const ends = [this.items.indexOf(from), this.items.indexOf(to)];
    for (let place = Math.min(...ends); place <= Math.max(...ends); place += 1)
      this.selected.add(this.items[place]);
    this.#mark();
  }

  selectAll() {
    for (const item of this.items) this.selected.add(item);
    this.#mark();
  }

  clear() {
    this.selected.clear();
    this.#mark();
  }

  #mark() {
    for (const [item, tile] of this.tiles)
      tile.setAttribute("aria-selected", String(this.selected.has(item)));
    const text = this.selected.size
      ? `${this.selected.size} of ${count(this.items.length, "item")} selected: press their class`
      : "Select the items that are alike, then press their class. Shift selects a range.";
    if (this.note.textContent !== text) ((this.note.textContent = text), announce(text));
  }

  #focus(tile) {
    for (const other of this.tiles.values()) other.tabIndex = -1;
    tile.tabIndex = 0;
    tile.focus();
  }

  /** Arrows move the focus, Shift + arrows select, Space toggles. */
  #move(event) {
    const tiles = [...this.tiles.values()];
    const at = tiles.indexOf(event.target.closest(".tile"));
    if (at < 0 || event.ctrlKey || event.metaKey) return;
    if (event.key === " " || event.key === "Enter") this.#toggle(this.#itemOf(tiles[at]));
    else if (event.key.startsWith("Arrow")) {
      const next = step(tiles, at, event.key);
      if (event.shiftKey) this.#run((this.anchor ??= this.#itemOf(tiles[at])), this.#itemOf(next));
      this.#focus(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  key(event) {
    if (event.key === "Escape") return (this.clear(), true);
    if (event.key.startsWith("Arrow") && !this.bar.element.contains(document.activeElement)) {
      const first = this.tiles.values().next().value;
      if (first) return (this.#focus(first), true);
    }
    return this.bar.key(event);
  }
}
