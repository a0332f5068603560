// Display of an item: a picture, a text, or a row of numbers.

import { h } from "./dom.js";

const TINY = 160; // smaller pictures (pixels per side) are scaled without smoothing
const LARGEST_PIXEL = 40; // limits the scale: an 8 x 8 digit is shown at 320 pixels
const TRIES = 5;

/** Start loading a picture; `ready` resolves when it is decoded. */
export function loadPicture(item) {
  const image = h("img", {
    alt: item.name ? `Item ${item.id}, ${item.name}` : `Item ${item.id}`,
    draggable: "false",
  });
  image.decoding = "sync"; // already decoded, so painting does not wait
  const load = (left) => {
    image.onload = () => sized(image);
    image.onerror = () => {
      if (left > 0) setTimeout(() => load(left - 1), 1500 * (TRIES - left + 1));
      else
        image.replaceWith(
          h(
            "p",
            { class: "broken" },
            "This image could not be shown. Skip it, or check its file: ",
            item.name ?? "",
          ),
        );
    };
    image.src = item.image;
    image.ready = image.decode().catch(() => {});
  };
  load(TRIES);
  return image;
}

function sized(image) {
  const side = Math.max(image.naturalWidth, image.naturalHeight);
  image.classList.toggle("tiny", side < TINY);
  image.style.maxWidth = image.style.maxHeight = `${LARGEST_PIXEL * side}px`;
}

/** Create the element for an item. */
export function showItem(item) {
  if (isText(item)) {
    return h(
      "div",
      { class: "text", tabindex: "0", dir: "auto", role: "article", "aria-label": "Text" },
      item.text,
    );
  }
  if (item.columns)
    return h(
      "div",
      { class: "rows", tabindex: "0", role: "region", "aria-label": "Values" },
      table(item.columns),
    );
  item.picture ??= loadPicture(item);
  return item.picture;
}

function table(columns) {
  const rows = Object.entries(columns).map(([name, value]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", {}, typeof value === "number" ? tidy(value) : String(value)),
    ),
  );
  return h("table", {}, h("tbody", {}, rows));
}

function tidy(number) {
  return Number.isInteger(number) ? number.toLocaleString("en") : String(Number(number.toPrecision(6)));
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
