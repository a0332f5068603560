// The learning curve as SVG: accuracy or error against labels, with a confidence band.

import { percent } from "./format.js";
import { html } from "./html.js";

const WIDTH = 280,
  HEIGHT = 150;
const EDGE = { left: 38, right: 10, top: 10, bottom: 24 };

/** points: [{labels, accuracy | mse, low, high}], sorted by labels. */
export function Curve({ points }) {
  const value = (point) => point.accuracy ?? point.mse;
  const shown = points.filter((point) => Number.isFinite(value(point)));
  const isShare = shown.every((point) => point.accuracy !== undefined && point.accuracy !== null);
  const write = isShare ? percent : (number) => number.toPrecision(3);
  const low = (point) => point.low ?? value(point);
  const high = (point) => point.high ?? value(point);
  const [bottom, top] = range(Math.min(...shown.map(low)), Math.max(...shown.map(high)), isShare);
  const last = shown.at(-1).labels;
  const x = (labels) => EDGE.left + (labels / last) * (WIDTH - EDGE.left - EDGE.right);
  const y = (number) => EDGE.top + ((top - number) / (top - bottom)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const line = shown.map((point) => `${x(point.labels)},${y(value(point))}`);
  const band = [
    ...shown.map((p) => `${x(p.labels)},${y(high(p))}`),
    ...shown.toReversed().map((p) => `${x(p.labels)},${y(low(p))}`),
  ];
  const steps = shown.map((point) => `${write(value(point))} with ${point.labels} labels`).join(", ");
  return html`<svg
    viewBox="0 0 ${WIDTH} ${HEIGHT}"
    class="curve"
    role="img"
    aria-label=${`Learning curve, ${isShare ? "accuracy" : "mean squared error"}: ${steps}`}
  >
    ${[bottom, (bottom + top) / 2, top].map(
      (tick) =>
        html`<line class="rule" x1=${EDGE.left} x2=${WIDTH - EDGE.right} y1=${y(tick)} y2=${y(tick)} />
          <text x=${EDGE.left - 6} y=${y(tick) + 4} text-anchor="end">${write(tick).replace("\u00a0", "\u2009")}</text>`,
    )}
    <text x=${EDGE.left} y=${HEIGHT - 6}>0</text>
    <text x=${WIDTH - EDGE.right} y=${HEIGHT - 6} text-anchor="end">${last} labels</text>
    <polygon class="band" points=${band.join(" ")} />
    <polyline class="line" points=${line.join(" ")} />
    ${shown.map(
      (point) =>
        html`<circle cx=${x(point.labels)} cy=${y(value(point))} r="3.2">
          <title>${`${point.labels} labels: ${write(value(point))}`}</title>
        </circle>`,
    )}
  </svg>`;
}

function range(low, high, isShare) {
  const step = isShare ? 0.2 : Math.max(high - low, 1e-9) / 4;
  const bottom = Math.floor(low / step + 1e-9) * step;
  const top = Math.max(Math.ceil(high / step - 1e-9) * step, bottom + 2 * step);
  return isShare ? [Math.max(0, Math.min(bottom, 0.8)), Math.min(1, top)] : [Math.max(0, bottom), top];
}
