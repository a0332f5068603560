"""Small networks, and items that they can learn, for the tests of the torch learner."""

import numpy as np
import torch
from torch import nn

from labelwise.learners.torch_learner import TorchLearner

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0) + (INPUTS[:, 1] > 0.3).astype(np.int64)
VALUES = np.stack([INPUTS[:, 0] * INPUTS[:, 1], INPUTS.sum(axis=1)], axis=1)
POOL = RNG.normal(size=(47, 5)).astype(np.float32)
NAMES = ["features", "logits", "probabilities"]


def network(outputs=3):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))


def normed():
    """A network with layers that behave differently in training."""
    return nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def trained(make=network, inputs=INPUTS, targets=LABELS, weights=None, seed=0, **options):
    learner = TorchLearner(make, **({"epochs": 5} | options))
    learner.fit(inputs, targets, weights, seed=seed)
    return learner


def state(learner):
    return {name: value.clone() for name, value in learner.module.state_dict().items()}


def assert_states(one, other, **tolerance):
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(one[name], other[name], **tolerance)
