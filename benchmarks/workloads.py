"""Pools that look like the last layer of a trained classifier, for the speed benchmarks.

Items lie in class clusters of a ReLU layer with a shared low-rank spread; the probabilities come
from a linear head over them, so that most items are certain and some are not. The pools for
BatchBALD hold what many draws of a linear head from its posterior predict.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """A pool size: ``n`` items, ``d`` features, ``classes`` classes, ``budget`` picks.

    With ``members``, the pool is their predictions, and ``d`` says how alike those of two items
    are: much in 16 dimensions, hardly at all in a thousand.
    """

    name: str
    n: int
    d: int
    classes: int
    budget: int
    members: int = 0


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W0", 1_000, 32, 5, 50),  # to try the benchmark out; too small to say anything
        Workload("W1", 10_000, 128, 10, 500),
        Workload("W2", 50_000, 512, 10, 1_000),
        Workload("W3", 50_000, 512, 100, 1_000),
        Workload("W4", 200_000, 512, 10, 5_000),
        Workload("W5", 1_000_000, 256, 10, 1_000),
        Workload("B0", 200, 16, 4, 6, members=20),
        Workload("B1", 2_000, 16, 10, 10, members=100),
        Workload("B2", 2_000, 1_024, 10, 10, members=100),
    )
}


def make(workload: Workload, seed: int = 0, chunk: int = 50_000) -> tuple[Any, Any]:
    """Features ``(n, d)`` and probabilities ``(n, K)``, both float32."""
    features = np.empty((workload.n, workload.d), dtype=np.float32)
    probabilities = np.empty((workload.n, workload.classes), dtype=np.float32)
    first = 0
    for rows, chances in blocks(workload, seed, chunk):
        features[first : first + len(rows)] = rows
        probabilities[first : first + len(rows)] = chances
        first += len(rows)
    return features, probabilities


def blocks(workload: Workload, seed: int, chunk: int) -> Iterator[tuple[Any, Any]]:
    """The same, ``chunk`` items at a time."""
    generator = np.random.default_rng(seed)
    d, classes = workload.d, workload.classes
    centres = generator.normal(size=(classes, d)).astype(np.float32)
    spread = generator.normal(size=(32, d)).astype(np.float32) / np.sqrt(32, dtype=np.float32)
    head = (centres - centres.mean(axis=0)).T * np.float32(4 / d)
    for first in range(0, workload.n, chunk):
        count = min(chunk, workload.n - first)
        labels = generator.integers(classes, size=count)
        rows = centres[labels] + generator.standard_normal((count, 32), dtype=np.float32) @ spread
        rows += 0.5 * generator.standard_normal((count, d), dtype=np.float32)
        np.maximum(rows, 0, out=rows)
        yield rows, softmax(rows @ head * 4)


def make_members(workload: Workload, seed: int = 0) -> Any:
    """What each member predicts for each item, ``(n, M, K)`` float32."""
    generator = np.random.default_rng(seed)
    n, d, members, classes = workload.n, workload.d, workload.members, workload.classes
    items = generator.standard_normal((n, d))
    items *= generator.uniform(0.5, 2.5, (n, 1)) / np.linalg.norm(items, axis=1, keepdims=True)
    heads = 1.5 * generator.standard_normal((d, 1, classes))
    heads = heads + 0.7 * generator.standard_normal((d, members, classes))
    logits = items @ heads.reshape(d, members * classes)
    return softmax(logits.reshape(n, members, classes)).astype(np.float32)


def softmax(logits: Any) -> Any:
    """Probabilities over the last axis; the logits are overwritten."""
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


def save(workload: Workload, folder: Path, seed: int = 0) -> None:
    """Write the pool's arrays into ``folder``, one ``.npy`` file each."""
    if workload.members:
        np.save(folder / "members.npy", make_members(workload, seed))
        return
    features, probabilities = make(workload, seed)
    np.save(folder / "features.npy", features)
    np.save(folder / "probabilities.npy", probabilities)
