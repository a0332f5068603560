// Rows of the items list, fetched in blocks as they come into view.

import { get } from "./api.js";

const BLOCK = 100;

export class RowSource extends EventTarget {
  constructor() {
    super();
    this.path = "";
    this.total = null; // null until the first answer
    this.blocks = new Map(); // number -> rows
    this.asked = new Set(); // numbers of blocks on their way
    this.error = "";
  }

  /** List other items, by URL parameters; the old rows stay until the first new ones arrive. */
  list(query) {
    this.path = `/api/items?${query}`;
    return this.reload();
  }

  /** The ids of a range of rows, both ends included. */
  async ids(first, last) {
    const ids = [];
    for (let at = first; at <= last; at += 1) {
      if (!this.row(at)) await this.#fetch(Math.floor(at / BLOCK));
      if (this.row(at)) ids.push(this.row(at).id);
    }
    return ids;
  }

  /** Fetch the rows again, beginning with the block in view. */
  reload(first = 0) {
    this.asked = new Set();
    return this.#fetch(Math.floor(first / BLOCK), true);
  }

  row(place) {
    return this.blocks.get(Math.floor(place / BLOCK))?.[place % BLOCK];
  }

  /** Fetch the blocks of rows that come into view. */
  need(first, last) {
    for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block += 1)
      if (!this.blocks.has(block) && !this.asked.has(block) && block * BLOCK < this.total) this.#fetch(block);
  }

  async #fetch(block, fresh = false) {
    const { asked, path } = this;
    asked.add(block);
    try {
      const { total, rows } = await get(`${path}&offset=${block * BLOCK}&limit=${BLOCK}`);
      if (asked !== this.asked) return; // another list has been asked for
      if (fresh) this.blocks = new Map();
      this.blocks.set(block, rows);
      this.total = total;
      this.error = "";
    } catch (error) {
      if (asked !== this.asked) return;
      this.error = error.message;
      asked.delete(block);
    }
    this.dispatchEvent(new Event("change"));
  }
}
