"""When a training ends, which epoch is kept, and who watches."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labelwise.learners.inputs import ItemSubset
from labelwise.learners.settings import LOSSES
from labelwise.learners.training import LabelledItems, TrainingWatcher, compute_losses
from tests.learners.training.loops import CPU, assert_same, make, network, trained


class Epochs(TrainingWatcher):
    """Keeps the module of every epoch."""

    def __init__(self):
        self.modules, self.restore_state = [], None

    def epoch_done(self, module, epoch, epochs, losses):
        self.modules.append(copy.deepcopy(module).eval())

    def snapshot(self):
        return len(self.modules)

    def restore(self, snapshot):
        self.restore_state = snapshot


def overfitting():
    """A training that overfits soon: labels at random."""
    labelled, held = make(12, seed=1), make(30, seed=2)
    wrong = torch.from_numpy(np.random.default_rng(4).integers(3, size=12))
    return LabelledItems(labelled.items, wrong, labelled.weights), held


@pytest.mark.parametrize("patience", [None, 1, 3])
def test_the_epoch_with_the_smallest_validation_loss_is_kept(patience):
    labelled, held = overfitting()
    held = LabelledItems(held.items, held.targets, torch.linspace(0, 2, 30))
    watcher = Epochs()
    module, outcome = trained(
        labelled, validation=held, watchers=[watcher], epochs=40, lr=0.02, patience=patience
    )
    plain = [compute_losses(m, held, LOSSES["cross_entropy"], CPU) for m in watcher.modules]
    losses = [float((values * held.weights).mean()) for values in plain]
    best = int(np.argmin(losses))
    assert_same(module, watcher.modules[best], rtol=0, atol=0)
    assert watcher.restore_state == best + 1
    assert outcome.epochs == len(losses) == (40 if patience is None else best + 1 + patience)
    assert outcome.converged == (patience is not None)
    assert 0 < best < len(losses) - 1  # the case is not trivial


def test_training_stops_at_the_accuracy_asked_for():
    seen = []

    class Accuracy(TrainingWatcher):
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


def measured_epochs(modules, items):
    """Loss and accuracy of every epoch's module, in eval mode."""
    losses = [float(compute_losses(m, items, LOSSES["cross_entropy"], CPU).mean()) for m in modules]
    hits = [m(items.items.rows).argmax(dim=1) == items.targets for m in modules]
    return losses, [float(hit.float().mean()) for hit in hits]


@pytest.mark.parametrize("min_epochs", [1, 6, 25])
@pytest.mark.parametrize("monitor", ["validation_loss", "validation_accuracy"])
def test_the_first_best_epoch_after_the_minimum_is_kept(monitor, min_epochs):
    labelled, held = overfitting()
    watcher = Epochs()
    module, outcome = trained(
        labelled, validation=held, watchers=[watcher], epochs=40, lr=0.02, patience=4,
        min_epochs=min_epochs, monitor=monitor,
    )  # fmt: skip
    losses, accuracies = measured_epochs(watcher.modules, held)
    scores = accuracies if monitor == "validation_accuracy" else [-loss for loss in losses]
    best = min_epochs - 1 + int(np.argmax(scores[min_epochs - 1 :]))
    assert_same(module, watcher.modules[best], rtol=0, atol=0)
    assert outcome.epochs == len(scores) == best + 1 + 4 and outcome.converged


@pytest.mark.parametrize("monitor", ["training_loss", "training_accuracy"])
def test_patience_on_the_training_items_keeps_the_last_epoch(monitor):
    """With one batch an epoch, the measure of epoch t is that of the parameters after t - 1."""
    first, watcher = network(), Epochs()
    module, outcome = trained(
        make(), copy.deepcopy(first), watchers=[watcher], epochs=40, lr=0.3, batch_size=24,
        patience=2, min_epochs=5, monitor=monitor,
    )  # fmt: skip
    losses, accuracies = measured_epochs([first, *watcher.modules], make())
    scores = accuracies if monitor == "training_accuracy" else [-loss for loss in losses]
    waited = [t - 4 - int(np.argmax(scores[4 : t + 1])) for t in range(4, 40)]
    ends = [epoch for epoch, epochs in enumerate(waited, 5) if epochs >= 2]
    assert (outcome.epochs, outcome.converged) == ((ends[0], True) if ends else (40, False))
    assert_same(module, watcher.modules[-1], rtol=0, atol=0)


def test_an_accuracy_or_a_loss_that_is_reached_ends_the_training_after_the_minimum():
    held = make(30, seed=2)
    options = {"epochs": 200, "lr": 0.05, "min_epochs": 7}
    easy = {"stop_accuracy": 1e-9, "validation": held, "monitor": "validation_accuracy"}
    for changes in (easy, {"stop_accuracy": 1e-9}, {"stop_loss": 1e9}):
        _, outcome = trained(make(), **options, **changes)
        assert outcome.epochs == 7 and outcome.converged
    watcher = Epochs()
    _, outcome = trained(make(), watchers=[watcher], **options, **(easy | {"stop_accuracy": 0.9}))
    accuracies = measured_epochs(watcher.modules, held)[1]
    reached = [epoch for epoch, share in enumerate(accuracies, 1) if epoch >= 7 and share >= 0.9]
    assert outcome.epochs == (reached[0] if reached else 200)


class Steering(TrainingWatcher):
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
    half = LabelledItems(ItemSubset(labelled.items, odd), labelled.targets[odd], torch.ones(12))
    weighted = LabelledItems(labelled.items, labelled.targets, torch.tensor([0.0, 2.0]).repeat(12))
    module = network()
    trained(labelled, module, watchers=[Steering(module, labelled)], batch_size=24, lr=1e-3)
    assert_same(module, trained(weighted, batch_size=24, lr=1e-3)[0], rtol=1e-3, atol=1e-4)
    assert_same(module, trained(half, batch_size=24, lr=1e-3)[0], rtol=1e-3, atol=1e-4)


def test_the_module_is_left_in_eval_mode_and_progress_is_told():
    told = []
    module, _ = trained(make(), progress=lambda *where: told.append(where), epochs=3)
    assert not module.training
    assert told == [("training", 1, 3), ("training", 2, 3), ("training", 3, 3)]
