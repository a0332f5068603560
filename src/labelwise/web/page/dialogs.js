// The dialogs: the annotator's name, the reason for a skip, and the help.

import { cap, count, h } from "./dom.js";

const REASONS = ["unclear", "none of the classes", "several classes", "broken item"];

/** Open a dialog; resolves to the value passed to `finish`, or null if it is cancelled. */
function ask(title, build, { optional = true } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const finish = (answer) => {
      resolve(answer);
      dialog.close();
    };
    const close = h(
      "button",
      { type: "button", class: "plain", "aria-label": "Close", onclick: () => finish(null) },
      "✕",
    );
    const head = h("div", { class: "head" }, h("h2", { id: "dialog-title" }, title), optional ? close : null);
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, head, build(finish));
    dialog.addEventListener("cancel", (event) => optional || event.preventDefault());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
      before?.focus?.();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask for the annotator's name. */
export function askName(current = "") {
  return ask(
    "Who is labelling?",
    (finish) => {
      const field = h("input", {
        value: current,
        autocomplete: "name",
        maxlength: "80",
        required: true,
        autofocus: true,
        "aria-label": "Your name",
      });
      const submit = (event) => {
        event.preventDefault();
        if (field.value.trim()) finish(field.value.trim());
      };
      return h(
        "form",
        { class: "body", onsubmit: submit },
        h(
          "p",
          {},
          "Your labels are stored under this name, so that labels of different people can be compared.",
        ),
        field,
        h("button", { type: "submit", class: "main" }, "Start labelling"),
      );
    },
    { optional: Boolean(current) },
  );
}

/** Ask for the reason of a skip; "" for no reason, null if the skip is cancelled. */
export function askReason() {
  return ask("Why skip this item?", (finish) => {
    const field = h("input", {
      placeholder: "Another reason, or none",
      "aria-label": "Another reason",
      maxlength: "1000",
      autocomplete: "off",
    });
    const buttons = REASONS.map((reason, index) =>
      h(
        "button",
        {
          type: "button",
          class: "choice",
          autofocus: index === 0,
          "aria-keyshortcuts": String(index + 1),
          onclick: () => finish(reason),
        },
        cap(String(index + 1)),
        h("span", {}, reason),
      ),
    );
    const body = h(
      "form",
      { class: "body", onsubmit: (event) => (event.preventDefault(), finish(field.value.trim())) },
      h("div", { class: "reasons", role: "group", "aria-label": "Reasons" }, buttons),
      field,
      h("button", { type: "submit", class: "main" }, "Skip"),
    );
    body.addEventListener("keydown", (event) => {
      const chosen = REASONS[Number(event.key) - 1];
      if (event.target !== field && chosen) (event.preventDefault(), finish(chosen));
    });
    return body;
  });
}

const HELP = [
  ["1 – 9, 0, letters", "label with the class of that key"],
  ["← → ↑ ↓", "move along the classes"],
  ["Enter", "label with the selected class"],
  ["/", "find a class by name, where there are many"],
  ["u", "undo the last label or skip"],
  ["s", "skip the item, with a reason"],
  ["m", "show the model's guess (hidden by default, because it influences how people label)"],
  ["l  g  r", "one item at a time, grid, review"],
  ["?", "this help"],
];
const GRID_HELP = [
  ["Space", "select or deselect the current item"],
  ["Shift + arrows or click", "select a range of items"],
  ["Ctrl + a", "select all; Escape selects none"],
  ["a class's key", "label all selected items"],
];

/** Show all keys. Single-key shortcuts can be disabled, for users of speech input. */
export function showHelp(settings, refused) {
  return ask("Keys", () => {
    const box = h("input", {
      type: "checkbox",
      checked: settings.keys,
      onchange: () => settings.setKeys(box.checked),
    });
    return h(
      "div",
      { class: "body" },
      keyTable(HELP),
      h("h3", {}, "In the grid"),
      keyTable(GRID_HELP),
      h("label", { class: "switch" }, box, "Use single-key shortcuts"),
      h(
        "p",
        { class: "soft" },
        "Labels are kept in this browser until the server has them; closing the page or losing the network loses nothing.",
      ),
      refused.length
        ? h("p", { class: "bad" }, `${count(refused.length, "label")} refused: ${refused.at(-1).error}`)
        : null,
    );
  });
}

function keyTable(rows) {
  return h(
    "table",
    { class: "keys" },
    h(
      "tbody",
      {},
      rows.map(([key, what]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, cap(key), h("span", { class: "unseen" }, key)),
          h("td", {}, what),
        ),
      ),
    ),
  );
}
