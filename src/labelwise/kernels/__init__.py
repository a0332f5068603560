"""Numerical building blocks over blocks of rows; no strategy, no model."""

import importlib
from typing import Any

_HOMES = {
    "Factored": "distance.embedding",
    "arm_probabilities": "bandit",
    "calibrate_temperature": "calibration",
    "draw_until_distinct": "linear.draws",
    "farthest_first": "distance.farthest",
    "importance_weighted_accuracy": "bandit",
    "kmeans_plus_plus": "distance.kmeans_plus_plus",
    "leverage_scores": "linear.leverage",
    "lewis_weights": "linear.lewis",
    "randomized_bss": "linear.bss",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a kernel when it is asked for: SciPy takes half a second, a command may not."""
    if name not in _HOMES:
        raise AttributeError(f"labelwise.kernels has no {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
