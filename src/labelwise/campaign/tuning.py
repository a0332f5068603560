"""Options that follow from the history, for strategies that do not adapt themselves yet."""

from typing import Any

from labelwise.kernels.bandit import importance_weighted_accuracy
from labelwise.kernels.calibration import calibrate_temperature
from labelwise.strategy import History

LEAST_MEASURED = 20
"""Smallest number of held-out labels from which a temperature is fitted."""


def adapt_bandit(history: History) -> dict[str, Any]:
    """Past rounds of the bandit, with the reward of its last draw."""
    if "rounds" in history.options:
        return {}
    past = [batch for batch in history.batches if batch.strategy == "bandit" and batch.info]
    hits = history.evaluate_labelled() if past else None
    if hits is None:
        return {"rounds": []}
    drawn = {item: batch.info["probability"] for batch in past for item in batch.ids}
    chances = [drawn.get(item, 1.0) for item in history.labelled]
    reward = importance_weighted_accuracy(hits, chances)
    last = {name: past[-1].info[name] for name in ("arm", "probability")}
    return {"rounds": [*past[-1].options.get("rounds", []), {**last, "reward": reward}]}


def adapt_sparse(history: History) -> dict[str, Any]:
    """A temperature fitted on held-out labels, or smoothed labels without them."""
    if {"label_law", "temperature", "rho"} & set(history.options):
        return {}
    found = history.evaluate_holdout()
    if found is None or len(found[1]) < LEAST_MEASURED:
        return {"label_law": "label_smoothing", "rho": 0.1}
    return {"temperature": calibrate_temperature(*found)}


ADAPT = {"bandit": adapt_bandit, "sparse_greedy": adapt_sparse, "sparse_iht": adapt_sparse}
