"""Labels and weights: what passes, what is refused, and how labels are held out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.learners.inputs import as_items
from labelwise.learners.labels import (
    check_targets,
    convert_targets,
    convert_weights,
    split_holdout,
)
from labelwise.learners.preparation import hold_out_items
from labelwise.learners.training import LabelledItems


@pytest.mark.parametrize(
    "targets",
    [[1, 0, 2], np.array([1, 0, 2], dtype=np.uint8), torch.tensor([1, 0, 2], dtype=torch.int32)],
    ids=["list", "uint8", "tensor"],
)
def test_whole_numbers_are_classes(targets):
    values, classes = convert_targets(targets, 3, "cross_entropy")
    assert classes and values.dtype == torch.int64 and values.tolist() == [1, 0, 2]


@pytest.mark.parametrize("kind", [">i2", ">u8", "uint16", "uint64"])
def test_whole_numbers_of_any_type_and_byte_order_are_classes(kind):
    values, classes = convert_targets(np.array([1, 0, 2]).astype(kind)[::-1], 3, "cross_entropy")
    assert classes and values.dtype == torch.int64 and values.tolist() == [2, 0, 1]


def test_values_of_another_byte_order_are_the_same_values():
    values, classes = convert_targets(np.array([0.5, 1.5], dtype=">f4"), 2, "mse")
    assert not classes and values.dtype == torch.float32 and values.tolist() == [[0.5], [1.5]]


def test_two_classes_may_be_true_and_false():
    values, classes = convert_targets(np.array([True, False]), 2, "cross_entropy")
    assert classes and values.tolist() == [1, 0]


def test_whole_numbers_are_values_under_mse():
    values, classes = convert_targets([3, 1], 2, "mse")
    assert not classes and values.tolist() == [[3.0], [1.0]]


def test_values_become_one_row_per_item_in_their_own_precision():
    values, classes = convert_targets(np.array([0.5, 1.5], dtype=np.float32), 2, "mse")
    assert not classes and values.dtype == torch.float32 and values.tolist() == [[0.5], [1.5]]
    many, _ = convert_targets(np.arange(12.0).reshape(2, 3, 2), 2, "mse")
    assert many.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_the_kind_of_targets_decides_under_a_loss_of_the_users():
    def loss(outputs, targets):
        return outputs[:, 0]

    assert convert_targets([0, 1], 2, loss)[1]
    assert not convert_targets([0.0, 1.0], 2, loss)[1]


@pytest.mark.parametrize(
    ("targets", "loss", "message"),
    [
        ([0, 1], "mse", r"3 items but targets of shape \(2,\)"),
        (np.array(1), "mse", r"3 items but targets of shape \(\)"),
        (["a", "b", "c"], "mse", "targets must be numbers; got <U1: number the classes from 0"),
        ([0.0, 1.0, 2.0], "cross_entropy", "whole number; got torch.float64 of shape"),
        ([[0], [1], [2]], "cross_entropy", r"got torch.int64 of shape \(3, 1\)"),
        (np.ma.masked_array([0, 1, 2], [0, 1, 0]), "mse", "targets hold masked entries; fill them"),
        (np.ones(3, np.longdouble), "mse", "targets must be numbers of 64 bits at most; got float"),
        ([0.0, np.nan, 2.0], "mse", "targets must be finite; item 1 is not"),
        ([[0.0, 1.0], [0.0, 1.0], [0.0, -np.inf]], "mse", "must be finite; item 2 is not"),
    ],
)
def test_bad_targets_are_refused(targets, loss, message):
    with pytest.raises(BadInput, match=message):
        convert_targets(targets, 3, loss)


def test_nothing_at_all_is_refused():
    with pytest.raises(BadInput, match="no labelled items; give at least one"):
        convert_targets(np.zeros(0, dtype=int), 0, "cross_entropy")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0, 3, 1], "label 3 of item 1 is out of range; the module has 3 classes, 0 to 2"),
        ([0, 1, -1], "label -1 of item 2 is out of range"),
        ([2, 2, 2], "all 3 labels are class 2; a classifier needs two classes or more"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(targets, message):
    with pytest.raises(BadInput, match=message):
        check_targets(torch.tensor(targets), True, 3)


def test_values_of_another_number_than_outputs_are_refused():
    check_targets(torch.zeros(4, 2), False, 2)
    with pytest.raises(BadInput, match="targets have 2 values but the module gives 3"):
        check_targets(torch.zeros(4, 2), False, 3)


@pytest.mark.parametrize("make", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
def test_weights_come_with_mean_one(make):
    found = convert_weights(make([1.0, 2.0, 0.0, 5.0]), 4)
    assert found.tolist() == [0.5, 1.0, 0.0, 2.5]


def test_no_weights_are_ones():
    assert convert_weights(None, 3).tolist() == [1, 1, 1]


def test_weights_of_training_items_and_holdout_have_mean_one_again():
    weights = torch.arange(1.0, 41.0)
    whole = LabelledItems(as_items(np.zeros((40, 2))), torch.arange(40) % 2, weights)
    parts = hold_out_items(whole, True, 0.25, "cross_entropy", seed=0)
    assert [len(part) for part in parts] == [30, 10]
    for part in parts:
        assert part.weights.mean() == pytest.approx(1.0)
    with pytest.raises(BadInput, match="the items to train on all have weight zero"):
        none = replace(whole, weights=torch.zeros(40))
        hold_out_items(none, True, 0.25, "cross_entropy", seed=0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1.0], r"3 items but weights of shape \(2,\)"),
        ([[1.0], [1.0], [1.0]], r"3 items but weights of shape \(3, 1\)"),
        ([1.0, -0.5, 1.0], "finite and not negative; item 1 has -0.5"),
        ([1.0, 1.0, np.inf], "finite and not negative; item 2 has inf"),
        ([np.nan, 1.0, 1.0], "finite and not negative; item 0 has nan"),
        ([0.0, 0.0, 0.0], "all weights are zero; give None to weight all items equally"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(BadInput, match=message):
        convert_weights(weights, 3)


SHARES = st.floats(0.01, 0.9)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), SHARES, st.integers(0, 9))
def test_a_share_of_every_class_is_held_out_and_one_item_of_each_stays(labels, share, seed):
    targets = torch.tensor(labels)
    sizes = torch.bincount(targets, minlength=5).numpy()
    room = len(labels) - (sizes > 0).sum()
    assume(room > 0)
    kept, held = split_holdout(targets, True, share, np.random.default_rng(seed))
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert (np.diff(kept) > 0).all() and (np.diff(held) > 0).all()
    assert len(held) == min(max(round(share * len(labels)), 1), room)
    assert set(targets[kept].tolist()) == set(labels)


@given(st.lists(st.integers(10, 60), min_size=1, max_size=5), st.floats(0.1, 0.5))
@example([10, 10, 10, 47], 0.359375)
def test_no_class_gives_an_item_more_or_less_than_its_share(sizes, share):
    targets = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    _, held = split_holdout(targets, True, share, np.random.default_rng(0))
    taken = np.bincount(targets[held], minlength=len(sizes))
    assert (np.abs(taken - len(held) / len(targets) * np.array(sizes)) <= 1).all()


@given(st.integers(2, 50), SHARES)
def test_values_are_held_out_at_random(count, share):
    wanted = max(round(share * count), 1)
    assume(wanted < count)
    kept, held = split_holdout(torch.zeros(count, 1), False, share, np.random.default_rng(0))
    assert sorted([*kept, *held]) == list(range(count)) and len(held) == wanted


def test_every_item_of_a_class_is_as_likely_to_be_held_out():
    targets = torch.tensor([0] * 8 + [1] * 4)
    counts = np.zeros(12)
    for seed in range(2000):
        counts[split_holdout(targets, True, 0.25, np.random.default_rng(seed))[1]] += 1
    assert (np.abs(counts - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)).all()


@pytest.mark.parametrize(
    ("targets", "classes", "share"),
    [([0, 1, 2], True, 0.3), ([[0.0]], False, 0.5), ([[0.0], [1.0]], False, 0.9)],
)
def test_too_few_items_to_hold_some_out_are_refused(targets, classes, share):
    with pytest.raises(BadInput, match=r"items are too few to hold out a share of 0\.\d; give"):
        split_holdout(torch.tensor(targets), classes, share, np.random.default_rng(0))
