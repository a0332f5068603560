"""Image sets in MATLAB's files."""

import io
from typing import Any

import numpy as np
import scipy.io

from labelwise.benchmark.datasets.entries import Arrays, Files, Parts
from labelwise.benchmark.datasets.images import pick
from labelwise.errors import BadInput


def _open(name: str, data: bytes, *keys: str) -> list[Arrays]:
    try:
        held: dict[str, Any] = scipy.io.loadmat(io.BytesIO(data), variable_names=keys)
        return [np.asarray(held[key]) for key in keys]
    except Exception as error:  # SciPy has no error of its own for a broken file
        raise BadInput(f"{name} is no .mat file with {' and '.join(keys)} ({error})") from error


def svhn(files: Files) -> Parts:
    """SVHN's cropped digits: X ``(32, 32, 3, n)``, and y from 1 with 10 for the digit 0."""

    def read(part: str) -> tuple[Arrays, Arrays]:
        images, classes = _open(*pick(files, f"*{part}_32x32.mat"), "X", "y")
        ordered = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
        return ordered, classes.reshape(-1).astype(np.int64) % 10

    return Parts(*read("train"), *read("test"))


def usps(files: Files) -> Parts:
    """USPS: patterns ``(256, n)`` in [-1, 1], labels ``(10, n)`` with 1 at the digit, else -1."""
    name, data = pick(files, "*usps_resampled.mat")

    def read(part: str) -> tuple[Arrays, Arrays]:
        patterns, labels = _open(name, data, f"{part}_patterns", f"{part}_labels")
        images = ((patterns.T.reshape(-1, 1, 16, 16) + 1) / 2).astype(np.float32)
        return images, labels.argmax(axis=0).astype(np.int64)

    return Parts(*read("train"), *read("test"))
