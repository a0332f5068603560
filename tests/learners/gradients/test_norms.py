"""Parameters used in unusual ways: shared, added to items, used directly, or by unknown layers."""

import pytest
import torch
from torch import nn

from labelwise.learners import gradients
from labelwise.learners.gradients import gradient_norms
from tests.learners.gradients.networks import (
    Checkpointed,
    check,
    classes,
    cross_entropy,
    draw,
    randomised,
    refuse,
    squared_error,
    tokens,
)


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
