"""Actors with GPUs: a learner computes representations on them, where the inputs are."""

import numpy as np
import pytest

import labelwise
from labelwise.selection import run
from tests.conftest import make_features

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
from labelwise.pool.ray.shards import RayActors, RayShards  # noqa: E402
from tests.pool.ray_fixtures import two_actors  # noqa: E402, F401

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


def test_a_learner_computes_on_the_gpus_of_the_actors(actors, tmp_path):
    def network():
        return torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def bytes_on_gpu(shard):
        return torch.cuda.max_memory_allocated()

    inputs = make_features(400, 5).astype(np.float32)
    learner = labelwise.TorchLearner(network, epochs=20, device="cuda")
    learner.fit(inputs[:60], (inputs[:60, 0] > 0).astype(int), seed=0)
    names = ("features", "probabilities")
    np.save(tmp_path / "inputs.npy", inputs)
    with RayActors(2, gpus=0.5) as there:
        given = {"inputs": tmp_path / "inputs.npy"}
        shards = RayShards(there, given, 400, learner=learner, names=names)
        found = run.select(labelwise.strategies()["badge"], shards, 30, seed=5)
        assert min(shards.map(bytes_on_gpu)) > 0
    expected = labelwise.select("badge", 30, **learner.represent(inputs, names), seed=5)
    assert found.ids.tolist() == expected.ids.tolist()
