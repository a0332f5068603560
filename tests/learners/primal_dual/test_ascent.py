"""Dual variables of a training against loops written from the definition."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.primal_dual.dual_head import DualHeadRecipe

EPSILON, STEP = 0.4, 0.3
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(23, 4)).astype(np.float32)
TARGETS = (INPUTS[:, 0] + 0.7 * RNG.normal(size=23) > 0).astype(np.int64)
X, Y = torch.tensor(INPUTS), torch.tensor(TARGETS)
with torch.random.fork_rng():
    torch.manual_seed(1)
    BASE = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def fresh():
    return copy.deepcopy(BASE)


def cross_entropy(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def wrong_mass(outputs, targets):
    """A loss to bound that is not the loss to minimise."""
    return 1 - outputs.softmax(dim=1)[torch.arange(len(targets)), targets]


def plain_sgd(parameters, lr, weight_decay):
    return torch.optim.SGD(parameters, lr=lr)


def trained(weights=None, inputs=INPUTS, targets=TARGETS, epochs=4, **options):
    """A learner, and which items were in each of its batches."""
    batches = []

    def look(batch):
        places = (batch[:, None, :] == torch.tensor(inputs)[None]).all(dim=2).int().argmax(dim=1)
        batches.append(places)
        return batch

    settings = {
        "epsilon": EPSILON,
        "dual_lr": STEP,
        "epochs": epochs,
        "batch_size": 8,
        "lr": 0.05,
        "optimizer": plain_sgd,
        "augment": look,
        "dual_head": DualHeadRecipe(epochs=1),  # it plays no part here
    }
    learner = PrimalDualLearner(fresh, **(settings | options))
    learner.fit(inputs, targets, weights, seed=5)
    return learner, batches


def slow_training(batches, *, when="pre", loss2=None, normalise=False, clamp=None, adam=False):
    """One step per batch; the dual variables of the batch right after it."""
    network = fresh()
    optimizer = (
        torch.optim.Adam(network.parameters(), lr=0.05)
        if adam
        else torch.optim.SGD(network.parameters(), lr=0.05)
    )
    duals = torch.zeros(len(X), dtype=torch.float64)
    for batch in batches:
        network.train()
        outputs = network(X[batch])
        loss = cross_entropy(outputs, Y[batch])
        bounded = (loss2 or cross_entropy)(outputs, Y[batch])
        lagrangian = (loss + duals[batch] * (bounded - EPSILON)).mean()
        if normalise:
            lagrangian = lagrangian / (1 + duals).mean()
        optimizer.zero_grad()
        lagrangian.backward()
        for parameter in network.parameters():
            if clamp is not None:
                parameter.grad.clamp_(-clamp, clamp)
        optimizer.step()
        if when == "post":
            network.eval()
            bounded = (loss2 or cross_entropy)(network(X[batch]), Y[batch])
        for place, value in zip(batch.tolist(), bounded.tolist(), strict=True):
            duals[place] = max(0.0, duals[place] + STEP * (value - EPSILON))
    return duals.numpy(), network


@pytest.mark.parametrize("when", ["pre", "post"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("loss2", [None, wrong_mass], ids=["same loss", "other loss"])
def test_minibatch_duals_are_those_of_the_slow_loop(when, normalise, loss2):
    learner, batches = trained(loss_for_dual=when, normalise=normalise, constraint_loss=loss2)
    assert sorted(torch.cat(batches[:3]).tolist()) == list(range(23))
    duals, network = slow_training(batches, when=when, loss2=loss2, normalise=normalise)
    np.testing.assert_allclose(learner.duals, duals, atol=1e-6)
    assert 3 < (duals > 0).sum() < 23
    for mine, slow in zip(learner.module.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine, slow, atol=1e-5, rtol=1e-4)


def test_the_order_of_the_authors_code_with_clamped_gradients():
    def clamped_adam(parameters, lr, weight_decay):
        for parameter in parameters:
            parameter.register_hook(lambda gradient: gradient.clamp(-0.15, 0.15))
        return torch.optim.Adam(parameters, lr=lr)

    learner, batches = trained(normalise=False, optimizer=clamped_adam)
    duals, _ = slow_training(batches, clamp=0.15, adam=True)
    np.testing.assert_allclose(learner.duals, duals, atol=1e-6)
    unclamped, _ = slow_training(batches, adam=True)
    assert np.abs(unclamped - duals).max() > 1e-4  # the clamp is felt


@pytest.mark.parametrize(
    "changes, step",
    [({}, lambda epoch: STEP), ({"diminishing": True}, lambda epoch: STEP / epoch**0.5)],
    ids=["constant", "diminishing"],
)
def test_full_duals_rise_after_every_epoch_by_losses_in_eval_mode(changes, step):
    learner, _ = trained(granularity="full", batch_size=23, normalise=False, **changes)
    network, duals = fresh(), torch.zeros(23, dtype=torch.float64)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for epoch in range(1, 5):
        network.train()
        optimizer.zero_grad()
        ((1 + duals) * cross_entropy(network(X), Y)).mean().backward()
        optimizer.step()
        network.eval()
        losses = cross_entropy(network(X), Y).detach().double()
        duals = (duals + step(epoch) * (losses - EPSILON)).clamp(min=0)
    np.testing.assert_allclose(learner.duals, duals.numpy(), atol=1e-6)


def test_full_duals_may_wait_for_several_epochs():
    still = {"granularity": "full", "epsilon": 0.0, "lr": 1e-12, "normalise": False}
    options = still | {"optimizer": plain_sgd, "epochs": 6, "dual_lr": STEP}
    each, third = (PrimalDualLearner(linear, dual_every=k, **options) for k in (1, 3))
    for learner in (each, third):
        learner.fit(INPUTS, TARGETS, seed=0)
    np.testing.assert_allclose(each.duals, 3 * third.duals, rtol=1e-5)


def linear():
    """No batch norm, which a repeated item changes."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(4, 2))


@pytest.mark.parametrize("normalise", [False, True])
def test_a_repeated_item_has_the_dual_of_a_weighted_one(normalise):
    weights = np.ones(23)
    weights[[2, 9]] = 2
    twice = np.r_[np.arange(23), 2, 9]
    options = {"epsilon": EPSILON, "dual_lr": STEP, "granularity": "full", "epochs": 30}
    options |= {"batch_size": 25, "lr": 0.1, "optimizer": plain_sgd, "normalise": normalise}
    weighted, repeated = (PrimalDualLearner(linear, **options) for _ in range(2))
    weighted.fit(INPUTS, TARGETS, weights, seed=0)
    repeated.fit(INPUTS[twice], TARGETS[twice], seed=0)
    np.testing.assert_allclose(repeated.duals, weighted.duals[twice], rtol=1e-4, atol=1e-5)
    assert weighted.duals[[2, 9]].max() > 0


def test_a_sampler_does_not_raise_the_dual_of_a_heavy_item_faster():
    weights = np.where(np.arange(23) % 3 == 0, 4.0, 1.0)
    options = {"epsilon": 0.0, "dual_lr": 0.01, "epochs": 300, "batch_size": 8, "lr": 1e-12}
    learner = PrimalDualLearner(linear, weighting="sampler", optimizer=plain_sgd, **options)
    learner.fit(INPUTS, TARGETS, weights, seed=0)
    losses = cross_entropy(linear()(X), Y).detach().numpy()
    ratio = learner.duals / (0.01 * 300 * losses)
    assert ratio[weights > 1].mean() == pytest.approx(1, abs=0.05)
    assert ratio[weights == 1].mean() == pytest.approx(1, abs=0.1)


def test_every_item_can_have_its_own_bound():
    bounds = np.where(np.arange(23) < 12, 100.0, 0.0)
    learner, _ = trained(epsilon=bounds)
    assert (learner.duals[:12] == 0).all() and (learner.duals[12:] > 0).all()
    np.testing.assert_array_equal(learner.epsilon, bounds)


def test_a_cap_is_not_exceeded_and_is_reached():
    free, _ = trained(epsilon=0.0)
    capped, _ = trained(epsilon=0.0, cap=0.3)
    assert free.duals.max() > 0.5 and capped.duals.max() == 0.3


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dual_lr": 0.0}, "dual_lr must be above 0; got 0.0"),
        ({"granularity": "batch"}, "granularity must be minibatch or full; got 'batch'"),
        ({"loss_for_dual": "after"}, "loss_for_dual must be pre or post; got 'after'"),
        ({"dual_every": 0}, "dual_every must be 1 or more; got 0"),
        ({"cap": -1.0}, "cap must be above 0, or None; got -1.0"),
        ({"constraint_loss": lambda o, t: o.mean()}, "the loss must give one number per item"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        trained(**options)
