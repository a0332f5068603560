"""Dropout members against masks multiplied by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.members import dropout
from labelwise.learners.members.dropout import DropoutMembers
from labelwise.learners.torch_learner import TorchLearner

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(50, 4)).astype(np.float32)
TARGETS = (INPUTS[:, 0] > 0).astype(np.int64)


def network():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))


def learner(make=network, count=6, seed=0, **options):
    found = TorchLearner(make, epochs=2, members=DropoutMembers(count=count), **options)
    found.fit(INPUTS, TARGETS, seed=seed)
    return found


def members(seed=3, count=6):
    """Members as if a learner had been trained with that seed."""
    found = DropoutMembers(count=count)
    found.load({"seed": torch.tensor(seed)})
    return found


def by_hand(name, shape, p, count, seed, time=0):
    """The masks as they are defined: one generator per member, layer and call."""
    streams = ([seed, dropout.MASKS, time, *name.encode(), j] for j in range(count))
    masks = [np.random.default_rng(stream).random(shape) >= p for stream in streams]
    return torch.from_numpy(np.stack(masks)).float()


def test_members_are_the_network_with_units_multiplied_by_scaled_masks():
    trained = learner()
    got = trained.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    first, _, _, last = trained.module
    masks = by_hand("2", (16,), 0.4, 6, 0) / 0.6
    assert 0 < (masks == 0).float().mean() < 1
    with torch.no_grad():
        hidden = first(torch.from_numpy(INPUTS)).relu()
        expected = torch.stack([last(hidden * mask) for mask in masks], dim=1).softmax(dim=2)
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-6)


def test_masks_are_the_same_in_all_batches_and_orders():
    whole = learner().represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    pieces = learner(represent_batch_size=7)
    cut = pieces.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    back = pieces.represent(INPUTS[::-1].copy(), ["member_probabilities"])["member_probabilities"]
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    np.testing.assert_allclose(back[::-1], whole, atol=1e-6)


def test_the_mean_over_masks_is_the_network_where_only_a_linear_layer_follows():
    module, batch = network().eval(), torch.from_numpy(INPUTS)
    with torch.no_grad():
        several = members(count=4000).outputs(module, "3", batch, batch)
        error = several.mean(dim=1) - module(batch)
    bound = 4.5 * several.std(dim=1) / 4000**0.5
    assert (error.abs() < bound + 1e-6).all()


def test_layers_for_channels_switch_off_whole_channels():
    module = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(32, 32, bias=False)).eval()
    nn.init.eye_(module[2].weight)
    batch = torch.rand(5, 8, 2, 2) + 1
    with torch.no_grad():
        outputs = members(count=9).outputs(module, "2", batch, batch).reshape(5, 9, 8, 4)
    masks = by_hand("0", (8, 1, 1), 0.5, 9, 3).reshape(9, 8, 1)
    torch.testing.assert_close(outputs, batch.reshape(5, 1, 8, 4) * masks * 2)


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_gives_the_two_values_that_torch_gives(kind):
    module = nn.Sequential(kind(0.3), nn.Linear(12, 12, bias=False)).eval()
    nn.init.eye_(module[1].weight)
    batch = torch.rand(5, 12) + 2
    with torch.no_grad():
        ours = members(count=40).outputs(module, "1", batch, batch)
    kept = ours > 1.5  # a unit that is off is far below zero
    assert 0.6 < kept.float().mean() < 0.8
    theirs = F.alpha_dropout(batch.expand(400, 5, 12), 0.3, training=True)
    theirs_kept = theirs > 1.5
    torch.testing.assert_close(ours[~kept].max(), theirs[~theirs_kept].max())
    torch.testing.assert_close(ours[~kept].min(), theirs[~theirs_kept].min())
    expected = torch.where(theirs_kept, theirs, -torch.inf).amax(dim=0)
    assert expected.isfinite().all()
    got = torch.where(kept, ours, -torch.inf).amax(dim=1)
    torch.testing.assert_close(got, expected)


def test_a_probability_of_one_switches_everything_off():
    module = nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 2)).eval()
    batch = torch.from_numpy(INPUTS)
    with torch.no_grad():
        outputs = members(count=2).outputs(module, "1", batch, batch)
    torch.testing.assert_close(outputs, module[1].bias.detach().expand(50, 2, 2))


def test_batch_normalisation_stays_as_it_was_trained():
    def make():
        return nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)
        )

    trained = learner(make)
    before = {name: value.clone() for name, value in trained.module.state_dict().items()}
    whole = trained.represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    one = trained.represent(INPUTS[:1], ["member_probabilities"])["member_probabilities"]
    np.testing.assert_allclose(whole[:1], one, atol=1e-6)
    for name, value in trained.module.state_dict().items():
        assert torch.equal(value, before[name])
    assert not trained.module.training


def test_layers_before_the_first_mask_run_once_for_all_members():
    trained, calls = learner(count=50), []
    trained.module[0].register_forward_hook(lambda *_: calls.append(1))
    trained.represent(INPUTS, ["member_probabilities"])
    assert len(calls) == 2  # one for features and logits, one for all members


def test_a_module_with_control_flow_by_values_gives_the_same():
    class Branching(nn.Sequential):
        def forward(self, batch):
            hidden = super().forward(batch)
            return hidden if hidden.sum() < 1e9 else 2 * hidden

    def make():
        return Branching(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))

    plain = learner().represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    branching = learner(make).represent(INPUTS, ["member_probabilities"])["member_probabilities"]
    np.testing.assert_allclose(branching, plain, atol=1e-6)


def test_a_layer_that_is_called_twice_draws_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(20, 20, bias=False)
            nn.init.eye_(self.head.weight)

        def forward(self, batch):
            return self.head(self.drop(self.drop(batch)))

    batch = torch.ones(1, 20)
    with torch.no_grad():
        outputs = members(count=30).outputs(Twice().eval(), "head", batch, batch)[0]
    masks = by_hand("drop", (20,), 0.5, 30, 3) * by_hand("drop", (20,), 0.5, 30, 3, time=1)
    torch.testing.assert_close(outputs, 4 * masks)


def test_short_sequences_meet_the_beginning_of_the_mask():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(6, 6, bias=False)
            nn.init.eye_(self.head.weight)

        def forward(self, batch):
            return self.head(self.drop(batch)[:, 1])

    drawn, module = members(count=8), Last().eval()
    with torch.no_grad():
        short, long = (
            drawn.outputs(module, "head", torch.ones(2, length, 6), torch.ones(2, 6))
            for length in (3, 11)
        )
    assert torch.equal(short, long) and 0 < (short == 0).float().mean() < 1


def test_the_seed_decides_the_masks_and_is_saved(tmp_path):
    trained = learner()
    whole = trained.represent(INPUTS, ["member_votes", "member_probabilities"])
    trained.save(tmp_path)
    other = TorchLearner(network, members=DropoutMembers(count=6))
    other.load(tmp_path)
    again = other.represent(INPUTS, ["member_votes", "member_probabilities"])
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values)
    module, batch = network().eval(), torch.from_numpy(INPUTS)
    with torch.no_grad():
        one, same, two = (members(seed).outputs(module, "3", batch, batch) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.allclose(one, two)


def without():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def of_zero():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 2))


@pytest.mark.parametrize("make", [without, of_zero])
def test_a_module_without_dropout_is_refused_before_training(make):
    with pytest.raises(BadInput, match=r"no dropout layer with p above 0 \(F.dropout"):
        learner(make)


def test_dropout_that_is_never_called_is_refused():
    class Unused(nn.Sequential):
        def forward(self, batch):
            return self[1](batch)

    trained = learner(lambda: Unused(nn.Dropout(0.5), nn.Linear(4, 2)), head="1")
    with pytest.raises(BadInput, match=r"never calls its dropout layers \(0\)"):
        trained.represent(INPUTS, ["member_votes"])


def test_an_axis_before_the_items_is_refused():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 2)

        def forward(self, batch):
            return self.head(self.drop(batch.T).T)

    with pytest.raises(BadInput, match=r"first axis of what enters drop must be the item"):
        learner(Turned).represent(INPUTS, ["member_votes"])


def test_a_count_below_one_is_refused():
    with pytest.raises(BadInput, match="count must be 1 or more; got 0"):
        DropoutMembers(count=0)


def test_masks_before_a_training_are_refused():
    batch = torch.from_numpy(INPUTS)
    with pytest.raises(BadInput, match="no masks are drawn yet"):
        DropoutMembers().outputs(network().eval(), "3", batch, batch)
