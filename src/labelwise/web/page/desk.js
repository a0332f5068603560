// The annotator's desk: the items borrowed from the server, what was done with them, and undo.

import { Away, get, post, renamePage } from "./api.js";
import { addClasses } from "./free_classes.js";
import { loadPicture } from "./item.js";
import { Outbox } from "./outbox.js";

const AHEAD = 10; // items borrowed ahead, their pictures loaded: enough to go on while the server is away
const AHEAD_IN_GRID = 40;
const LONG_LOOK = 5; // seconds that the server may keep us waiting for news
const MOST_NAMED = 1000; // answers on their way that the server takes note of when we leave
const FRESH = 30000; // for so long (ms) an answer of the server may still name an item that is done

export class Desk extends EventTarget {
  constructor(session) {
    super();
    this.session = session;
    this.lendSeconds = session.lend_seconds;
    this.items = [];
    this.grid = false;
    this.visit = 0; // counts how often the page came back after it was left
    this.ahead = this.#wanted(false);
    this.done = new Map(); // id -> when
    this.past = []; // groups of items labelled or skipped together, for undo
    this.state = null;
    this.news = []; // [length of the record, labels in it] of answers newer than the state
    this.outbox = new Outbox(
      session.id,
      session.name,
      () => {
        this.sentIn = this.visit; // one call at a time carries labels
        return this.ahead;
      },
      (answer, run) => this.#accepted(answer, run),
    );
    this.outbox.addEventListener("change", () => this.dispatchEvent(new Event("sending")));
  }

  get current() {
    return this.items[0] ?? null;
  }

  /** Labels that the state does not count yet, so that progress moves with every key. */
  get counted() {
    return this.news.reduce((sum, [, labels]) => sum + labels, this.outbox.entries.length);
  }

  /** One person borrows no more than a quarter of a batch ahead, or others would find none left. */
  #wanted(grid) {
    return grid ? AHEAD_IN_GRID : Math.max(2, Math.min(AHEAD, Math.ceil(this.session.batch / 4)));
  }

  /** Borrow as many items as the grid or the single view wants; what is too many goes back. */
  async borrow(grid = this.grid) {
    if (this.left) return;
    this.grid = grid;
    this.ahead = this.#wanted(grid);
    const { visit } = this;
    const surplus = this.items.splice(this.ahead).map((item) => item.id);
    try {
      if (surplus.length) await post("/api/return", { ids: surplus });
      const { items } = await post("/api/lend", { count: this.ahead });
      if (visit === this.visit) this.receive(items); // else it was lent to the page that was left
      this.#reached();
    } catch (error) {
      this.#missed(error);
    }
  }

  #accepted({ items, length }, run) {
    this.news.push([length, run.length]);
    if (this.sentIn === this.visit) this.receive(items);
  }

  /** Take in what the server lends: items we hold already stay where they are. */
  receive(items) {
    const now = Date.now();
    const until = now + 1000 * this.lendSeconds;
    const lent = new Set(items.map((item) => item.id));
    for (const item of this.items) if (lent.has(item.id)) item.until = until;
    // What the server no longer lends us may be with someone else; only the item in sight stays.
    const ours = (item) => lent.has(item.id) || (items.length === this.ahead && item.until > now);
    this.items = this.items.filter((item, place) => place === 0 || ours(item));
    const known = new Set([...this.items.map((item) => item.id), ...this.outbox.ids]);
    for (const item of items) {
      if (known.has(item.id) || now - (this.done.get(item.id) ?? 0) < FRESH) continue;
      if (item.image) item.picture = loadPicture(item);
      this.items.push(Object.assign(item, { until }));
    }
    this.#changed();
  }

  /** Label some items alike; `seconds` is the time each took. */
  label(items, label, seconds) {
    this.#finish(items, (item) => ({
      kind: "label",
      id: item.id,
      label,
      seconds: Math.round(1000 * seconds) / 1000,
    }));
  }

  skip(items, reason) {
    this.#finish(items, (item) => ({ kind: "skip", id: item.id, reason }));
  }

  #finish(items, entry) {
    const gone = new Set(items);
    this.items = this.items.filter((item) => !gone.has(item));
    this.past.push(items);
    this.#changed(); // first the next item, then the message to the server
    for (const item of items) {
      this.done.set(item.id, Date.now());
      delete item.picture; // so that a long day does not fill the memory
    }
    for (const item of items) this.outbox.add(entry(item));
    if (this.items.length < this.ahead / 2)
      this.outbox.flush().then(() => this.items.length || this.borrow());
  }

  /** Note that a disagreement was settled, which undo takes back like a label. */
  settled(item) {
    this.past.push({ settled: item });
  }

  /** Take the last label, skip or group of them back; returns the items, first one first. */
  async undo() {
    const group = this.past.at(-1);
    if (!group) return this.#undoUnknown();
    return group.settled ? this.#withdrawSettled(group) : this.#withdrawGroup([...group]);
  }

  async #withdrawSettled({ settled }) {
    const item = await this.#withdraw();
    this.past.pop();
    return item ? [settled] : [];
  }

  /** The newest of the group first; what could not be taken back stays for another try. */
  async #withdrawGroup(group) {
    const back = [];
    this.past.pop();
    try {
      while (group.length) {
        const again = this.outbox.take(group.at(-1).id) ? group.at(-1) : await this.#withdraw();
        group.pop();
        if (again) back.unshift(again);
      }
    } finally {
      if (group.length) this.past.push(group);
      this.#putBack(back);
    }
    return back;
  }

  /** What was done before this page was loaded: ask the server, and see whether the item is lent. */
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

  /** Fetch how the campaign stands; with `wait`, when it is no longer as we know it. */
  async look(wait = false) {
    try {
      const known = wait && this.state ? `?since=${this.state.version}&wait=${LONG_LOOK}` : "";
      const state = await get(`/api/state${known}`);
      const grown = state.length !== this.state?.length;
      this.state = state;
      this.news = this.news.filter(([length]) => length > state.length);
      this.#reached();
      this.dispatchEvent(new Event("state"));
      if (grown && this.session.free) await this.#learnClasses();
      // Leases of others expire without an event, so a waiting page asks again and again.
      if (!this.items.length && (grown || state.batch?.waiting)) await this.borrow();
    } catch (error) {
      this.#missed(error);
    }
  }

  /** After a long absence all leases have expired, that of the shown item too: lease new items. */
  async renew() {
    const now = Date.now();
    if (this.items.some((item) => item.until > now)) return;
    this.items = [];
    await this.borrow();
  }

  classesChanged() {
    this.dispatchEvent(new Event("classes"));
  }

  /** Where people name the classes themselves, learn of those that others added. */
  async #learnClasses() {
    const { classes } = await get(`/api/session?name=${encodeURIComponent(this.session.name)}`);
    if (addClasses(this.session, classes)) this.classesChanged();
  }

  async giveBack() {
    await this.outbox.flush();
    await post("/api/return", { ids: this.items.map((item) => item.id) }).catch(() => {});
  }

  /** The page is closed or left: others get at once what is not done, and answers are sent. */
  leave() {
    this.left = true;
    const ids = this.items.map((item) => item.id);
    const answered = [...this.outbox.ids];
    this.outbox.sendLast();
    post("/api/leave", { ids, answered: answered.slice(-MOST_NAMED) }).catch(() => {});
  }

  /** The browser had kept the page, and shows it again: what it held may be with others now. */
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
