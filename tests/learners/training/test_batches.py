"""Which items a step takes: every one once, or drawn in proportion to the weights."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from labelwise.learners.inputs import split_into_batches
from labelwise.learners.training import LabelledItems, TrainingWatcher
from tests.learners.training.loops import assert_same, make, network, trained


class Batches(TrainingWatcher):
    """Remembers the positions of every batch."""

    def __init__(self):
        self.seen = []

    def stepped(self, positions, losses, again):
        self.seen.append(positions.numpy().copy())


def test_an_epoch_takes_every_item_once_in_even_batches_and_a_new_order():
    batches = Batches()
    trained(make(25), watchers=[batches], epochs=3, batch_size=8)
    assert [len(batch) for batch in batches.seen] == [7, 6, 6, 6] * 3
    orders = [np.concatenate(batches.seen[4 * e : 4 * e + 4]) for e in range(3)]
    assert all(sorted(order) == list(range(25)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])


WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 5.0]).repeat(6)


def draws(seed, weighting):
    batches, labelled = Batches(), make()
    weighted = LabelledItems(labelled.items, labelled.targets, WEIGHTS)
    trained(weighted, seed=seed, watchers=[batches], epochs=400, weighting=weighting)
    return np.bincount(np.concatenate(batches.seen), minlength=24)


def test_the_sampler_draws_in_proportion_to_the_weights():
    counts, shares = draws(0, "sampler"), (WEIGHTS / WEIGHTS.sum()).numpy()
    assert counts.sum() == 400 * 24
    assert not counts[shares == 0].any()
    wanted = shares * counts.sum()
    assert stats.chisquare(counts[shares > 0], wanted[shares > 0]).pvalue > 1e-3


def test_weights_in_the_loss_draw_nothing():
    assert (draws(0, "loss") == 400).all()


class Gradients(TrainingWatcher):
    """Remembers the gradient of every step."""

    def __init__(self, module):
        self.module, self.seen = module, []

    def stepped(self, positions, losses, again):
        self.seen.append(gradient(self.module))


def gradient(module):
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).double()


@pytest.mark.parametrize(("weighting", "epochs"), [("loss", 1), ("sampler", 300)])
def test_the_mean_gradient_of_both_weightings_is_that_of_the_weighted_loss(weighting, epochs):
    module, labelled = network(), make()
    losses = F.cross_entropy(module(labelled.items.rows), labelled.targets, reduction="none")
    weights = WEIGHTS / WEIGHTS.mean()
    (losses * weights).mean().backward()
    exact, watcher = gradient(module), Gradients(module)
    trained(
        LabelledItems(labelled.items, labelled.targets, weights),
        module,
        watchers=[watcher],
        weighting=weighting,
        epochs=epochs,
        batch_size=8,
        lr=1e-30,  # stays where it is
        optimizer="sgd",
    )
    seen = torch.stack(watcher.seen)
    error = 0 if weighting == "loss" else 4.5 * seen.std(dim=0) / math.sqrt(len(seen))
    assert (torch.abs(seen.mean(dim=0) - exact) <= error + 1e-6).all()


def test_the_seed_decides_the_order():
    first, second, third = (trained(make(), seed=seed, batch_size=5)[0] for seed in (1, 1, 2))
    assert_same(first, second, rtol=0, atol=0)
    assert not torch.equal(first[0].weight, third[0].weight)


def test_batches_of_the_loop_are_even_parts():
    batches = Batches()
    trained(make(), watchers=[batches], epochs=1, batch_size=7)
    expected = split_into_batches(np.random.default_rng([0, 1]).permutation(24), 7)
    assert [b.tolist() for b in batches.seen] == [b.tolist() for b in expected]
