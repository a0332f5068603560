"""Predictions of all items by the last model: the background process writes, the server reads."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.campaign import Campaign
from labelwise.files import ARRAY_ERRORS, write_atomically
from labelwise.record.events import Label

FILE = "predictions.npz"
BLOCK = 20_000


class PoolPredictions(NamedTuple):
    """Predicted classes of ``n`` items as codes into ``names``, and their probabilities."""

    number: int
    names: list[Label]
    codes: NDArray[np.int32]
    confidence: NDArray[np.float32]


def predict_pool(campaign: Campaign, number: int, items: int) -> PoolPredictions | None:
    """Predictions of all items, ``(n,)``, in blocks; None if the model gives no probabilities."""
    names: dict[Label, int] = {}
    codes, confidence = np.zeros(items, np.int32), np.zeros(items, np.float32)
    for first in range(0, items, BLOCK):
        ids = np.arange(first, min(first + BLOCK, items))
        found = campaign.predict(ids)
        if found.confidence is None:
            return None
        codes[ids] = [names.setdefault(label, len(names)) for label in found.labels]
        confidence[ids] = found.confidence
    return PoolPredictions(number, list(names), codes, confidence)


def write_predictions(home: Path, found: PoolPredictions) -> None:
    """Write predictions to a campaign's folder."""
    with write_atomically(home / FILE) as part, part.open("wb") as file:
        np.savez(
            file,
            number=found.number,
            names=json.dumps(found.names),
            codes=found.codes,
            confidence=found.confidence,
        )


def read_predictions(home: Path) -> PoolPredictions | None:
    """Read predictions; None if there are none, or the file is damaged."""
    try:
        with np.load(home / FILE, allow_pickle=False) as file:
            names = json.loads(str(file["names"]))
            codes, confidence = file["codes"], file["confidence"]
            number = int(file["number"])
    except (*ARRAY_ERRORS, KeyError):
        return None
    fits = len(codes) == len(confidence) and (not len(codes) or codes.max() < len(names))
    return PoolPredictions(number, names, codes, confidence) if fits else None
