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

/** Ask for a text, with frequent ones as choices; null if it is cancelled. */
function askText(title, choices, says, placeholder, button) {
  const Body = ({ finish }) => {
    const field = useRef();
    const key = (event) => {
      const chosen = choices[Number(event.key) - 1];
      if (event.target === field.current) return;
      if (chosen) (event.preventDefault(), finish(chosen));
      else if (/^\S$/.test(event.key) && !event.ctrlKey && !event.metaKey) field.current.focus(); // gets the key
    };
    return html`<form
      class="body"
      onkeydown=${key}
      onsubmit=${(event) => (event.preventDefault(), finish(field.current.value.trim()))}
    >
      ${says ? html`<p class="soft">${says}</p>` : null}
      <div class="reasons" role="group" aria-label=${title}>
        ${choices.map(
          (choice, index) =>
            html`<button
              type="button"
              class="choice"
              autofocus=${index === 0}
              aria-keyshortcuts=${index + 1}
              onclick=${() => finish(choice)}
            >
              <${Key} of=${index + 1} /><span>${choice}</span>
            </button>`,
        )}
      </div>
      <input ref=${field} placeholder=${placeholder} aria-label=${placeholder} maxlength="1000" autocomplete="off" />
      <button type="submit" class="main">${button}</button>
    </form>`;
  };
  return openDialog(title, Body);
}

/** Ask for the reason of a skip; "" for no reason. */
export const askReason = () =>
  askText(
    "Why skip this item?",
    ["unsure", "none of the classes", "several classes", "broken item"],
    "",
    "Another reason, or none",
    "Skip",
  );

/** Ask for a note about an item; "" removes it. */
export const askNote = () =>
  askText(
    "Flag this item, or write a note",
    ["unsure", "look at this again", "good example"],
    "Flags and notes are listed under Items. Label the item as well, or skip it.",
    "Another note; empty removes it",
    "Save the note",
  );
