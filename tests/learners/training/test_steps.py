"""Steps, batches and schedules against loops written out by hand."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelwise.learners.settings import LOSSES
from labelwise.learners.training import LabelledItems, PenalizedLayer, compute_losses
from tests.learners.training.loops import CPU, assert_same, make, network, trained

OPTIMIZERS = {
    "adam": lambda p, lr, decay: torch.optim.Adam(p, lr, weight_decay=decay),
    "adamw": lambda p, lr, decay: torch.optim.AdamW(p, lr, weight_decay=decay),
    "sgd": lambda p, lr, decay: torch.optim.SGD(p, lr, weight_decay=decay, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_full_batches_are_plain_steps_of_the_optimizer(name):
    labelled, slow = make(), network()
    inputs, targets = labelled.items.rows, labelled.targets
    weights = torch.linspace(0, 2, 24)
    optimizer = OPTIMIZERS[name](slow.parameters(), 0.05, 0.01)
    for _ in range(7):
        optimizer.zero_grad()
        losses = F.cross_entropy(slow(inputs), targets, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        optimizer.step()
    loss = loss.detach()
    ours, outcome = trained(
        LabelledItems(labelled.items, targets, weights),
        optimizer=name, lr=0.05, weight_decay=0.01, epochs=7, batch_size=24,
    )  # fmt: skip
    assert_same(ours, slow, rtol=1e-4, atol=1e-6)
    assert outcome.loss == pytest.approx(float(loss), rel=1e-4)
    assert outcome.epochs == 7 and not outcome.converged


def test_an_optimizer_of_the_users_is_made_of_the_parameters_that_are_trained():
    module = network()
    module[0].requires_grad_(False)
    before = copy.deepcopy(module)
    seen = []

    def optimizer(parameters, lr, weight_decay):
        seen.append((list(parameters), lr, weight_decay))
        return torch.optim.RMSprop(parameters, lr=lr)

    trained(make(), module, optimizer=optimizer, lr=0.01, weight_decay=0.5)
    ((parameters, lr, decay),) = seen
    assert [id(p) for p in parameters] == [id(p) for p in module[2].parameters()]
    assert (lr, decay) == (0.01, 0.5)
    assert torch.equal(module[0].weight, before[0].weight)
    assert not torch.equal(module[2].weight, before[2].weight)


def rates(**changes):
    """The learning rate that every step was made with."""
    seen = []

    class Recorder(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(self.param_groups[0]["lr"])
            return super().step(closure)

    trained(
        make(20), epochs=3, batch_size=8, lr=0.5,
        optimizer=lambda p, lr, _: Recorder(p, lr=lr), **changes,
    )  # fmt: skip
    return seen


def test_the_learning_rate_follows_its_schedule_step_by_step():
    steps = np.arange(9)
    np.testing.assert_allclose(rates(), 0.5)
    np.testing.assert_allclose(rates(schedule="linear"), 0.5 * (1 - steps / 9))
    np.testing.assert_allclose(
        rates(schedule="cosine"), 0.25 * (1 + np.cos(np.pi * steps / 9)), rtol=1e-12
    )


def test_a_schedule_of_the_users_is_told_the_number_of_steps():
    told = []

    def schedule(optimizer, steps):
        told.append(steps)
        return torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.1)

    np.testing.assert_allclose(rates(schedule=schedule), 0.5 * 0.1 ** (np.arange(9) // 3))
    assert told == [9]


def test_augmentation_is_for_training_only():
    labelled, calls = make(), []

    def augment(batch):
        calls.append(len(batch))
        return batch.mul_(0)

    module, _ = trained(labelled, augment=augment, validation=make(9), batch_size=12, epochs=2)
    assert calls == [12] * 4
    assert torch.equal(labelled.items.rows, make().items.rows)  # not changed in place
    assert torch.equal(module[0].weight, network()[0].weight)  # inputs of zero teach it nothing
    assert not torch.equal(module[2].bias, network()[2].bias)


def test_a_penalty_counts_once_and_not_once_per_item():
    class Ridge(nn.Linear, PenalizedLayer):
        def penalty(self):
            return 3 * self.weight.square().sum()

    labelled = make(10)
    slow = Ridge(4, 3)
    module = copy.deepcopy(slow)
    optimizer = torch.optim.SGD(slow.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        losses = F.cross_entropy(slow(labelled.items.rows), labelled.targets, reduction="sum")
        ((losses + slow.penalty()) / 10).backward()
        optimizer.step()
    trained(labelled, module, optimizer="sgd", lr=0.1, epochs=4, batch_size=10)
    assert_same(module, slow, rtol=1e-5, atol=1e-6)


def test_losses_of_all_items_are_those_in_eval_mode():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.9), nn.Linear(6, 3))
    labelled = make(21)
    found = compute_losses(module, labelled, LOSSES["cross_entropy"], CPU, batch_size=4)
    assert module.training
    with torch.no_grad():
        outputs = module.eval()(labelled.items.rows)
    expected = F.cross_entropy(outputs, labelled.targets, reduction="none")
    torch.testing.assert_close(found, expected)


def test_squared_errors_are_the_mean_over_outputs():
    outputs, targets = (
        torch.tensor([[1.0, 2.0], [0.0, 0.0]]),
        torch.tensor([[1.0, 0.0], [3.0, 1.0]]),
    )
    assert LOSSES["mse"](outputs, targets).tolist() == [2.0, 5.0]


def test_mixed_precision_is_for_gpus_only():
    assert_same(trained(make(), amp=True)[0], trained(make())[0], rtol=0, atol=0)
