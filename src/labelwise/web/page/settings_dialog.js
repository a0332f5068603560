// Settings of the campaign, for its owner, and an invitation for other people.

import { get, post, upload } from "./api.js";
import { openDialog } from "./dialog.js";
import { count } from "./format.js";
import { html, useEffect, useEvents, useRef, useState } from "./html.js";
import { notice } from "./messages.js";
import { generate } from "./vendor/lean-qr.js";

export async function showSettings(desk) {
  let settings, invitation;
  try {
    [settings, invitation] = await Promise.all([get("/api/settings"), get("/api/invitation")]);
  } catch (error) {
    return notice(error.message, "bad");
  }
  const Body = ({ finish }) =>
    html`<div class="body">
      ${desk.session.owner ? html`<${Form} desk=${desk} settings=${settings} finish=${finish} />` : null}
      ${desk.session.owner ? html`<${AddItems} desk=${desk} /><${People} desk=${desk} /><h3>Invite others</h3>` : null}
      <p class="soft">${invitation.says}</p>
      ${invitation.addresses.map((address) => html`<${Address} address=${matchScheme(address)} />`)}
    </div>`;
  return openDialog(desk.session.owner ? "Settings" : "Invite others", Body, { wide: true });
}

/** Behind a proxy, only the browser knows whether the page has https. */
function matchScheme(address) {
  const url = new URL(address);
  if (url.host === location.host) url.protocol = location.protocol;
  return String(url);
}

function Form({ desk, settings, finish }) {
  const form = useRef();
  const [strategy, setStrategy] = useState(settings.strategy);
  const says = settings.strategies.find((one) => one.name === strategy)?.says;
  const save = async (event) => {
    event.preventDefault();
    const field = (name) => form.current.elements[name].value.trim();
    const whole = (name) => (field(name) ? Number(field(name)) : null);
    const body = { batch: whole("batch"), overlap: whole("overlap"), budget_labels: whole("budget_labels") };
    body.goal = field("goal") ? Number(field("goal")) / 100 : null;
    if (strategy !== settings.strategy) body.strategy = strategy;
    try {
      await post("/api/settings", body);
      notice("Settings saved; they apply from the next batch on");
      desk.look();
      finish(true);
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  const Field = ({ name, title, value, ...rest }) =>
    html`<label>
      <span>${title}</span>
      <input name=${name} type="number" inputmode="numeric" defaultValue=${value ?? ""} ...${rest} />
    </label>`;
  return html`<form ref=${form} class="settings" onsubmit=${save}>
    <${Field} name="batch" title="Items per batch" value=${settings.batch} min="1" required />
    <${Field} name="overlap" title="People who label each item" value=${settings.overlap} min="1" required />
    <${Field} name="budget_labels" title="Labels to give in all" value=${settings.budget_labels} min="1" placeholder="no limit" />
    ${desk.session.regression
      ? html`<input name="goal" type="hidden" />`
      : html`<${Field} name="goal" title="Accuracy to reach, in %" value=${settings.goal && Math.round(1000 * settings.goal) / 10} min="1" max="99.9" step="0.1" placeholder="no goal" />`}
    <label>
      <span>How items are selected</span>
      <select value=${strategy} onchange=${(event) => setStrategy(event.target.value)}>
        ${settings.strategies.map((one) => html`<option value=${one.name}>${one.name}</option>`)}
      </select>
    </label>
    <p class="soft">${says}.</p>
    <button type="submit" class="main">Save</button>
  </form>`;
}

const FILES = { images: "image/*", texts: ".csv,.tsv,.jsonl,.parquet", numbers: ".csv,.tsv,.jsonl,.parquet" };

/** Upload images, or a table with the same columns, as new items. */
function AddItems({ desk }) {
  const [says, setSays] = useState("");
  const add = async (event) => {
    const files = [...event.target.files];
    let items = 0;
    for (const [done, file] of files.entries()) {
      setSays(`Sending ${done + 1} of ${count(files.length, "file")}…`);
      try {
        items += (await upload(file)).items;
      } catch (error) {
        setSays(`${file.name}: ${error.message}. ${count(items, "item")} added before.`);
        return;
      } finally {
        event.target.value = "";
      }
    }
    setSays(`${count(items, "new item")} added; they are encoded in the background and can then be selected.`);
    desk.look();
  };
  return html`<h3>Add items</h3>
    <p class="soft">${desk.session.kind === "images" ? "Images, which are copied into the campaign's source folder." : "A table with the same columns as the first one."}</p>
    <input type="file" multiple accept=${FILES[desk.session.kind]} aria-label="Files with new items" onchange=${add} />
    <p role="status">${says}</p>`;
}

/** Everyone who has labelled; the owner can lock people out. Their labels stay. */
function People({ desk }) {
  useEvents(desk, "state");
  const people = desk.state?.annotators ?? [];
  const change = async (one) => {
    try {
      await post("/api/people", { name: one.name, removed: !one.removed });
      notice(one.removed ? `${one.name} can label again` : `${one.name} is removed; the labels stay`);
      await desk.look();
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  if (!people.length) return null;
  return html`<h3>People</h3>
    <ul class="class-list">
      ${people.map(
        (one) =>
          html`<li class="person-entry">
            <span>${one.name || "(no name)"} <span class="soft">${count(one.labels, "label")}</span></span>
            ${one.name === desk.session.name
              ? html`<span class="soft">you</span>`
              : html`<button type="button" aria-label="${one.removed ? "Let in again" : "Remove"}: ${one.name}" onclick=${() => change(one)}>
                  ${one.removed ? "Let in again" : "Remove"}
                </button>`}
          </li>`,
      )}
    </ul>`;
}

function Address({ address }) {
  const canvas = useRef();
  useEffect(() => {
    generate(address).toCanvas(canvas.current, { on: [0, 0, 0, 255], off: [255, 255, 255, 255] });
  }, [address]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(address);
      notice("Link copied");
    } catch {
      notice("The browser does not allow copying here; select the link instead", "bad");
    }
  };
  return html`<div class="invite">
    <canvas ref=${canvas} class="qr" role="img" aria-label="QR code of the link"></canvas>
    <code>${address}</code>
    <button type="button" onclick=${copy}>Copy the link</button>
  </div>`;
}
