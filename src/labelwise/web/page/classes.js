// The class bar: one button with its key per class. Arrows move the focus, Enter confirms.

import { cap, h } from "./dom.js";
import { addClasses } from "./free_classes.js";
import { assignKeys, isTyping } from "./keys.js";

const MANY = 16; // with more classes than this, the bar has a search field

export class ClassBar {
  /** Calls `choose(value, name)` with the chosen label, and `added()` after adding a class. */
  constructor(session, choose, added) {
    this.session = session;
    this.choose = choose;
    this.added = added;
    this.element = h("div", { class: "classes" });
    this.draw();
  }

  /** Redraw all classes, unless the user is typing in a field of the bar. */
  draw() {
    if (isTyping(document.activeElement) && this.element.contains(document.activeElement)) return;
    const { classes, regression } = this.session;
    this.element.replaceChildren();
    if (regression) return this.element.append(this.#number());
    const keys = assignKeys(classes.map((one) => String(one.name)));
    // Digits also choose classes by position, unless a digit is the key of another class.
    const places = keys.slice(0, 9).map((_, index) => [String(index + 1), index]);
    this.byKey = new Map([...places, ...keys.map((key, index) => [key, index])]);
    this.buttons = classes.map((one, index) => this.#button(one, keys[index], index));
    const longest = Math.max(2, ...classes.map((one) => String(one.name).length));
    this.list = h("div", { class: "choices", role: "group", "aria-label": "Classes" }, this.buttons);
    this.list.style.setProperty("--longest", `${Math.min(longest, 24)}ch`);
    this.list.classList.toggle("short", longest <= 2);
    this.list.classList.toggle("fixed", classes.length > MANY); // avoids layout shifts while searching
    const finder = classes.length > MANY ? this.#finder() : null;
    const adder = this.session.free || !classes.length ? this.#adder() : null;
    if (finder || adder) this.element.append(h("div", { class: "fields" }, finder, adder));
    this.element.append(this.list);
    this.#rove(0);
  }

  #button({ value, name }, key, index) {
    const plain = key === String(name); // for class 3 on key 3, show the key only once
    return h(
      "button",
      {
        type: "button",
        class: "choice",
        "aria-keyshortcuts": key,
        title: name,
        onclick: () => this.pick(index),
        onfocus: () => this.#rove(index),
      },
      key && !plain ? cap(key) : null,
      h("span", {}, String(name)),
    );
  }

  /** Choose a class by its position and highlight its button briefly. */
  pick(index) {
    const { value, name } = this.session.classes[index];
    const button = this.buttons[index];
    button.classList.remove("chosen");
    requestAnimationFrame(() => button.classList.add("chosen"));
    this.choose(value, String(name));
  }

  /** Handle a key press; returns whether the bar used it. */
  key(event) {
    if (this.session.regression) return this.#focusNumber(event);
    const index = this.byKey.get(event.key.toLowerCase());
    if (index !== undefined && !event.shiftKey) {
      if (!event.repeat) this.pick(index);
      return true;
    }
    if (event.key === "/" && this.find) return (this.find.focus(), true);
    return this.#arrow(event.key);
  }

  #arrow(key) {
    const shown = this.buttons.filter((button) => !button.hidden);
    const at = shown.indexOf(document.activeElement);
    if (!shown.length || !key.startsWith("Arrow")) return false;
    const next = at < 0 ? shown[0] : step(shown, at, key);
    next.focus();
    return true;
  }

  #rove(index) {
    this.buttons.forEach((button, place) => {
      button.tabIndex = place === index ? 0 : -1;
    });
  }

  #finder() {
    const find = h("input", {
      type: "search",
      placeholder: "Find a class",
      "aria-label": "Find a class",
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
    });
    find.addEventListener("input", () => this.#filter(find.value));
    find.addEventListener("keydown", (event) => {
      const first = this.buttons.findIndex((button) => !button.hidden);
      if (event.key === "Enter" && find.value && first >= 0) this.pick(first);
      if (event.key === "ArrowDown" && first >= 0)
        return (event.preventDefault(), this.buttons[first].focus());
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      find.value = "";
      this.#filter("");
      if (event.key === "Escape") find.blur();
    });
    this.find = find;
    return find;
  }

  #filter(text) {
    const words = text.toLowerCase().split(/\s+/);
    const matches = this.buttons.map((button) =>
      words.every((word) => button.title.toLowerCase().includes(word)),
    );
    this.buttons.forEach((button, index) => {
      button.hidden = !matches[index];
      button.classList.toggle("first", Boolean(text) && index === matches.indexOf(true));
    });
    if (matches.includes(true)) this.#rove(matches.indexOf(true));
  }

  #adder() {
    const first = this.session.classes.length === 0;
    const field = h("input", {
      placeholder: first ? "Name the first class" : "Another class",
      "aria-label": "New class",
      autocomplete: "off",
      maxlength: "200",
    });
    const add = (event) => {
      event.preventDefault();
      const name = field.value.trim();
      if (!name) return;
      field.blur(); // draw() does nothing while a field has the focus
      addClasses(this.session, [{ value: name, name }]);
      this.added();
      this.buttons[this.session.classes.findIndex((one) => one.name === name)].focus(); // Enter now labels with it
    };
    return h("form", { class: "adder", onsubmit: add }, field, h("button", { type: "submit" }, "Add"));
  }

  #number() {
    this.field = h("input", {
      inputmode: "decimal",
      autocomplete: "off",
      "aria-label": "Value",
      placeholder: "Value, then Enter",
    });
    const send = (event) => {
      event.preventDefault();
      const value = Number(this.field.value.trim().replace(",", "."));
      const bad = !this.field.value.trim() || !Number.isFinite(value);
      this.field.setCustomValidity(bad ? "Enter a number such as 3.5" : "");
      if (!this.field.reportValidity()) return;
      this.field.value = "";
      this.choose(value, String(value));
    };
    this.field.addEventListener("input", () => this.field.setCustomValidity(""));
    return h(
      "form",
      { class: "adder", onsubmit: send },
      this.field,
      h("button", { type: "submit", class: "main" }, "Confirm"),
    );
  }

  #focusNumber(event) {
    if (!/^[-0-9.]$/.test(event.key)) return false;
    this.field.focus(); // the browser then types the key into the field
    return "type";
  }
}

/** The next button in the direction of an arrow key. */
export function step(buttons, at, key) {
  if (key === "ArrowLeft") return buttons[Math.max(at - 1, 0)];
  if (key === "ArrowRight") return buttons[Math.min(at + 1, buttons.length - 1)];
  const { offsetLeft, offsetTop } = buttons[at];
  const beyond = buttons.filter((button) =>
    key === "ArrowDown" ? button.offsetTop > offsetTop : button.offsetTop < offsetTop,
  );
  const distance = (button) =>
    1000 * Math.abs(button.offsetTop - offsetTop) + Math.abs(button.offsetLeft - offsetLeft);
  return beyond.sort((a, b) => distance(a) - distance(b))[0] ?? buttons[at];
}
