// The map of the pool: similar items are close to each other. Click to inspect, lasso to select.

import { get, getBytes } from "./api.js";
import { count } from "./format.js";
import { html, useEffect, useLayoutEffect, useListener, useMemo, useRef, useState } from "./html.js";
import { classColour, Scatter } from "./scatter.js";

const RETRY = 1500; // milliseconds between two looks for a map that is being computed
const NEAR = 14; // pixels around a point that count as a click on it
const FOUND = 1;
const PICKED = 2;
const DARK = matchMedia("(prefers-color-scheme: dark)");

/** query: the filters as URL parameters; chosen: ids; choose(ids, add) selects items. */
export function MapView({ desk, query, version, chosen, choose }) {
  const base = useRef();
  const above = useRef();
  const plot = useRef(null);
  const [state, setState] = useState({ says: "Loading the map…", items: 0 });
  const [marks, setMarks] = useState(null);
  const [colour, setColour] = useState("label");
  const [lasso, setLasso] = useState(false);
  const [hover, setHover] = useState(null); // {point, row}
  const path = useRef(null); // of the lasso being drawn
  const frame = useRef(0);

  useEffect(() => {
    let [gone, timer] = [false, 0];
    const load = async () => {
      try {
        const found = await get("/api/map");
        if (found.items && found.version !== plot.current?.version) {
          const places = new Uint16Array(await getBytes(`/api/map/places?version=${found.version}`));
          plot.current = Object.assign(new Scatter(base.current), { version: found.version });
          plot.current.setPoints(places.subarray(0, found.items), places.subarray(found.items));
        }
        if (gone) return;
        setState(found);
        if (found.says.includes("computed") && !found.says.includes("not")) timer = setTimeout(load, RETRY);
      } catch (error) {
        if (!gone) setState({ says: error.message, items: 0 });
      }
    };
    load();
    return () => ((gone = true), clearTimeout(timer));
  }, [version]);
  useEffect(() => {
    if (!state.items) return undefined;
    let gone = false;
    getBytes(`/api/map/marks?${query}`).then(
      (bytes) => gone || setMarks(readMarks(bytes)),
      () => {},
    );
    return () => (gone = true);
  }, [query, version, state.items, state.version]);

  const paint = (whole = true) => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      if (!plot.current || !marks || !above.current) return;
      if (whole) plot.current.draw(readColours(base.current));
      drawAbove(above.current, plot.current, marks, chosen, hover, path.current);
    });
  };
  useLayoutEffect(() => {
    if (!plot.current || !marks) return;
    plot.current.setMarks(marks[colour], marks.found);
    paint();
  }, [marks, colour, state.version]);
  useLayoutEffect(() => paint(false), [chosen, hover]);
  const resize = () => {
    for (const canvas of [base.current, above.current]) {
      canvas.width = Math.round(canvas.clientWidth * devicePixelRatio);
      canvas.height = Math.round(canvas.clientHeight * devicePixelRatio);
    }
    paint();
  };
  useLayoutEffect(resize, []);
  useListener(window, "resize", resize);
  useListener(DARK, "change", () => paint());

  const pointers = useMemo(() => new Map(), []);
  const place = (event) => {
    const box = above.current.getBoundingClientRect();
    return [(event.clientX - box.left) * devicePixelRatio, (event.clientY - box.top) * devicePixelRatio];
  };
  const down = (event) => {
    above.current.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { now: place(event), moved: false });
    path.current = pointers.size === 1 && (lasso || event.shiftKey) ? [place(event)] : null;
  };
  const move = (event) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return look(event);
    const [now, before] = [place(event), pointer.now];
    if (!pointer.moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4) return;
    const others = [...pointers.values()].filter((one) => one !== pointer);
    pointer.moved = true;
    pointer.now = now;
    if (path.current) {
      path.current.push(now);
      return paint(false);
    }
    if (others.length === 1) pinch(others[0].now, before, now);
    else plot.current?.pan(now[0] - before[0], now[1] - before[1]);
    paint();
  };
  const pinch = (fixed, before, now) => {
    const size = (one) => Math.max(1, Math.hypot(one[0] - fixed[0], one[1] - fixed[1]));
    plot.current?.zoomAt(size(now) / size(before), ...fixed);
  };
  const up = (event) => {
    const pointer = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (!pointer || !plot.current || !marks) return;
    const add = event.ctrlKey || event.metaKey;
    if (path.current?.length > 2) choose(plot.current.inside(path.current), add);
    else if (!pointer.moved) {
      const point = plot.current.nearest(...pointer.now, NEAR * devicePixelRatio);
      choose(point === null ? [] : [point], add || event.shiftKey);
    }
    path.current = null;
    paint(false);
  };
  const wheel = (event) => {
    event.preventDefault();
    plot.current?.zoomAt(Math.exp(-event.deltaY / 300), ...place(event));
    paint();
  };
  useEffect(() => {
    const canvas = above.current;
    canvas.addEventListener("wheel", wheel, { passive: false });
    return () => canvas.removeEventListener("wheel", wheel);
  });
  const asked = useRef(null);
  const look = (event) => {
    if (event.pointerType !== "mouse" || !plot.current || !marks) return;
    const point = plot.current.nearest(...place(event), NEAR * devicePixelRatio);
    if (point === (asked.current ?? null)) return;
    asked.current = point;
    setHover(point === null ? null : { point });
    if (point === null) return;
    setTimeout(async () => {
      if (asked.current !== point) return;
      const { rows } = await get(`/api/items?ids=${point}`).catch(() => ({ rows: [] }));
      if (asked.current === point && rows.length) setHover({ point, row: rows[0] });
    }, 60);
  };
  const zoom = (factor) => (plot.current?.zoomAt(factor), paint());
  const reset = () => (plot.current?.reset(), paint());
  const key = (event) => {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (steps[event.key]) (plot.current?.pan(...steps[event.key]), paint());
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-") zoom(1 / 1.4);
    else return;
    event.preventDefault();
  };

  const classes = desk.session.classes.map((one) => String(one.name));
  const rank = (code) => classes.indexOf(marks.names[code - 1]);
  const used = marks ? [...new Set(marks[colour])].filter(Boolean).sort((a, b) => rank(a) - rank(b)) : [];
  const found = marks ? marks.total : 0;
  return html`<div class="map">
    <div class="map-tools" role="group" aria-label="Map">
      <select aria-label="Colour" value=${colour} onchange=${(event) => setColour(event.target.value)}>
        <option value="label">Coloured by label</option>
        <option value="prediction">Coloured by prediction</option>
      </select>
      <button type="button" aria-pressed=${String(lasso)} onclick=${() => setLasso(!lasso)} title="Or hold Shift while you draw">Lasso</button>
      <button type="button" aria-label="Zoom in" onclick=${() => zoom(1.6)}>+</button>
      <button type="button" aria-label="Zoom out" onclick=${() => zoom(1 / 1.6)}>−</button>
      <button type="button" onclick=${reset}>Whole map</button>
    </div>
    <div class="plot${lasso ? " drawing" : ""}">
      <canvas ref=${base} aria-hidden="true"></canvas>
      <canvas
        ref=${above}
        tabindex="0"
        role="img"
        aria-label="Map of ${count(state.items, "item")}, ${found.toLocaleString("en")} of which match. The list shows the same items."
        onpointerdown=${down}
        onpointermove=${move}
        onpointerup=${up}
        onpointercancel=${(event) => (pointers.delete(event.pointerId), (path.current = null))}
        onpointerleave=${() => ((asked.current = null), setHover(null))}
        onkeydown=${key}
      ></canvas>
      ${state.items && marks ? null : html`<p class="soft nothing">${describeMap(state)}</p>`}
      ${hover?.row && plot.current ? html`<${Hint} row=${hover.row} place=${plot.current.locate(hover.point)} desk=${desk} />` : null}
    </div>
    <ul class="legend" aria-label="Colours">
      ${used.map((code) => html`<li><${Swatch} code=${code} />${marks.names[code - 1]}</li>`)}
      <li><span class="swatch plain"></span>${colour === "label" ? "no label" : "no prediction"}</li>
      <li><span class="swatch picked"></span>waits for a label</li>
    </ul>
    <p class="soft total">
      ${marks ? count(found, "item") : "Items appear when the map is ready"}${state.says && state.items ? `; new items are not on the map yet: ${state.says}` : ""}. Click a
      point to see its item; with Lasso or Shift, draw around several.
    </p>
  </div>`;
}

const describeMap = ({ says, items }) => (items ? "Loading the map…" : `${says.charAt(0).toUpperCase()}${says.slice(1)}${says.endsWith("…") ? "" : "."}`);

const Swatch = ({ code }) =>
  html`<span class="swatch" style=${{ background: `rgb(${classColour(code - 1).join(" ")})` }}></span>`;

function Hint({ row, place: [x, y], desk }) {
  const name = row.name ?? row.text ?? `Item ${row.id}`;
  const style = { left: `${x / devicePixelRatio}px`, top: `${y / devicePixelRatio}px` };
  const label = row.label ?? row.prediction;
  return html`<div class="hint" style=${style} aria-hidden="true">
    ${row.image ? html`<img src=${row.image} alt="" />` : null}
    <span class="clip">${name}</span>
    ${label === null ? null : html`<strong>${desk.nameClass(label)}${row.label === null ? "?" : ""}</strong>`}
  </div>`;
}

/** The marks of all items; see /api/map/marks. */
function readMarks(bytes) {
  const length = new DataView(bytes).getUint32(0, true);
  const names = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  const n = (bytes.byteLength - 4 - length) / 5;
  const label = new Uint16Array(bytes, 4 + length, n);
  const prediction = new Uint16Array(bytes, 4 + length + 2 * n, n);
  const flags = new Uint8Array(bytes, 4 + length + 4 * n, n);
  const found = flags.map((flag) => flag & FOUND);
  const picked = [];
  flags.forEach((flag, point) => flag & PICKED && picked.push(point));
  return { names, label, prediction, found, picked, total: found.reduce((sum, one) => sum + one, 0) };
}

function readColours(element) {
  const style = getComputedStyle(element);
  const read = (name) => {
    const hex = style.getPropertyValue(name).trim();
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  return { background: read("--card"), faint: read("--line"), plain: read("--point") };
}

/** What lies above the points: items that wait for a label, selected ones, and the lasso. */
function drawAbove(canvas, plot, marks, chosen, hover, path) {
  const context = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const radius = plot.radius + 2 * devicePixelRatio;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const ring = (points, colour, wide, extra) => {
    context.strokeStyle = style.getPropertyValue(colour);
    context.lineWidth = wide * devicePixelRatio;
    context.beginPath();
    for (const point of points) {
      if (point >= plot.count) continue;
      const [x, y] = plot.locate(point);
      context.moveTo(x + radius + extra, y);
      context.arc(x, y, radius + extra, 0, 7);
    }
    context.stroke();
  };
  ring(marks.picked, "--ink", 1.5, 0);
  if (chosen.length < 30) ring(chosen, "--accent", 3, 2);
  else ring(chosen, "--accent", 1.5, -1);
  if (hover) ring([hover.point], "--accent", 2, 3);
  if (!path) return;
  context.strokeStyle = style.getPropertyValue("--accent");
  context.fillStyle = "rgb(15 92 110 / 12%)";
  context.lineWidth = 2 * devicePixelRatio;
  context.beginPath();
  for (const [x, y] of path) context.lineTo(x, y);
  context.closePath();
  context.fill();
  context.stroke();
}
