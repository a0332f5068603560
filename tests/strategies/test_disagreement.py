"""DIAM against counting, model by model and item by item."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import labelwise
from labelwise.errors import BadInput
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies.disagreement import STRATEGY, count_vote_changes
from labelwise.strategy import PickFacts


def make_votes(n=40, models=3, epochs=6, seed=0):
    """Votes that are mostly steady."""
    generator = np.random.default_rng(seed)
    steady = generator.integers(4, size=(models, n, 1))
    other = generator.integers(4, size=(models, n, epochs))
    moves = generator.random((models, n, epochs)) < generator.random((models, n, 1)) ** 3
    return list(np.where(moves, other, steady))


def slow_ranks(several):
    """``(d1, d2)`` of every item."""
    ranks = []
    for item in range(len(several[0])):
        rows = [votes[item] for votes in several]
        changed = sum(len(set(row.tolist())) > 1 for row in rows)
        entropy = sum(stats.entropy(np.unique(row, return_counts=True)[1]) for row in rows)
        ranks.append((changed, entropy))
    return ranks


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("models", [1, 4])
def test_counts_the_models_that_change_their_vote_and_adds_up_their_entropies(models, library):
    several = make_votes(models=models)
    found = count_vote_changes([library.asarray(votes) for votes in several])
    expected = np.array(slow_ranks(several))
    assert found.models.tolist() == expected[:, 0].tolist()
    np.testing.assert_allclose(found.entropy, expected[:, 1], atol=1e-13)
    assert found.most == pytest.approx(models * np.log(6))


def test_without_a_draw_the_highest_ranks_are_picked_in_order():
    several = make_votes()
    ranks = slow_ranks(several)
    order = sorted(range(40), key=lambda i: (-ranks[i][0], -round(ranks[i][1], 9), i))
    selection = labelwise.select("disagreement", 12, member_votes=several, candidates=1)
    assert selection.ids.tolist() == order[:12]
    assert (np.diff(selection.scores) <= 1e-12).all()
    assert np.floor(selection.scores).tolist() == [ranks[i][0] for i in order[:12]]


def test_picks_are_drawn_from_five_times_as_many_highest():
    several = make_votes(200)
    top = labelwise.select("disagreement", 40, member_votes=several, candidates=1).ids.tolist()
    seen = set()
    for seed in range(60):
        picks = labelwise.select("disagreement", 8, member_votes=several, seed=seed)
        assert picks.info["candidates"] == 40
        seen |= set(picks.ids.tolist())
    assert seen == set(top)


def test_every_candidate_is_as_likely_as_any_other():
    several = make_votes(30)
    counts = np.zeros(30)
    for seed in range(800):
        picks = labelwise.select("disagreement", 3, member_votes=several, seed=seed, candidates=4)
        counts[picks.ids] += 1
    drawn = counts[counts > 0]
    assert len(drawn) == 12
    # Without replacement the spread is that of a chi-square shrunk by (12 - 3) / (12 - 1).
    statistic = ((drawn - 200) ** 2 / 200).sum() * 11 / 9
    assert stats.chi2.sf(statistic, 11) > 1e-3


def test_all_items_are_candidates_where_there_are_few():
    several = make_votes(20)
    seen = set()
    for seed in range(40):
        picks = labelwise.select("disagreement", 5, member_votes=several, seed=seed)
        assert picks.info["candidates"] == 20
        seen |= set(picks.ids.tolist())
    assert seen == set(range(20))


def test_one_wavering_model_more_beats_any_entropy():
    steady, wild = [[3, 3, 3, 3]], [[0, 1, 2, 3]]
    mild = [[0, 0, 0, 1]]
    several = [np.array(wild + mild), np.array(steady + mild)]
    assert labelwise.select("disagreement", 1, member_votes=several, candidates=1).ids.tolist() == [
        1
    ]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32])
def test_votes_of_any_type_give_the_same_picks(dtype):
    several = make_votes()
    expected = labelwise.select("disagreement", 6, member_votes=several, seed=4).ids.tolist()
    typed = [votes.astype(dtype) for votes in several]
    assert labelwise.select("disagreement", 6, member_votes=typed, seed=4).ids.tolist() == expected
    tensors = [torch.asarray(votes) for votes in typed]
    found = labelwise.select("disagreement", 6, member_votes=tensors, seed=4)
    assert found.ids.tolist() == expected


def test_the_split_of_a_list_of_models_does_not_matter(tmp_path):
    several = make_votes(60)
    expected = select(STRATEGY, LocalShards.of(member_votes=several), 10, seed=2).ids.tolist()
    order = np.random.default_rng(0).permutation(60)
    parts = [
        Shard(part, {"member_votes": [votes[part] for votes in several]})
        for part in np.array_split(order, 7)
    ]
    assert select(STRATEGY, LocalShards(parts), 10, seed=2).ids.tolist() == expected
    for number, votes in enumerate(several):
        np.save(tmp_path / f"{number}.npy", votes)
    files = [tmp_path / f"{number}.npy" for number in range(3)]
    found = labelwise.select("disagreement", 10, member_votes=files, seed=2)
    assert found.ids.tolist() == expected


def test_models_may_have_different_numbers_of_epochs():
    several = [make_votes(models=1, epochs=5)[0], make_votes(models=1, epochs=9, seed=1)[0]]
    found = count_vote_changes(several)
    np.testing.assert_allclose(found.entropy, [rank[1] for rank in slow_ranks(several)], atol=1e-13)


def test_refuses_votes_that_are_values_of_a_regression():
    votes = np.array([[1.0, 2.0], [0.0, 0.25]])
    with pytest.raises(
        BadInput, match=r"member_votes of item 7 contain 0.25, which is not a class"
    ):
        labelwise.select("disagreement", 1, member_votes=votes, ids=[5, 7])


def test_says_within_how_many_models_the_votes_differ():
    facts = PickFacts(rank=0, batch_size=3, trained=True, score=2.4, info={"models": 3})
    assert STRATEGY.explain_pick(facts) == "The votes about this item differ within 2 of 3 models."
    one = labelwise.select("disagreement", 1, member_votes=[[0, 0], [0, 1]], seed=0, candidates=1)
    facts = replace(facts, score=one.scores[0], info=one.info)
    assert STRATEGY.explain_pick(facts) == "The model's votes about this item differ."
