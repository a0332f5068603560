"""Thresholding on tensors, in one block or several, is that of arrays."""

import numpy as np
import pytest

from labelwise.kernels.sparse.iht import run_thresholding
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import ObjectiveTerms, pose_sparse_problem
from labelwise.pool.blocks import LocalShards, Shard
from tests.kernels.sparse_twin import make_members, make_rows, shards_of

torch = pytest.importorskip("torch")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


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
@pytest.mark.parametrize("debias_steps", [0, 1])
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_tensors_are_thresholded_like_arrays(make, debias_steps, device):
    rows = make(400, 6, 4, 1)
    for array in rows.values():
        array[300:320] = array[:20]
    terms = ObjectiveTerms(alpha=1e-3, beta=1e-4)
    defaults = {"last_layer": (0.0, 0.0), "bayesian": (0.0, 0.0)}
    problem = pose_sparse_problem(shards_of(rows), 30, LabelLaw(temperature=2.0), terms, defaults)
    options = {"debias_steps": debias_steps}
    expected, made = run_thresholding(shards_of(rows, 2), problem, 25, **options)
    place = torch.empty(0, dtype=torch.float64, device=device)
    for blocks in (1, 3):
        there = tensors(rows, blocks, device)
        found, count = run_thresholding(there, problem, 25, placement=place, **options)
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-7)
        assert found.f == pytest.approx(expected.f, abs=1e-12)
        assert count == made
