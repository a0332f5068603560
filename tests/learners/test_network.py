"""The head of a module, what enters it, and what comes out."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.network import (
    call_module,
    call_with_features,
    evaluation_mode,
    find_head,
    get_dtype,
)

BATCH = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Module(nn.Module):
    """Two linear layers, and a way from the input to the output."""

    def __init__(self, way):
        super().__init__()
        self.body, self.top = nn.Linear(4, 6), nn.Linear(6, 3)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.way = way

    def forward(self, x):
        return self.way(self, x)


def plain(module, x):
    return module.top(module.body(x).relu())


def with_attention(module, x):
    hidden = module.body(x)[:, None]
    return module.top(module.attention(hidden, hidden, hidden)[0][:, 0])


WAYS = {
    "plain": plain,
    "after attention": with_attention,
    "in a tuple": lambda module, x: (plain(module, x), None),
    "as logits": lambda module, x: SimpleNamespace(logits=plain(module, x), loss=None),
    "as a keyword argument": lambda module, x: module.top(input=module.body(x)),
    "as a view": lambda module, x: plain(module, x).reshape(1, 5, 3)[0],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_the_head_is_the_layer_whose_output_is_the_modules(way):
    module = Module(way)
    assert find_head(module, None, BATCH) == "top"
    outputs, features = call_with_features(module, "top", BATCH)
    torch.testing.assert_close(features @ module.top.weight.T + module.top.bias, outputs)


def test_the_log_of_a_softmax_may_follow_the_head():
    module = Module(lambda module, x: plain(module, x).log_softmax(dim=1))
    assert find_head(module, None, BATCH) == "top"


def test_a_head_inside_other_modules_has_its_whole_name():
    module = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Flatten(), nn.Linear(6, 3)))
    assert find_head(module, None, BATCH) == "1.1"


def test_one_linear_layer_is_its_own_head():
    layer = nn.Linear(4, 2)
    assert find_head(layer, None, BATCH) == ""
    _, features = call_with_features(layer, "", BATCH)
    torch.testing.assert_close(features, BATCH)


def test_a_head_called_by_keyword_is_read_too():
    module = Module(lambda module, x: module.top(input=module.body(x)))
    _, features = call_with_features(module, "top", BATCH)
    torch.testing.assert_close(features, module.body(BATCH))


class Inner(nn.Linear):
    """A linear layer that hands its input on to another."""

    def __init__(self):
        super().__init__(6, 3)
        self.other = nn.Linear(6, 3)

    def forward(self, x):
        return self.other(x)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)), "is that of no linear layer; name"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)), "is that of no linear layer"),
        (Module(lambda m, x: plain(m, x) + m.top(m.body(x))), "no linear layer; .* body, top"),
        (nn.Sequential(nn.Linear(4, 6), Inner()), r"is that of .* and .*; name the head, one of"),
        (
            nn.Sequential(nn.Flatten(), nn.Identity()),
            "has no layer nn.Linear",
        ),
    ],
    ids=["softmax", "in place", "sum of two", "two at once", "none"],
)
def test_no_head_or_several_are_refused(module, message):
    with pytest.raises(BadInput, match=message):
        find_head(module, None, BATCH)


def test_the_head_can_be_named():
    assert find_head(Module(lambda m, x: plain(m, x).softmax(dim=1)), "top", BATCH) == "top"


def test_a_name_that_is_none_of_the_layers_is_refused():
    with pytest.raises(UnknownName, match="no layer 'fc'; its linear layers: body, top"):
        find_head(Module(plain), "fc", BATCH)


@pytest.mark.parametrize("name", ["attention", "attention.out_proj"])
def test_a_head_that_is_not_linear_is_refused(name):
    with pytest.raises(BadInput, match=f"must be a linear layer; '{name}' is .*linear: body, top"):
        find_head(Module(plain), name, BATCH)


def test_the_search_leaves_no_hooks_and_no_traces():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    find_head(module, None, BATCH)
    call_with_features(module.eval(), "3", BATCH)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


def test_a_single_output_is_a_column():
    module = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    assert call_module(module, BATCH).shape == (5, 1)
    assert find_head(module, None, BATCH) == "0"


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_features_that_are_whole_numbers_are_refused_in_words(dtype):
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(
        BadInput, match=rf"does not accept integers \({kind}\) as inputs: .*float32"
    ):
        call_module(nn.Linear(2, 3), torch.ones(4, 2, dtype=dtype))
    with pytest.raises(BadInput, match=rf"does not accept integers \({kind}\)"):
        call_module(nn.Linear(2, 3), {"input": torch.ones(4, 2, dtype=dtype)})


def test_other_errors_of_a_module_are_its_own():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        call_module(nn.Linear(2, 3), torch.ones(4, 5))


def test_a_single_column_is_the_argument_whatever_its_name():
    module = nn.Linear(4, 3)
    rows = torch.ones(5, 4)
    torch.testing.assert_close(call_module(module, {"x": rows}), module(rows))
    with pytest.raises(BadInput, match="the module does not take the columns x, y"):
        call_module(module, {"x": rows, "y": rows})


def test_batches_are_arguments():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + 2 * b

    expected = BATCH + 2 * BATCH.abs()
    torch.testing.assert_close(call_module(Sum(), (BATCH, BATCH.abs())), expected)
    torch.testing.assert_close(call_module(Sum(), {"b": BATCH.abs(), "a": BATCH}), expected)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (lambda m, x: plain(m, x)[1:], r"one row per item; for 5 items it gave \(4, 3\)"),
        (lambda m, x: plain(m, x.repeat(2, 1)), r"for 5 items it gave \(10, 3\)"),
        (lambda m, x: plain(m, x).sum(), r"for 5 items it gave \(\)"),
        (lambda m, x: plain(m, x)[:, None], r"for 5 items it gave \(5, 1, 3\)"),
        (lambda m, x: "cat", "must give a tensor; got str"),
    ],
)
def test_other_outputs_are_refused(way, message):
    with pytest.raises(BadInput, match=message):
        call_module(Module(way), BATCH)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (lambda m, x: m.top(m.top(m.body(x)).repeat(1, 2)), "once a batch; was called 2 times"),
        (lambda m, x: m.body(x), "once a batch; was called 0 times"),
        (lambda m, x: m.top(m.body(x)[:, None])[:, 0], r"vector per item must .*got \(5, 1, 6\)"),
    ],
)
def test_a_head_that_is_not_entered_by_one_vector_per_item_is_refused(way, message):
    with pytest.raises(BadInput, match=message):
        call_with_features(Module(way), "top", BATCH)


def test_every_layer_goes_back_to_the_mode_it_was_in():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    module.train()
    module[1].eval()  # a frozen layer
    with pytest.raises(ZeroDivisionError), evaluation_mode(module):
        assert not any(layer.training for layer in module.modules())
        raise ZeroDivisionError
    assert [layer.training for layer in module] == [True, False, True]


def test_the_precision_is_that_of_the_parameters():
    assert get_dtype(nn.Linear(2, 2).double()) == torch.float64
    assert get_dtype(nn.Identity()) == torch.float32


def test_a_module_instead_of_a_function_is_rejected():
    with pytest.raises(BadInput, match="make_module must be a function that makes a new module"):
        labelwise.TorchLearner(nn.Linear(4, 2))
