"""Options that depend on what happened before: the campaign knows it, the strategy cannot.

The bandit is told its past rounds; the reward of the last one is the importance-weighted accuracy
of the present model on all labels. The sparse approximations are told the temperature at which the
model's confidence is right on the items for measuring; where there are none, they smooth labels,
since under a network's own probabilities they would have nothing to go by. What is found is
recorded with the batch, and an option that the user gives is left alone.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.campaign.choosing import Standing, Wish
from labelwise.campaign.model import Model
from labelwise.kernels.bandit import importance_weighted_accuracy
from labelwise.kernels.calibration import calibrate_temperature

SPARSE = ("sparse_greedy", "sparse_iht")
SMOOTHED = {"label_law": "label_smoothing", "rho": 0.1}
LEAST_MEASURED = 20
"""From so few labels no temperature is found."""


def tuned(wish: Wish, standing: Standing, model: Model) -> Wish:
    """The wish with the options that follow from the past."""
    if not wish.modelled:
        return wish
    found: dict[str, Any] = {}
    if wish.strategy == "bandit" and "rounds" not in wish.options:
        found = {"rounds": _rounds(standing, model)}
    elif wish.strategy in SPARSE and not {"label_law", "temperature", "rho"} & set(wish.options):
        found = _law(standing, model)
    return replace(wish, options={**found, **wish.options})


def _rounds(standing: Standing, model: Model) -> list[dict[str, Any]]:
    """The bandit's past, with the reward of its last draw."""
    past = [asked for asked in standing.batches if asked.strategy == "bandit" and asked.info]
    if not past:
        return []
    labels = standing.labels
    guessed = model.predict(list(labels)) if labels else None
    if guessed is None:
        return []
    hits = [mine == label for mine, label in zip(guessed.labels, labels.values(), strict=True)]
    drawn = {item: asked.info["probability"] for asked in past for item in asked.ids}
    reward = importance_weighted_accuracy(hits, [drawn.get(item, 1.0) for item in labels])
    last = {"arm": past[-1].info["arm"], "probability": past[-1].info["probability"]}
    return [*past[-1].options.get("rounds", []), {**last, "reward": reward}]


def _law(standing: Standing, model: Model) -> dict[str, Any]:
    """How the sparse approximations suppose that labels fall."""
    columns = {model.coding.decode(number): place for place, number in enumerate(model.columns)}
    known = {item: label for item, label in standing.measured.items() if label in columns}
    if len(known) < LEAST_MEASURED or not model.offers(["logits"]):
        return dict(SMOOTHED)
    rows = model.learner.represent(model.places.inputs(list(known)), ["logits"])["logits"]
    if isinstance(rows, list | tuple):
        return dict(SMOOTHED)
    logits = np.asarray(to_numpy(rows), dtype=np.float64)
    if logits.shape[1] == len(columns):
        targets = [columns[label] for label in known.values()]
    else:  # a column for every class
        targets = model.coding.encode(list(known.values())).tolist()
    return {"temperature": calibrate_temperature(logits, targets)}
