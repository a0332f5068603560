"""Labelled items, a network and a short training, for the tests of the loop."""

import numpy as np
import torch
from torch import nn

from labelwise.learners.inputs import as_items
from labelwise.learners.settings import LOSSES, TrainingSettings
from labelwise.learners.training import LabelledItems, train

CPU = torch.device("cpu")


def make(count=24, seed=0, classes=3):
    """Labelled items that can be learnt."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, 4)).astype(np.float32)
    targets = torch.from_numpy((inputs[:, 0] > 0) + (inputs[:, 1] > 0).astype(int) * (classes > 2))
    return LabelledItems(as_items(torch.from_numpy(inputs)), targets, torch.ones(count))


def network(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


def trained(labelled, module=None, seed=0, validation=None, watchers=(), progress=None, **changes):
    module = network() if module is None else module
    settings = TrainingSettings(**({"loss": LOSSES["cross_entropy"], "epochs": 5} | changes))
    outcome = train(
        module, labelled, settings, seed=seed, device=CPU, validation=validation,
        watchers=watchers, progress=progress,
    )  # fmt: skip
    return module, outcome


def assert_same(ours, theirs, **tolerance):
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, **tolerance)
