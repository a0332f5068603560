"""BALD against the mutual information of the joint table of label and member."""

import numpy as np
import pytest
import torch

from labelwise.pool.blocks import LocalShards
from labelwise.selection.run import select
from labelwise.strategies.bald import STRATEGY, score_bald


def make_members(n, size=6, classes=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=(n, size))


def slow_bald(members):
    """``sum_(m, y) p(m, y) log p(m, y) / (p(m) p(y))`` item by item."""
    scores = []
    for item in members:
        joint = item / len(item)
        product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        scores.append(np.sum(joint * np.log(joint / product)))
    return np.array(scores)


@pytest.mark.parametrize("library", [np, torch])
def test_scores_are_the_mutual_information_of_label_and_member(library):
    members = make_members(50)
    found = score_bald({"member_probabilities": library.asarray(members)}, None)
    np.testing.assert_allclose(found, slow_bald(members), atol=1e-12)


def test_picks_the_highest_scores_first():
    members = make_members(50)
    selection = select(STRATEGY, LocalShards.of(member_probabilities=members), 8)
    assert selection.ids.tolist() == np.argsort(-slow_bald(members))[:8].tolist()
    np.testing.assert_allclose(selection.scores, np.sort(slow_bald(members))[::-1][:8])


def test_sure_members_that_disagree_come_before_members_that_are_unsure():
    unsure = np.full((3, 2, 2), 0.5)
    disagree = np.array([[[0.9, 0.1], [0.1, 0.9]]])
    members = np.concatenate([unsure, disagree])
    assert select(STRATEGY, LocalShards.of(member_probabilities=members), 1).ids.tolist() == [3]


def test_equal_scores_go_to_the_smaller_ids():
    members = np.repeat(make_members(1), 9, axis=0)
    selection = select(STRATEGY, LocalShards.of(member_probabilities=members), 4)
    assert selection.ids.tolist() == [0, 1, 2, 3]


def test_a_single_member_leaves_only_the_ids_to_decide():
    selection = select(STRATEGY, LocalShards.of(member_probabilities=make_members(9, size=1)), 3)
    assert selection.ids.tolist() == [0, 1, 2]
    assert selection.scores.tolist() == [0, 0, 0]


def test_float32_probabilities_are_measured_in_float64():
    members = make_members(50).astype(np.float32)
    found = score_bald({"member_probabilities": members}, None)
    again = members.astype(np.float64)
    np.testing.assert_allclose(found, score_bald({"member_probabilities": again}, None), atol=1e-13)
