"""The data sets that scikit-learn brings along."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from labelwise.benchmark.datasets.entries import Entry, Parts, held_out
from labelwise.errors import MissingDependency


def _load(name: str, **options: Any) -> Any:
    try:
        module = import_module("sklearn.datasets")
    except ImportError as error:
        raise MissingDependency(
            f"{name} comes with scikit-learn, which is not there; run pip install 'labelwise[demo]'"
        ) from error
    return getattr(module, f"load_{name}")(**options)


def digits() -> Parts:
    """8 x 8 images, whose pixels go from 0 to 16."""
    held = _load("digits")
    images = (held.images[:, None] / 16).astype(np.float32)
    return held_out(images, held.target.astype(np.int64), 360)


def diabetes() -> Parts:
    """Ten features as they were measured, and the progression after a year."""
    held = _load("diabetes", scaled=False)
    values = held.target[:, None].astype(np.float32)
    return held_out(held.data.astype(np.float32), values, 88)


def _classes(name: str, test: int) -> Parts:
    held = _load(name)
    return held_out(held.data.astype(np.float32), held.target.astype(np.int64), test)


_UCI = "CC BY 4.0 (UCI repository)"

ENTRIES = (
    Entry(
        "digits",
        (1, 8, 8),
        train=1437,
        test=360,
        classes=10,
        bundled=digits,
        licence=_UCI,
        train_counts=(147, 154, 142, 144, 146, 148, 147, 138, 135, 136),
        test_counts=(31, 28, 35, 39, 35, 34, 34, 41, 39, 44),
        digest="c9e7b0f26dd778d6737eb13d08e0245d6ea773eb8aa73b7b507ebd6bf9c964b5",
    ),
    Entry(
        "breast_cancer",
        (30,),
        train=455,
        test=114,
        classes=2,
        bundled=partial(_classes, "breast_cancer", 114),
        licence=_UCI,
        train_counts=(170, 285),
        test_counts=(42, 72),
        digest="e57a9b36424613b2c5be988545bebd288bd73f98cbd0dfeefe77eeff906e2688",
    ),
    Entry(
        "wine",
        (13,),
        train=142,
        test=36,
        classes=3,
        bundled=partial(_classes, "wine", 36),
        licence=_UCI,
        train_counts=(50, 54, 38),
        test_counts=(9, 17, 10),
        digest="36b25477c2bec8675fb483fc2d7306d343a2b50adca48ca03731dbfa883bb1ac",
    ),
    Entry(
        "diabetes",
        (10,),
        train=354,
        test=88,
        classes=None,
        bundled=diabetes,
        digest="03780f0eab2f16e4162163530c7940409ecdc535bc52ca8fe3e00e4e23305f72",
    ),
)
