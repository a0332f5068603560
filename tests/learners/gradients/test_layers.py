"""Every layer with a rule against autograd, item by item, in float64."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

from labelwise.learners import gradients
from labelwise.learners.gradients import gradient_norms_and_products, layers
from labelwise.learners.gradients.layers import RULES, choose_norm_method
from tests.learners.gradients.networks import (
    random_vector,
    randomised,
    refuse,
    slow_gradients,
    slow_norms,
    slow_products,
    squared_error,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

B = 4


def draw(*shape, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def indices(high, *shape):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(5))


LAYERS = {
    "linear": (nn.Linear(5, 3), draw(B, 5)),
    "linear without bias": (nn.Linear(5, 3, bias=False), draw(B, 5)),
    "linear on a few positions": (nn.Linear(9, 8), draw(B, 3, 9)),
    "linear on many positions": (nn.Linear(2, 3), draw(B, 50, 2)),
    "linear on two axes of positions": (nn.Linear(5, 3), draw(B, 2, 3, 5)),
    "linear on as many positions as items": (nn.Linear(5, 3), draw(B, B, 5)),
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=1), draw(B, 3, 9)),
    "conv1d, same": (nn.Conv1d(3, 4, 4, padding="same"), draw(B, 3, 9)),
    "conv2d with many positions": (nn.Conv2d(2, 3, 3, padding=1), draw(B, 2, 12, 11)),
    "conv2d with few positions": (nn.Conv2d(16, 16, 3, padding=1), draw(B, 16, 2, 3)),
    "conv2d, strided, few positions": (nn.Conv2d(8, 24, 3, stride=3), draw(B, 8, 9, 9)),
    "conv2d of one place": (nn.Conv2d(3, 5, 1, stride=2, bias=False), draw(B, 3, 6, 5)),
    "conv2d on one position": (nn.Conv2d(3, 5, 4), draw(B, 3, 4, 4)),
    "conv2d, dilated": (nn.Conv2d(2, 4, (3, 2), dilation=(2, 3), padding=2), draw(B, 2, 7, 8)),
    "conv2d, grouped": (nn.Conv2d(4, 6, 3, groups=2, padding=1), draw(B, 4, 5, 5)),
    "conv2d, depthwise": (nn.Conv2d(4, 8, 3, groups=4, stride=2), draw(B, 4, 7, 7)),
    "conv2d, circular": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), draw(B, 2, 5, 4)),
    "conv2d, reflected": (
        nn.Conv2d(8, 9, 3, padding=(1, 2), padding_mode="reflect"),
        draw(B, 8, 3, 3),
    ),
    "conv2d, same": (
        nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(1, 3), padding_mode="replicate"),
        draw(B, 2, 9, 10),
    ),
    "conv2d, channels last": (
        nn.Conv2d(3, 4, 3, padding=1),
        draw(B, 3, 8, 8).to(memory_format=torch.channels_last),
    ),
    "conv3d": (nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=1), draw(B, 2, 3, 4, 5)),
    "batch norm on vectors": (nn.BatchNorm1d(5), draw(B, 5)),
    "batch norm on series": (nn.BatchNorm1d(5), draw(B, 5, 7)),
    "batch norm on images": (nn.BatchNorm2d(3), draw(B, 3, 4, 5)),
    "batch norm on volumes": (nn.BatchNorm3d(2), draw(B, 2, 3, 2, 4)),
    "synchronised batch norm": (nn.SyncBatchNorm(3), draw(B, 3, 4, 5)),
    "layer norm": (nn.LayerNorm(6), draw(B, 6)),
    "layer norm on positions": (nn.LayerNorm((3, 6)), draw(B, 5, 3, 6)),
    "layer norm without bias": (nn.LayerNorm(6, bias=False), draw(B, 5, 6)),
    "root mean square norm": (nn.RMSNorm(6), draw(B, 5, 6)),
    "group norm": (nn.GroupNorm(2, 6), draw(B, 6, 4, 3)),
    "group norm on vectors": (nn.GroupNorm(2, 6), draw(B, 6)),
    "instance norm": (nn.InstanceNorm2d(3, affine=True), draw(B, 3, 4, 5)),
    "instance norm on series": (
        nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
        draw(B, 3, 5),
    ),
    "instance norm on volumes": (nn.InstanceNorm3d(2, affine=True), draw(B, 2, 3, 2, 4)),
    "embedding": (nn.Embedding(5, 3), indices(5, B, 7)),
    "embedding of one index": (nn.Embedding(5, 3), indices(5, B)),
    "embedding with padding": (nn.Embedding(4, 3, padding_idx=1), indices(4, B, 2, 6)),
    "sparse embedding": (nn.Embedding(5, 3, sparse=True), indices(5, B, 7)),
}


def check(module, x, tolerance=1e-10):
    """Norms and products agree with autograd."""
    module = randomised(module.double())
    targets = draw(*module(x).shape, seed=6)
    vector = random_vector(module)
    slow = [
        {name: g.to_dense() if g.is_sparse else g for name, g in one.items()}
        for one in slow_gradients(module, x, targets, squared_error)
    ]
    norms, products = gradient_norms_and_products(module, x, targets, vector, squared_error)
    scale = slow_norms(slow)
    assert (scale > 0).any()
    torch.testing.assert_close(norms, scale, rtol=tolerance, atol=tolerance)
    largest = tolerance * float(slow_products(slow, vector).abs().max() + 1)
    torch.testing.assert_close(products, slow_products(slow, vector), rtol=0, atol=largest)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_agrees_with_autograd(name, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    layer, x = LAYERS[name]
    check(copy.deepcopy(layer), x)


@pytest.mark.parametrize("method", ["outer", "gram"])
@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith(("conv", "linear"))])
def test_both_norm_methods_agree_with_autograd(name, method, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    monkeypatch.setattr(layers, "choose_norm_method", lambda *_: method)
    layer, x = LAYERS[name]
    check(copy.deepcopy(layer), x)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_between_others_agrees_with_autograd(name, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    layer, x = LAYERS[name]
    layer = copy.deepcopy(layer).double()
    width = layer(x).flatten(1).shape[1]
    before = nn.Identity() if not x.is_floating_point() else nn.Linear(x.shape[-1], x.shape[-1])
    check(nn.Sequential(before, layer, nn.Sigmoid(), nn.Flatten(), nn.Linear(width, 2)), x)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_called_twice_agrees_with_autograd(name, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    layer, x = LAYERS[name]
    check(Twice(copy.deepcopy(layer)), x)


class Twice(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        other = x.roll(1, -1) if x.ndim > 1 else x
        return self.layer(x) + 2 * torch.tanh(self.layer(other))


def test_every_rule_is_tested():
    assert {type(layer) for layer, _ in LAYERS.values()} == set(RULES)


@pytest.mark.parametrize("name", ["linear", "conv2d, grouped", "layer norm", "embedding"])
def test_what_is_frozen_does_not_count(name, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    for frozen in ("weight", "bias"):
        layer, x = copy.deepcopy(LAYERS[name][0]), LAYERS[name][1]
        if name == "embedding":
            layer, frozen = nn.Sequential(layer, nn.Linear(3, 3)), "0.weight"
        layer.get_parameter(frozen).requires_grad_(False)
        check(layer, x)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_convolution_agrees_with_autograd(data):
    n = data.draw(st.integers(1, 3), "axes")
    several = lambda low, high: st.tuples(*[st.integers(low, high)] * n)  # noqa: E731
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    modes = st.sampled_from(["zeros", "zeros", "replicate", "circular", "reflect"])
    kernel, stride = data.draw(several(1, 3)), data.draw(several(1, 3))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](
        groups * data.draw(st.integers(1, 6)),
        groups * data.draw(st.integers(1, 6)),
        kernel,
        stride=stride,
        padding=data.draw(
            st.one_of(several(0, 2), st.sampled_from(["valid", "same"]))
            if set(stride) == {1}
            else several(0, 2)
        ),
        dilation=data.draw(several(1, 2)),
        groups=groups,
        padding_mode=data.draw(modes),
    ).double()
    x = draw(3, layer.in_channels, *data.draw(several(1, 7)))
    try:
        layer(x)
    except RuntimeError:
        assume(False)  # the kernel does not fit the input
    check(layer, x)


def test_the_norm_method_follows_the_shape():
    """Deep layers of a ResNet-18 have few positions, early ones many; a vector has one."""
    assert choose_norm_method(1024, 64 * 9, 64, True) == "outer"
    assert choose_norm_method(16, 512 * 9, 512, True) == "gram"
    assert choose_norm_method(1, 512, 10, True) == "gram"
    assert choose_norm_method(64, 512 * 9, 512, False) == "gram"


def test_a_loop_gives_what_vmap_gives():
    module = randomised(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double())
    arguments = (module, dict(module.named_parameters()), draw(3, 4), draw(3, 2), squared_error)
    mapped = gradients._gradients_by_vmap(*arguments)
    looped = gradients._gradients_by_loop(*arguments)
    for name, gradient in looped.items():
        torch.testing.assert_close(mapped[name], gradient, rtol=1e-12, atol=1e-12)
