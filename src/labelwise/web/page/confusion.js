// Accuracy per class and frequent confusions, fetched when they are opened.

import { get } from "./api.js";
import { count } from "./format.js";
import { html, useEffect, useState } from "./html.js";

const MOST = 5; // confusions that are listed

export function ConfusionNote({ desk }) {
  const [open, setOpen] = useState(false);
  const [found, setFound] = useState(null);
  const model = desk.state.evaluation?.says;
  useEffect(() => {
    if (open) get("/api/confusion").then(setFound, () => setFound(null));
  }, [open, model]);
  return html`<details ontoggle=${(event) => setOpen(event.target.open)}>
    <summary>Accuracy per class</summary>
    ${found ? html`<${Scores} found=${found} />` : null}
  </details>`;
}

function Scores({ found: { evaluated, needed, classes, confusions } }) {
  if (!classes.length)
    return html`<p class="soft">
      ${evaluated ? `Shown from ${needed} held-out labels on; there are ${evaluated}.` : "Not available for this model yet."}
    </p>`;
  return html`<table>
      <tbody>
        ${classes.map(
          ({ name, right, total }) =>
            html`<tr>
              <th scope="row">${name}</th>
              <td>${right} of ${total} right</td>
            </tr>`,
        )}
      </tbody>
    </table>
    ${confusions.length
      ? html`<p class="soft">
          Most often confused: ${confusions
            .slice(0, MOST)
            .map((one) => `${one.label} taken for ${one.prediction} (${one.count})`)
            .join(", ")}.
        </p>`
      : html`<p class="soft">All ${count(evaluated, "held-out label")} were predicted right.</p>`}`;
}
