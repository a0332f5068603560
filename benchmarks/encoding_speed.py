"""How long encoding a folder of images takes, next to the bare onnxruntime loop.

Run: PYTHONPATH=src python benchmarks/encoding_speed.py --out docs/results/encoding_speed.jsonl

Images are written as files of several forms: small .png files like those of CIFAR-10, and .jpg
photographs. Both ways take turns, so that their ratio holds on a busy machine too, and are given by
the medians of the repeats, in milliseconds of CPU time and of wall time per image:

``bare``     onnxruntime with its default settings on prepared arrays, in batches of 32
``threads``  the same arrays in batches of 8, each on one of as many threads as there are cores
``encode``   `labelwise.encode` on the folder: read, decode, scale and encode

``ratio`` is encode over bare in wall time. The CPU times of encode and threads differ by reading,
decoding and scaling the images.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import labelwise
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.encoding import prepare_image
from labelwise.encoders.registry import BUILT_IN, open_encoder

FORMS = {"32 x 32 .png": ((32, 32), "png"), "500 x 375 .jpg": ((500, 375), "jpg")}
BATCH = 32


def write_images(folder: Path, count: int, size: tuple[int, int], suffix: str) -> list[Path]:
    """Smooth random images, which compress about as well as photographs."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = rng.integers(0, 256, (size[1] // 8 or 1, size[0] // 8 or 1, 3)).astype(np.uint8)
        picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
        noise = rng.normal(0, 6, (size[1], size[0], 3))
        pixels = np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8)
        paths.append(folder / f"{number:05}.{suffix}")
        Image.fromarray(pixels).save(paths[-1])
    return paths


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


def compare(form: str, count: int, repeats: int) -> dict:
    """Both ways in turns."""
    encoder = open_encoder("efficientnet_lite0", "images", device="cpu")
    session = onnxruntime.InferenceSession(
        BUILT_IN["efficientnet_lite0"].path, providers=["CPUExecutionProvider"]
    )
    with tempfile.TemporaryDirectory() as place:
        paths = write_images(Path(place), count, *FORMS[form])
        images = np.stack([prepare_image(path, encoder.side) for path in paths])
        ways = {
            "bare": lambda: run_bare(session, images),
            "threads": lambda: run_in_threads(encoder, images),
            "encode": lambda: labelwise.encode(Path(place), encoder),
        }
        for work in ways.values():  # warm up
            work()
        times = {name: [] for name in ways}
        for _ in range(repeats):
            for name, work in ways.items():
                times[name].append(measure(work))
    found = {"images": form, "count": count, "repeats": repeats, "cores": os.cpu_count()}
    for name, values in times.items():
        wall, cpu = (
            statistics.median(column) / count * 1e3 for column in zip(*values, strict=True)
        )
        found |= {f"{name}_ms": round(wall, 2), f"{name}_cpu_ms": round(cpu, 2)}
    ratios = [e[0] / b[0] for b, e in zip(times["bare"], times["encode"], strict=True)]
    found["ratio"] = round(statistics.median(ratios), 3)
    return found


def main() -> None:
    """Measure every form, and print or append one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for form in FORMS:
        line = json.dumps(compare(form, given.count, given.repeats))
        print(line, flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
