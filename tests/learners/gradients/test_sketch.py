"""Sketches of gradients: projections of explicit per-item gradients."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from labelwise.errors import BadInput  # noqa: E402
from labelwise.learners.gradients import sketch_gradients  # noqa: E402

SIZE = 16


def slow_sketch(module, batch, reduce, projections):
    """Diagonals of the projected gradient matrices, one item at a time."""
    layers = [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    rows = []
    for item in range(len(batch)):
        value = reduce(module(batch[item : item + 1])).sum()
        total = torch.zeros(SIZE)
        for number, layer in enumerate(layers):
            (weight,) = torch.autograd.grad(value, [layer.weight], retain_graph=True)
            matrix = weight.reshape(len(weight), -1)
            left, right = projections[number, matrix.shape[1], len(matrix)]
            if layer.bias is not None:
                (bias,) = torch.autograd.grad(value, [layer.bias], retain_graph=True)
                matrix = torch.cat([matrix, bias[:, None]], dim=1)
            total += SIZE**0.5 * torch.diagonal(right @ matrix @ left[:, : matrix.shape[1]].T)
        rows.append(total)
    return torch.stack(rows)


def perceptron():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 2, bias=False))


def convolution():
    layers = nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("make", "shape"), [(perceptron, (7, 5)), (convolution, (4, 2, 6, 6))], ids=["linear", "conv"]
)
def test_matches_projected_gradients_of_single_items(make, shape):
    torch.manual_seed(0)
    module, batch = make(), torch.randn(shape)
    reduce = lambda outputs: outputs.square().sum(dim=1)  # noqa: E731
    projections = {}
    found = sketch_gradients(module, batch, reduce, projections, SIZE)
    expected = slow_sketch(module, batch, reduce, projections)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_layer_over_positions_sums_them():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Flatten())
    batch = torch.randn(5, 6, 3)
    reduce = lambda outputs: outputs.square().sum(dim=1)  # noqa: E731
    projections = {}
    found = sketch_gradients(module, batch, reduce, projections, SIZE)
    expected = slow_sketch(module, batch, reduce, projections)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_items_have_the_same_sketch_in_every_batch():
    torch.manual_seed(0)
    module, batch = perceptron(), torch.randn(6, 5)
    reduce = lambda outputs: outputs.sum(dim=1)  # noqa: E731
    whole = sketch_gradients(module, batch, reduce)
    parts = torch.cat([sketch_gradients(module, part, reduce) for part in (batch[:1], batch[1:])])
    assert whole.shape == (6, 512)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


def test_inner_products_are_about_those_of_the_gradients():
    torch.manual_seed(0)
    module, batch = nn.Linear(4, 1), torch.randn(3, 4)
    found = sketch_gradients(module, batch, lambda outputs: outputs[:, 0], size=100_000)
    gradients = torch.cat([batch, torch.ones(3, 1)], dim=1)
    torch.testing.assert_close(found @ found.T, gradients @ gradients.T, rtol=0.1, atol=0.1)


def test_frozen_layers_do_not_count_and_a_frozen_network_is_refused():
    module = perceptron().requires_grad_(requires_grad=False)
    reduce = lambda outputs: outputs.sum(dim=1)  # noqa: E731
    with pytest.raises(BadInput, match="no trainable linear layer"):
        sketch_gradients(module, torch.zeros(2, 5), reduce)
    module[2].requires_grad_()
    assert sketch_gradients(module, torch.ones(2, 5), reduce).shape == (2, 512)
