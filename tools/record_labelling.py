"""Record the labelling page at work, as an animation for the front page of the documentation.

Labels photos of CIFAR-10 (`labelwise data fetch cifar10`) in Chromium with the keyboard: a first
batch, the training in the background, more photos, then a group of similar photos in the grid.

Run: python tools/record_labelling.py docs/pictures/labelling.webp (a few minutes).
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from labelwise.benchmark.datasets import load
from labelwise.cli import run

CLASSES = {"airplane": 0, "cat": 3, "frog": 6, "horse": 7, "ship": 8}
"""Names and numbers of the classes in CIFAR-10."""
PHOTOS, BATCH, SIZE = 300, 24, (900, 582)


class Recording:
    """Screenshots of a page with the time each is shown, in milliseconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def add(self, milliseconds: int) -> None:
        """Add what the page shows now."""
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        self.frames.append(shot.resize(SIZE, Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)

    def save(self, file: Path) -> None:
        """Write an animated WebP."""
        first, *others = self.frames
        first.save(
            file,
            save_all=True,
            append_images=others,
            duration=self.durations,
            loop=0,
            quality=55,
            method=4,
        )
        print(f"{file}: {len(self.frames)} frames, {file.stat().st_size / 1e6:.2f} MB")


def write_photos(folder: Path) -> list[str]:
    """Save photos of the classes; the true classes in the order of the files."""
    data = load("cifar10")
    numbers = list(CLASSES.values())
    places = np.flatnonzero(np.isin(data.targets, numbers))[:PHOTOS]
    folder.mkdir()
    for number, place in enumerate(places):
        pixels = (data.inputs[place].transpose(1, 2, 0) * 255).astype(np.uint8)
        photo = Image.fromarray(pixels).resize((256, 256), Image.Resampling.BICUBIC)
        photo.save(folder / f"photo-{number:03}.png")
    names = list(CLASSES)
    return [names[numbers.index(int(data.targets[place]))] for place in places]


def record(page: Page, address: str, truth: list[str]) -> Recording:
    """Label with the keyboard and take a picture after every step."""
    recording = Recording(page)
    page.goto(address)
    page.get_by_role("textbox").first.fill("Ada")
    page.keyboard.press("Enter")
    keys = [str(number) for number in range(1, len(CLASSES) + 1)]

    def label(milliseconds: int) -> None:
        item = page.locator(".stage[data-item]").get_attribute("data-item")
        recording.add(milliseconds)
        page.keyboard.press(keys[list(CLASSES).index(truth[int(item or 0)])])
        wait(lambda: page.locator(".stage[data-item]").get_attribute("data-item") != item)
        page.wait_for_function("[...document.images].every(image => image.complete)")
        page.wait_for_timeout(150)

    page.wait_for_selector(".stage[data-item] img")
    page.wait_for_timeout(500)
    for number in range(2 * BATCH):
        recorded = number < 8 or number >= 2 * BATCH - 8
        label(700 if number < 4 else 350) if recorded else label(60)
    page.wait_for_timeout(4000)
    for _ in range(4):
        label(600)
    recording.add(1500)
    page.keyboard.press("g")
    page.wait_for_timeout(2500)
    recording.add(2500)
    return recording


def wait(happened: Callable[[], bool]) -> None:
    """Wait up to ten seconds until something happens."""
    end = time.monotonic() + 10
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("the page did not show the next photo")
        time.sleep(0.02)


def main() -> None:
    """Start a campaign and its server, record the page, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    given = parser.parse_args()
    out = given.out.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        truth = write_photos(Path("photos"))
        options = ["--classes", ",".join(CLASSES), "--batch", str(BATCH)]
        run(["start", "photos", *options])
        command = [Path(sys.executable).with_name("labelwise"), "label", "--no-open", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            lines = iter(server.stdout or ())
            address = next(
                filter(None, (re.search(r"http://[\d.:]+\S*", line) for line in lines)), None
            )
            if address is None:
                raise SystemExit("the server did not start")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=given.chromium, args=["--no-sandbox"]
                )
                # The page forbids scripts of strings, which waiting for a condition needs.
                size = {"width": 1120, "height": 724}
                page = browser.new_page(viewport=size, bypass_csp=True)
                recording = record(page, address[0], truth)
                browser.close()
        finally:
            server.terminate()
            server.wait()
    recording.save(out)


if __name__ == "__main__":
    main()
