"""Pools that look like the last layer of a trained classifier, for the speed benchmarks.

Items lie in class clusters of a ReLU layer with a shared low-rank spread; the probabilities come
from a linear head over them, so that most items are certain and some are not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """A pool size: ``n`` items, ``d`` features, ``classes`` classes, ``budget`` picks."""

    name: str
    n: int
    d: int
    classes: int
    budget: int


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", 10_000, 128, 10, 500),
        Workload("W2", 50_000, 512, 10, 1_000),
        Workload("W3", 50_000, 512, 100, 1_000),
        Workload("W4", 200_000, 512, 10, 5_000),
        Workload("W5", 1_000_000, 256, 10, 1_000),
    )
}


def make(workload: Workload, seed: int = 0, chunk: int = 50_000) -> tuple[Any, Any]:
    """Features ``(n, d)`` and probabilities ``(n, K)``, both float32."""
    generator = np.random.default_rng(seed)
    d, classes = workload.d, workload.classes
    centres = generator.normal(size=(classes, d)).astype(np.float32)
    spread = generator.normal(size=(32, d)).astype(np.float32) / np.sqrt(32, dtype=np.float32)
    head = (centres - centres.mean(axis=0)).T * np.float32(4 / d)
    features = np.empty((workload.n, d), dtype=np.float32)
    probabilities = np.empty((workload.n, classes), dtype=np.float32)
    for first in range(0, workload.n, chunk):
        count = min(chunk, workload.n - first)
        labels = generator.integers(classes, size=count)
        rows = centres[labels] + generator.standard_normal((count, 32), dtype=np.float32) @ spread
        rows += 0.5 * generator.standard_normal((count, d), dtype=np.float32)
        np.maximum(rows, 0, out=rows)
        logits = rows @ head * 4
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        features[first : first + count] = rows
        probabilities[first : first + count] = logits / logits.sum(axis=1, keepdims=True)
    return features, probabilities
