// Dialogs: a title, a body, and a promise of the answer.

import { html, Key, render, useRef } from "./html.js";

/** Open a dialog; resolves to the value passed to `finish`, or null if it is cancelled. */
export function openDialog(title, Body, { optional = true, wide = false } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", "dialog-title");
    dialog.classList.toggle("wide-dialog", wide);
    const finish = (answer) => {
      resolve(answer);
      dialog.close();
    };
    dialog.addEventListener("cancel", (event) => optional || event.preventDefault());
    dialog.addEventListener("close", () => {
      render(null, dialog);
      dialog.remove();
      resolve(null);
      before?.focus?.();
    });
    document.body.append(dialog);
    const close = html`<button type="button" class="plain" aria-label="Close" onclick=${() => finish(null)}>✕</button>`;
    render(
      html`<div class="head"><h2 id="dialog-title">${title}</h2>${optional ? close : null}</div>
        <${Body} finish=${finish} />`,
      dialog,
    );
    dialog.showModal();
  });
}

/** Ask for the annotator's name. */
export function askName(current = "") {
  const Body = ({ finish }) => {
    const field = useRef();
    const submit = (event) => {
      event.preventDefault();
      if (field.current.value.trim()) finish(field.current.value.trim());
    };
    return html`<form class="body" onsubmit=${submit}>
      <p>Your labels are stored under this name, so that labels of different people can be compared.</p>
      <input ref=${field} defaultValue=${current} autocomplete="name" maxlength="80" required autofocus aria-label="Your name" />
      <button type="submit" class="main">Start labelling</button>
    </form>`;
  };
  return openDialog("Who is labelling?", Body, { optional: Boolean(current) });
}

/** Ask for a note about an item; "" removes it, null if it is cancelled. */
export function askNote() {
  const Body = ({ finish }) => {
    const field = useRef();
    return html`<form class="body" onsubmit=${(event) => (event.preventDefault(), finish(field.current.value.trim()))}>
      <p class="soft">Notes are listed under Items. Label the item as well, or skip it.</p>
      <input ref=${field} aria-label="Note" placeholder="For example: unsure, or look at this again" maxlength="1000" autocomplete="off" autofocus />
      <button type="submit" class="main">Save the note</button>
    </form>`;
  };
  return openDialog("Note", Body);
}

const REASONS = ["unsure", "none of the classes", "several classes", "broken item"];

/** Ask for the reason of a skip; "" for no reason, null if the skip is cancelled. */
export function askReason() {
  const Body = ({ finish }) => {
    const field = useRef();
    const key = (event) => {
      const chosen = REASONS[Number(event.key) - 1];
      if (event.target !== field.current && chosen) (event.preventDefault(), finish(chosen));
    };
    return html`<form
      class="body"
      onkeydown=${key}
      onsubmit=${(event) => (event.preventDefault(), finish(field.current.value.trim()))}
    >
      <div class="reasons" role="group" aria-label="Reasons">
        ${REASONS.map(
          (reason, index) =>
            html`<button
              type="button"
              class="choice"
              autofocus=${index === 0}
              aria-keyshortcuts=${index + 1}
              onclick=${() => finish(reason)}
            >
              <${Key} of=${index + 1} /><span>${reason}</span>
            </button>`,
        )}
      </div>
      <input ref=${field} placeholder="Another reason, or none" aria-label="Another reason" maxlength="1000" autocomplete="off" />
      <button type="submit" class="main">Skip</button>
    </form>`;
  };
  return openDialog("Why skip this item?", Body);
}
