// The help: all keys, and what happens to labels.

import { openDialog } from "./dialog.js";
import { count } from "./format.js";
import { html, Key } from "./html.js";
import { singleKeys } from "./keys.js";

const KEYS = [
  ["1 – 9, 0, letters", "label with the class of that key: the first letter of its name if no other class has it, or its place"],
  ["← → ↑ ↓", "move along the classes"],
  ["Enter", "label with the selected class"],
  ["/", "find a class by name, where there are many"],
  ["u", "undo the last label or skip"],
  ["s", "skip the item, with a reason"],
  ["m", "show the model's guess (hidden by default, because it influences how people label)"],
  ["Shift + C", "confirm mode: the prediction is preselected, Enter accepts it"],
  ["Shift + L", "show this item again later"],
  ["Shift + N", "write a note about the item"],
  ["Shift + M", "all items: list or map"],
  ["l  g  r  i", "one item at a time, grid, review, all items"],
  ["?", "this help"],
];
const PICTURE_KEYS = [
  ["+  −  wheel", "zoom; Escape shows the whole picture again"],
  ["Shift + arrows, drag", "move the zoomed picture"],
  ["Shift + R", "rotate"],
  ["Shift + O", "open the original file"],
  ["Page Down, Page Up", "scroll a long text or table"],
];
const GRID_KEYS = [
  ["Space", "select or deselect the current item"],
  ["Shift + arrows or click", "select a range of items, also in the list of all items"],
  ["Ctrl + a", "select all; Escape selects none"],
  ["a class's key", "label all selected items"],
];

const KeyTable = ({ rows }) =>
  html`<table class="keys">
    <tbody>
      ${rows.map(
        ([key, what]) =>
          html`<tr>
            <th scope="row"><${Key} of=${key} /><span class="unseen">${key}</span></th>
            <td>${what}</td>
          </tr>`,
      )}
    </tbody>
  </table>`;

/** Show all keys; single-key shortcuts can be switched off here. */
export function showHelp(refused) {
  const Body = () =>
    html`<div class="body">
      <${KeyTable} rows=${KEYS} />
      <h3>Pictures and texts</h3>
      <${KeyTable} rows=${PICTURE_KEYS} />
      <h3>In the grid</h3>
      <${KeyTable} rows=${GRID_KEYS} />
      <label class="switch">
        <input
          type="checkbox"
          defaultChecked=${singleKeys.on}
          onchange=${(event) => (singleKeys.on = event.target.checked)}
        />
        Use single-key shortcuts
      </label>
      <p class="soft">
        Labels are kept in this browser until the server has them; closing the page or losing the network loses
        nothing.
      </p>
      ${refused.length
        ? html`<p class="bad">${count(refused.length, "label")} refused: ${refused.at(-1).error}</p>`
        : null}
    </div>`;
  return openDialog("Keys", Body);
}
