// The page: starts a session, shows one of three views, and passes key presses to it.

import { begin, Refused } from "./api.js";
import { Desk } from "./desk.js";
import { askName, showHelp } from "./dialogs.js";
import { count, h, keyButton, notice, refresh } from "./dom.js";
import { arrange } from "./free_classes.js";
import { kept } from "./kept.js";
import { isTyping } from "./keys.js";
import { makePanel } from "./panel.js";
import { GridView } from "./view_grid.js";
import { LabelView } from "./view_label.js";
import { MOST_CASES, ReviewView } from "./view_review.js";

const VIEWS = { label: ["Label", "l"], grid: ["Grid", "g"], review: ["Review", "r"] };
const PAUSE = 700; // milliseconds between state requests; each request waits for a change

class App {
  constructor(session) {
    this.desk = new Desk(session);
    const undo = () => this.undo();
    this.views = {
      label: new LabelView(this.desk, undo),
      grid: new GridView(this.desk, undo),
      review: new ReviewView(this.desk, undo),
    };
    this.updatePanel = makePanel(document.getElementById("panel"), this.desk);
    this.settings = {
      keys: kept.get("keys") !== "off",
      setKeys: (on) => {
        this.settings.keys = on;
        kept.set("keys", on ? "on" : "off");
      },
    };
    document.title = `${session.campaign} · labelwise`;
    document.getElementById("campaign").textContent = session.campaign;
    this.#tools();
    this.desk.addEventListener("items", () => this.view.update());
    this.desk.addEventListener("classes", () => Object.values(this.views).forEach((view) => view.bar.draw()));
    this.desk.addEventListener("state", () => this.#update());
    this.desk.addEventListener("sending", () => this.#update());
    document.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("visibilitychange", () => document.hidden || this.desk.renew());
    addEventListener("pagehide", () => this.desk.leave());
    addEventListener("pageshow", (event) => event.persisted && this.desk.comeBack());
    addEventListener("hashchange", () => this.#show());
    this.#show();
  }

  get view() {
    return this.views[this.name];
  }

  async run() {
    this.desk.outbox.flush();
    for (;;) {
      if (!document.hidden) await this.desk.look(true);
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }

  #show() {
    const wanted = location.hash.slice(1);
    const name = Object.hasOwn(VIEWS, wanted) ? wanted : (this.name ?? "label");
    if (name === this.name) return;
    this.name = name;
    document.getElementById("work").replaceChildren(this.view.element);
    document.body.dataset.view = name;
    if (name === "review") this.view.open();
    else this.desk.borrow(name === "grid");
    this.view.update();
    this.#update();
  }

  #update() {
    const { state } = this.desk;
    refresh(document.getElementById("views"), [this.name, state?.disagreements ?? 0], () =>
      Object.entries(VIEWS).map(([name, [title, key]]) =>
        h(
          "a",
          { href: `#${name}`, "aria-current": name === this.name ? "page" : null, "aria-keyshortcuts": key },
          title,
          name === "review" && state?.disagreements
            ? h("span", { class: "badge" }, String(state.disagreements))
            : null,
        ),
      ),
    );
    this.#sending();
    this.updatePanel();
    if (
      this.name === "review" &&
      state &&
      Math.min(state.disagreements, MOST_CASES) !== this.view.cases.length
    )
      this.view.open();
    if (!this.desk.items.length) this.view.update();
  }

  #tools() {
    const { name } = this.desk.session;
    this.status = h("button", { type: "button", class: "status", onclick: () => this.#explain() });
    const rename = async () => {
      const chosen = await askName(name);
      if (!chosen || chosen === name) return;
      await this.desk.giveBack();
      kept.set("name", chosen);
      location.reload();
    };
    document.getElementById("tools").replaceChildren(
      this.status,
      h(
        "button",
        {
          type: "button",
          class: "plain person",
          "aria-label": `Labelling as ${name}; change`,
          onclick: rename,
        },
        name,
      ),
      keyButton("Help", "?", () => this.help(), { class: "plain" }),
    );
  }

  /** Show the number of unsent labels, as text and colour. */
  #sending() {
    const { entries, refused, away } = this.desk.outbox;
    const gone = away || this.desk.away;
    const kind = refused.length ? "bad" : gone ? "away" : entries.length ? "busy" : "saved";
    const words = {
      bad: [`${count(refused.length, "label")} refused`],
      away: entries.length ? [`${entries.length} unsent`, ", server away"] : ["server away"],
      busy: [`sending ${entries.length}`],
      saved: ["all saved"],
    };
    this.status.className = `status ${kind}`;
    refresh(this.status, words[kind], ([short, more]) =>
      h("span", {}, short, more ? h("span", { class: "wide" }, more) : null),
    );
    if (kind !== this.sendingWas && (kind === "away" || this.sendingWas === "away"))
      notice(
        kind === "away" ? `${gone}. You can continue: labels are kept in this browser and sent later` : "The server is back",
        kind,
      );
    if (kind !== "busy") this.sendingWas = kind;
  }

  #explain() {
    const { entries, refused } = this.desk.outbox;
    this.desk.outbox.flush();
    if (refused.length) notice(`Refused: ${refused.at(-1).error}`, "bad");
    else
      notice(
        entries.length
          ? `${count(entries.length, "label")} kept in this browser; trying again now`
          : "All labels are saved on the server",
      );
  }

  /** Run undo requests one after the other, even if the key is pressed quickly. */
  undo() {
    this.undoing = (this.undoing ?? Promise.resolve()).then(() => this.#undoOne());
  }

  async #undoOne() {
    try {
      const { length } = await this.desk.undo();
      notice(
        length > 1
          ? `${count(length, "item")} undone`
          : length
            ? "Undone"
            : "There is nothing to undo",
      );
      this.desk.look();
    } catch (error) {
      notice(error.message, "bad");
    }
  }

  help() {
    showHelp(this.settings, this.desk.outbox.refused);
  }

  #key(event) {
    if (document.querySelector("dialog[open]") || event.defaultPrevented) return;
    if (isTyping(event.target)) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "a" && this.name === "grid")
      return (event.preventDefault(), this.view.selectAll());
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const single = event.key.length === 1 && event.key !== " ";
    if (single && !this.settings.keys && event.key !== "?") return;
    const ours = this.#global(event) || this.view.key(event);
    if (ours === true) event.preventDefault();
  }

  #global(event) {
    const view = Object.keys(VIEWS).find((name) => VIEWS[name][1] === event.key);
    if (view) return ((location.hash = view), true);
    if (event.key === "?") return (this.help(), true);
    if (event.key === "u") return (event.repeat || this.undo(), true);
    if (event.key === "Escape" && this.name === "review") return ((location.hash = "label"), true);
    return false;
  }
}

async function start() {
  let name = kept.get("name") ?? (await askName());
  for (;;) {
    try {
      const session = await begin(name);
      kept.set("name", name);
      return new App(arrange({ ...session, name: session.name ?? name })).run();
    } catch (error) {
      if (error instanceof Refused) {
        notice(error.message, "bad");
        name = await askName();
        continue;
      }
      notice(`${error.message}; trying again`, "away");
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

start();
