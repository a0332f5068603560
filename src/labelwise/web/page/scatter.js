// A scatter plot of up to a million points on a canvas, drawn pixel by pixel: no WebGL, no eval.

const SCALE = 65535; // places are 16-bit numbers
const MARGIN = 0.94; // share of the shorter side that the points take at first
const MOST = 400; // largest zoom
const COLOURS = [
  [31, 119, 180], [230, 110, 20], [44, 150, 60], [205, 50, 50], [140, 100, 190], [150, 95, 80],
  [220, 110, 180], [155, 155, 30], [20, 165, 185], [90, 90, 230], [0, 130, 110], [200, 150, 0],
]; // prettier-ignore

/** The colour of a class by its number, from 0; further classes get further hues. */
export function classColour(number) {
  if (number < COLOURS.length) return COLOURS[number];
  const hue = (number * 137.508) % 360;
  const part = (shift) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (0.5 - 0.35 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

export class Scatter {
  /** @param canvas shows the points; nothing is drawn before `points` and `marks` are set. */
  constructor(canvas) {
    this.canvas = canvas;
    this.x = this.y = new Uint16Array();
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
  }

  get count() {
    return this.x.length;
  }

  setPoints(x, y) {
    [this.x, this.y] = [x, y];
  }

  /** codes: the class of each point, 0 for none; found: whether the filters find it. */
  setMarks(codes, found) {
    // Points that are not found lie below those without a class, and these below the others.
    const level = (point) => (!found[point] ? 0 : codes[point] ? 2 : 1);
    const starts = [0, 0, 0, 0];
    for (let point = 0; point < this.count; point += 1) starts[level(point) + 1] += 1;
    for (let at = 1; at < 4; at += 1) starts[at] += starts[at - 1];
    this.order = new Uint32Array(this.count);
    for (let point = 0; point < this.count; point += 1) this.order[starts[level(point)]++] = point;
    [this.codes, this.found] = [codes, found];
  }

  /** Pixels per unit, and the position of a point in pixels of the canvas. */
  get #unit() {
    return Math.min(this.canvas.width, this.canvas.height) * MARGIN * this.view.zoom;
  }

  locate(point) {
    const { width, height } = this.canvas;
    const unit = this.#unit;
    return [
      (this.x[point] / SCALE - this.view.x) * unit + width / 2,
      (this.y[point] / SCALE - this.view.y) * unit + height / 2,
    ];
  }

  pan(dx, dy) {
    this.view.x = clamp(this.view.x - dx / this.#unit);
    this.view.y = clamp(this.view.y - dy / this.#unit);
  }

  /** Zoom by a factor; the place under (px, py) stays where it is. */
  zoomAt(factor, px = this.canvas.width / 2, py = this.canvas.height / 2) {
    const [dx, dy] = [px - this.canvas.width / 2, py - this.canvas.height / 2];
    const before = this.#unit;
    this.view.zoom = Math.max(1, Math.min(MOST, this.view.zoom * factor));
    const after = this.#unit;
    this.view.x = clamp(this.view.x + dx / before - dx / after);
    this.view.y = clamp(this.view.y + dy / before - dy / after);
  }

  reset() {
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
  }

  get radius() {
    const { width, height } = this.canvas;
    const room = Math.sqrt((width * height) / Math.max(this.count, 1));
    const ratio = globalThis.devicePixelRatio || 1;
    return Math.max(1, Math.min(0.16 * room * Math.sqrt(this.view.zoom), 5 * ratio));
  }

  /** background, faint, plain: colours as [red, green, blue]. */
  draw({ background, faint, plain }) {
    const { width, height } = this.canvas;
    if (!width || !height || !this.order) return;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(pack(background));
    const [unit, radius] = [this.#unit, this.radius];
    const { x, y, order, codes, found } = this;
    const disc = makeDisc(radius);
    const largeDisc = makeDisc(1.4 * radius); // of points with a class
    const reach = Math.ceil(1.4 * radius);
    const [left, top] = [width / 2 - this.view.x * unit, height / 2 - this.view.y * unit];
    const step = unit / SCALE;
    for (let at = 0; at < order.length; at += 1) {
      const point = order[at];
      const px = Math.round(left + x[point] * step);
      const py = Math.round(top + y[point] * step);
      if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
      const known = found[point] && codes[point];
      const colour = known ? classColour(codes[point] - 1) : found[point] ? plain : faint;
      paint(pixels, px + py * width, width, known ? largeDisc : disc, colour);
    }
    context.putImageData(image, 0, 0);
  }

  /** The found point nearest to a position, or null if none is within `reach` pixels. */
  nearest(px, py, reach) {
    const [unit, { width, height }] = [this.#unit, this.canvas];
    let [best, least] = [null, reach * reach];
    for (let point = 0; point < this.count; point += 1) {
      if (!this.found[point]) continue;
      const dx = (this.x[point] / SCALE - this.view.x) * unit + width / 2 - px;
      const dy = (this.y[point] / SCALE - this.view.y) * unit + height / 2 - py;
      const distance = dx * dx + dy * dy;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  /** The found points inside a closed path of positions. */
  inside(path) {
    const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
    for (const place of path)
      for (const axis of [0, 1]) {
        low[axis] = Math.min(low[axis], place[axis]);
        high[axis] = Math.max(high[axis], place[axis]);
      }
    const points = [];
    for (let point = 0; point < this.count; point += 1) {
      if (!this.found[point]) continue;
      const [px, py] = this.locate(point);
      if (px < low[0] || px > high[0] || py < low[1] || py > high[1]) continue;
      if (isInside(path, px, py)) points.push(point);
    }
    return points;
  }
}

const clamp = (share) => Math.max(0, Math.min(1, share));
const pack = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Even-odd rule. */
function isInside(path, px, py) {
  let inside = false;
  for (let at = 0, before = path.length - 1; at < path.length; before = at, at += 1) {
    const [ax, ay] = path[at];
    const [bx, by] = path[before];
    if (ay > py !== by > py && px < ((bx - ax) * (py - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

/** Offsets and opacities (0 to 256) of the pixels of a disc with smooth edges. */
function makeDisc(radius) {
  const reach = Math.ceil(radius);
  const disc = [];
  for (let dy = -reach; dy <= reach; dy += 1)
    for (let dx = -reach; dx <= reach; dx += 1) {
      const cover = Math.round(256 * Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(dx, dy))));
      if (cover > 0) disc.push([dx, dy, cover]);
    }
  return disc;
}

function paint(pixels, place, width, disc, colour) {
  const full = pack(colour);
  const [red, green, blue] = colour;
  for (let at = 0; at < disc.length; at += 1) {
    const [dx, dy, cover] = disc[at];
    const pixel = place + dx + dy * width;
    if (cover === 256) {
      pixels[pixel] = full;
      continue;
    }
    const old = pixels[pixel];
    const mix = (now, before) => before + (((now - before) * cover) >> 8);
    pixels[pixel] =
      ((255 << 24) |
        (mix(blue, (old >> 16) & 255) << 16) |
        (mix(green, (old >> 8) & 255) << 8) |
        mix(red, old & 255)) >>>
      0;
  }
}
