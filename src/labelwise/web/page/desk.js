// The annotator's desk: leased items, their answers, and undo.

import { Away, get, post, renamePage } from "./api.js";
import { addClasses } from "./free_classes.js";
import { loadPicture } from "./item.js";
import { Outbox } from "./outbox.js";

const AHEAD = 10; // items leased ahead, with pictures loaded, to bridge a server outage
const LONG_LOOK = 5; // longest wait for a state change, in seconds
const MOST_NAMED = 1000; // largest number of unsent answers reported when the page closes
const FRESH = 30000; // milliseconds during which a late response may still contain a finished item

export class Desk extends EventTarget {
  constructor(session) {
    super();
    this.session = session;
    this.lendSeconds = session.lend_seconds;
    this.items = [];
    this.grid = false;
    this.screenful = 8; // number of tiles that the grid shows without scrolling
    this.confirm = false; // whether predictions are preselected
    this.visit = 0; // number of times the page was restored after it was left
    this.ahead = this.#wanted(false);
    this.done = new Map(); // id -> time
    this.past = []; // groups of items labelled or skipped together, for undo
    this.state = null;
    this.held = null;
    this.news = []; // [record length, number of labels] of responses newer than the state
    this.outbox = new Outbox(
      session.id,
      session.name,
      () => {
        this.sentIn = this.visit; // only one request with labels runs at a time
        return this.ahead;
      },
      (answer, run) => this.#accepted(answer, run),
    );
    this.outbox.addEventListener("change", () => this.dispatchEvent(new Event("sending")));
  }

  get current() {
    return this.items[0] ?? null;
  }

  /** The name of a class by its value. */
  nameClass(label) {
    return String(this.session.classes.find((one) => one.value === label)?.name ?? label);
  }

  /** Number of labels that the state does not include yet; added to the progress display. */
  get counted() {
    return this.news.reduce((sum, [, labels]) => sum + labels, this.outbox.entries.length);
  }

  /** Number of items to lease ahead; in the single view, about a quarter of a batch at most. */
  #wanted(grid) {
    return grid ? this.screenful : Math.max(2, Math.min(AHEAD, Math.ceil(this.session.batch / 4)));
  }

  /** Lease as many items as the view needs, and return surplus items. */
  async borrow(grid = this.grid) {
    if (this.left) return;
    this.grid = grid;
    this.ahead = this.#wanted(grid);
    const { visit } = this;
    const surplus = this.items.splice(this.ahead).map((item) => item.id);
    try {
      if (surplus.length) await post("/api/return", { ids: surplus });
      const { items, held } = await post("/api/lend", { count: this.ahead });
      this.held = held; // who has the other items, if there is none for us
      if (visit === this.visit) this.receive(items); // not for a previous visit
      this.#reached();
    } catch (error) {
      this.#missed(error);
    }
  }

  #accepted({ items, length }, run) {
    this.news.push([length, run.length]);
    if (this.sentIn === this.visit) this.receive(items);
  }

  /** Add leased items; items that the page already holds keep their positions. */
  receive(items) {
    const now = Date.now();
    const until = now + 1000 * this.lendSeconds;
    const lent = new Set(items.map((item) => item.id));
    for (const item of this.items) if (lent.has(item.id)) item.until = until;
    // Items without a lease may be leased to others: drop them, except for the visible item.
    const ours = (item) => lent.has(item.id) || (items.length === this.ahead && item.until > now);
    this.items = this.items.filter((item, place) => place === 0 || ours(item));
    const known = new Set([...this.items.map((item) => item.id), ...this.outbox.ids]);
    for (const item of items) {
      if (known.has(item.id) || now - (this.done.get(item.id) ?? 0) < FRESH) continue;
      if (item.image) item.picture = loadPicture(item);
      this.items.push(Object.assign(item, { until }));
    }
    this.#changed();
    if (this.confirm) this.#loadSuggestions().catch(() => {});
  }

  /** Switch confirm mode; throws the reason if the model is not accurate enough. */
  async setConfirm(on) {
    this.confirm = on;
    if (on) await this.#loadSuggestions();
    this.#changed();
  }

  async #loadSuggestions() {
    const unknown = this.items.filter((item) => item.suggestion === undefined);
    if (!unknown.length && this.items.length) return;
    const ids = unknown.length ? unknown.map((item) => item.id) : [0];
    const { allowed, says, suggestions } = await get(`/api/suggestions?ids=${ids.slice(0, 100)}`);
    if (!allowed) {
      this.confirm = false;
      throw new Error(says);
    }
    const found = new Map(suggestions.map((one) => [one.id, one]));
    for (const item of unknown) item.suggestion = found.get(item.id) ?? null; // null: choose yourself
    this.#changed();
  }

  /** Label some items alike; `seconds` is the time each took. */
  label(items, label, seconds) {
    this.#finish(items, (item) => ({
      kind: "label",
      id: item.id,
      label,
      suggested: this.confirm ? item.suggestion?.label : undefined,
      seconds: Math.round(1000 * seconds) / 1000,
    }));
  }

  /** Show the current item again after the others. */
  postpone() {
    if (this.items.length < 2) return false;
    this.items = [...this.items.slice(1), this.items[0]];
    this.#changed();
    return true;
  }

  skip(items, reason) {
    this.#finish(items, (item) => ({ kind: "skip", id: item.id, reason }));
  }

  #finish(items, entry) {
    const gone = new Set(items);
    this.items = this.items.filter((item) => !gone.has(item));
    this.past.push(items);
    this.#changed(); // show the next item before sending
    for (const item of items) {
      this.done.set(item.id, Date.now());
      delete item.picture; // free the memory
    }
    for (const item of items) this.outbox.add(entry(item));
    if (this.items.length < this.ahead / 2)
      this.outbox.flush().then(() => this.items.length || this.borrow());
  }

  /** Add a resolved disagreement to the undo history. */
  settled(item) {
    this.past.push({ settled: [item] });
  }

  /** After labels in the items view: remove the items here, and let undo withdraw all labels. */
  relabelled(rows) {
    const ids = new Set(rows.map((row) => row.id));
    this.items = this.items.filter((item) => !ids.has(item.id));
    this.past.push({ settled: [...rows] });
    this.#changed();
    this.look();
  }

  /** Undo the last label, skip or group; returns the items in their original order. */
  async undo() {
    const group = this.past.at(-1);
    if (!group) return this.#undoUnknown();
    return group.settled ? this.#withdrawSettled(group) : this.#withdrawGroup([...group]);
  }

  /** Undo labels that the server has already; what fails stays in the history. */
  async #withdrawSettled(group) {
    const back = [];
    while (group.settled.length) {
      const item = await this.#withdraw();
      const one = group.settled.pop();
      if (item) back.push(one);
    }
    this.past.pop();
    return back;
  }

  /** Undo a group, newest item first; items that fail stay in the history. */
  async #withdrawGroup(group) {
    const back = [];
    this.past.pop();
    try {
      while (group.length) {
        const { id } = group.at(-1);
        let unsent = this.outbox.take(id);
        if (!unsent && this.outbox.ids.has(id)) {
          await this.outbox.flush(); // it is on its way; a server that is away does not get it
          unsent = this.outbox.take(id);
        }
        const again = unsent ? group.at(-1) : await this.#withdraw();
        group.pop();
        if (again) back.unshift(again);
      }
    } finally {
      if (group.length) this.past.push(group);
      this.#putBack(back);
    }
    return back;
  }

  /** Undo an action from before this page was loaded; show the item if it is leased to us. */
  async #undoUnknown() {
    const item = await this.#withdraw();
    if (!item) return [];
    const { items } = await post("/api/lend", { count: this.ahead });
    if (items.some((one) => one.id === item.id)) this.#putBack([item]);
    return [item];
  }

  #putBack(back) {
    for (const item of back) {
      this.done.delete(item.id);
      item.until = Date.now() + 1000 * this.lendSeconds;
      if (item.image) item.picture = loadPicture(item);
    }
    const ids = new Set(back.map((item) => item.id));
    this.items = [...back, ...this.items.filter((item) => !ids.has(item.id))];
    this.#changed();
  }

  async #withdraw() {
    await this.outbox.flush();
    if (this.outbox.entries.length)
      throw new Away("the server does not answer; labels that were sent can be undone when it is back");
    return (await post("/api/undo")).item;
  }

  /** Fetch the state of the campaign; with `wait`, the server responds when it changes. */
  async look(wait = false) {
    try {
      const known = wait && this.state ? `?since=${this.state.version}&wait=${LONG_LOOK}` : "";
      const state = await get(`/api/state${known}`);
      const grown = state.length !== this.state?.length;
      this.state = state;
      this.news = this.news.filter(([length]) => length > state.length);
      this.#reached();
      this.dispatchEvent(new Event("state"));
      const before = this.settings;
      this.settings = state.settings;
      const changed = before !== undefined && before !== state.settings;
      if ((grown && this.session.free) || changed) await this.learnClasses();
      // Leases of others expire without an event, so a page without items keeps asking.
      if (!this.items.length && (grown || state.batch?.waiting)) await this.borrow();
    } catch (error) {
      this.#missed(error);
    }
  }

  /** Lease new items if all leases have expired, as after a long absence. */
  async renew() {
    const now = Date.now();
    if (this.items.some((item) => item.until > now)) return;
    this.items = [];
    await this.borrow();
  }

  classesChanged() {
    this.dispatchEvent(new Event("classes"));
  }

  /** Fetch classes that were added, renamed or described. */
  async learnClasses() {
    const { session } = this;
    const { classes } = await get(`/api/session?name=${encodeURIComponent(session.name)}`);
    if (session.free) {
      const texts = new Map(classes.map((one) => [one.name, one.description]));
      for (const one of session.classes) one.description = texts.get(one.name) ?? one.description;
      addClasses(session, classes);
    } else session.classes = classes;
    this.classesChanged();
  }

  async giveBack() {
    await this.outbox.flush();
    await post("/api/return", { ids: this.items.map((item) => item.id) }).catch(() => {});
  }

  /** When the page is closed or left: send answers and return all other items. */
  leave() {
    this.left = true;
    const ids = this.items.map((item) => item.id);
    const answered = [...this.outbox.ids];
    this.outbox.sendLast();
    post("/api/leave", { ids, answered: answered.slice(-MOST_NAMED) }).catch(() => {});
  }

  /** When the browser restores the page: lease again, since others may have its items. */
  async comeBack() {
    this.left = false;
    this.visit += 1;
    renamePage();
    this.items = [];
    this.#changed();
    await this.borrow();
  }

  #reached() {
    if (!this.away) return;
    this.away = "";
    this.outbox.flush();
  }

  #missed(error) {
    this.away = error.message;
    this.dispatchEvent(new Event("sending"));
  }

  #changed() {
    this.dispatchEvent(new Event("items"));
  }
}
