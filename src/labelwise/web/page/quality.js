// The quality of the last model: accuracy per class, confusions and calibration.

import { get } from "./api.js";
import { openDialog } from "./dialog.js";
import { count, percent } from "./format.js";
import { html } from "./html.js";
import { notice } from "./messages.js";

const MOST = 3; // confusions that are listed
const SIDE = 240; // pixels of the calibration plot
const EDGE = 34;

export async function showQuality() {
  try {
    const found = await get("/api/quality");
    await openDialog("Accuracy per class", () => html`<div class="body"><${Quality} ...${found} /></div>`, { wide: true });
  } catch (error) {
    notice(error.message, "bad");
  }
}

function Quality({ source, labels, needed, classes, confusions, reliability, calibration_error: error }) {
  if (!confusions.length && !reliability.length)
    return html`<p>${labels ? `Shown from ${needed} labels on; there are ${labels}.` : "Not available for this model."}</p>`;
  const how = source === "holdout" ? "held-out labels" : "labels, each predicted by a model that was not trained on it";
  return html`<p class="soft">Based on ${labels.toLocaleString("en")} ${how}.${
      source === "holdout" ? "" : " Most of them were selected because they are hard, so all items together are easier."
    }</p>
    ${confusions.length ? html`<${Confusions} classes=${classes.map(String)} counts=${confusions} />` : null}
    ${reliability.length
      ? html`<h3>Calibration</h3>
          <div class="calibration">
            <${Calibration} bins=${reliability} />
            <p class="soft">
              Of predictions that are 80 % sure, 80 % should be right. Points below the line: the model is too sure.
              ${error === null ? "" : ` On average it is off by ${percent(error)}.`}
            </p>
          </div>`
      : null}`;
}

function Confusions({ classes, counts }) {
  const totals = counts.map((row) => row.reduce((sum, one) => sum + one, 0));
  const wrong = counts
    .flatMap((row, label) => row.map((number, prediction) => ({ label, prediction, number })))
    .filter(({ label, prediction, number }) => number && label !== prediction)
    .sort((a, b) => b.number - a.number)
    .slice(0, MOST);
  const says = wrong.map(({ label, prediction, number }) => `${classes[label]} taken for ${classes[prediction]} (${number})`);
  return html`<div class="matrix" role="region" aria-label="Confusions" tabindex="0">
      <table>
        <thead>
          <tr>
            <th scope="col">Label</th>
            <th scope="col">Right</th>
            ${classes.map((name) => html`<th scope="col" title=${`predicted as ${name}`}><span>${name}</span></th>`)}
          </tr>
        </thead>
        <tbody>
          ${counts.map(
            (row, label) =>
              html`<tr>
                <th scope="row">${classes[label]}</th>
                <td class="right">${totals[label] ? `${percent(row[label] / totals[label])} of ${totals[label]}` : ""}</td>
                ${row.map((number, prediction) => {
                  const share = Math.round((100 * number) / Math.max(1, totals[label]));
                  const colour = label === prediction ? "--good" : "--bad";
                  const style = { background: number ? `color-mix(in srgb, var(${colour}) ${Math.min(48, 8 + 0.4 * share)}%, var(--card))` : "" };
                  return html`<td style=${style}>${number || ""}</td>`;
                })}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p>${wrong.length ? `Most often confused: ${says.join(", ")}.` : "All of them were predicted right."} Rows: your label; columns: the prediction.</p>`;
}

function Calibration({ bins }) {
  const x = (share) => EDGE + share * (SIDE - EDGE - 8);
  const y = (share) => SIDE - EDGE - share * (SIDE - EDGE - 8);
  const most = Math.max(...bins.map((one) => one.labels));
  const says = bins.map((one) => `${percent(one.right)} right where ${percent(one.confidence)} sure, ${count(one.labels, "label")}`);
  return html`<svg viewBox="0 0 ${SIDE} ${SIDE}" class="curve square" role="img" aria-label=${`Calibration: ${says.join("; ")}`}>
    ${[0, 0.5, 1].map(
      (tick) =>
        html`<line class="rule" x1=${x(0)} x2=${x(1)} y1=${y(tick)} y2=${y(tick)} />
          <text x=${EDGE - 6} y=${y(tick) + 4} text-anchor="end">${100 * tick}</text>
          <text x=${x(tick)} y=${SIDE - EDGE + 16} text-anchor=${tick === 1 ? "end" : "middle"}>${100 * tick}</text>`,
    )}
    <line class="rule ideal" x1=${x(0)} y1=${y(0)} x2=${x(1)} y2=${y(1)} />
    <polyline class="line" points=${bins.map((one) => `${x(one.confidence)},${y(one.right)}`).join(" ")} />
    ${bins.map(
      (one, at) =>
        html`<circle cx=${x(one.confidence)} cy=${y(one.right)} r=${2.5 + 4 * Math.sqrt(one.labels / most)}><title>${says[at]}</title></circle>`,
    )}
    <text x=${x(0.5)} y=${SIDE - 3} text-anchor="middle">sure, %</text>
    <text x=${-y(0.5)} y="10" text-anchor="middle" transform="rotate(-90)">right, %</text>
  </svg>`;
}
