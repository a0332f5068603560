"""Snapshots against trainings that end where the snapshot was taken."""

import numpy as np
import pytest
import torch
from torch import nn

import labelwise
from labelwise.errors import BadInput
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.torch_learner import TorchLearner

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(80, 4)).astype(np.float32)
TARGETS = (INPUTS[:, 0] + 0.5 * RNG.normal(size=80) > 0).astype(np.int64)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def trained(epochs, members=None, **options):
    options = {"lr": 0.02, "batch_size": 16} | options
    learner = TorchLearner(network, epochs=epochs, members=members, **options)
    learner.fit(INPUTS[:40], TARGETS[:40], seed=1)
    return learner


@pytest.mark.parametrize(
    ("epochs", "last", "kept"),
    [(6, None, [4, 5, 6]), (5, None, [3, 4, 5]), (1, None, [1]), (6, 2, [5, 6]), (3, 3, [1, 2, 3])],
)
def test_members_are_the_networks_of_shorter_trainings(epochs, last, kept):
    members = SnapshotMembers(last=last)
    rows = trained(epochs, members).represent(INPUTS, ["member_probabilities", "member_votes"])
    assert members.epochs == kept and members.count == len(kept)
    for place, epoch in enumerate(kept):
        short = trained(epoch).represent(INPUTS, ["probabilities"])["probabilities"]
        np.testing.assert_allclose(rows["member_probabilities"][:, place], short, atol=1e-6)
        votes = rows["member_votes"][:, place]
        np.testing.assert_array_equal(votes, rows["member_probabilities"][:, place].argmax(axis=1))


def test_early_stopping_keeps_the_later_half_of_the_epochs_up_to_the_best():
    members = SnapshotMembers()
    learner = TorchLearner(network, epochs=200, lr=0.1, validation=0.4, patience=4, members=members)
    report = learner.fit(INPUTS, TARGETS, seed=1)
    best = report.steps - 4
    assert report.converged and best > 2
    assert members.epochs == list(range(best // 2 + 1, best + 1))
    rows = learner.represent(INPUTS, ["member_probabilities", "probabilities"])
    np.testing.assert_allclose(
        rows["member_probabilities"][:, -1], rows["probabilities"], atol=1e-6
    )
    assert not np.allclose(rows["member_probabilities"][:, 0], rows["probabilities"], atol=1e-3)


def test_training_again_forgets_the_last_training():
    members = SnapshotMembers()
    learner = trained(6, members)
    once = learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    learner.fit(INPUTS[:40], TARGETS[:40], seed=2)
    assert members.count == 3
    twice = learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    assert not np.allclose(once, twice)
    learner.fit(INPUTS[:40], TARGETS[:40], seed=1)
    thrice = learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    np.testing.assert_array_equal(once, thrice)


def test_tied_parameters_are_no_obstacle():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.head = nn.Linear(4, 2)

        def forward(self, batch):
            return self.head(self.second(self.first(batch).relu()).relu())

    learner = TorchLearner(Tied, epochs=4, members=SnapshotMembers(last=1))
    learner.fit(INPUTS, TARGETS, seed=0)
    rows = learner.represent(INPUTS, ["member_probabilities", "probabilities"])
    np.testing.assert_allclose(rows["member_probabilities"][:, 0], rows["probabilities"], atol=1e-6)


def test_the_module_itself_is_left_alone():
    learner = trained(6, SnapshotMembers())
    before = {name: value.clone() for name, value in learner.module.state_dict().items()}
    learner.represent(INPUTS, ["member_votes"])
    for name, value in learner.module.state_dict().items():
        assert torch.equal(value, before[name])


def test_saved_members_come_back(tmp_path):
    learner = trained(12, SnapshotMembers(last=11))
    learner.save(tmp_path)
    members = SnapshotMembers(last=11)
    other = TorchLearner(network, members=members)
    other.load(tmp_path)
    assert members.epochs == list(range(2, 13))
    np.testing.assert_array_equal(
        other.represent(INPUTS, ["member_probabilities"])["member_probabilities"],
        learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"],
    )


def test_disagreement_picks_items_on_which_the_network_wavers():
    votes = trained(20, SnapshotMembers()).represent(INPUTS, ["member_votes"])["member_votes"]
    wavers = (votes != votes[:, :1]).any(axis=1)
    assert 3 <= wavers.sum() < 80
    picks = labelwise.select("disagreement", 3, member_votes=votes, seed=0, candidates=1)
    assert wavers[picks.ids].all()


def test_impossible_numbers_of_epochs_are_refused():
    with pytest.raises(BadInput, match="last must be 1 or more, or None for the later half; got 0"):
        SnapshotMembers(last=0)
    with pytest.raises(BadInput, match="last is 9 but there are only 3 epochs"):
        trained(3, SnapshotMembers(last=9))
    batch = torch.from_numpy(INPUTS)
    with pytest.raises(BadInput, match="no epochs are kept yet"):
        SnapshotMembers().outputs(network(), "3", batch, batch)
