// Single view: one item, why it was picked, its classes, and further actions.

import { get } from "./api.js";
import { ClassBar } from "./classes.js";
import { askReason } from "./dialogs.js";
import { announce, h, keyButton, notice, percent } from "./dom.js";
import { describeItem, showItem } from "./item.js";
import { Stopwatch } from "./stopwatch.js";
import { waiting, waitIsOver } from "./waiting.js";

export class LabelView {
  constructor(desk, undo) {
    this.desk = desk;
    this.bar = new ClassBar(
      desk.session,
      (value, name) => this.#label(value, name),
      () => desk.classesChanged(),
    );
    this.stage = h("div", { class: "stage" });
    this.why = h("p", { class: "why" });
    this.guess = h("p", { class: "guess", hidden: true });
    this.actions = h(
      "div",
      { class: "actions", role: "group", "aria-label": "Actions" },
      keyButton("Undo", "u", undo),
      keyButton("Skip", "s", () => this.skip()),
      keyButton("Model's guess", "m", () => this.askGuess()),
    );
    this.element = h(
      "div",
      { class: "one" },
      this.stage,
      h("div", { class: "about" }, this.why, this.guess),
      this.bar.element,
      this.actions,
    );
    this.watch = new Stopwatch();
  }

  /** Show the current item, or the reason why there is none. */
  update() {
    const item = this.desk.current;
    if (!item) return this.#showWaiting();
    if (this.item === item) return;
    this.item = item;
    this.element.classList.remove("empty");
    this.stage.replaceChildren(showItem(item));
    waitIsOver(this.stage);
    this.stage.dataset.item = item.id;
    this.why.textContent = item.why ? `Why this one? ${item.why}` : "";
    this.guess.hidden = true;
    this.watch.restart();
    announce(`${this.said ?? ""}Next: ${describeItem(item)}`);
    this.said = "";
  }

  #showWaiting() {
    if (this.item) this.said = "";
    this.item = null;
    this.element.classList.add("empty");
    delete this.stage.dataset.item;
    this.why.textContent = "";
    this.guess.hidden = true;
    waiting(this.stage, this.desk);
  }

  #label(value, name) {
    if (!this.item) return;
    this.said = `${name}. `;
    this.desk.label([this.item], value, this.watch.seconds);
  }

  async skip() {
    const item = this.item;
    if (!item) return;
    const reason = await askReason();
    if (reason === null || item !== this.item) return;
    this.said = "Skipped. ";
    this.desk.skip([item], reason);
  }

  /** Show the model's guess on request. */
  async askGuess() {
    const item = this.item;
    if (!item) return;
    try {
      const { label, confidence } = await get(`/api/items/${item.id}/guess`);
      if (item !== this.item) return;
      const name = this.desk.session.classes.find((one) => one.value === label)?.name ?? label;
      this.guess.textContent = `The model's guess: ${name}${confidence === null || confidence === undefined ? "" : `, ${percent(confidence)} sure`}`;
      this.guess.hidden = false;
      announce(this.guess.textContent);
    } catch (error) {
      notice(error.status === 404 ? "There is no guess for this item yet" : error.message);
    }
  }

  key(event) {
    if (event.key === "s") return (this.skip(), true);
    if (event.key === "m") return (this.askGuess(), true);
    return this.bar.key(event);
  }
}
