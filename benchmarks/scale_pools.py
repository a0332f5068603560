"""The pools of the scale benchmark: files that look like the last layer of a trained classifier.

A pool is two files, ``features.npy`` ``(n, d)`` and ``probabilities.npy`` ``(n, K)``, both float32,
written some rows at a time. Of two pools of the same width the smaller one is the beginning of the
larger one.
"""

import os
from pathlib import Path

import numpy as np
from workloads import Workload, blocks

CLASSES, CHUNK, BUDGET = 10, 100_000, 1_000
FILES = ("features.npy", "probabilities.npy")


def pool_folder(folder: Path, n: int, d: int, seed: int) -> Path:
    """Where a pool lies."""
    return folder / f"pool-{n}x{d}-{seed}"


def make_pool(folder: Path, n: int, d: int, seed: int) -> Path:
    """The folder of a pool; its files are made unless they are there already."""
    place = pool_folder(folder, n, d, seed)
    if all((place / name).exists() for name in FILES):
        return place
    place.mkdir(parents=True, exist_ok=True)
    parts = [place / f"{name}.unfinished" for name in FILES]
    try:
        with parts[0].open("wb") as features, parts[1].open("wb") as probabilities:
            for file, width in ((features, d), (probabilities, CLASSES)):
                header = {"descr": "<f4", "fortran_order": False, "shape": (n, width)}
                np.lib.format.write_array_header_1_0(file, header)
            for rows, chances in blocks(Workload("scale", n, d, CLASSES, BUDGET), seed, CHUNK):
                rows.tofile(features)
                chances.tofile(probabilities)
            for file in (features, probabilities):
                file.flush()
                os.fsync(file.fileno())  # else it is still being written while we measure
        for part, name in zip(parts, FILES, strict=True):
            part.rename(place / name)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return place


def remove_pool(folder: Path, n: int, d: int, seed: int) -> None:
    """Remove the files of a pool, and its folder if nothing else is in it."""
    place = pool_folder(folder, n, d, seed)
    for name in FILES:
        (place / name).unlink(missing_ok=True)
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()
