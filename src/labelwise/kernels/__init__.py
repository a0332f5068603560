"""Numerical building blocks over blocks of rows; no strategy, no model."""

import importlib
from typing import Any

_HOMES = {
    "Factored": "factored",
    "approximate_leverage_scores": "sketch",
    "arm_probabilities": "bandit",
    "calibrate_temperature": "calibration",
    "deterministic_bss": "barrier_deterministic",
    "draw_until_distinct": "draws",
    "farthest_first": "farthest",
    "importance_weighted_accuracy": "bandit",
    "kmeans_plus_plus": "seeding",
    "leverage_scores": "leverage",
    "lewis_weights": "lewis",
    "randomized_bss": "barrier",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a kernel when it is asked for: SciPy takes half a second, a command may not."""
    if name not in _HOMES:
        raise AttributeError(f"labelwise.kernels has no {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
