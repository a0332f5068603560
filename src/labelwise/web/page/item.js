// Display of an item: a picture, a text, or a row of numbers.

import { tidy } from "./format.js";
import { html, Key, useLayoutEffect, useListener, useMemo, useRef, useState } from "./html.js";
import { useShortcuts } from "./keys.js";
import { Viewer } from "./viewer.js";

const ENLARGED = 6; // small pictures are enlarged by this factor,
const SMALLEST = 160; // or until they are this wide or high; more is a blur
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
  image.style.maxWidth = image.style.maxHeight = `${Math.max(ENLARGED * side, SMALLEST)}px`;
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

/** A long text or table: Page Down, Page Up, Home and End scroll it, wherever the focus is. */
function Scrolled({ children, ...rest }) {
  const box = useRef();
  const [more, setMore] = useState(false);
  const look = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setMore(scrollHeight - clientHeight - scrollTop > 4);
  };
  useLayoutEffect(look);
  useListener(window, "resize", look);
  useShortcuts(({ key }) => {
    const { clientHeight, scrollHeight } = box.current;
    const line = parseFloat(getComputedStyle(box.current).lineHeight) || 24;
    const page = Math.max(line, line * Math.floor(clientHeight / line - 1));
    const distance = { PageDown: page, PageUp: -page, Home: -scrollHeight, End: scrollHeight }[key];
    if (!distance || scrollHeight <= clientHeight) return false;
    box.current.scrollBy({ top: distance });
    return true;
  });
  return html`<div ref=${box} tabindex="0" onscroll=${look} ...${rest}>${children}</div>
    ${more ? html`<p class="more soft">More below <${Key} of="Page Down" /></p>` : null}`;
}

/** An item in full size. */
export function FullItem({ item, numbers }) {
  if (isText(item))
    return html`<${Scrolled} class="text" dir="auto" role="article" aria-label="Text">${item.text}<//>`;
  if (item.columns)
    return html`<${Scrolled} class="rows" role="region" aria-label="Values">
      <${Table} columns=${item.columns} />
    <//>`;
  item.picture ??= loadPicture(item);
  return html`<${Viewer} picture=${item.picture} address=${item.image} numbers=${numbers} />`;
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
