// Queue of unsent labels and skips. Each stays in localStorage until the server acknowledges it,
// so it survives a reload and a server outage.

import { post, Refused } from "./api.js";
import { kept, removedElsewhere } from "./kept.js";

const FIRST_WAIT = 500,
  LONGEST_WAIT = 8000; // milliseconds between retries
const MOST_AT_ONCE = 200;

export class Outbox extends EventTarget {
  /** `wanted()` returns the number of items to lease; `accepted(answer, run)` receives them. */
  constructor(campaign, name, wanted, accepted) {
    super();
    this.prefix = `unsent/${campaign}/${name}/`;
    this.wanted = wanted;
    this.accepted = accepted;
    this.entries = stored(this.prefix);
    this.flying = [];
    this.refused = [];
    this.wait = FIRST_WAIT;
    this.away = "";
    this.serial = 0;
    this.own = Math.random().toString(36).slice(2, 8);
    addEventListener("storage", (event) => this.#elsewhere(event));
    addEventListener("online", () => this.flush());
    addEventListener("pageshow", () => this.flush());
  }

  get ids() {
    return new Set(this.entries.map((entry) => entry.id));
  }

  /** Store an entry {kind: "label" | "skip", id, ...} and send it as soon as possible. */
  add(entry) {
    const key = `${this.prefix}${String(Date.now()).padStart(15, "0")}-${String(++this.serial).padStart(6, "0")}-${this.own}`;
    this.entries.push({ ...entry, key });
    kept.set(key, JSON.stringify(entry));
    this.flush();
  }

  /** Remove the newest entry of an item; false if it was sent or is being sent. */
  take(id) {
    const entry = this.entries.findLast((one) => one.id === id);
    if (!entry || this.flying.includes(entry)) return false;
    this.#forget([entry]);
    return true;
  }

  /** Send all entries, unless a request is already running. */
  flush() {
    clearTimeout(this.timer);
    this.sending ??= this.#sendAll().finally(() => {
      this.sending = undefined;
    });
    this.#changed();
    return this.sending;
  }

  /** When the page is left: send all other entries at once. Failed ones wait for the next visit. */
  sendLast() {
    const flying = new Set(this.flying.map((entry) => entry.id));
    const waiting = this.entries.filter((entry) => !flying.has(entry.id));
    const last = [...new Map(waiting.map((entry) => [entry.id, entry])).values()];
    const labels = last.filter((entry) => entry.kind === "label");
    const runs = last.filter((entry) => entry.kind === "skip").map((entry) => [entry]);
    while (labels.length) runs.push(labels.splice(0, MOST_AT_ONCE));
    for (const run of runs) {
      const ids = new Set(run.map((entry) => entry.id));
      const sent = () => this.#forget(waiting.filter((entry) => ids.has(entry.id)));
      request(run, 0).then(sent, () => {});
    }
  }

  async #sendAll() {
    await null; // sends labels of the same event-loop turn together
    while (this.entries.length) {
      this.flying = this.#nextRun();
      try {
        await this.#send(this.flying);
        this.away = "";
        this.wait = FIRST_WAIT;
      } catch (error) {
        if (!(error instanceof Refused)) return this.#later(error);
        await this.#sortOut(this.flying, error);
      } finally {
        this.flying = [];
        this.#changed();
      }
    }
  }

  /** The entries of the next request: labels of different items, or one skip. */
  #nextRun() {
    const seen = new Set();
    const fits = ({ kind, id }) =>
      kind === "label" && seen.size < MOST_AT_ONCE && !seen.has(id) && seen.add(id);
    const end = this.entries.findIndex((entry) => !fits(entry));
    return this.entries.slice(0, end < 0 ? undefined : Math.max(end, 1));
  }

  async #send(run) {
    const answer = await request(run, this.wanted());
    this.#forget(run);
    this.accepted(answer, run);
  }

  /** After a refusal: send the entries one by one and collect the refused ones. */
  async #sortOut(run, error) {
    if (run.length === 1) {
      this.refused.push({ ...run[0], error: error.message });
      return this.#forget(run);
    }
    for (const entry of run) {
      try {
        await this.#send([entry]);
      } catch (error) {
        if (!(error instanceof Refused)) return;
        this.refused.push({ ...entry, error: error.message });
        this.#forget([entry]);
      }
    }
  }

  #later(error) {
    this.away = error.message;
    this.timer = setTimeout(() => this.flush(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  #forget(entries) {
    for (const entry of entries) kept.remove(entry.key);
    this.entries = this.entries.filter((entry) => !entries.includes(entry));
    this.#changed();
  }

  /** Another page of this browser has sent or undone an entry. */
  #elsewhere(event) {
    const key = removedElsewhere(event);
    if (!key?.startsWith(this.prefix)) return;
    this.entries = this.entries.filter((entry) => entry.key !== key || this.flying.includes(entry));
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Send labels of different items, or one skip, and lease the next items. */
function request(run, lend) {
  const [{ kind, id, reason }] = run;
  if (kind === "skip") return post("/api/skip", { id, reason, lend });
  const labels = run.map(({ id, label, seconds, suggested }) => ({ id, label, seconds, suggested }));
  return post("/api/labels", { labels, lend });
}

function stored(prefix) {
  return kept.names(prefix).flatMap((key) => {
    const entry = kept.read(key, null);
    return entry ? [{ ...entry, key }] : [];
  });
}
