"""A weight of two is the item twice; only ratios of weights matter."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labelwise.learners.labels import split_holdout
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    INPUTS,
    LABELS,
    VALUES,
    assert_states,
    network,
    state,
    trained,
)


def huber(outputs, targets):
    return F.huber_loss(outputs, targets, reduction="none").sum(dim=1)


LOSSES = {
    "cross_entropy": (3, LABELS, "cross_entropy"),
    "mse, one output": (1, VALUES[:, 0], "mse"),
    "mse, two outputs": (2, VALUES, "mse"),
    "of the user's": (2, VALUES, huber),
}


@pytest.mark.parametrize(("outputs", "targets", "loss"), LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_weight_of_two_equals_the_item_twice(outputs, targets, loss, optimizer):
    options = {"loss": loss, "optimizer": optimizer, "lr": 0.01, "epochs": 30, "batch_size": 99}
    weights, twice = np.r_[np.full(9, 2.0), np.ones(51)], np.r_[0:60, 0:9]
    make = lambda: network(outputs)  # noqa: E731
    weighted = trained(make, weights=weights, targets=targets, **options)
    repeated = trained(make, INPUTS[twice], targets[twice], **options)
    plain = trained(make, targets=targets, **options)
    assert_states(state(weighted), state(repeated), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain.head.weight, weighted.head.weight, rtol=1e-3, atol=1e-3)


def test_the_report_of_weighted_items_is_that_of_the_items_repeated():
    weights, twice = np.r_[np.full(9, 2.0), np.ones(51)], np.r_[0:60, 0:9]
    learner = TorchLearner(network, epochs=3, batch_size=99)
    weighted = learner.fit(INPUTS, LABELS, weights, seed=0)
    repeated = learner.fit(INPUTS[twice], LABELS[twice], seed=0)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-4)


@pytest.mark.parametrize("weighting", ["loss", "sampler"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_scaling_all_weights_changes_nothing(weighting, validation):
    weights = np.linspace(0, 3, 60)
    one, other = (
        trained(weights=scaled, weighting=weighting, validation=validation)
        for scaled in (weights, 64 * weights)
    )
    assert_states(state(one), state(other), rtol=0, atol=0)


@pytest.mark.parametrize("weighting", ["loss", "sampler"])
def test_items_without_weight_are_not_learnt_from(weighting):
    weights = np.where(LABELS == 2, 0.0, 1.0)
    learner = trained(weights=weights, weighting=weighting, epochs=150, lr=0.02)
    assert (learner.predict(INPUTS) != 2).mean() > 0.9


def test_weights_are_of_mean_one_among_the_items_trained_on():
    """A step of gradient descent shows the scale of the loss: items held out do not change it."""
    kept, held = split_holdout(torch.from_numpy(LABELS), True, 0.5, np.random.default_rng([0, 2]))
    weights = np.ones(60)
    weights[held] = 50
    options = {"optimizer": "sgd", "lr": 0.1, "epochs": 1, "batch_size": 99}
    some = trained(weights=weights, validation=0.5, **options)
    alone = trained(inputs=INPUTS[kept], targets=LABELS[kept], **options)
    assert_states(state(some), state(alone), rtol=1e-5, atol=1e-6)
