"""The labels of a campaign: resolved among annotators, and split into training and holdout."""

from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.learner import Label
from labelwise.record.events import Asked
from labelwise.record.ledger import Ledger
from labelwise.record.resolution import resolve_weighted
from labelwise.rounds.round import scale_weights


@dataclass(frozen=True)
class TrainingSet:
    """Labels to train on and labels to measure with, both in the order of the ids."""

    labels: dict[int, Label]  # by id, to train on
    weights: Floats | None  # ``(m,)`` of mean about 1, or None if no strategy gave any
    measured: dict[int, Label]  # by id, labels of the holdout


def resolve_labels(ledger: Ledger, settings: Settings) -> dict[int, Label]:
    """The label of every labelled item, by the campaign's rule of resolution.

    The ledger decides by majority. With weighted votes, votes on items that several people
    labelled are weighted by the reliability of each person, estimated from all votes.
    """
    labels = dict(ledger.labels)
    if settings.resolution == "majority" or settings.regression:
        return labels
    contested = [
        item
        for item, votes in ledger.votes.items()
        if len(votes) > 1 and item not in ledger.resolutions and item not in ledger.skipped
    ]
    if not contested:
        return labels
    classes = None if settings.classes is None else len(settings.classes)
    weighed = resolve_weighted(ledger.votes, classes=classes).labels
    for item in contested:
        labels.pop(item, None)
        if item in weighed:
            labels[item] = weighed[item]
    return labels


def make_training_set(ledger: Ledger, settings: Settings) -> TrainingSet:
    """The current training and holdout labels.

    Raises:
        BadInput: there are no labels to train on.
    """
    labels = dict(sorted(resolve_labels(ledger, settings).items()))
    measured = {item: label for item, label in labels.items() if item in ledger.validation}
    learned = {item: label for item, label in labels.items() if item not in ledger.validation}
    if not learned:
        held = f" (all {len(measured)} are in the holdout)" if measured else ""
        raise BadInput(f"there are no labels to train on{held}; record some first")
    given = read_batch_weights(ledger) if settings.weights else {}
    weights = np.array([given.get(item, 1.0) for item in learned]) if given else None
    return TrainingSet(learned, weights, measured)


def explain_missing_classes(ledger: Ledger, settings: Settings) -> str | None:
    """Why the labels cannot train a classifier yet: all are of one class; None if they can.

    The number of labels read is small unless all of them are equal.
    """
    if settings.regression:
        return None
    training = (label for item, label in ledger.labels.items() if item not in ledger.validation)
    first = next(training, None)
    if first is None or any(label != first for label in training):
        return None
    return (
        f"all training labels so far are {first!r}, and a model needs two classes; "
        "more items are chosen without a model"
    )


def read_batch_weights(ledger: Ledger) -> dict[int, float]:
    """Training weights by id, of mean 1 in every batch; empty if no batch has weights."""
    found: dict[int, float] = {}
    for batch in ledger.batches:
        asked = batch.asked
        if asked.weights is not None:
            held = set(asked.validation)
            pairs = zip(asked.ids, asked.weights, strict=True)
            found |= scale_weights({item: weight for item, weight in pairs if item not in held})
    return found


def read_batch_guesses(asked: Asked) -> dict[int, Label]:
    """Predictions of the model that selected a batch, by id, without the holdout."""
    held = set(asked.validation)
    if asked.guesses is not None:
        given = [label for label, _ in asked.guesses]
    else:
        given = list(asked.info.get("predicted", ()))
    return {item: label for item, label in zip(asked.ids, given, strict=False) if item not in held}
