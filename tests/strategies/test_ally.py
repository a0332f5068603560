"""ALLY against slow versions written from the definition, for every kind of diversity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.kernels.distance.kmeans import kmeans
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import take_rows
from labelwise.selection.run import select as run_select
from labelwise.strategies.ally import DIVERSITIES, STRATEGY, pick_cluster_shares
from tests.conftest import make_features

KINDS = list(DIVERSITIES)


def make_pool(n=80, d=4, seed=0):
    """Features in clusters, with copies, and duals, some equal and some zero."""
    features = make_features(n, d, seed)
    duals = np.random.default_rng([seed, 7]).gamma(0.5, size=n).round(2)
    features[n // 2 : n // 2 + 6] = features[:6]
    return {"features": features, "duals": duals}


def slow_shares(labels, budget):
    """Scan the items, best first, while their cluster has room; then the best of the rest."""
    names = sorted(set(labels))
    room = {name: budget // len(names) for name in names}
    best_first = sorted(names, key=lambda name: list(labels).index(name))
    for name in best_first[: budget % len(names)]:
        room[name] += 1
    picks = []
    for place, name in enumerate(labels):
        if room[name] > 0:
            room[name] -= 1
            picks.append(place)
    rest = [place for place in range(len(labels)) if place not in picks]
    return picks + rest[: budget - len(picks)]


@given(st.data())
def test_shares_are_those_of_the_slow_scan(data):
    labels = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=30))
    budget = data.draw(st.integers(len(set(labels)), len(labels)))
    picks, info = pick_cluster_shares(np.array(labels), budget)
    assert picks.tolist() == slow_shares(labels, budget)
    assert len(set(picks.tolist())) == budget == sum(info["shares"])
    sizes = np.unique(labels, return_counts=True)[1]
    full = budget // len(sizes)
    assert (np.array(info["shares"]) >= np.minimum(sizes, full)).all()
    if info["filled"] == 0:
        assert max(info["shares"]) <= full + 1


def ranked(pool):
    """Item numbers, best first, equal duals by id."""
    return sorted(range(len(pool["duals"])), key=lambda item: (-pool["duals"][item], item))


@pytest.mark.parametrize("clusters", [1, 3, 7, 12, None])
def test_picks_are_the_best_of_every_cluster(clusters):
    pool = make_pool()
    selection = labelwise.select("ally", 12, **pool, clusters=clusters, seed=4)
    order = ranked(pool)
    k = 12 if clusters is None else clusters
    labels = kmeans(pool["features"], k, 4).labels if k > 1 else np.zeros(80, dtype=int)
    expected = [order[place] for place in slow_shares(labels[order].tolist(), 12)]
    assert selection.ids.tolist() == expected
    assert selection.info["clusters"] == k
    np.testing.assert_array_equal(selection.scores, pool["duals"][selection.ids])


def test_one_pick_is_the_largest_dual_and_ties_go_to_the_smaller_id():
    pool = make_pool()
    pool["duals"][[70, 33, 61]] = 99.0
    for diversity in ("kmeans", "k_center", "none"):
        assert labelwise.select("ally", 1, **pool, diversity=diversity).ids.tolist() == [33]


def test_one_cluster_is_the_same_as_no_diversity():
    pool = make_pool()
    one = labelwise.select("ally", 15, **pool, clusters=1)
    none = labelwise.select("ally", 15, **pool, diversity="none")
    assert one.ids.tolist() == none.ids.tolist() == ranked(pool)[:15]


def test_as_many_clusters_as_picks_give_one_item_each():
    pool = make_pool()
    selection = labelwise.select("ally", 10, **pool)
    labels = kmeans(pool["features"], 10, 0).labels
    assert sorted(labels[selection.ids]) == list(range(10))
    assert selection.info["shares"] == [1] * 10 and selection.info["filled"] == 0


def test_fewer_different_items_than_clusters_share_equally():
    """Three different rows, twelve picks: four of each, the best ones."""
    features = np.repeat(np.array([[0.0], [5.0], [9.0]]), 10, axis=0)
    duals = np.arange(30.0)
    selection = labelwise.select("ally", 12, features=features, duals=duals)
    assert selection.info["clusters"] == 3 and selection.info["shares"] == [4, 4, 4]
    assert sorted(selection.ids.tolist()) == [6, 7, 8, 9, 16, 17, 18, 19, 26, 27, 28, 29]


def test_small_clusters_leave_their_places_to_the_best_of_the_rest():
    features = np.r_[np.zeros(20), 50.0][:, None]
    duals = np.r_[np.arange(20.0), 0.5]
    selection = labelwise.select("ally", 6, features=features, duals=duals, clusters=2)
    assert selection.ids.tolist() == [19, 18, 17, 20, 16, 15]
    assert selection.info["filled"] == 2 and sorted(selection.info["shares"]) == [1, 5]


def slow_k_center(pool, budget, candidates, labelled):
    order = ranked(pool)[: candidates * budget]
    picks = [order[0]]
    features = pool["features"]
    while len(picks) < budget:
        centres = np.concatenate([features[picks], features[labelled]])
        distances = {
            item: ((features[item] - centres) ** 2).sum(axis=1).min()
            for item in sorted(set(order) - set(picks))
        }
        picks.append(max(distances, key=lambda item: (round(distances[item], 9), -item)))
    return picks


@pytest.mark.parametrize("candidates", [1, 3, 50])
def test_k_center_is_farthest_first_among_the_best(candidates):
    pool = make_pool()
    options = {"diversity": "k_center", "candidates": candidates}
    selection = labelwise.select("ally", 8, **pool, **options)
    assert selection.ids.tolist() == slow_k_center(pool, 8, candidates, [])


def test_k_center_keeps_away_from_labelled_items():
    pool, labelled = make_pool(), [5, 6, 7]
    options = {"diversity": "k_center", "candidates": 9}
    found = labelwise.select("ally", 8, **pool, **options, labelled=labelled)
    alone = labelwise.select("ally", 8, **pool, **options)
    pool["duals"][labelled] = -1  # the slow version ranks them last, behind the 72 candidates
    assert found.ids.tolist() == slow_k_center(pool, 8, 9, labelled)
    assert found.ids.tolist() != alone.ids.tolist()


def chi_square(counts, law):
    expected = counts.sum() * law
    return (((counts - expected) ** 2)[law > 0] / expected[law > 0]).sum()


LINE = {"features": np.array([[0.0], [1.0], [3.0], [7.0]]), "duals": np.array([2.0, 1.0, 4.0, 0.0])}


@pytest.mark.parametrize("diversity", ["kmeans++", "noise"])
def test_pairs_are_drawn_by_their_law(diversity):
    """500 draws of two out of four items, one of which has no dual."""
    x, duals = LINE["features"][:, 0], LINE["duals"]
    law = np.zeros((4, 4))
    for first in range(3):
        distance = (x - x[first]) ** 2 if diversity == "kmeans++" else (np.arange(4) != first)
        law[first] = duals[first] / duals.sum() * (duals * distance) / (duals * distance).sum()
    counts = np.zeros((4, 4))
    for seed in range(500):
        one, two = labelwise.select("ally", 2, **LINE, diversity=diversity, seed=seed).ids
        counts[one, two] += 1
    assert counts[law == 0].sum() == 0
    assert chi_square(counts, law) < 20.5  # 5 degrees of freedom, one in a thousand


def test_draws_that_run_out_of_items_are_filled_up():
    copies = {"features": np.ones((6, 2)), "duals": np.array([1.0, 5, 2, 3, 0, 4])}
    selection = labelwise.select("ally", 4, **copies, diversity="kmeans++")
    rest = [item for item in [1, 5, 3, 2] if item != selection.ids[0]]
    assert selection.ids[1:].tolist() == rest[:3]
    assert selection.info["filled"] == 3
    last = labelwise.select("ally", 6, **copies, diversity="noise").ids[-1]
    assert last == 4  # its dual is zero


@pytest.mark.parametrize("diversity", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_diversity_depends_on_order_split_or_library(diversity, dtype):
    torch = pytest.importorskip("torch")
    pool = {name: rows.astype(dtype) for name, rows in make_pool().items()}
    strategy = STRATEGY.with_options(diversity=diversity)
    expected = labelwise.select(strategy, 15, **pool, seed=3).ids.tolist()
    tensors = {name: torch.asarray(rows) for name, rows in pool.items()}
    assert labelwise.select(strategy, 15, **tensors, seed=3).ids.tolist() == expected
    order = np.random.default_rng(1).permutation(80)
    for cuts in ([], [3, 3, 40]):
        parts = np.split(order, cuts)
        shards = LocalShards([Shard(part, take_rows(pool, part)) for part in parts])
        assert run_select(strategy, shards, 15, seed=3).ids.tolist() == expected


@pytest.mark.parametrize("diversity", KINDS)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_pool_gives_as_many_distinct_items_as_asked_for(diversity, data):
    n = data.draw(st.integers(1, 12))
    values = st.sampled_from([0.0, 1.0, 2.0, 1e-30, 1e6])
    features = np.array(data.draw(st.lists(values, min_size=n, max_size=n)))[:, None]
    duals = np.array(data.draw(st.lists(values, min_size=n, max_size=n)))
    budget = data.draw(st.integers(1, n))
    selection = labelwise.select(
        "ally", budget, features=features, duals=duals, diversity=diversity
    )
    assert len(set(selection.ids.tolist())) == budget


def test_bad_input_gets_a_clear_error():
    pool = make_pool()
    with pytest.raises(UnknownName, match="no diversity is called 'badge'; choose from kmeans"):
        labelwise.select("ally", 5, **pool, diversity="badge")
    pool["duals"][17] = -0.5
    with pytest.raises(BadInput, match=r"not negative; item 17 has -0\.5"):
        labelwise.select("ally", 5, **pool)
