"""Thresholding on tensors, in one block or several, is that of arrays."""

import numpy as np
import pytest

from labelwise.kernels.sparse import iht as thresholding
from labelwise.kernels.sparse.iht import threshold
from labelwise.kernels.sparse.iht_blocks import Rules, prepare
from labelwise.kernels.sparse.iht_dense import Dense
from labelwise.kernels.sparse.label_gradients import Law
from labelwise.kernels.sparse.problem import Terms, pose
from labelwise.pool.blocks import LocalShards, Shard
from tests.kernels.sparse_twin import make_members, make_rows, shards_of

torch = pytest.importorskip("torch")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
RULES = [Rules(), Rules(step="active_half"), Rules("printed", "one"), Rules(debias_steps=0)]


def tensors(rows, blocks, device):
    """The rows in blocks and in no order."""
    n = len(next(iter(rows.values())))
    parts = np.array_split(np.random.default_rng(0).permutation(n), blocks)
    return LocalShards(
        [
            Shard(part, {k: torch.as_tensor(v[part], device=device) for k, v in rows.items()})
            for part in parts
        ]
    )


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_tensors_are_thresholded_like_arrays(make, rules, device):
    rows = make(400, 6, 4, 1)
    for array in rows.values():
        array[300:320] = array[:20]
    terms = Terms(alpha=1e-3, beta=1e-4)
    defaults = {"last_layer": (0.0, 0.0), "bayesian": (0.0, 0.0)}
    problem = pose(shards_of(rows), 30, Law(temperature=2.0), terms, defaults)
    expected, made = threshold(shards_of(rows, 2), problem, rules, 25)
    place = torch.empty(0, dtype=torch.float64, device=device)
    for blocks in (1, 3):
        found, count = threshold(tensors(rows, blocks, device), problem, rules, 25, place)
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-7)
        assert found.f == pytest.approx(expected.f, abs=1e-12)
        assert count == made


DEFAULTS = {"last_layer": (0.0, 0.0), "bayesian": (0.0, 0.0)}
FUSED = [Rules(), Rules("printed", "one"), Rules(debias_steps=0), Rules(debias_steps=3)]


def on_gpu(rows, step=3):
    """The rows as one block, ids in order."""
    pytest.importorskip("triton")
    n = len(next(iter(rows.values())))
    there = {k: torch.as_tensor(v, device="cuda") for k, v in rows.items()}
    return LocalShards([Shard(step * np.arange(n), there)])


@NO_GPU
@pytest.mark.parametrize("rules", FUSED)
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (make_rows, (3000, 40, 10)),
        (make_rows, (700, 513, 3)),
        (make_rows, (900, 100, 40)),
        (make_members, (1500, 9, 4)),
    ],
)
def test_the_fused_iteration_is_the_iteration(make, shape, rules):
    rows = make(*shape, 1)
    for array in rows.values():
        array[-90:] = array[:90]  # ties, also at the edge of a chunk
    shards = on_gpu(rows)
    law, terms = Law(temperature=2.0), Terms(alpha=1e-3, beta=1e-4)
    problem = pose(shards, 120, law, terms, DEFAULTS)
    shards.map(prepare, problem)
    (pool,) = shards.map(Dense.of, problem, rules)
    place = torch.empty(0, dtype=torch.float64, device="cuda")
    target = torch.as_tensor(problem.target, device="cuda")
    constants = (target, torch.full_like(target[0, 0], 1e-9))
    slow, quick = thresholding._nothing(problem, place), pool.nothing(place)
    for number in range(8):
        slow, expected = thresholding._iterate(shards, problem, rules, place, constants, slow)
        quick, found = pool.iterate(constants, quick)
        ids, weights = pool.kept(*(column.cpu().numpy() for column in found[2:]))
        assert ids.tolist() == expected[2].tolist()
        np.testing.assert_allclose(weights, expected[3].cpu().numpy(), atol=1e-9)
        assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-10)
        assert bool(found[1]) == bool(expected[1])
        if number < 3:  # later iterates are so close that the factor between them is rounding
            assert float(quick[5]) == pytest.approx(float(slow[6]), rel=1e-6, abs=1e-9)


@NO_GPU
@pytest.mark.parametrize("rules", FUSED[:2])
def test_one_block_on_a_gpu_is_thresholded_like_arrays(rules):
    rows = make_rows(5000, 30, 5, 2)
    law, terms = Law(temperature=2.0), Terms(alpha=1e-4, beta=1e-4)
    problem = pose(shards_of(rows), 200, law, terms, DEFAULTS)
    expected, made = threshold(shards_of(rows, 2), problem, rules, 33)
    found, count = threshold(on_gpu(rows, step=1), problem, rules, 33)
    assert found.ids.tolist() == expected.ids.tolist() and count == made
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-7)


@NO_GPU
def test_what_the_fused_iteration_cannot_do_is_left_to_the_other():
    rows = make_rows(50, 6, 4, 1)
    shards = on_gpu(rows)
    problem = pose(shards, 5, Law(temperature=2.0), Terms(alpha=0.0, beta=1e-4), DEFAULTS)
    assert shards.map(Dense.of, problem, Rules())[0] is not None
    assert shards.map(Dense.of, problem, Rules(step="active_half")) == [None]
    assert tensors(rows, 1, "cuda").map(Dense.of, problem, Rules()) == [None]  # ids in no order
    many = on_gpu(make_rows(50, 6, 65, 1))
    assert many.map(Dense.of, problem, Rules()) == [None]


def test_a_pool_on_the_host_is_left_to_the_array_operations():
    rows = make_rows(50, 6, 4, 1)
    shards = LocalShards([Shard(np.arange(50), {k: torch.as_tensor(v) for k, v in rows.items()})])
    problem = pose(shards, 5, Law(temperature=2.0), Terms(alpha=0.0, beta=1e-4), DEFAULTS)
    assert shards.map(Dense.of, problem, Rules()) == [None]
