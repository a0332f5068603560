// Review view: one disagreement at a time, with all votes; a class resolves it.

import { get, post } from "./api.js";
import { ClassBar } from "./class_bar.js";
import { html, KeyButton, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { describeItem, FullItem, loadPicture } from "./item.js";
import { useShortcuts } from "./keys.js";
import { announce, notice } from "./messages.js";

const MOST_CASES = 100; // fetched per request

export function ReviewView({ desk, undo }) {
  const [cases, setCases] = useState([]);
  const busy = useRef(false);
  const [first] = cases;
  const open = Math.min(desk.state?.disagreements ?? 0, MOST_CASES);

  /** Fetch the disagreements; postponed ones stay at the end. */
  const load = async () => {
    try {
      const found = await get(`/api/disagreements?limit=${MOST_CASES}`);
      for (const { item } of found.slice(0, 10)) if (item.image) item.picture = loadPicture(item);
      setCases((known) => {
        const order = known.map((one) => one.id);
        const kept = new Map(known.map((one) => [one.id, one]));
        return found
          .map((one) => ({ ...(kept.get(one.id) ?? one), votes: one.votes }))
          .sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
      });
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  useEffect(() => {
    load();
  }, [open]);
  useLayoutEffect(() => {
    if (!first) return;
    const votes = first.votes.map((vote) => `${vote.by}: ${desk.nameClass(vote.label)}`).join(", ");
    announce(`${cases.length} to resolve. ${describeItem(first.item)}. ${votes}`);
  }, [first?.id]);

  const resolve = async (value, name) => {
    if (!first || busy.current) return;
    busy.current = true;
    try {
      await post("/api/resolve", { id: first.id, label: value });
      setCases((known) => known.filter((one) => one.id !== first.id));
      desk.settled(first.item);
      notice(`Resolved as ${name}`);
      desk.look();
    } catch (error) {
      notice(error.message, "bad");
    } finally {
      busy.current = false;
    }
  };
  const postpone = () => setCases(([now, ...others]) => (now ? [...others, now] : []));
  useShortcuts(({ key }) => key === "s" && (postpone(), true));

  return html`<div class="one review${first ? "" : " empty"}">
    <div class="stage" data-item=${first?.id}>
      ${first
        ? html`<${FullItem} key=${first.id} item=${first.item} numbers=${desk.session.regression} />`
        : html`<div class="waiting">
            <h2>No disagreements</h2>
            <p>Items that people label differently appear here, so that you can resolve them.</p>
          </div>`}
    </div>
    <div class="about">
      <ul class="votes" aria-label="Votes">
        ${first?.votes.map(
          (vote) =>
            html`<li>
              <strong>${desk.nameClass(vote.label)}</strong>
              <span class="soft">${vote.by || "without a name"}</span>
            </li>`,
        )}
      </ul>
    </div>
    <${ClassBar} desk=${desk} choose=${resolve} />
    <div class="actions" role="group" aria-label="Actions">
      <${KeyButton} text="Undo" keys="u" onclick=${undo} />
      <${KeyButton} text="Leave for later" keys="s" onclick=${postpone} />
    </div>
  </div>`;
}
