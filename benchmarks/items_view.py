"""The items view of the page with 200,000 items: first view, filters, scrolling and the map.

Run: python benchmarks/items_view.py --out docs/results/items_view.jsonl

A campaign on features of three clouds with a few thousand labels and predictions of all items; its
map has other places unless ``--map`` is given. Then Chromium opens the page, and every
action is timed in the browser, from the event until the new rows or points are on the screen
(polled every frame, so 16 ms is the least). One JSON object per line; needs the extra ``web``,
playwright and Chromium. ``--items 20000`` takes a minute.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from one_run import circumstances, write_line
from playwright.sync_api import Page, sync_playwright

from labelwise.campaign.project import Project
from labelwise.record.events import Asked, Told
from labelwise.web.app import create_app
from labelwise.web.pool_map import FILE, SCALE, write_map
from labelwise.web.predictions import PoolPredictions, write_predictions

CHROMIUM = os.environ.get("LABELWISE_CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
CLASSES = ["cat", "dog", "owl"]
LABELS, REPEATS = 5_000, 5
ADDRESS = "http://127.0.0.1:8672/#items"

TIMED = """async ([act, done]) => {
  const find = (text) => document.querySelector(text);
  const set = (field, value) => {
    field.value = value;
    field.dispatchEvent(new Event(field.type === "search" ? "input" : "change", { bubbles: true }));
  };
  const before = { total: find(".total")?.textContent, first: find(".space .row")?.dataset.item,
    points: find(".plot canvas")?.toDataURL() };
  const start = performance.now();
  new Function("find", "set", act)(find, set);
  const check = new Function("find", "before", `return ${done}`);
  while (!check(find, before)) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
"""Run an action and wait until a condition holds; both are JavaScript. Milliseconds."""

TOTAL = "find('.total').textContent !== before.total && find('.space .row[data-item]')"
ROW = (
    "find('.space .row[data-item]') && find('.space .row').dataset.item !== before.first"
    " && ![...document.querySelectorAll('.space .row')].some((row) => !row.dataset.item)"
)
POINTS = "find('.plot canvas').toDataURL() !== before.points"
SELECT = "set(find('select[aria-label=\"{}\"]'), '{}')"
SCROLL = "const box = find('.scroll'); box.scrollTop = {} * box.scrollHeight"
LIST_ACTIONS = {
    "filter by label": (SELECT.format("Any label", "cat"), TOTAL),
    "no label filter": (SELECT.format("Any label", ""), TOTAL),
    "filter by prediction": (SELECT.format("Any prediction", "dog"), TOTAL),
    "no filter": (SELECT.format("Any prediction", ""), TOTAL),
    "search": ("set(find('input[type=search]'), '1234')", TOTAL),
    "end of search": ("set(find('input[type=search]'), '')", TOTAL),
    "sort by confidence": ("find('.column-confidence button').click()", ROW),
    "scroll to the middle": (SCROLL.format(0.5), ROW),
    "scroll to the end": (SCROLL.format(1), ROW),
    "sort by item": ("find('.column-id button').click()", ROW),
}
MAP_ACTIONS = {
    "map: colour by prediction": (SELECT.format("Colour", "prediction"), POINTS),
    "map: filter by label": (SELECT.format("Any label", "cat"), POINTS),
    "map: no filter": (SELECT.format("Any label", ""), POINTS),
    "map: zoom": ("find('.map-tools button[aria-label=\"Zoom in\"]').click()", POINTS),
    "map: whole map": ("find('.map-tools button:last-child').click()", POINTS),
    "map: colour by label": (SELECT.format("Colour", "label"), POINTS),
}


def make_campaign(folder: Path, items: int) -> Project:
    """A campaign with labels and predictions."""
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 3, items)
    rows = draw.normal(size=(items, 64)) + 4 * draw.normal(size=(3, 64))[kinds]
    np.save(folder / "rows.npy", rows.astype(np.float32))
    project = Project.start(folder / "rows.npy", home=folder / "c.labelwise", classes=CLASSES)
    ids = np.sort(draw.choice(items, LABELS, replace=False)).tolist()
    now = time.time()
    events = [Asked(now, 1, tuple(ids), strategy="random")]
    told = [Told(now, item, CLASSES[kinds[item]], "Ada") for item in ids[: LABELS - 50]]
    project.open_record().commit(lambda ledger, now: ([*events, *told], None))
    shares = draw.uniform(0.4, 1, items).astype(np.float32)
    write_predictions(
        project.home, PoolPredictions(1, list(CLASSES), kinds.astype(np.int32), shares)
    )
    return project


class Clock:
    """Milliseconds of an action: elapsed, and CPU time of the server and of the page's thread."""

    def __init__(self, page: Page) -> None:
        self._page, self._tools = page, page.context.new_cdp_session(page)
        self._tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read_cpu(self) -> tuple[float, float]:
        """CPU milliseconds of this process, which is the server, and of the page so far."""
        found = self._tools.send("Performance.getMetrics")["metrics"]
        page = next(one["value"] for one in found if one["name"] == "TaskDuration")
        return 1000 * time.process_time(), 1000 * page

    def time(self, act: str, done: str) -> tuple[float, float, float]:
        """Run an action until its condition holds."""
        server, page = self.read_cpu()
        elapsed = self._page.evaluate(TIMED, [act, done])
        server_after, page_after = self.read_cpu()
        return elapsed, server_after - server, page_after - page


def measure(page: Page, url: str, repeats: int) -> Any:
    """Times of all actions, in milliseconds."""
    clock = Clock(page)
    for visit in range(repeats):
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(url)
        page.wait_for_selector(".space .row[data-item]")
        name = "first view" if visit else "first view after the server's start"
        yield name, (1000 * (time.perf_counter() - start), 0.0, 0.0)
    time.sleep(15)  # the server reads the texts to search in the background
    for _ in range(repeats):
        for name, action in LIST_ACTIONS.items():
            yield name, clock.time(*action)
    show = "find('.filters > button').click()"
    for _ in range(repeats):
        yield "open the map", clock.time(show, "find('.legend')?.children.length > 2")
        for name, action in MAP_ACTIONS.items():
            page.wait_for_timeout(300)
            yield name, clock.time(*action)
        page.evaluate(TIMED, [show, "find('.space .row[data-item]')"])


def main() -> None:
    """Measure and write a line per action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--map", action="store_true", help="compute the map as the server would")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    about = circumstances(1) | {"benchmark": "items_view", "items": arguments.items}
    with tempfile.TemporaryDirectory(prefix="items-") as name:
        project = make_campaign(Path(name), arguments.items)
        if arguments.map:
            start = time.process_time()
            write_map(project)
            line = {"action": "compute the map", "cpu_seconds": time.process_time() - start}
            write_line(about | line, arguments.out)
        else:  # the page does not care where the points are
            places = np.argsort(np.argsort(project.inputs[:, :2], axis=0), axis=0)
            places = (places * (SCALE / arguments.items)).astype(np.uint16)
            groups = np.full(arguments.items, -1, np.int32)
            with (project.home / FILE).open("wb") as file:
                np.savez(file, places=places, groups=groups)
        app = create_app(project, trains=False)
        server = uvicorn.Server(uvicorn.Config(app, port=8672, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        times: dict[str, list[tuple[float, ...]]] = {}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
            page.add_init_script("localStorage['labelwise/name'] ??= 'Ada'")
            for action, milliseconds in measure(page, ADDRESS, arguments.repeats):
                times.setdefault(action, []).append(milliseconds)
            browser.close()
        for action, found in times.items():
            columns = np.round(np.array(found).T, 1)
            names = ("milliseconds", "server_cpu", "page_cpu")
            line = {"action": action} | {
                name: column.tolist() for name, column in zip(names, columns, strict=True)
            }
            line["median"] = np.median(columns, axis=1).tolist()
            write_line(about | line | {"load_average": round(os.getloadavg()[0], 2)}, arguments.out)
        app.site.watch.close()
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
