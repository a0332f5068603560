"""How long encoding a folder of images takes, next to the bare onnxruntime loop.

Run: PYTHONPATH=src python benchmarks/encoding_speed.py --out docs/results/encoding_speed.jsonl

Images are written as files of two forms: those of CIFAR-10 as .png, and random ones of the size of
photographs as .jpg. Every repeat has its own images, and the ways take turns, so that their ratio
holds on a busy machine too. Medians of the repeats, in milliseconds of CPU time and of wall time
per image; --first is that of the images, so that a long measurement can be split:

``bare``     onnxruntime with its default settings on prepared arrays, in batches of 32
``threads``  the same arrays in batches of 8, each on one of as many threads as there are cores
``encode``   `labelwise.encode` on the folder: read, decode, scale and encode

``ratio`` is encode over bare in wall time, ``cpu_ratio`` in CPU time, each the median over the
repeats; ``total_ratio`` is that of the wall times of all repeats together. The CPU times of encode
and threads differ by reading, decoding and scaling the images.
"""

import argparse
import functools
import json
import operator
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import labelwise
from labelwise.benchmark.datasets import load
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.encoding import prepare_image
from labelwise.encoders.registry import BUILT_IN, open_encoder

FORMS = ("CIFAR-10 .png", "500 x 375 .jpg")
WAYS = ("bare", "threads", "encode")
BATCH = 32


@functools.cache
def load_images() -> np.ndarray:
    """All images of CIFAR-10."""
    return load("cifar10").inputs


def write_images(folder: Path, form: str, first: int, count: int) -> None:
    """Images of CIFAR-10, or smooth random ones, which compress about as well as photographs."""
    rng = np.random.default_rng(first)
    real = load_images()[first : first + count] if form == FORMS[0] else None
    for number in range(count):
        if real is not None:
            pixels = (255 * real[number]).round().astype(np.uint8).transpose(1, 2, 0)
            Image.fromarray(pixels).save(folder / f"{number:05}.png")
            continue
        coarse = rng.integers(0, 256, (46, 62, 3)).astype(np.uint8)
        picture = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        noise = rng.normal(0, 6, (375, 500, 3))
        pixels = np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg")


def run_bare(session: onnxruntime.InferenceSession, images: np.ndarray) -> None:
    """Only the model, on arrays in memory."""
    for first in range(0, len(images), BATCH):
        session.run(None, {"images": images[first : first + BATCH]})


def run_in_threads(encoder: Encoder, images: np.ndarray) -> None:
    """Only the model, in the same threads as `labelwise.encode`."""
    parts = [images[first : first + 8] for first in range(0, len(images), 8)]
    with ThreadPoolExecutor(encoder.workers) as threads:
        list(threads.map(encoder.encode_batch, parts))


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall time and of CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(form: str, first: int, count: int, repeats: int, chosen: Sequence[str]) -> dict:
    """The chosen ways in turns, on the images of one repeat after another."""
    encoder = open_encoder("efficientnet_lite0", "images", device="cpu")
    session = onnxruntime.InferenceSession(
        BUILT_IN["efficientnet_lite0"].path, providers=["CPUExecutionProvider"]
    )
    times = {name: [] for name in chosen}
    for repeat in range(-1, repeats):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            start = first + max(repeat, 0) * count
            write_images(folder, form, start, count if repeat >= 0 else BATCH)
            paths = sorted(folder.iterdir())
            images = np.stack([prepare_image(path, encoder.side) for path in paths])
            ways = {
                "bare": functools.partial(run_bare, session, images),
                "threads": functools.partial(run_in_threads, encoder, images),
                "encode": functools.partial(labelwise.encode, folder, encoder),
            }
            found = {name: measure(ways[name]) for name in chosen}
        for name, values in found.items() if repeat >= 0 else ():  # the first one warms up
            times[name].append(values)
    found = {"images": form, "first": first, "count": count, "repeats": repeats}
    found["cores"] = os.cpu_count()
    for name, values in times.items():
        wall, cpu = (
            statistics.median(column) / count * 1e3 for column in zip(*values, strict=True)
        )
        found |= {f"{name}_ms": round(wall, 2), f"{name}_cpu_ms": round(cpu, 2)}
    for name, column in (("ratio", 0), ("cpu_ratio", 1)):
        pairs = zip(times["bare"], times["encode"], strict=True)
        ratios = [encoded[column] / bare[column] for bare, encoded in pairs]
        found[name] = round(statistics.median(ratios), 3)
        found[f"{name}_range"] = [round(min(ratios), 3), round(max(ratios), 3)]
    totals = (sum(wall for wall, _ in times[name]) for name in ("encode", "bare"))
    found["total_ratio"] = round(operator.truediv(*totals), 3)
    return found


def main() -> None:
    """Measure every form, and print or append one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=WAYS, help="bare and encode, or all"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for form in given.forms:
        line = json.dumps(compare(form, given.first, given.count, given.repeats, given.ways))
        print(line, flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
