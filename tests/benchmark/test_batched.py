"""Networks of several runs trained as one batched model against each by itself."""

from functools import partial

import numpy as np
import pytest
import torch

from labelwise.benchmark.batched import (
    BatchableLearner,
    TrainingTask,
    fit_batched_tasks,
    group_batched_tasks,
)
from labelwise.benchmark.datasets import load
from labelwise.benchmark.devices import move_items_to_device
from labelwise.benchmark.networks import make_network
from labelwise.errors import BadInput
from labelwise.learners.inputs import ItemSubset
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.preparation import place_labelled_items
from labelwise.learners.settings import LOSSES, TrainingSettings
from labelwise.learners.stacked_training import train_together

pytestmark = pytest.mark.usefixtures("double_precision")
DIGITS = load("digits")
CPU = torch.device("cpu")
POOLS = [move_items_to_device(DIGITS.inputs, CPU), move_items_to_device(DIGITS.inputs.copy(), CPU)]
SGD = {"optimizer": "sgd", "lr": 0.01, "weight_decay": 5e-4, "epochs": 6, "batch_size": 32}
MODES = ("one pool", "two pools", "arrays")


class Stepping(SnapshotMembers):
    """Members that look at every step."""

    def stepped(self, positions, losses, again):
        pass


def learner(network="lenet5", **options):
    build = partial(make_network, network, (1, 8, 8), 10)
    return BatchableLearner(build, kind=network, **{**SGD, **options})


def tasks(mode="one pool", count=4, labels=70, weights=False, **options):
    """Networks with labels of their own; the first two are even of one seed."""
    made = []
    for number in range(count):
        rng = np.random.default_rng(number)
        positions = rng.permutation(DIGITS.n)[:labels]
        pool = POOLS[0 if mode == "one pool" else number % 2]
        inputs = DIGITS.inputs[positions] if mode == "arrays" else ItemSubset(pool, positions)
        shares = rng.uniform(0.2, 2, size=labels) if weights else None
        seed = max(number - 1, 0)
        made.append(
            TrainingTask(learner(**options), inputs, DIGITS.targets[positions], shares, seed)
        )
    return made


def check_same(together, alone):
    """All parameters of both agree, and they did learn something."""
    for task, other in zip(together, alone, strict=True):
        states = task.learner.module.state_dict(), other.learner.module.state_dict()
        assert states[0].keys() == states[1].keys()
        for name, value in states[0].items():
            torch.testing.assert_close(value, states[1][name], atol=1e-8, rtol=1e-8)
        fresh = task.learner._make_module().state_dict()
        assert any((fresh[name] - states[0][name]).abs().max() > 1e-3 for name in fresh)


@pytest.mark.parametrize("mode", MODES)
def test_networks_with_labels_of_their_own_are_those_trained_one_by_one(mode):
    together, alone = tasks(mode), tasks(mode)
    reports = fit_batched_tasks(together, on_cpu=True)
    for report, task in zip(reports, alone, strict=True):
        own = task.fit()
        assert report.loss == pytest.approx(own.loss, abs=1e-8)
        assert (report.steps, report.training_labels) == (own.steps, own.training_labels) == (6, 70)
    check_same(together, alone)
    states = [task.learner.module[-1].weight for task in together]
    assert (states[0] - states[1]).abs().max() > 1e-3  # one seed, other labels
    rows = together[0].learner.represent(DIGITS.inputs[:20], ["features", "probabilities"])
    expected = alone[0].learner.represent(DIGITS.inputs[:20], ["features", "probabilities"])
    np.testing.assert_allclose(rows["probabilities"], expected["probabilities"], atol=1e-8)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": True},
        {"weights": True, "weighting": "sampler"},
        {"optimizer": "adam", "schedule": "cosine", "lr": 0.003},
        {"stop_accuracy": 0.5, "epochs": 30, "network": "mlp", "lr": 0.05},
    ],
    ids=["weights", "sampler", "adam", "stop_accuracy"],
)
def test_all_ways_of_training_give_what_one_by_one_gives(options):
    together, alone = tasks(**options), tasks(**options)
    fit_batched_tasks(together, on_cpu=True)
    for task in alone:
        task.fit()
    check_same(together, alone)


def test_every_network_stops_by_its_own_validation_items():
    def made():
        parts = []
        for number, task in enumerate(tasks()):
            held = np.random.default_rng(100 + number).permutation(DIGITS.n)[:50]
            validation = DIGITS.inputs[held], DIGITS.targets[held]
            options = {"network": "mlp", "lr": 0.1, "epochs": 40, "patience": 2}
            own = learner(**options, validation=validation)
            parts.append(TrainingTask(own, task.inputs, task.targets, None, task.seed))
        return parts

    together, alone = made(), made()
    reports = fit_batched_tasks(together, on_cpu=True)
    steps = [task.fit().steps for task in alone]
    assert [report.steps for report in reports] == steps and len(set(steps)) > 1
    assert all(report.converged and report.validation_labels == 50 for report in reports)
    check_same(together, alone)


def test_networks_that_are_trained_on_go_on_together():
    together, alone = tasks(warm_start=True), tasks(warm_start=True)
    for _ in range(2):
        fit_batched_tasks(together, on_cpu=True)
        for task in alone:
            task.fit()
    check_same(together, alone)


def test_only_networks_of_one_kind_and_size_are_put_together():
    mixed = [*tasks(), *tasks(labels=40), *tasks(network="mlp", count=1)]
    mixed += tasks(members=Stepping(), count=2)
    groups = group_batched_tasks(mixed, on_cpu=True, limit=3)
    assert groups == [[0, 1, 2], [3], [4, 5, 6], [7], [8], [9], [10]]
    reports = fit_batched_tasks(mixed, on_cpu=True, limit=3)
    assert [report.training_labels for report in reports] == [70] * 4 + [40] * 4 + [70] * 3
    # On a CPU nothing is gained, unless it is asked for.
    assert group_batched_tasks(mixed) == [[number] for number in range(11)]


def test_members_that_only_look_at_the_end_are_there_after_a_batched_training():
    together = tasks(members=None)
    own = [
        TrainingTask(learner(members=LaplaceMembers(count=5)), *astuple(task)) for task in together
    ]
    assert not own[0].learner.alone and learner(members=Stepping()).alone
    fit_batched_tasks(own, on_cpu=True)
    rows = own[0].learner.represent(DIGITS.inputs[:7], ["member_probabilities"])
    assert rows["member_probabilities"].shape == (7, 5, 10)


def astuple(task):
    return task.inputs, task.targets, task.weights, task.seed


def test_sets_of_different_sizes_are_refused():
    modules = [make_network("mlp", (1, 8, 8), 10) for _ in range(2)]
    sets = [
        place_labelled_items(POOLS[0], torch.from_numpy(DIGITS.targets), torch.ones(DIGITS.n), CPU),
        place_labelled_items(
            ItemSubset(POOLS[0], np.arange(5)),
            torch.from_numpy(DIGITS.targets[:5]),
            torch.ones(5),
            CPU,
        ),
    ]
    settings = TrainingSettings(loss=LOSSES["cross_entropy"])
    with pytest.raises(BadInput, match=r"2 sets of one size; got 2 of sizes \[5, 1437\]"):
        train_together(modules, sets, settings, seeds=[0, 1], device=CPU)


def test_members_that_look_at_epochs_see_in_a_batch_what_they_see_alone():
    def made():
        options = [{"members": SnapshotMembers()}, {}, {"members": SnapshotMembers()}]
        return [
            TrainingTask(
                learner("mlp", **own), DIGITS.inputs[:70], DIGITS.targets[:70], None, number
            )
            for number, own in enumerate(options)
        ]

    together, alone = made(), made()
    assert group_batched_tasks(together, on_cpu=True) == [[0, 1, 2]]
    fit_batched_tasks(together, on_cpu=True)
    for task in alone:
        task.fit()
    for number in (0, 2):
        votes = [
            own[number].learner.represent(DIGITS.inputs[70:90], ["member_probabilities"])
            for own in (together, alone)
        ]
        found, wanted = (own["member_probabilities"] for own in votes)
        assert found.shape == (20, 3, 10)
        np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_members_that_look_at_epochs_are_alone_where_a_best_epoch_is_kept():
    kept = learner("mlp", members=SnapshotMembers(), validation=0.2, patience=2)
    assert kept.alone and not learner("mlp", members=SnapshotMembers()).alone
