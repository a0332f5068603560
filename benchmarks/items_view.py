"""The list and the map of 200,000 items in a browser: first view, filters, scrolling, drawing.

Run: python benchmarks/items_view.py --folder /tmp --out docs/results/items_view.jsonl

A campaign of short texts with 5,000 labels and predictions of all items, served by ``labelwise
label --no-training`` over loopback, in Chromium. Every time is from the action in the page until
the animation frame after its result is on the screen. Needs the extras ``web`` and ``dev``, and
Chromium. One JSON object per line; the map is computed first, which takes a minute or two.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from labelling_load_campaign import Server
from one_run import circumstances, write_line

from labelwise.campaign.project import Project
from labelwise.record.events import Asked, Event, Told
from labelwise.web.pool_map import write_map
from labelwise.web.predictions import PoolPredictions, write_predictions

CLASSES = [f"class {number:02}" for number in range(10)]
WORDS = [a + b for a in "bcdfgklmnprst" for b in ("ando", "ive", "ost", "umber", "all", "eek")]
LABELS, DIMENSIONS = 5_000, 16
MEASURE = """async ([act, check]) => {
  const done = new Function(`return ${check}`);
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  const begin = performance.now();
  new Function(act)();
  while (!done()) {
    if (performance.now() - begin > 60000) throw new Error(`not within a minute: ${check}`);
    await frame();
  }
  await frame();
  return performance.now() - begin;
}"""
TOTAL = "document.querySelector('.items .total')?.textContent"
LOADED = (
    "document.querySelectorAll('.space > .row').length > 5 && "
    "[...document.querySelectorAll('.space > .row')].every(row => row.dataset.item)"
)

IN_VIEW = """(() => {
  const { bottom: top } = document.querySelector('.titles').getBoundingClientRect();
  const boxes = [...document.querySelectorAll('.space > .row')].map(
    (row) => row.getBoundingClientRect(),
  );
  return boxes.some((box) => box.top <= top + 10 && box.bottom > top + 10);
})()"""


def main() -> None:
    """Measure and write the lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="for temporary files")
    parser.add_argument("--out", type=Path, help="append the lines to this file too")
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="items-", dir=arguments.folder) as name:
        facts = circumstances(1) | {"benchmark": "items_view", "items": arguments.items}
        project, codes = make_campaign(Path(name), arguments.items)
        begin = time.process_time()
        write_map(project)
        facts["map_cpu_seconds"] = round(time.process_time() - begin, 1)
        project.close()
        server = Server(project.home)
        try:
            for what, times in measure(server.port, codes, arguments):
                numbers = np.array(times)
                write_line(
                    facts
                    | {
                        "action": what,
                        "times": len(times),
                        "min_ms": round(float(numbers.min()), 1),
                        "median_ms": round(float(np.median(numbers)), 1),
                        "p90_ms": round(float(np.quantile(numbers, 0.9)), 1),
                        "max_ms": round(float(numbers.max()), 1),
                        "load_average": round(os.getloadavg()[0], 2),
                    },
                    arguments.out,
                )
        finally:
            server.stop()


def make_campaign(folder: Path, items: int) -> tuple[Project, np.ndarray]:
    """A campaign with labels and predictions, and the predicted class of every item."""
    random = np.random.default_rng(0)
    codes = random.integers(len(CLASSES), size=items)
    centers = random.standard_normal((len(CLASSES), DIMENSIONS))
    rows = centers[codes] + random.standard_normal((items, DIMENSIONS))
    np.save(folder / "features.npy", rows.astype(np.float32))
    with (folder / "texts.csv").open("w") as file:
        file.write("text\n")
        for number, words in enumerate(random.choice(WORDS, (items, 12))):
            file.write(f"number {number} {' '.join(words)}\n")
    project = Project.start(
        folder / "texts.csv",
        home=folder / "items.labelwise",
        text="text",
        features=folder / "features.npy",
        classes=CLASSES,
    )
    labelled = random.choice(items, LABELS, replace=False).tolist()
    at = time.time()
    events: list[Event] = [Asked(at, 1, tuple(labelled), strategy="random", seed=0)]
    events += [Told(at, item, CLASSES[codes[item]], "ann") for item in labelled]
    project.storage().append(project.name, events)
    confidence = random.uniform(0.2, 1, items).astype(np.float32)
    write_predictions(project.home, PoolPredictions(1, CLASSES, codes.astype(np.int32), confidence))
    codes[labelled] = -1  # a labelled item keeps the prediction made before, here none
    return project, codes


def measure(port: int, codes: np.ndarray, arguments: Any) -> Any:
    """Milliseconds of every action."""
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=flags)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        context.add_init_script("localStorage['labelwise/name'] ??= 'ann'")

        def take(act: str, check: str) -> float:
            return float(page.evaluate(MEASURE, [act, check]))

        def total(number: int) -> str:
            return f"{TOTAL} === '{number:,} items' && {LOADED}"

        def choose(name: str, value: str) -> str:
            return (
                f"const field = document.querySelector('[aria-label=\"{name}\"]');"
                f"field.value = {value!r}; field.dispatchEvent(new Event('change'))"
            )

        firsts = []
        for _ in range(5):
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector(".stage")
            firsts.append(take("location.hash = 'items'", total(len(codes))))
            if len(firsts) < 5:
                page.close()
        yield "first view after the server started", firsts[:1]
        yield "first view", firsts[1:]
        page.wait_for_timeout(5_000)  # texts are read for the search in the background
        times: dict[str, list[float]] = {}
        for turn in range(arguments.repeats):
            kind = turn % len(CLASSES)
            labelled = take(choose("Show", "labelled"), total(LABELS))
            back = take(choose("Show", "all"), total(len(codes)))
            times.setdefault("filter by status", []).extend([labelled, back])
            number = int((codes == kind).sum())
            act = choose("Any prediction", CLASSES[kind])
            times.setdefault("filter by prediction", []).append(take(act, total(number)))
            take(choose("Any prediction", ""), total(len(codes)))
            place = f"{(turn + 0.5) / arguments.repeats} * box.scrollHeight"
            act = f"const box = document.querySelector('.scroll'); box.scrollTop = {place}"
            times.setdefault("scroll to a far place", []).append(
                take(act, f"{LOADED} && {IN_VIEW}")
            )
            text = f"number {turn}{turn + 10}"
            act = (
                "const field = document.querySelector('[type=search]');"
                f"field.value = {text!r}; field.dispatchEvent(new Event('input'))"
            )
            before = f"{TOTAL} !== '{len(codes):,} items' && {TOTAL} !== 'Loading…'"
            times.setdefault("search", []).append(take(act, before))
            take(act.replace(repr(text), "''"), total(len(codes)))
            header = "document.querySelector('.column-confidence button').click()"
            first = "document.querySelector('.space > .row')?.dataset.item"
            page.evaluate(f"window.before = {first}")
            times.setdefault("sort", []).append(
                take(header, f"{first} && {first} !== window.before && {LOADED}")
            )
        take("document.querySelector('[aria-keyshortcuts=\"Shift+M\"]').click()", MAP_SHOWN)
        for turn in range(arguments.repeats):
            colour = ("prediction", "label")[turn % 2]
            changed = f"{MAP_SHOWN} && window.drawn === true"
            times.setdefault("colour of the map", []).append(
                take(WATCH_DRAWING + choose("Colour", colour), changed)
            )
            zoom = "document.querySelector('.map-tools [aria-label=\"Zoom in\"]').click()"
            times.setdefault("zoom of the map", []).append(take(WATCH_DRAWING + zoom, changed))
        yield from times.items()
        browser.close()


MAP_SHOWN = "document.querySelector('.map .total')?.textContent.includes(' items')"
WATCH_DRAWING = """
window.drawn = false;
const draw = CanvasRenderingContext2D.prototype.putImageData;
CanvasRenderingContext2D.prototype.putImageData = function (...given) {
  draw.apply(this, given);
  CanvasRenderingContext2D.prototype.putImageData = draw;
  window.drawn = true;
};
"""

if __name__ == "__main__":
    main()
