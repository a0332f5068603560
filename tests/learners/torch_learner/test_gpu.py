"""A GPU trains and represents as a CPU does; without one, it is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    NAMES,
    POOL,
    assert_states,
    network,
    normed,
    state,
    trained,
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="no GPU is available; use device='cpu'"):
        TorchLearner(network, device="cuda")
    assert trained(device="auto", amp=True).head.weight.device.type == "cpu"


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def normalised():
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 3))


@GPU
def test_a_gpu_trains_and_represents_as_a_cpu_does():
    names = [*NAMES, "gradient_norms", "gradient_products"]
    near = trained(device="cuda", batch_size=99).represent(POOL, names)
    expected = trained(batch_size=99).represent(POOL, names)
    for name in names:
        assert near[name].device.type == "cuda"
        np.testing.assert_allclose(near[name].cpu(), expected[name], rtol=1e-2, atol=1e-3)


@GPU
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_generators_and_settings_of_gpus_stay_as_they_are(device):
    cudnn = torch.backends.cudnn
    before = torch.cuda.get_rng_state(), cudnn.deterministic, cudnn.benchmark
    first, second = (trained(normed, device=device, seed=3) for _ in range(2))
    assert torch.equal(torch.cuda.get_rng_state(), before[0])
    assert (cudnn.deterministic, cudnn.benchmark) == before[1:]
    assert_states(state(first), state(second), rtol=0, atol=0)


@GPU
@pytest.mark.parametrize("make", [network, normalised])
def test_features_of_mixed_precision_show_it(make, tmp_path):
    learner = trained(make, device="cuda", amp=True)
    rows = learner.represent(POOL, NAMES)
    assert rows["features"].dtype == torch.bfloat16
    assert rows["logits"].dtype == rows["probabilities"].dtype == torch.float32
    files = learner.represent(POOL, NAMES, folder=tmp_path)
    assert files["features"].dtype == np.float16
    plain = learner.module.float()[:2](torch.from_numpy(POOL).cuda()).detach().cpu()
    np.testing.assert_allclose(files["features"].astype(float), plain, atol=0.05)
