// Message shown while there is nothing to label.

import { announce, count, h, refresh } from "./dom.js";
import { trainingNote } from "./panel.js";

/** Show in an element why there is no item. */
export function waiting(element, desk) {
  const { state } = desk;
  const unsent = desk.outbox.entries.length;
  refresh(element, [desk.away, unsent, state?.batch, state?.training, state?.labelled, state?.items], () => {
    const [title, text] = words(desk, state, unsent);
    if (element.said !== title) announce(`${title}. ${text}`); // only once
    element.said = title;
    return h(
      "div",
      { class: "waiting" },
      h("h2", {}, title),
      h("p", {}, text),
      state && !desk.away ? trainingNote(desk, state.training, !state.batch?.waiting) : null,
    );
  });
}

/** Reset an element that shows items again, so that the next message is announced. */
export function waitIsOver(element) {
  delete element.shown;
  delete element.said;
}

function words(desk, state, unsent) {
  if (desk.away) {
    const kept = unsent
      ? `${count(unsent, "label")} kept in this browser and sent as soon as the server answers. `
      : "";
    return ["The server does not answer", `${kept}Retrying automatically.`];
  }
  if (!state) return ["One moment", "Loading the first items."];
  if (state.items && state.labelled + state.skipped >= state.items)
    return ["Every item is done", "There is nothing left to label in this pool."];
  if (state.batch?.waiting)
    return [
      "Nothing left for you at the moment",
      `The last ${count(state.batch.waiting, "item")} of this batch ${state.batch.waiting === 1 ? "is" : "are"} with other people. The next batch appears here automatically.`,
    ];
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
