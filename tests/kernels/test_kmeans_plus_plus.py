"""The lazy k-means++ draw has the law of drawing one at a time."""

import numpy as np
import pytest
from scipy.stats import chisquare

from labelwise.errors import BadInput
from labelwise.kernels.distance import kmeans_plus_plus as seeding
from labelwise.kernels.distance.embedding import Factored, split_embedding
from labelwise.kernels.distance.kmeans_plus_plus import draw_kmeans_plus_plus, kmeans_plus_plus
from labelwise.pool.blocks import LocalShards, Shard
from tests.conftest import make_features


def enumerate_law(rows, k, centres):
    """The probability of every ordered draw, straight from the definition."""
    law = {}

    def extend(draw, probability):
        if len(draw) == k:
            law[draw] = probability
            return
        points = np.concatenate([centres, rows[list(draw)]])
        mass = ((rows[:, None] - points[None]) ** 2).sum(axis=2).min(axis=1)
        for row in np.flatnonzero(mass > 0):
            extend((*draw, int(row)), probability * mass[row] / mass.sum())

    extend((), 1.0)
    return law


def p_value(draws, law):
    """Chi-square of the draws, rare ones lumped together."""
    expected = np.array(list(law.values())) * len(draws)
    counts = dict.fromkeys(law, 0)
    for draw in draws:
        counts[draw] += 1
    found = np.array(list(counts.values()))
    common = expected >= 5
    found = np.append(found[common], found[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    return chisquare(found[expected > 0], expected[expected > 0]).pvalue


@pytest.mark.parametrize("rings", [256, 3], ids=["many rings", "few rings"])
def test_the_draw_has_the_enumerated_law(monkeypatch, rings):
    monkeypatch.setattr(seeding, "RINGS", rings)
    generator = np.random.default_rng(0)
    rows, centres = generator.normal(size=(5, 2)), generator.normal(size=(1, 2))
    law = enumerate_law(rows, 3, centres)
    draws = [tuple(kmeans_plus_plus(rows, 3, seed, centres).tolist()) for seed in range(500)]
    assert p_value(draws, law) > 1e-3


def test_factored_rows_have_the_law_of_their_products():
    generator = np.random.default_rng(1)
    rows = Factored(generator.normal(size=(5, 2)), generator.normal(size=(5, 2)))
    centres = Factored(rows.a[:1] * 0.5, rows.h[:1])
    law = enumerate_law(rows.dense(), 2, centres.dense())
    draws = [tuple(kmeans_plus_plus(rows, 2, seed, centres).tolist()) for seed in range(500)]
    assert p_value(draws, law) > 1e-3


def test_the_first_pick_is_uniform_without_centres():
    rows = np.array([[100.0], [1.0], [2.0], [3.0]])
    firsts = [int(kmeans_plus_plus(rows, 1, seed)[0]) for seed in range(800)]
    assert chisquare(np.bincount(firsts, minlength=4)).pvalue > 1e-3


def test_the_first_pick_can_be_the_largest():
    rows = make_features(50, 3)
    largest = int((rows**2).sum(axis=1).argmax())
    assert all(kmeans_plus_plus(rows, 2, s, first="largest")[0] == largest for s in range(5))


def test_many_epochs_have_the_law_too(monkeypatch):
    """Rows are measured again and again when every rejection counts as too expensive."""
    generator = np.random.default_rng(2)
    rows, centres = generator.normal(size=(6, 2)), generator.normal(size=(1, 2))
    refreshes = []
    refresh = seeding.SeedingRun.restart_clocks
    monkeypatch.setattr(
        seeding.SeedingRun,
        "restart_clocks",
        lambda self, c: (refreshes.append(1), refresh(self, c))[1],
    )
    monkeypatch.setattr(seeding, "RINGS", 2)
    monkeypatch.setattr(seeding, "PATIENCE", 0.0)
    draws = [tuple(kmeans_plus_plus(rows, 3, seed, centres).tolist()) for seed in range(500)]
    assert len(refreshes) > 600
    assert p_value(draws, enumerate_law(rows, 3, centres)) > 1e-3


def draw_in_blocks(rows, order, cuts, k=40, seed=3):
    names, embed = split_embedding(rows)
    shards = LocalShards(
        Shard(part.astype(np.int64), {name: value[part] for name, value in names.items()})
        for part in np.split(order, cuts)
    )
    return draw_kmeans_plus_plus(shards, embed, k, seed)[0].tolist()


def test_the_draw_does_not_depend_on_order_or_split():
    rows = make_features(700, 5).astype(np.float32)
    whole = draw_in_blocks(rows, np.arange(700), [])
    shuffled = np.random.default_rng(1).permutation(700)
    assert draw_in_blocks(rows, np.arange(700), [100, 333]) == whole
    assert draw_in_blocks(rows, shuffled, [50]) == whole


def test_a_block_of_single_precision_keeps_sixteen_bytes_a_row():
    names, embed = split_embedding(make_features(5000, 3).astype(np.float32))
    block = Shard(np.arange(5000), names)
    draw_kmeans_plus_plus(LocalShards([block]), embed, 60, 1)
    part = block.state[seeding.KEY]
    held = part.norms.nbytes + part.rates.nbytes + part.rings.nbytes
    assert held == 16 * 5000 and len(part.rung) < 2000


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e15])
def test_the_first_clocks_ring_at_bounds_of_the_distance(size):
    rows = (size * make_features(500, 4)).astype(np.float32)
    names, embed = split_embedding(rows)
    block = Shard(np.arange(500), names)
    seeding.measure_seeding_norms(block, embed, 0, "largest")
    norm = float((rows[7].astype(np.float64) ** 2).sum())
    seeding.restart_block_clocks(block, embed, norm, np.array([7]), 0, 1)
    distances = ((rows.astype(np.float64) - rows[7].astype(np.float64)) ** 2).sum(axis=1)
    rates = block.state[seeding.KEY].rates
    assert rates[7] == 0 and (np.delete(rates, 7) >= np.delete(distances, 7)).all()


def test_clocks_set_a_few_at_a_time_ring_as_if_set_together(monkeypatch):
    rows = make_features(900, 4).astype(np.float32)
    expected = draw_in_blocks(rows, np.arange(900), [100])
    monkeypatch.setattr(seeding, "SPAN", 7)
    assert draw_in_blocks(rows, np.arange(900), [100]) == expected


def test_copies_of_a_centre_are_drawn_only_when_nothing_else_is_left():
    rows = np.repeat(make_features(4, 3), 5, axis=0).astype(np.float32)
    picks = kmeans_plus_plus(rows, 20, 0)
    assert sorted(picks.tolist()) == list(range(20))
    assert len({int(pick) // 5 for pick in picks[:4]}) == 4


def test_scores_are_the_squared_distances_at_the_time_of_the_pick():
    rows = make_features(60, 4)
    names, embed = split_embedding(rows)
    ids, scores = draw_kmeans_plus_plus(LocalShards.of(**names), embed, 10, 0)
    for turn in range(1, 10):
        nearest = ((rows[ids[:turn]] - rows[ids[turn]]) ** 2).sum(axis=1).min()
        assert scores[turn] == pytest.approx(nearest)


def test_too_many_is_an_error():
    with pytest.raises(BadInput, match="k must be from 0 to 3, the number of rows; got 4"):
        kmeans_plus_plus(np.ones((3, 2)), 4, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_row_without_a_norm_is_refused(value):
    rows = make_features(20, 3)
    rows[7, 1] = value
    with np.errstate(over="ignore"), pytest.raises(BadInput, match="the row of item 7 is NaN"):
        kmeans_plus_plus(rows, 3, 0)


def test_a_rest_of_mass_that_is_only_rounding_does_not_keep_the_draw_waiting(monkeypatch):
    """The mass is kept by subtraction; what rounding leaves of it belongs to no clock."""
    settle = seeding.SeedingRun._accept_rings

    def leave_a_rest(self, rings):
        settle(self, rings)
        self._mass += 1e-9

    monkeypatch.setattr(seeding.SeedingRun, "_accept_rings", leave_a_rest)
    rows = np.repeat(make_features(4, 4), [1, 1, 1, 3000], axis=0)
    picks = kmeans_plus_plus(rows, 6, 0, rows[-1:])
    assert len(set(picks.tolist())) == 6
    assert sorted(picks[:3].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_law_holds_for_rows_far_from_the_origin(kind):
    rows = 0.1 * np.random.default_rng(0).normal(size=(100, 3))
    rows[99] += 10
    rows = (rows + 1e4).astype(kind)
    drawn = [99 in kmeans_plus_plus(rows, 2, seed) for seed in range(200)]
    assert np.mean(drawn) > 0.9  # the mass of all others is a hundredth of its own


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize(
    ("kind", "power"), [(np.float32, -100), (np.float32, 90), (np.float64, -530), (np.float64, 505)]
)
def test_draws_do_not_depend_on_the_scale(kind, power, factored):
    rows = make_features(300, 4).astype(kind)
    scaled = np.ldexp(rows, power)  # nothing is rounded
    first = make_features(300, 3, 1).astype(kind)
    both = (Factored(first, rows), Factored(first, scaled)) if factored else (rows, scaled)
    for seed in range(3):
        near, far = (kmeans_plus_plus(given, 12, seed).tolist() for given in both)
        assert near == far


def test_whole_numbers_are_drawn_from():
    rows = np.random.default_rng(0).integers(0, 9, size=(50, 3))
    expected = kmeans_plus_plus(rows.astype(np.float64), 6, 1).tolist()
    assert kmeans_plus_plus(rows, 6, 1).tolist() == expected
    assert kmeans_plus_plus(rows, 6, 1, rows[:1].astype(np.int8)).tolist() != expected
