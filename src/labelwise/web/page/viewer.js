// Picture viewer: zoom with wheel, pinch, keys or buttons; pan; rotate; open the original.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { singleKeys, useShortcuts } from "./keys.js";
import Panzoom from "./vendor/panzoom.js";

const MOST = 30; // largest zoom
const STEP = 1.4; // factor of one key press
const MOVE = 60; // pixels of one key press

/** Show a loaded picture. `numbers`: whether the key - begins a number instead of zooming out. */
export function Viewer({ picture, address, numbers }) {
  const frame = useRef();
  const tool = useRef(null);
  const angle = useRef(0);
  const [zoomed, setZoomed] = useState(false);
  useLayoutEffect(() => frame.current.replaceChildren(picture), [picture]);
  useEffect(() => {
    // After the first frame, so that the next item never waits for it.
    const { current } = frame;
    if (!current || picture.parentNode !== current) return undefined;
    const zoom = Panzoom(picture, {
      maxScale: MOST,
      minScale: 1,
      panOnlyWhenZoomed: true,
      touchAction: "pan-y", // a swipe still scrolls the page on a phone
      cursor: "zoom-in",
      setTransform: (_, { scale, x, y }) => {
        const turned = `rotate(${angle.current}deg) scale(${fitRotated(picture, angle.current)})`;
        zoom.setStyle("transform", `scale(${scale}) translate(${x}px, ${y}px) ${turned}`);
      },
    });
    tool.current = zoom;
    const update = ({ detail }) => {
      const large = detail.scale > 1.01;
      setZoomed(large);
      zoom.setStyle("cursor", large ? "grab" : "zoom-in");
      current.style.touchAction = picture.style.touchAction = large ? "none" : "pan-y";
      if (!large && (detail.x || detail.y)) zoom.pan(0, 0, { force: true });
    };
    const wheel = (event) => zoom.zoomWithWheel(event, { step: 0.5 });
    current.addEventListener("wheel", wheel, { passive: false });
    picture.addEventListener("panzoomchange", update);
    return () => {
      current.removeEventListener("wheel", wheel);
      picture.removeEventListener("panzoomchange", update);
      zoom.destroy();
      zoom.resetStyle();
      picture.style.transform = picture.style.transition = "";
    };
  }, [picture]);

  const zoomBy = (factor) => {
    const zoom = tool.current;
    zoom?.zoom(Math.min(MOST, Math.max(1, zoom.getScale() * factor)), { animate: false });
    return true;
  };
  const rotate = () => {
    angle.current = (angle.current + 90) % 360;
    tool.current?.zoom(tool.current.getScale(), { force: true });
    return true;
  };
  const reset = () => {
    tool.current?.reset({ animate: false });
    return true;
  };
  const pan = (x, y) => {
    const scale = tool.current.getScale();
    tool.current.pan((x * MOVE) / scale, (y * MOVE) / scale, { relative: true });
    return true;
  };
  const open = () => {
    window.open(address, "_blank", "noopener");
    return true;
  };
  useShortcuts((event) => {
    if (event.ctrlKey || event.metaKey) return false;
    if (event.key === "+" || event.key === "=") return zoomBy(STEP);
    if (event.key === "-" && !numbers) return zoomBy(1 / STEP);
    if (event.key === "R") return rotate();
    if (event.key === "O") return open();
    if (!zoomed) return false;
    if (event.key === "Escape") return reset();
    if (!event.shiftKey) return false;
    if (event.key === "ArrowLeft") return pan(1, 0);
    if (event.key === "ArrowRight") return pan(-1, 0);
    if (event.key === "ArrowUp") return pan(0, 1);
    return event.key === "ArrowDown" && pan(0, -1);
  });
  const tap = (event) => (zoomed ? reset() : tool.current?.zoomToPoint(3, event));
  const Tool = ({ name, keys, act, children }) =>
    html`<button type="button" title="${name} (${keys})" aria-label=${name} aria-keyshortcuts=${keys} tabindex=${singleKeys.on ? -1 : 0} onclick=${act}>
      <span aria-hidden="true">${children}</span>
    </button>`;
  return html`<div class="picture" ref=${frame} ondblclick=${tap}></div>
    <div class="viewer" role="group" aria-label="Picture">
      <${Tool} name="Zoom in" keys="+" act=${() => zoomBy(STEP)}>+<//>
      <${Tool} name="Zoom out" keys="-" act=${() => zoomBy(1 / STEP)}>−<//>
      <${Tool} name="Rotate" keys="Shift+R" act=${rotate}>↻<//>
      <${Tool} name="Open the original file" keys="Shift+O" act=${open}>↗<//>
    </div>`;
}

/** The scale by which a picture fits its frame after a rotation. */
function fitRotated(picture, angle) {
  if (angle % 180 === 0) return 1;
  const { naturalWidth: width, naturalHeight: height, offsetWidth, offsetHeight } = picture;
  if (!width) return 1;
  const upright = Math.min(offsetWidth / width, offsetHeight / height);
  const turned = Math.min(offsetWidth / height, offsetHeight / width);
  return turned / upright;
}
