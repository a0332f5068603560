"""The training loop against loops written out by hand."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from labelwise.errors import BadInput, NotConverged, UnknownName
from labelwise.learners.inputs import Part, as_items, even_parts
from labelwise.learners.settings import LOSSES, Settings
from labelwise.learners.training import Labelled, Penalised, Watcher, item_losses, train

CPU = torch.device("cpu")


def make(count=24, seed=0, classes=3):
    """Labelled items that can be learnt."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, 4)).astype(np.float32)
    targets = torch.from_numpy((inputs[:, 0] > 0) + (inputs[:, 1] > 0).astype(int) * (classes > 2))
    return Labelled(as_items(torch.from_numpy(inputs)), targets, torch.ones(count))


def network(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


def trained(labelled, module=None, seed=0, validation=None, watchers=(), progress=None, **changes):
    module = network() if module is None else module
    settings = Settings(**({"loss": LOSSES["cross_entropy"], "epochs": 5} | changes))
    outcome = train(
        module, labelled, settings, seed=seed, device=CPU, validation=validation,
        watchers=watchers, progress=progress,
    )  # fmt: skip
    return module, outcome


def assert_same(ours, theirs, **tolerance):
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, **tolerance)


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
        Labelled(labelled.items, targets, weights),
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


class Batches(Watcher):
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
    weighted = Labelled(labelled.items, labelled.targets, WEIGHTS)
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


class Gradients(Watcher):
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
        Labelled(labelled.items, labelled.targets, weights),
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


class Epochs(Watcher):
    """Keeps the module of every epoch."""

    def __init__(self):
        self.modules, self.restored = [], None

    def epoch_done(self, module, epoch, epochs, losses):
        self.modules.append(copy.deepcopy(module).eval())

    def snapshot(self):
        return len(self.modules)

    def restore(self, snapshot):
        self.restored = snapshot


def overfitting():
    """A training that overfits soon: labels at random."""
    labelled, held = make(12, seed=1), make(30, seed=2)
    wrong = torch.from_numpy(np.random.default_rng(4).integers(3, size=12))
    return Labelled(labelled.items, wrong, labelled.weights), held


@pytest.mark.parametrize("patience", [None, 1, 3])
def test_the_epoch_with_the_smallest_validation_loss_is_kept(patience):
    labelled, held = overfitting()
    held = Labelled(held.items, held.targets, torch.linspace(0, 2, 30))
    watcher = Epochs()
    module, outcome = trained(
        labelled, validation=held, watchers=[watcher], epochs=40, lr=0.02, patience=patience
    )
    plain = [item_losses(m, held, LOSSES["cross_entropy"], CPU) for m in watcher.modules]
    losses = [float((values * held.weights).mean()) for values in plain]
    best = int(np.argmin(losses))
    assert_same(module, watcher.modules[best], rtol=0, atol=0)
    assert watcher.restored == best + 1
    assert outcome.epochs == len(losses) == (40 if patience is None else best + 1 + patience)
    assert outcome.converged == (patience is not None)
    assert 0 < best < len(losses) - 1  # the case is not trivial


def test_training_stops_at_the_accuracy_asked_for():
    seen = []

    class Accuracy(Watcher):
        def stepped(self, positions, losses, again):
            seen.append(None)

        def epoch_done(self, module, epoch, epochs, losses):
            labels = make().targets
            seen.append(float((module(make().items.rows).argmax(dim=1) == labels).float().mean()))

    _, outcome = trained(
        make(), watchers=[Accuracy()], epochs=500, lr=0.02, batch_size=24, stop_accuracy=0.9
    )
    reached = [share for share in seen if share is not None]
    assert outcome.converged and outcome.epochs < 500
    # The accuracy counted in an epoch is that before its step.
    assert reached[-2] >= 0.9 and all(share < 0.9 for share in reached[:-2])


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
    class Ridge(nn.Linear, Penalised):
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


class Steering(Watcher):
    """Gives factors, and checks what it is told against the module itself."""

    def __init__(self, module, labelled):
        self.module, self.labelled, self.begun, self.checked = module, labelled, 0, 0

    def begin(self, labelled):
        self.begun += 1

    def factors(self, positions):
        self.before = self.losses()[positions]
        return (positions % 2).float()

    def losses(self):
        with torch.no_grad():
            outputs = self.module(self.labelled.items.rows)
        return F.cross_entropy(outputs, self.labelled.targets, reduction="none")

    def stepped(self, positions, losses, again):
        torch.testing.assert_close(losses, self.before)
        torch.testing.assert_close(again(), self.losses()[positions])
        self.checked += 1

    def epoch_done(self, module, epoch, epochs, losses):
        assert (module, epochs) == (self.module, 5)
        torch.testing.assert_close(losses(), self.losses())


def test_a_watcher_is_told_the_losses_and_steers_them():
    labelled, module = make(), network()
    watcher = Steering(module, labelled)
    trained(labelled, module, watchers=[watcher], batch_size=10)
    assert watcher.begun == 1 and watcher.checked == 5 * 3
    odd = np.arange(1, 24, 2)
    half = Labelled(Part(labelled.items, odd), labelled.targets[odd], torch.ones(12))
    weighted = Labelled(labelled.items, labelled.targets, torch.tensor([0.0, 2.0]).repeat(12))
    module = network()
    trained(labelled, module, watchers=[Steering(module, labelled)], batch_size=24, lr=1e-3)
    assert_same(module, trained(weighted, batch_size=24, lr=1e-3)[0], rtol=1e-3, atol=1e-4)
    assert_same(module, trained(half, batch_size=24, lr=1e-3)[0], rtol=1e-3, atol=1e-4)


def test_losses_of_all_items_are_those_in_eval_mode():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.9), nn.Linear(6, 3))
    labelled = make(21)
    found = item_losses(module, labelled, LOSSES["cross_entropy"], CPU, batch_size=4)
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


def test_the_module_is_left_in_eval_mode_and_progress_is_told():
    told = []
    module, _ = trained(make(), progress=lambda *where: told.append(where), epochs=3)
    assert not module.training
    assert told == [("training", 1, 3), ("training", 2, 3), ("training", 3, 3)]


def test_mixed_precision_is_for_gpus_only():
    assert_same(trained(make(), amp=True)[0], trained(make())[0], rtol=0, atol=0)


def test_an_item_that_is_not_finite_is_named():
    labelled = make()
    labelled.items.rows[17, 2] = math.nan
    message = "the loss in epoch 1 is nan: the inputs of item 17 are not finite"
    with pytest.raises(BadInput, match=message):
        trained(labelled, batch_size=5)
    part = Labelled(Part(labelled.items, np.arange(10, 24)), labelled.targets[10:], torch.ones(14))
    with pytest.raises(BadInput, match=message):
        trained(part)
    with pytest.raises(BadInput, match=r"the validation loss in epoch 1 is nan: .* item 17 are"):
        trained(make(), validation=labelled)


def test_a_module_that_can_do_with_nan_is_left_alone():
    labelled = make()
    labelled.items.rows[17, 2] = math.nan

    class Filled(nn.Sequential):
        def forward(self, x):
            return super().forward(x.nan_to_num())

    _, outcome = trained(labelled, Filled(*network()))
    assert math.isfinite(outcome.loss)


def test_a_loss_that_grows_without_bound_says_what_to_do():
    targets = torch.full((24, 3), 1e30)
    with pytest.raises(NotConverged, match=r"the loss in epoch 1 is inf; lower lr \(it is 100.0\)"):
        trained(Labelled(make().items, targets, torch.ones(24)), loss=LOSSES["mse"], lr=100.0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (F.cross_entropy, r"one number per item, \(24,\); got \(\): do not reduce it"),
        (lambda outputs, targets: outputs, r"got \(24, 3\): do not reduce"),
    ],
)
def test_a_loss_that_is_not_one_number_per_item_is_refused(loss, message):
    with pytest.raises(BadInput, match=message):
        trained(make(), loss=loss)


def test_accuracy_cannot_stop_a_regression():
    values = Labelled(make().items, torch.zeros(24, 3), torch.ones(24))
    with pytest.raises(BadInput, match="stop_accuracy is for classes, and the targets are values"):
        trained(values, loss=LOSSES["mse"], stop_accuracy=0.9)


def test_a_module_without_parameters_is_refused():
    with pytest.raises(BadInput, match="the module has no parameters to train"):
        trained(make(), nn.Identity())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"epochs": 0}, BadInput, "epochs must be 1 or more; got 0"),
        ({"batch_size": 0}, BadInput, "batch_size must be 1 or more; got 0"),
        ({"patience": 0}, BadInput, "patience must be 1 or more; got 0"),
        ({"lr": 0.0}, BadInput, "lr must be above 0; got 0.0"),
        ({"lr": math.nan}, BadInput, "lr must be above 0; got nan"),
        ({"weight_decay": -1.0}, BadInput, "weight_decay must be 0 or more; got -1.0"),
        ({"stop_accuracy": 99.0}, BadInput, "above 0 and up to 1; got 99.0"),
        ({"weighting": "both"}, BadInput, "weighting must be loss or sampler, never both; got 'bo"),
        ({"optimizer": "adm"}, UnknownName, "no optimizer is called 'adm'; choose from adam, ada"),
        ({"schedule": "step"}, UnknownName, "no schedule is called 'step'; choose from cosine, l"),
    ],
)
def test_settings_out_of_range_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        Settings(loss=LOSSES["mse"], **changes)


def test_batches_of_the_loop_are_even_parts():
    batches = Batches()
    trained(make(), watchers=[batches], epochs=1, batch_size=7)
    expected = even_parts(np.random.default_rng([0, 1]).permutation(24), 7)
    assert [b.tolist() for b in batches.seen] == [b.tolist() for b in expected]
