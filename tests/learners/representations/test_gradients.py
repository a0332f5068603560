"""Gradients of items at predicted and at drawn labels, against autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from labelwise.errors import UnknownName
from labelwise.learners.members import LaplaceMembers
from labelwise.learners.network_reader import pseudo_labels
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import INPUTS, LABELS, POOL, trained


def slow_gradients(learner, loss):
    """The gradient of every pool item at its predicted class, and the sum over labelled items."""
    module = learner.module
    parameters = list(module.parameters())

    def gradient(row, label):
        value = loss(module(row[None]), label[None]).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)]).double()

    pool, inputs = torch.from_numpy(POOL), torch.from_numpy(INPUTS)
    guesses = module(pool).argmax(dim=1)
    rows = torch.stack([gradient(*pair) for pair in zip(pool, guesses, strict=True)])
    total = sum(gradient(*pair) for pair in zip(inputs, torch.from_numpy(LABELS), strict=True))
    return rows, total


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_autograd_item_by_item(bias):
    make = lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3, bias=bias))  # noqa: E731
    learner = trained(make)
    found = learner.represent(POOL, ["gradient_norms", "gradient_products"])
    loss = lambda o, t: F.cross_entropy(o, t, reduction="none")  # noqa: E731
    rows, total = slow_gradients(learner, loss)
    np.testing.assert_allclose(found["gradient_norms"], rows.square().sum(dim=1), rtol=1e-4)
    scale = float(rows.norm(dim=1).max() * total.norm())
    np.testing.assert_allclose(found["gradient_products"], rows @ total, atol=1e-5 * scale)


def test_sampled_pseudo_labels_follow_the_probabilities():
    outputs = torch.log(torch.tensor([[0.2, 0.5, 0.3]])).repeat(6000, 1)
    noise = torch.from_numpy(np.random.default_rng(0).random(6000))
    drawn = pseudo_labels(outputs, None, True, noise)
    shares = torch.bincount(drawn, minlength=3) / 6000
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.5, 0.3]), atol=0.02, rtol=0)
    assert pseudo_labels(outputs, None, True).unique().tolist() == [1]


def test_gradients_at_sampled_labels_are_the_same_in_every_pass_and_batch():
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    found = []
    for size in (512, 37):
        learner = TorchLearner(
            lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
            epochs=3,
            pseudo="sample",
            represent_batch_size=size,
        )
        learner.fit(images[:100], digits[:100], seed=4)
        found += [learner.represent(images[:200], ["gradient_norms"])["gradient_norms"]] * 2
        found.append(learner.represent(images[:200], ["gradient_norms"])["gradient_norms"])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4)
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
        epochs=3,
    )
    learner.fit(images[:100], digits[:100], seed=4)
    certain = learner.represent(images[:200], ["gradient_norms"])["gradient_norms"]
    assert (found[0] != certain).mean() > 0.3


def test_a_regression_of_several_values_has_no_votes():
    members = LaplaceMembers(count=3)
    make = lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))  # noqa: E731
    targets = np.stack([INPUTS[:, 0], INPUTS[:, 1]], axis=1)
    learner = TorchLearner(make, loss="mse", epochs=2, members=members)
    learner.fit(INPUTS, targets, seed=0)
    gradients = ["gradient_norms", "gradient_products", "gradient_sketch"]
    assert learner.offered() == ["features", "outputs", *gradients]
    with pytest.raises(UnknownName, match="this learner cannot give member_votes"):
        learner.represent(POOL, ["member_votes"])
    one = TorchLearner(
        lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)),
        loss="mse",
        epochs=2,
        members=LaplaceMembers(count=3),
    )
    one.fit(INPUTS, targets[:, 0], seed=0)
    assert one.represent(POOL, ["member_votes"])["member_votes"].shape == (len(POOL), 3)


@pytest.mark.parametrize("regression", [True, False])
def test_sketches_need_no_members_and_no_labelled_items(regression, tmp_path):
    outputs = 1 if regression else 3
    make = lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))  # noqa: E731
    targets = INPUTS[:, 0] if regression else np.arange(len(INPUTS)) % 3
    learner = TorchLearner(make, loss="mse" if regression else "cross_entropy", epochs=2)
    learner.fit(INPUTS, targets, seed=0)
    sketch = learner.represent(INPUTS, ["gradient_sketch"])["gradient_sketch"]
    assert sketch.shape == (len(INPUTS), 512) and np.isfinite(sketch).all()
    learner.save(tmp_path / "model")
    loaded = TorchLearner(make, loss="mse" if regression else "cross_entropy")
    loaded.load(tmp_path / "model")
    again = loaded.represent(INPUTS[:3], ["features", "gradient_sketch"])["gradient_sketch"]
    np.testing.assert_allclose(again, sketch[:3], rtol=1e-3, atol=1e-5)
