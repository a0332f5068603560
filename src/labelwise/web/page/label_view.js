// Single view: one item, why it was picked, its classes, and further actions.

import { get, post } from "./api.js";
import { ClassBar } from "./class_bar.js";
import { showClasses } from "./classes_dialog.js";
import { askNote, askReason } from "./dialog.js";
import { percent } from "./format.js";
import { html, KeyButton, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { describeItem, FullItem } from "./item.js";
import { useShortcuts } from "./keys.js";
import { announce, notice } from "./messages.js";
import { Stopwatch } from "./stopwatch.js";
import { Waiting } from "./waiting.js";

export function LabelView({ desk, undo, confirm }) {
  const item = desk.current;
  const watch = useMemo(() => new Stopwatch(), []);
  const said = useRef("");
  const [guess, setGuess] = useState(null); // {item, text}
  const suggestion = desk.confirm ? item?.suggestion : undefined;
  useLayoutEffect(() => {
    if (item) {
      watch.restart();
      announce(`${said.current}Next: ${describeItem(item)}`);
    }
    said.current = "";
  }, [item]);

  const label = (value, name) => {
    if (!desk.current) return; // it may be newer than the last rendering
    said.current = `${name}. `;
    desk.label([desk.current], value, watch.seconds);
  };
  const skip = async () => {
    if (!item) return;
    const reason = await askReason();
    if (reason === null || item !== desk.current) return;
    said.current = "Skipped. ";
    desk.skip([item], reason);
  };
  const askGuess = async () => {
    if (!item) return;
    try {
      const { label, confidence } = await get(`/api/items/${item.id}/guess`);
      if (item !== desk.current) return;
      const sure = confidence === null || confidence === undefined ? "" : `, ${percent(confidence)} sure`;
      const text = `The model's guess: ${desk.nameClass(label)}${sure}`;
      setGuess({ item, text });
      announce(text);
    } catch (error) {
      notice(error.status === 404 ? "There is no guess for this item yet" : error.message);
    }
  };
  const later = () => {
    if (!desk.postpone()) notice("There is no other item");
  };
  const note = async () => {
    const text = item && (await askNote());
    if (text === null || text === undefined) return;
    try {
      await post("/api/note", { id: item.id, text });
      notice(text ? "Note saved" : "Note removed");
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  useShortcuts(({ key }) => {
    if (key === "s") return (skip(), true);
    if (key === "N") return (note(), true);
    if (key === "L") return (later(), true);
    if (key === "m") return (askGuess(), true);
    return false;
  });

  useLayoutEffect(() => {
    if (suggestion) announce(`Prediction: ${desk.nameClass(suggestion.label)}. ${describeItem(item)}`);
  }, [suggestion]);

  return html`<div class="one${item ? "" : " empty"}">
    <div class="stage" data-item=${item?.id}>
      ${item ? html`<${FullItem} key=${item.id} item=${item} numbers=${desk.session.regression} />` : html`<${Waiting} desk=${desk} />`}
    </div>
    <div class="about stacked">
      <p class="why${guess?.item === item || desk.confirm ? " covered" : ""}">${item?.why ? `Why this one? ${item.why}` : ""}</p>
      ${guess?.item === item && item ? html`<p class="guess">${guess.text}</p>` : null}
      ${desk.confirm && item && guess?.item !== item ? html`<p class="guess">${describeSuggestion(desk, suggestion)}</p>` : null}
    </div>
    <${ClassBar} desk=${desk} choose=${label} suggested=${suggestion === undefined ? undefined : (suggestion?.label ?? null)} item=${item} />
    <div class="actions" role="group" aria-label="Actions">
      <${KeyButton} text="Undo" keys="u" onclick=${undo} />
      <${KeyButton} text="Skip" keys="s" onclick=${skip} />
      <${KeyButton} text="Later" keys="Shift+L" onclick=${later} />
      <${KeyButton} text="Note" keys="Shift+N" onclick=${note} />
      <${KeyButton} text="Model's guess" keys="m" onclick=${askGuess} />
      ${desk.session.regression
        ? null
        : html`<${KeyButton} text="Confirm mode" keys="Shift+C" aria-pressed=${String(desk.confirm)} onclick=${confirm} />
            <button type="button" onclick=${() => showClasses(desk)}>Classes</button>`}
    </div>
  </div>`;
}

function describeSuggestion(desk, suggestion) {
  if (suggestion === undefined) return "";
  if (suggestion === null) return "This item evaluates the model: choose yourself";
  const { label, confidence } = suggestion;
  return `${desk.nameClass(label)}, ${percent(confidence)} sure: confirm it (Enter) or choose another class`;
}
