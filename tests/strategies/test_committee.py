"""Query by committee against divergences, votes and variances item by item."""

import numpy as np
import pytest
import torch
from scipy import stats

import labelwise
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies import bald
from labelwise.strategies.committee import STRATEGY, score_committee


def make_members(n, size=6, classes=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=(n, size))


def slow_divergence(members):
    """The mean divergence of the members from their mean."""
    return [
        np.mean([stats.entropy(member, item.mean(axis=0)) for member in item]) for item in members
    ]


def slow_vote_entropy(votes):
    return [stats.entropy(np.unique(row, return_counts=True)[1]) for row in votes]


@pytest.mark.parametrize("library", [np, torch])
def test_the_divergence_from_the_mean_is_the_score_of_bald(library):
    members = make_members(40)
    rows = {"member_probabilities": library.asarray(members)}
    np.testing.assert_allclose(score_committee(rows, None), slow_divergence(members), atol=1e-12)
    np.testing.assert_allclose(score_committee(rows, None), bald.score_bald(rows, None), atol=1e-15)


def test_several_models_probabilities_are_members():
    members = make_members(40)
    listed = [members[:, model] for model in range(6)]
    found = score_committee({"probabilities": listed}, None)
    np.testing.assert_allclose(found, slow_divergence(members), atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_vote_entropy_counts_the_votes(size):
    members = make_members(60, size=size)
    votes = members.argmax(axis=2)
    expected = slow_vote_entropy(votes)
    probabilities = {"member_probabilities": members}
    found = score_committee(probabilities, None, disagreement="vote_entropy")
    np.testing.assert_allclose(found, expected, atol=1e-14)
    np.testing.assert_allclose(score_committee({"member_votes": votes}, None), expected, atol=1e-14)
    tensor = {"member_votes": torch.asarray(votes)}
    np.testing.assert_allclose(score_committee(tensor, None), expected, atol=1e-14)


@pytest.mark.parametrize("library", [np, torch])
def test_regression_picks_by_the_variance_over_models(library):
    generator = np.random.default_rng(0)
    outputs = [generator.normal(size=(30, 2)) for _ in range(4)]
    expected = np.stack(outputs).var(axis=0).sum(axis=1)
    rows = {"outputs": [library.asarray(part) for part in outputs]}
    np.testing.assert_allclose(score_committee(rows, None), expected, rtol=1e-12)
    selection = select(STRATEGY, LocalShards.of(**rows), 5)
    assert selection.ids.tolist() == np.argsort(-expected)[:5].tolist()


def test_votes_that_are_values_are_scored_by_their_variance():
    votes = np.random.default_rng(0).normal(size=(30, 5))
    np.testing.assert_allclose(
        score_committee({"member_votes": votes}, None), votes.var(axis=1), rtol=1e-12
    )


def test_models_that_agree_leave_only_the_ids_to_decide():
    outputs = np.random.default_rng(0).normal(size=(9, 2)) / 3
    selection = select(STRATEGY, LocalShards.of(outputs=[outputs] * 3), 4)
    assert selection.ids.tolist() == [0, 1, 2, 3]
    assert selection.scores.tolist() == [0, 0, 0, 0]


def test_the_split_of_a_list_of_models_does_not_matter():
    generator = np.random.default_rng(0)
    outputs = [generator.normal(size=(50, 2)).astype(np.float32) for _ in range(3)]
    for part in outputs:
        part[25:30] = part[:5]
    expected = select(STRATEGY, LocalShards.of(outputs=outputs), 12).ids.tolist()
    order = generator.permutation(50)
    for blocks in (3, 7):
        parts = [
            Shard(part, {"outputs": [model[part] for model in outputs]})
            for part in np.array_split(order, blocks)
        ]
        assert select(STRATEGY, LocalShards(parts), 12).ids.tolist() == expected


def test_votes_for_classes_are_counted_by_the_public_call_too():
    votes = np.array([[0, 0, 5], [0, 1, 2], [3, 3, 3]])  # the variance would prefer the first
    assert labelwise.select("committee", 1, member_votes=votes).ids.tolist() == [1]
