"""The tangent kernel against Jacobians by autograd."""

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.tangent_kernel import tangent_kernel
from labelwise.theory import last_layer_kernel, subset_mmd


def network(kind):
    """A small network, in training mode, whose numbers depend on no global state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "mlp":
            return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
        parts = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        model = nn.Sequential(*parts, nn.Linear(4 * 9, 3))
        model(torch.randn(20, 1, 5, 5))  # running statistics that are not trivial
        return model


def inputs(kind, n, seed=0):
    shape = (n, 5) if kind == "mlp" else (n, 1, 5, 5)
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def slow_kernel(module, left, right, output):
    """Gradients item by item with autograd, in evaluation mode and double precision."""
    import copy

    twin = copy.deepcopy(module).double().eval()
    weights = [value for value in twin.parameters() if value.requires_grad]

    def rows(items):
        found = []
        for item in items.double():
            value = twin(item[None])[0, output]
            parts = torch.autograd.grad(value, weights)
            found.append(torch.cat([part.reshape(-1) for part in parts]))
        return torch.stack(found)

    return (rows(left) @ rows(right).T).numpy()


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_matches_jacobians_by_autograd(kind, chunk):
    module, items = network(kind), inputs(kind, 8)
    every = [slow_kernel(module, items, items, output) for output in range(3)]
    options = {"dtype": torch.float64, "chunk": chunk}
    mean = tangent_kernel(module, items, **options)
    np.testing.assert_allclose(mean, np.mean(every, axis=0), rtol=1e-9, atol=1e-11)
    total = tangent_kernel(module, items, outputs="sum", **options)
    np.testing.assert_allclose(total, np.sum(every, axis=0), rtol=1e-9, atol=1e-11)
    one = tangent_kernel(module, items, outputs=1, **options)
    np.testing.assert_allclose(one, every[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_single_precision_is_right_to_a_millionth(kind):
    module, items = network(kind), inputs(kind, 6)
    expected = slow_kernel(module, items, items, 2)
    found = tangent_kernel(module, items, outputs=2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_other_items_make_a_rectangle():
    module = network("mlp")
    left, right = inputs("mlp", 5), inputs("mlp", 7, seed=1)
    found = tangent_kernel(module, left, right, outputs=0, dtype=torch.float64, chunk=2)
    np.testing.assert_allclose(found, slow_kernel(module, left, right, 0), rtol=1e-9, atol=1e-11)


def test_it_is_symmetric_and_positive():
    found = tangent_kernel(network("cnn"), inputs("cnn", 9), dtype=torch.float64, chunk=4)
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[0] > -1e-9


def test_of_a_linear_head_it_is_the_last_layers():
    rows = np.random.default_rng(0).normal(size=(6, 4))
    for bias in (True, False):
        head = nn.Linear(4, 3, bias=bias).double()
        found = tangent_kernel(head, rows)
        np.testing.assert_allclose(found, last_layer_kernel(rows, bias=bias), rtol=1e-12)


def test_frozen_parameters_do_not_count():
    module, items = network("mlp"), inputs("mlp", 6)
    for value in module[0].parameters():
        value.requires_grad_(False)
    hidden = torch.tanh(module[0](items)).detach().numpy()
    np.testing.assert_allclose(
        tangent_kernel(module, items), last_layer_kernel(hidden), rtol=1e-5, atol=1e-5
    )


def test_the_module_is_left_as_it_was():
    module = network("cnn")
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    tangent_kernel(module, inputs("cnn", 4), dtype=torch.float64)
    assert module.training and module[0].training and not module[1].training
    for name, value in module.state_dict().items():
        assert value.dtype == before[name].dtype
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert all(value.grad is None for value in module.parameters())


def test_whole_numbers_go_through_an_embedding():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, words):
            return self.head(self.table(words).mean(dim=1))

    module, words = Mean(), torch.tensor([[1, 2], [3, 3], [1, 9]])
    found = tangent_kernel(module, words, dtype=torch.float64)
    weights = module.head.weight.detach().double().numpy()
    shared = np.array([[2, 0, 1], [0, 4, 0], [1, 0, 2]]) / 4  # products of mean one-hot words
    hidden = module.table(words).detach().double().mean(dim=1).numpy()
    expected = last_layer_kernel(hidden) + shared * np.sum(weights**2) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "form",
    [
        lambda rows: np.ascontiguousarray(rows[::-1])[::-1],
        lambda rows: rows.astype(">f8"),
        lambda rows: np.frombuffer(rows.tobytes()).reshape(rows.shape),
        lambda rows: rows.tolist(),
    ],
    ids=["turned", "big-endian", "read-only", "lists"],
)
def test_arrays_of_any_layout_give_the_same_kernel(form):
    rows = np.random.default_rng(0).normal(size=(4, 3))
    net = nn.Linear(3, 2).double()
    np.testing.assert_array_equal(tangent_kernel(net, form(rows)), tangent_kernel(net, rows))


def test_the_theory_takes_it():
    kernel = tangent_kernel(network("mlp"), inputs("mlp", 20), dtype=torch.float64)
    assert abs(subset_mmd(kernel, 10).squared) < kernel.diagonal().mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": 3}, "outputs must be from 0 to 2; got 3"),
        ({"outputs": "median"}, "outputs must be 'mean', 'sum' or a number; got 'median'"),
        ({"chunk": 0}, "chunk must be 1 or more; got 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        tangent_kernel(network("mlp"), inputs("mlp", 3), **options)


def test_modules_without_gradients_or_rows_are_refused():
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(BadInput, match="no trainable parameter"):
        tangent_kernel(frozen, torch.ones(2, 2))
    with pytest.raises(BadInput, match=r"one row of outputs per item; got \(1, 4, 3, 3\)"):
        tangent_kernel(nn.Conv2d(1, 4, 3), torch.ones(2, 1, 5, 5))
    with pytest.raises(BadInput, match="inputs are empty"):
        tangent_kernel(nn.Linear(2, 2), torch.ones(0, 2))
