"""Picks made ahead are the picks of one at a time."""

from dataclasses import replace

import numpy as np
import pytest

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.distance import farthest
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.kernels.loop.scan import count_certain_picks
from labelwise.kernels.placement import count_resident_bytes, find_placement, join_resident_blocks
from labelwise.kernels.sparse import greedy_ahead
from labelwise.kernels.sparse.greedy import GreedyPursuit
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.strategies.k_center import STRATEGY as K_CENTER
from labelwise.strategies.sparse_greedy import STRATEGY as GREEDY
from labelwise.strategies.sparse_greedy import SparseGreedyPlan
from tests.conftest import make_features
from tests.kernels.sparse_twin import make_members, make_rows

torch = pytest.importorskip("torch")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = [None, "cpu", pytest.param("cuda", marks=NO_GPU)]
"""NumPy, and torch on two devices."""


def on(device, array):
    return array if device is None else torch.as_tensor(array, device=device)


def shards_on(device, rows, blocks, order=None):
    n = len(next(iter(rows.values())))
    parts = np.array_split(np.arange(n) if order is None else order, blocks)
    return LocalShards(
        [
            Shard(part, {name: on(device, array[part]) for name, array in rows.items()})
            for part in parts
        ]
    )


def working_on(device, strategy):
    """The strategy with its own work done on a device, as it is where rows are on a GPU."""
    if device is None:
        return strategy

    def begin(*given):
        plan = strategy.begin(*given)
        place = torch.empty(0, dtype=torch.float64, device=device)
        old = plan.pursuit
        return SparseGreedyPlan(GreedyPursuit(old.problem, old.gain, old.steps, place), plan.polish)

    return replace(strategy, begin=begin)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("labelled", [None, 5])
def test_farthest_picks_are_those_of_one_at_a_time(device, blocks, labelled):
    rows = make_features(700, 8, 2).astype(np.float32)
    rows[600:] = rows[:100]  # copies: the smaller id wins
    known = None if labelled is None else {"features": rows[:labelled]}
    slow = replace(K_CENTER, bounded=False)
    whole = shards_on(None, {"features": rows}, 1)
    expected = pick_greedily(slow, whole, known, 60, 0, ahead=False)
    order = np.random.default_rng(0).permutation(700)
    shards = shards_on(device, {"features": rows}, blocks, order)
    near = None if known is None else {"features": on(device, rows[:labelled])}
    found = pick_greedily(K_CENTER, shards, near, 60, 0, ahead=True)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)


@pytest.mark.parametrize("width", [20, 60])
def test_a_small_window_changes_nothing(width, monkeypatch):
    monkeypatch.setattr(farthest, "WIDTH", width)
    monkeypatch.setattr(greedy_ahead, "WIDTH", width)
    rows = make_rows(500, 6, 4)
    for strategy in (K_CENTER, GREEDY.with_options(temperature=2.0, relative_alpha=0.1)):
        expected = pick_greedily(strategy, shards_on(None, rows, 2), None, 90, 0, ahead=False)
        found = pick_greedily(strategy, shards_on(None, rows, 2), None, 90, 0, ahead=True)
        assert found.ids.tolist() == expected.ids.tolist()


OPTIONS = [
    {},
    {"relative_alpha": 0.3, "tau": 0.5},
    {"gain": "exact", "alpha": 1e-6, "beta": 1e-4, "debias_steps": 3},
    {"alpha": 1e-3, "beta": 0.0, "debias_steps": 0},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("options", OPTIONS)
def test_pursuit_picks_and_weights_are_those_of_one_at_a_time(device, blocks, options):
    rows = {name: array.astype(np.float32) for name, array in make_rows(400, 6, 4).items()}
    for array in rows.values():
        array[300:320] = array[:20]
    strategy = GREEDY.with_options(temperature=2.0, polish=False, **options)
    expected = pick_greedily(strategy, shards_on(None, rows, 1), None, 40, 0, ahead=False)
    order = np.random.default_rng(1).permutation(400)
    shards = shards_on(device, rows, blocks, order)
    found = pick_greedily(working_on(device, strategy), shards, None, 40, 0, ahead=True)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3, atol=1e-9)


def test_members_are_pursued_ahead_too():
    rows = make_members(200, 6, 4)
    expected = pick_greedily(GREEDY, shards_on(None, rows, 1), None, 40, 0, ahead=False)
    found = pick_greedily(GREEDY, shards_on(None, rows, 2), None, 40, 0, ahead=True)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)


def test_all_items_can_be_picked_ahead():
    rows = make_rows(70, 6, 4)
    for strategy in (K_CENTER, GREEDY.with_options(temperature=2.0)):
        found = pick_greedily(strategy, shards_on(None, rows, 2), None, 70, 0, ahead=True)
        assert sorted(found.ids.tolist()) == list(range(70))


def test_where_only_variances_decide_nothing_is_made_ahead():
    rows = make_rows(60, 6, 4)
    with pytest.warns(LabelwiseWarning, match="at temperature 1"):
        expected = pick_greedily(GREEDY, shards_on(None, rows, 1), None, 20, 0, ahead=False)
    with pytest.warns(LabelwiseWarning, match="at temperature 1"):
        found = pick_greedily(GREEDY, shards_on(None, rows, 2), None, 20, 0, ahead=True)
    assert found.ids.tolist() == expected.ids.tolist()


def test_a_row_that_overflows_is_refused_ahead():
    rows = {"features": make_features(50, 3).astype(np.float32)}
    rows["features"][7] = 3e30
    with pytest.raises(BadInput, match="scored item"), np.errstate(all="ignore"):
        pick_greedily(K_CENTER, shards_on(None, rows, 1), None, 5, 0, ahead=True)


def test_only_what_comes_before_the_first_doubt_is_certain():
    assert count_certain_picks(np.array([True, True, False, True])) == 2
    assert count_certain_picks(np.array([True, True])) == 2
    assert count_certain_picks(np.array([False, True])) == 0


def test_only_tensors_that_are_not_read_anew_count_as_staying_on_a_device():
    tensor = torch.ones((4, 3))
    assert (
        count_resident_bytes(Shard(np.arange(4), {"features": tensor, "outputs": [tensor]})) == 96
    )
    assert count_resident_bytes(Shard(np.arange(4), {"features": np.ones((4, 3))})) == 0

    class Anew(dict):
        def __getitem__(self, name):
            return super().__getitem__(name).clone()

    assert count_resident_bytes(Shard(np.arange(4), Anew(features=tensor))) == 0


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_are_joined_on_a_gpu_alone(device):
    rows = {"features": make_features(10, 2), "outputs": make_features(10, 1)}
    shards = shards_on(device, rows, 3, np.arange(10)[::-1])
    joined = join_resident_blocks(shards)
    if device != "cuda":
        assert joined is shards
        assert isinstance(find_placement(shards), np.ndarray)
        return
    (found,) = joined.map(lambda shard: (shard.ids, shard.rows["features"].cpu().numpy()))
    assert found[0].tolist() == list(range(9, -1, -1))
    np.testing.assert_array_equal(found[1], rows["features"][::-1])
