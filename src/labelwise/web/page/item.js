// Display of an item: a picture, a text, or a row of numbers.

import { tidy } from "./format.js";
import { html, useLayoutEffect, useMemo, useRef } from "./html.js";

const TINY = 160; // smaller pictures (pixels per side) are scaled without smoothing
const LARGEST_PIXEL = 40; // limits the scale: an 8 x 8 digit is shown at 320 pixels
const TRIES = 5;

/** Start loading a picture; it is shown as soon as it is decoded. */
export function loadPicture(item) {
  const image = document.createElement("img");
  image.alt = item.name ? `Item ${item.id}, ${item.name}` : `Item ${item.id}`;
  image.draggable = false;
  image.decoding = "sync"; // already decoded, so painting does not wait
  const load = (left) => {
    image.onload = () => limitSize(image);
    image.onerror = () => {
      if (left > 0) return setTimeout(() => load(left - 1), 1500 * (TRIES - left + 1));
      const note = document.createElement("p");
      note.className = "broken";
      note.textContent = `This image could not be shown. Skip it, or check its file: ${item.name ?? ""}`;
      image.replaceWith(note);
    };
    image.src = item.image;
    image.decode().catch(() => {});
  };
  load(TRIES);
  return image;
}

function limitSize(image) {
  const side = Math.max(image.naturalWidth, image.naturalHeight);
  image.classList.toggle("tiny", side < TINY);
  image.style.maxWidth = image.style.maxHeight = `${LARGEST_PIXEL * side}px`;
}

/** A picture that was loaded before, so that it appears in the next frame. */
function Picture({ picture }) {
  const frame = useRef();
  useLayoutEffect(() => frame.current.replaceChildren(picture), [picture]);
  return html`<div class="picture" ref=${frame}></div>`;
}

const Table = ({ columns }) =>
  html`<table>
    <tbody>
      ${Object.entries(columns).map(
        ([name, value]) =>
          html`<tr>
            <th scope="row">${name}</th>
            <td>${tidy(value)}</td>
          </tr>`,
      )}
    </tbody>
  </table>`;

/** An item in full size; long texts and tables can be scrolled. */
export function FullItem({ item }) {
  if (isText(item))
    return html`<div class="text" tabindex="0" dir="auto" role="article" aria-label="Text">${item.text}</div>`;
  if (item.columns)
    return html`<div class="rows" tabindex="0" role="region" aria-label="Values">
      <${Table} columns=${item.columns} />
    </div>`;
  item.picture ??= loadPicture(item);
  return html`<${Picture} picture=${item.picture} />`;
}

/** An item in a tile. */
export function SmallItem({ item }) {
  const picture = useMemo(() => item.image && loadPicture(item), [item.id]);
  if (isText(item)) return html`<div class="text" dir="auto">${item.text}</div>`;
  if (item.columns) return html`<div class="rows"><${Table} columns=${item.columns} /></div>`;
  return html`<${Picture} picture=${picture} />`;
}

function isText(item) {
  return item.text !== null && item.text !== undefined;
}

/** Describe an item for screen readers. */
export function describeItem(item) {
  if (isText(item)) return item.text.length > 400 ? `${item.text.slice(0, 400)}, and more` : item.text;
  if (item.columns)
    return Object.entries(item.columns)
      .map(([name, value]) => `${name} ${value}`)
      .join(", ");
  return item.name ?? `item ${item.id}`;
}
