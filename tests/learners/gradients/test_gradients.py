"""Gradient norms and products of whole networks against autograd, item by item."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp
from torch.utils._python_dispatch import TorchDispatchMode

from labelwise.errors import BadInput
from labelwise.learners import gradients
from labelwise.learners.gradients import (
    gradient_norms,
    gradient_norms_and_products,
    summed_gradient,
)
from tests.learners.gradients.networks import (
    Checkpointed,
    Encoder,
    Patches,
    ResNet18,
    Transformer,
    check,
    classes,
    cnn,
    cross_entropy,
    draw,
    mlp,
    random_vector,
    randomised,
    refuse,
    slow_gradients,
    slow_norms,
    squared_error,
    tokens,
    vgg11,
)

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


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_agrees_with_autograd_in_float32(name):
    make, x = NETWORKS[name]
    check(randomised(make()), x, classes(len(x)), cross_entropy)


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
    _, products = gradient_norms_and_products(module, x, targets, vector, cross_entropy)
    torch.testing.assert_close(products, expected.detach(), rtol=1e-4, atol=1e-4)


def test_the_summed_gradient_is_the_sum_over_items_and_batches():
    module, x, y = randomised(vgg11(3, width=2)), draw(6, 3, 32, 32), classes(6)
    found = summed_gradient(module.train(), [(x[:2], y[:2]), (x[2:], y[2:])], cross_entropy)
    slow = slow_gradients(module.eval(), x, y, cross_entropy)
    for name, total in found.items():
        assert total.dtype == torch.float32
        expected = sum(one[name].double() for one in slow)
        assert (total - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_products_with_the_summed_gradient_add_up_to_its_norm():
    module, x, y = randomised(ResNet18(3, width=4).double()), draw(5, 3, 16, 16), classes(5)
    vector = summed_gradient(module, [(x.double(), y)], cross_entropy)
    _, products = gradient_norms_and_products(module, x.double(), y, vector, cross_entropy)
    norm = sum(v.square().sum() for v in vector.values())
    assert products.sum().item() == pytest.approx(norm.item(), rel=1e-10)


def test_neither_the_batch_nor_its_chunks_matter(monkeypatch):
    module, x, y = randomised(vgg11(3, width=4)), draw(9, 3, 32, 32), classes(9)
    whole = gradient_norms(module, x, y, cross_entropy)
    parts = [gradient_norms(module, x[i : i + 4], y[i : i + 4], cross_entropy) for i in (0, 4, 8)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=0)
    monkeypatch.setattr("labelwise.learners.gradients.tally._MOST_FLOATS", {"cpu": 1, "cuda": 1})
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
    monkeypatch.setattr("labelwise.learners.gradients.tally._FEW_FLOATS", 2**10)
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
            gradient_norms_and_products(module, x, y, vector, cross_entropy)


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
