// Settings of the campaign, for its owner, and an invitation for other people.

import { get, post } from "./api.js";
import { openDialog } from "./dialog.js";
import { html, useEffect, useRef, useState } from "./html.js";
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
      <h3>Invite others</h3>
      <p class="soft">${invitation.says}</p>
      ${invitation.addresses.map((address) => html`<${Address} address=${address} />`)}
    </div>`;
  return openDialog(desk.session.owner ? "Settings" : "Invite others", Body, { wide: true });
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
