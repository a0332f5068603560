"""Gradient norms and products of whole networks against autograd, item by item."""

import doctest
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from labelwise.errors import BadInput
from labelwise.learners import gradients
from labelwise.learners.gradients import (
    gradient_norms,
    gradient_norms_and_products,
    gradient_products,
    summed_gradient,
)
from tests.learners.networks import (
    Encoder,
    Patches,
    ResNet18,
    Transformer,
    cnn,
    cross_entropy,
    mlp,
    random_vector,
    randomised,
    slow_gradients,
    slow_norms,
    slow_products,
    squared_error,
    vgg11,
)


def draw(*shape, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def classes(b, k=3, seed=7):
    return torch.randint(k, (b,), generator=torch.Generator().manual_seed(seed))


def tokens(b, t):
    return torch.randint(11, (b, t), generator=torch.Generator().manual_seed(5))


NETWORKS = {
    "mlp": (mlp, draw(6, 6)),
    "cnn": (cnn, draw(6, 1, 8, 8)),
    "resnet18": (lambda: ResNet18(3, width=8), draw(4, 3, 32, 32)),
    "vgg11": (lambda: vgg11(3, width=8), draw(4, 3, 32, 32)),
    "transformer": (Transformer, tokens(5, 9)),
    "transformer, as many tokens as items": (Transformer, tokens(9, 9)),
    "vision transformer": (Patches, draw(6, 3, 8, 8)),
    "torch's transformer": (Encoder, tokens(5, 9)),
    "torch's transformer, items second": (lambda: Encoder(batch_first=False), tokens(9, 9)),
}


def check(module, x, targets, loss, tolerance=1e-5):
    """Both together and each alone are what autograd gives, relative to the norms."""
    vector = random_vector(module)
    slow = slow_gradients(module, x, targets, loss)
    expected, length = slow_norms(slow), sum(v.double().square().sum() for v in vector.values())
    norms, products = gradient_norms_and_products(module, x, targets, vector, loss)
    assert ((norms - expected).abs() <= tolerance * expected).all()
    # A product of two long vectors may be small: it is exact relative to their lengths.
    off = (products - slow_products(slow, vector)).abs()
    assert (off <= tolerance * (expected * length).sqrt()).all()
    assert (
        (gradient_norms(module, x, targets, loss) - expected).abs() <= tolerance * expected
    ).all()
    alone = gradient_products(module, x, targets, vector, loss)
    off = (alone - slow_products(slow, vector)).abs()
    assert (off <= tolerance * (expected * length).sqrt()).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_agrees_with_autograd_in_float32(name):
    make, x = NETWORKS[name]
    check(randomised(make()), x, classes(len(x)), cross_entropy)


def refuse(*arguments):
    raise AssertionError(f"the gradients of {arguments[4]} were formed item by item")


@pytest.mark.parametrize("name", [name for name in NETWORKS if "torch" not in name])
def test_no_parameter_of_the_usual_networks_is_left_to_vmap(name, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    make, x = NETWORKS[name]
    gradient_norms(make(), x, classes(len(x)), cross_entropy)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_agrees_with_autograd_in_float64_on_squared_error(name):
    make, x = NETWORKS[name]
    x = x.double() if x.is_floating_point() else x
    check(randomised(make().double()), x, draw(len(x), 3).double(), squared_error, 1e-10)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by torch.func itself
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_products_are_the_directional_derivative(name):
    make, x = NETWORKS[name]
    module, targets = randomised(make()), classes(len(x))
    vector, values = random_vector(module), dict(module.named_parameters())
    if name == "transformer":  # forward mode does not know that the padding index is not trained
        vector["tokens.weight"][0] = 0

    def losses(parameters):
        return cross_entropy(functional_call(module, parameters, x), targets)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        _, expected = jvp(losses, (values,), (vector,))
    products = gradient_products(module, x, targets, vector, cross_entropy)
    torch.testing.assert_close(products, expected.detach(), rtol=1e-4, atol=1e-4)


def test_the_summed_gradient_is_the_sum_over_items_and_batches():
    module, x, y = randomised(cnn()), draw(6, 1, 8, 8), classes(6)
    found = summed_gradient(module.train(), [(x[:2], y[:2]), (x[2:], y[2:])], cross_entropy)
    slow = slow_gradients(module, x, y, cross_entropy)
    for name, total in found.items():
        assert total.dtype == torch.float32
        torch.testing.assert_close(total, sum(one[name] for one in slow), rtol=1e-5, atol=1e-5)


def test_products_with_the_summed_gradient_add_up_to_its_norm():
    module, x, y = randomised(ResNet18(3, width=4).double()), draw(5, 3, 16, 16), classes(5)
    vector = summed_gradient(module, [(x.double(), y)], cross_entropy)
    products = gradient_products(module, x.double(), y, vector, cross_entropy)
    norm = sum(v.square().sum() for v in vector.values())
    assert products.sum().item() == pytest.approx(norm.item(), rel=1e-10)


def test_neither_the_batch_nor_its_chunks_matter(monkeypatch):
    module, x, y = randomised(vgg11(3, width=4)), draw(9, 3, 32, 32), classes(9)
    whole = gradient_norms(module, x, y, cross_entropy)
    parts = [gradient_norms(module, x[i : i + 4], y[i : i + 4], cross_entropy) for i in (0, 4, 8)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=0)
    monkeypatch.setattr("labelwise.learners.ghost_tally._MOST_FLOATS", {"cpu": 1, "cuda": 1})
    small = gradient_norms(module, x, y, cross_entropy)
    torch.testing.assert_close(small, whole, rtol=1e-5, atol=0)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_gradients_of_all_items_are_never_held(monkeypatch):
    """The largest tensor is no larger than in the forward pass, and far from items x parameters."""
    monkeypatch.setattr("labelwise.learners.ghost_tally._FEW_FLOATS", 2**10)
    module, x, y = ResNet18(10, width=16).eval(), draw(32, 3, 16, 16), classes(32)
    with Largest() as forward:
        module(x)
    with Largest() as ours:
        gradient_norms_and_products(module, x, y, random_vector(module), cross_entropy)
    parameters = sum(p.numel() for p in module.parameters())
    assert forward.size < ours.size <= 4 * forward.size
    assert ours.size < len(x) * parameters / 40


class Named(nn.Module):
    """Takes two tensors by name, and a flag."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, a, b, double=False):
        return (1 + double) * self.left(a) * self.right(input=b)


def test_inputs_may_be_keywords_or_a_tuple():
    module, a, b, y = randomised(Named()), draw(5, 3), draw(5, 4), classes(5, 2)
    joined = Joined(module)
    expected = slow_norms(slow_gradients(joined, torch.cat([a, b], 1), y, cross_entropy))
    for inputs in ({"a": a, "b": b, "double": True}, (a, b, True)):
        norms = gradient_norms(module, inputs, y, cross_entropy)
        torch.testing.assert_close(norms, expected.float(), rtol=1e-5, atol=0)


class Joined(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x[:, :3], x[:, 3:], double=True)


class Tied(nn.Module):
    """A weight that is an embedding and a linear layer at once, and a bias used directly."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(7, 4)
        self.again = nn.Linear(4, 7)
        self.again.weight = self.tokens.weight

    def forward(self, indices):
        return self.again(torch.tanh(self.tokens(indices))).mean(1)


class Direct(nn.Module):
    """A layer's weight used both in a call and directly, and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.scale * self.layer(x) @ self.layer.weight.T


class Detached(nn.Module):
    """A layer whose call counts for nothing and whose weight is used directly."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).detach() + x @ self.layer.weight


class Unrolled(nn.Module):
    """One cell called several times, as in a recurrent network."""

    def __init__(self):
        super().__init__()
        self.cell, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.norm(self.cell(x))) + x
        return x


class Constant(nn.Module):
    """A layer called with as many rows as there are items, but not with items."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", draw(5, 3))
        self.table, self.head = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.head((x[:, None] * self.table(self.rows)).sum(1))


class Added(nn.Module):
    """Parameters added to the items in several ways, the items first or second."""

    def __init__(self, way):
        super().__init__()
        self.way, self.first, self.last = way, nn.Linear(4, 4), nn.Linear(4, 4)
        self.places = nn.Parameter(torch.ones(5, 4))
        self.register_buffer("rows", draw(5, 3).double())
        self.table = nn.Linear(3, 4)

    def forward(self, x):
        if self.way == "scaled":
            return self.last(torch.add(self.first(x), self.places, alpha=3))
        if self.way == "to the inputs":
            return self.last(x + self.places)
        if self.way == "one for all positions":
            return self.last(self.first(x) + self.places[:1])
        if self.way == "items second":
            mixed = self.first(x.transpose(0, 1)) + self.places[:, None]
            return self.last(torch.tanh(mixed)).transpose(0, 1)
        if self.way == "twice":
            return self.last(torch.tanh(x + self.places) + self.places)
        if self.way == "before items":
            return self.last(x + (self.places + self.table(self.rows)))
        return self.last(torch.tanh(self.first(x) + self.table(self.rows)))


ADDED = (
    "scaled",
    "to the inputs",
    "one for all positions",
    "items second",
    "twice",
    "before items",
    "a constant call",
)


@pytest.mark.parametrize("b", [1, 3, 5])
@pytest.mark.parametrize("way", ADDED)
def test_what_is_added_to_all_items_is_exact(way, b):
    module, x = randomised(Added(way).double()), draw(b, 5, 4).double()
    check(module, x, draw(b, 5, 4, seed=8).double(), squared_error, 1e-10)


@pytest.mark.parametrize("way", ["scaled", "to the inputs", "a constant call"])
def test_what_is_added_to_all_items_needs_no_vmap(way, monkeypatch):
    monkeypatch.setattr(gradients, "tally_items", refuse)
    targets = draw(5, 5, 4, seed=8).double()
    gradient_norms(Added(way).double(), draw(5, 5, 4).double(), targets, squared_error)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.first, self.second = reentrant, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        inner = lambda v: torch.tanh(self.second(v))  # noqa: E731
        return checkpoint(inner, self.first(x), use_reentrant=self.reentrant)


class Branching(nn.Module):
    """Something vmap cannot do: Python decides by the data, beside a parameter used directly."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.scale * self.layer(x if float(x.detach().sum()) > -1e9 else -x)


class Preactivated(nn.Module):
    """In-place changes right before and after layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x).mul_(2).relu_()
        return self.second(x).add_(1)


ODD = {
    "recurrent": (lambda: Recurrent(), draw(3, 5, 4)),
    "unrolled": (Unrolled, draw(5, 4)),
    "direct": (Direct, draw(5, 4)),
    "detached": (Detached, draw(5, 4)),
    "constant": (Constant, draw(5, 4)),
    "branching": (Branching, draw(5, 4)),
    "in place": (Preactivated, draw(5, 4)),
    "checkpointed": (lambda: Checkpointed(False), draw(5, 4)),
    "parametrised": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), draw(5, 4)),
    "unknown layer": (lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU(4)), draw(5, 4)),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 2, 2), nn.Flatten(), nn.Linear(32, 4)),
        draw(5, 2, 3, 3),
    ),
    "one item": (Unrolled, draw(1, 4)),
    "one item of one token": (lambda: nn.Sequential(nn.Linear(4, 4)), draw(1, 1, 4)),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.memory(x)[0][:, -1])


@pytest.mark.parametrize("name", ODD)
def test_odd_uses_of_parameters_are_exact(name):
    make, x = ODD[name]
    module = randomised(make().double())
    targets = draw(*module(x.double()).shape, seed=8).double()
    check(module, x.double(), targets, squared_error, 1e-10)


def test_a_tied_weight_is_exact():
    module, x = randomised(Tied()), tokens(5, 6) % 7
    check(module, x, classes(5, 7), cross_entropy)


def test_a_frozen_network_but_for_its_head_counts_only_the_head():
    module, x, y = randomised(cnn()), draw(4, 1, 8, 8), classes(4)
    for parameter in module[:-1].parameters():
        parameter.requires_grad_(False)
    features = module[:-1](x)
    residual = module(x).softmax(1) - nn.functional.one_hot(y, 3)
    expected = residual.square().sum(1) * (features.square().sum(1) + 1)
    norms = gradient_norms(module, x, y, cross_entropy)
    torch.testing.assert_close(norms, expected.detach(), rtol=1e-5, atol=0)


def test_half_precision_gives_float32():
    module, x, y = randomised(cnn()), draw(4, 1, 8, 8), classes(4)
    expected = gradient_norms(module, x, y, cross_entropy)
    norms = gradient_norms(module.bfloat16(), x.bfloat16(), y, cross_entropy)
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, expected, rtol=0.2, atol=0)


def snapshot(module):
    """All that must not change."""
    return (
        [layer.training for layer in module.modules()],
        [(p.requires_grad, p.grad) for p in module.parameters()],
        [value.clone() for value in module.state_dict().values()],
        [(len(m._forward_hooks), len(m._backward_hooks)) for m in module.modules()],
    )


def same(left, right):
    pairs = zip(left[2], right[2], strict=True)
    return left[:2] == right[:2] and left[3] == right[3] and all(a.equal(b) for a, b in pairs)


@pytest.mark.parametrize("name", ["resnet18", "transformer"])
def test_the_module_is_left_as_it_was(name):
    make, x = NETWORKS[name]
    module, y = randomised(make()).train(), classes(len(x))
    next(module.children()).eval()  # one part in another mode
    next(module.parameters()).requires_grad_(False)
    before = snapshot(module)
    with torch.no_grad():
        norms = gradient_norms(module, x, y, cross_entropy)
    assert same(snapshot(module), before)
    assert not norms.requires_grad


def test_the_module_is_left_as_it_was_after_an_error():
    module, x = randomised(ResNet18(3, width=4)).train(), draw(4, 3, 16, 16)
    before = snapshot(module)

    def fails(outputs, targets):
        raise KeyError("loss")

    for call in (gradient_norms, lambda m, i, t, fn: summed_gradient(m, [(i, t)], fn)):
        with pytest.raises(KeyError):
            call(module, x, classes(4), fails)
        assert same(snapshot(module), before)


class Mixing(nn.Module):
    def forward(self, x):
        return x.reshape(len(x) // 2, -1)


BAD = {
    "the first axis of its outputs must be the items": (Mixing(), draw(4, 3), classes(4), None),
    "1 .BatchNorm1d. has no running statistics": (
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        draw(4, 3),
        classes(4),
        None,
    ),
    "scales its gradient by how often": (
        nn.Embedding(3, 3, scale_grad_by_freq=True),
        classes(4),
        classes(4),
        None,
    ),
    "the loss has shape .. for 4 items": (
        nn.Linear(3, 3),
        draw(4, 3),
        classes(4),
        nn.functional.cross_entropy,
    ),
    "inputs has shape .5, 3. but there are 4 targets": (
        nn.Linear(3, 3),
        draw(5, 3),
        classes(4),
        None,
    ),
    "inputs.'x'. has shape .5, 3. but": (nn.Linear(3, 3), {"x": draw(5, 3)}, classes(4), None),
    "inputs is of type list": (nn.Linear(3, 3), [draw(4, 3)], classes(4), None),
    "inputs holds no tensor": (nn.Linear(3, 3), (), classes(4), None),
    "targets is a single number": (nn.Linear(3, 3), draw(4, 3), torch.tensor(1), None),
    "reentrant checkpoints": (Checkpointed(True), draw(4, 4), classes(4), None),
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_measured_is_refused(message):
    module, inputs, targets, loss = BAD[message]
    # Mixing has no parameters of its own; the others need none.
    module = nn.Sequential(nn.Linear(3, 3), module) if isinstance(module, Mixing) else module
    with pytest.raises(BadInput, match=message):
        gradient_norms(module, inputs, targets, loss or cross_entropy)


def test_a_vector_that_does_not_fit_is_refused():
    module, x, y = nn.Linear(3, 2), draw(4, 3), classes(4, 2)
    weight, bias = torch.ones(2, 3), torch.ones(2)
    for vector, message in (
        ({"weight": weight}, "no entry for the parameter 'bias'"),
        ({"weight": weight, "bias": bias, "wieght": bias}, "no such parameter"),
        ({"weight": bias, "bias": bias}, r"shape \(2,\) but the parameter has \(2, 3\)"),
    ):
        with pytest.raises(BadInput, match=message):
            gradient_products(module, x, y, vector, cross_entropy)


def test_a_module_without_trainable_parameters_is_refused():
    with pytest.raises(BadInput, match="no trainable parameters"):
        gradient_norms(nn.ReLU(), draw(4, 3), classes(4), cross_entropy)


def test_no_items_give_nothing():
    assert gradient_norms(mlp(), draw(0, 6), classes(0), cross_entropy).shape == (0,)


def test_a_hook_of_the_user_sees_and_changes_what_it_would():
    module, x, y = randomised(mlp()), draw(5, 6), classes(5)
    module[0].register_forward_hook(lambda layer, args, output: 2 * output)
    check(module, x, y, cross_entropy)


def test_nothing_is_warned_of():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make, x = NETWORKS["torch's transformer"]
        gradient_norms(make(), x, classes(len(x)), cross_entropy)
    assert not caught


def test_the_examples_run():
    found = doctest.testmod(gradients)
    assert found.attempted > 0
    assert found.failed == 0
