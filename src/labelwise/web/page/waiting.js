// Message shown while there is nothing to label.

import { count } from "./format.js";
import { html, useEffect } from "./html.js";
import { announce } from "./messages.js";
import { TrainingNote } from "./panel.js";

/** Why there is no item, and what happens next. */
export function Waiting({ desk }) {
  const { state } = desk;
  const [title, text] = explainWait(desk);
  useEffect(() => announce(`${title}. ${text}`), [title]);
  return html`<div class="waiting">
    <h2>${title}</h2>
    <p>${text}</p>
    ${state && !desk.away ? html`<${TrainingNote} desk=${desk} offer=${!state.batch?.waiting} />` : null}
  </div>`;
}

function explainWait({ state, away, outbox, counted, held }) {
  const unsent = outbox.entries.length;
  if (away) {
    const kept = unsent
      ? `${count(unsent, "label")} kept in this browser and sent as soon as the server answers. `
      : "";
    return ["The server does not answer", `${kept}Retrying automatically.`];
  }
  if (!state) return ["One moment", "Loading the first items."];
  const waiting = (state.batch?.waiting ?? 0) - counted; // the state may be older than our labels
  if (state.items && state.labelled + state.skipped >= state.items)
    return ["Every item is done", "There is nothing left to label in this pool."];
  if (waiting > 0 && held?.others)
    return [
      "Nothing left for you at the moment",
      `The last ${count(held.others, "item")} of this batch ${held.others === 1 ? "is" : "are"} with other people. The next batch appears here automatically.`,
    ];
  if (waiting > 0 && held?.answered)
    return [
      "You have labelled all items of this batch",
      `${count(held.answered, "item")} still ${held.answered === 1 ? "needs" : "need"} a label from another person.`,
    ];
  if (waiting > 0) return ["One moment", "Loading the next items."];
  if (state.training.running)
    return [`Batch ${state.batch?.number ?? ""} is complete`, "The next one appears here automatically."];
  if (state.training.error)
    return ["The next batch could not be selected", "All labels are saved. Read the reason, then try again."];
  return [
    state.batch ? `Batch ${state.batch.number} is complete` : "No batch yet",
    state.training.trains === false
      ? "This server does not train. Run labelwise train and labelwise ask; the items then appear here."
      : "Training starts automatically; the next batch appears here.",
  ];
}
