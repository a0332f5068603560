// Review view: one disagreement at a time, with all votes; a class resolves it.

import { get, post } from "./api.js";
import { ClassBar } from "./classes.js";
import { announce, h, keyButton, notice, refresh } from "./dom.js";
import { describeItem, loadPicture, showItem } from "./item.js";

export const MOST_CASES = 100; // fetched per request

export class ReviewView {
  constructor(desk, undo) {
    this.desk = desk;
    this.cases = [];
    this.bar = new ClassBar(
      desk.session,
      (value, name) => this.#settle(value, name),
      () => desk.classesChanged(),
    );
    this.stage = h("div", { class: "stage" });
    this.votes = h("ul", { class: "votes", "aria-label": "Votes" });
    this.actions = h(
      "div",
      { class: "actions", role: "group", "aria-label": "Actions" },
      keyButton("Undo", "u", undo),
      keyButton("Leave for later", "s", () => this.later()),
    );
    this.element = h(
      "div",
      { class: "one review" },
      this.stage,
      h("div", { class: "about" }, this.votes),
      this.bar.element,
      this.actions,
    );
  }

  /** Fetch the disagreements; postponed ones stay at the end. */
  async open() {
    try {
      const found = await get(`/api/disagreements?limit=${MOST_CASES}`);
      const known = new Map(this.cases.map((one) => [one.id, one]));
      const kept = found.map((one) => Object.assign(known.get(one.id) ?? one, { votes: one.votes }));
      const order = [...known.keys()];
      this.cases = kept.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
      for (const { item } of this.cases.slice(0, 10)) if (item.image) item.picture ??= loadPicture(item);
    } catch (error) {
      notice(error.message, "bad");
    }
    this.update();
  }

  update() {
    const [first] = this.cases;
    this.element.classList.toggle("empty", !first);
    refresh(this.stage, first?.id ?? null, () =>
      first
        ? showItem(first.item)
        : h(
            "div",
            { class: "waiting" },
            h("h2", {}, "No disagreements"),
            h("p", {}, "Items that people label differently appear here, so that you can resolve them."),
          ),
    );
    if (first) this.stage.dataset.item = first.id;
    else delete this.stage.dataset.item;
    refresh(this.votes, first?.votes ?? [], (votes) =>
      votes.map((vote) =>
        h(
          "li",
          {},
          h("strong", {}, this.#name(vote.label)),
          h("span", { class: "soft" }, vote.by || "without a name"),
        ),
      ),
    );
    if (first && this.told !== first.id)
      announce(
        `${this.cases.length} to resolve. ${describeItem(first.item)}. ${first.votes.map((vote) => `${vote.by}: ${this.#name(vote.label)}`).join(", ")}`,
      );
    this.told = first?.id;
  }

  #name(label) {
    return String(this.desk.session.classes.find((one) => one.value === label)?.name ?? label);
  }

  async #settle(value, name) {
    const [first] = this.cases;
    if (!first || this.busy) return;
    this.busy = true;
    try {
      await post("/api/resolve", { id: first.id, label: value });
      this.cases = this.cases.filter((one) => one !== first);
      this.desk.settled(first.item);
      notice(`Resolved as ${name}`);
      this.desk.look();
    } catch (error) {
      notice(error.message, "bad");
    } finally {
      this.busy = false;
    }
    this.update();
  }

  later() {
    if (this.cases.length > 1) this.cases.push(this.cases.shift());
    this.update();
  }

  key(event) {
    if (event.key === "s") return (this.later(), true);
    return this.bar.key(event);
  }
}
