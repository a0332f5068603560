"""Lewis draws against their definition, written out with dense matrices."""

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.linear.draws import (
    draw_until_distinct,
    find_heaviest_weights,
    solve_poisson_rate,
)
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import take_rows
from labelwise.selection.run import select
from labelwise.strategies.lewis import STRATEGY
from tests.conftest import make_features


def slow_weights(rows, p, rounds=3000):
    """Lewis weights by many plain, strongly damped rounds on the dense matrices."""
    weights = np.full(len(rows), 0.5)
    for _ in range(rounds):
        gram = (rows.T * weights ** (1 - 2 / p)) @ rows
        target = np.einsum("ij,jk,ik->i", rows, np.linalg.inv(gram), rows) ** (p / 2)
        weights = weights**0.8 * target**0.2
    return weights


def two_models(n=120):
    return [make_features(n, 6), np.tanh(make_features(n, 4, seed=1))]


def run(features, budget=20, seed=0, **options):
    shards = LocalShards.of(features=features)
    return select(STRATEGY.with_options(**options), shards, budget, seed=seed)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_matches_the_definition_over_two_models(p):
    models = two_models()
    largest = np.maximum(*(slow_weights(rows, p) for rows in models))
    chances = largest / largest.sum()
    ids, counts, draws = draw_until_distinct(chances, 20, 3)
    selection = run(models, seed=3, p=p)
    assert selection.ids.tolist() == ids.tolist()
    assert selection.counts.tolist() == counts.tolist()
    np.testing.assert_allclose(selection.scores, largest[ids], rtol=1e-5)
    np.testing.assert_allclose(selection.weights, counts / (draws * chances[ids]), rtol=1e-5)
    assert selection.info["draws"] == draws


def test_the_diagnostics_say_what_the_models_have_in_common():
    models = two_models()
    info = run(models, p=2.0).info
    single = [run(rows).info["total"] for rows in models]
    assert single == [pytest.approx(6), pytest.approx(4)]
    assert info["ranks"] == [6, 4] and info["sum_of_ranks"] == 10
    assert info["total_by_models"] == [pytest.approx(6), pytest.approx(info["total"])]
    assert 6 < info["total"] < 10
    assert info["iterations"] == [0, 0]
    assert all(1 < rounds < 60 for rounds in run(models, p=1.0).info["iterations"])


def test_the_same_model_twice_is_the_model_once():
    rows = make_features(100, 5)
    once, twice = run(rows), run([rows, 3 * rows])
    assert once.ids.tolist() == twice.ids.tolist()
    np.testing.assert_allclose(once.weights, twice.weights)
    assert twice.info["total"] == pytest.approx(5)


def test_the_effective_size_is_that_of_the_selection():
    selection = run(two_models())
    assert selection.info["effective_size"] == pytest.approx(selection.effective_size())


@pytest.mark.parametrize("sampling", ["with_replacement", "poisson"])
def test_weighted_sums_estimate_sums_over_the_pool(sampling):
    rows = make_features(150, 4) * np.linspace(0.5, 3, 150)[:, None]
    values = 1 + np.arange(150) % 7
    sums = []
    for seed in range(400):
        selection = run(rows, 50, seed, sampling=sampling)
        sums.append(selection.weights @ values[selection.ids])
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - values.sum()) < 3 * error
    assert error < 0.02 * values.sum()


def test_poisson_keeps_the_budget_on_average_and_weighs_by_the_inverse_chance():
    rows = make_features(150, 4)
    sizes = []
    for seed in range(300):
        selection = run(rows, 40, seed, sampling="poisson")
        sizes.append(len(selection))
        assert selection.counts is None and selection.info["draws"] == len(selection)
    assert np.mean(sizes) == pytest.approx(40, abs=3 * np.std(sizes) / np.sqrt(300))
    scores = slow_weights(rows, 2.0)
    rate = solve_poisson_rate([find_heaviest_weights(scores, 40)], 40)
    chances = np.minimum(1, rate * scores)
    np.testing.assert_allclose(selection.weights, 1 / chances[selection.ids], rtol=1e-6)


def smallest_and_largest_ratio(rows, ids, weights, p):
    """The extremes of ``sum w |a x|^p / sum |a x|^p`` over random directions and axes."""
    d = rows.shape[1]
    directions = np.random.default_rng(0).standard_normal((d, 1000))
    directions = np.concatenate([directions, np.eye(d)], axis=1)
    directions = np.concatenate([directions, np.linalg.pinv(rows[:200])], axis=1)
    whole = np.sum(np.abs(rows @ directions) ** p, axis=0)
    part = weights @ np.abs(rows[ids] @ directions) ** p
    return (part / whole).min(), (part / whole).max()


# budgets that take about 1,000 draws
@pytest.mark.parametrize(
    ("p", "budget"), [(1.0, 780), (1.5, 690), (2.0, 540), (3.0, 300), (4.0, 160)]
)
def test_the_picks_preserve_the_norm_of_every_direction(p, budget):
    rows = np.random.default_rng(11).standard_t(2, (3000, 5))
    worst = []
    for seed in range(3):
        selection = run(rows, budget, seed, p=p)
        assert 800 < selection.info["draws"] < 1200
        worst += smallest_and_largest_ratio(rows, selection.ids, selection.weights, p)
    assert 0.75 < min(worst) and max(worst) < 1.25
    if p >= 3:  # uniform draws miss the few rows that matter
        ids = np.random.default_rng(0).choice(3000, 1000, replace=False)
        low, high = smallest_and_largest_ratio(rows, ids, np.full(1000, 3.0), p)
        assert low < 0.75 or high > 1.25


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", [{}, {"p": 1.0}, {"p": 4.0}, {"sampling": "poisson"}])
def test_does_not_depend_on_blocks_order_or_library(options, dtype):
    torch = pytest.importorskip("torch")
    rows = {"features": [model.astype(dtype) for model in two_models()]}
    whole = run(rows["features"], **options)
    order = np.random.default_rng(1).permutation(120)
    for cuts in ([], [40, 41], [5, 20, 30, 60, 61, 100]):
        blocks = [Shard(part, take_rows(rows, part)) for part in np.split(order, cuts)]
        split = select(STRATEGY.with_options(**options), LocalShards(blocks), 20)
        assert split.ids.tolist() == whole.ids.tolist()
        np.testing.assert_allclose(split.weights, whole.weights, rtol=1e-8)
    tensors = run([torch.asarray(model) for model in rows["features"]], **options)
    assert tensors.ids.tolist() == whole.ids.tolist()


@pytest.mark.parametrize("sampling", ["with_replacement", "poisson"])
def test_nothing_stays_in_the_blocks_and_nothing_as_long_as_the_pool_leaves_them(sampling):
    """What a block answers has at most as many entries as the budget."""
    shards, sizes = LocalShards.of(features=make_features(3000, 4)), []

    def answers(function, *arguments):
        parts = LocalShards.map(shards, function, *arguments)
        sizes.extend(array.size for array in tree_leaves(parts) if isinstance(array, np.ndarray))
        return parts

    shards.map = answers
    select(STRATEGY.with_options(sampling=sampling), shards, 20)
    assert 0 < max(sizes) < 100
    assert LocalShards.map(shards, lambda shard: dict(shard.state)) == [{}]


def tree_leaves(value):
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in tree_leaves(part)]
    return [value]


@pytest.mark.parametrize("sampling", ["with_replacement", "poisson"])
def test_the_whole_pool_stands_for_itself(sampling):
    rows = make_features(30, 4)
    rows[5] = 0
    selection = run(rows, 30, sampling=sampling)
    assert sorted(selection.ids.tolist()) == list(range(30))
    assert selection.weights.tolist() == [1] * 30 and selection.ids[-1] == 5
    assert (np.diff(selection.scores) <= 1e-9).all()


def test_items_without_features_are_never_drawn():
    first, second = np.zeros((40, 3)), np.zeros((40, 2))
    first[:10], second[8:20] = make_features(10, 3), make_features(12, 2)
    assert set(run([first, second], 20).ids.tolist()) == set(range(20))
    with pytest.raises(BadInput, match="budget is 21 but only 20 of 40 items have features"):
        run([first, second], 21)


def test_copies_have_the_same_score():
    rows = np.repeat(make_features(10, 3), 4, axis=0)
    scores = run(rows, 40).scores
    assert len(np.unique(np.round(scores, 10))) == 10


def test_rtol_and_tol_reach_the_kernel():
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((200, 3)) @ generator.standard_normal((3, 8))
    noisy = rows + 1e-4 * generator.standard_normal((200, 8))
    assert run(noisy).info["ranks"] == [8]
    assert run(noisy, rtol=1e-2).info["ranks"] == [3]
    rough, fine = (run(rows, p=1.0, tol=tol).info["iterations"][0] for tol in (1e-2, 1e-9))
    assert rough < fine


def test_is_found_by_name():
    features = make_features(50, 4)
    selection = labelwise.select("lewis", 10, features=features, labelled=[3], seed=2)
    assert len(selection) == 10 and 3 not in selection.ids


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_a_bias_equals_a_column_of_ones(p):
    rng = np.random.default_rng(0)
    models = [rng.normal(size=(120, 3)), rng.normal(size=(120, 2))]
    ones = [np.hstack([rows, np.ones((120, 1))]) for rows in models]
    found = labelwise.select("lewis", 25, features=models, p=p, bias=True, seed=3)
    column = labelwise.select("lewis", 25, features=ones, p=p, seed=3)
    assert found.ids.tolist() == column.ids.tolist()
    np.testing.assert_allclose(found.weights, column.weights)
    with pytest.raises(BadInput, match="bias must be True or False; got 1"):
        labelwise.select("lewis", 25, features=models, bias=1)
