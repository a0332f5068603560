"""The small networks against the layers they are made of."""

import doctest

import torch
from torch import nn

from labelwise.learners import small_networks
from labelwise.learners.small_networks import Perceptron


def test_a_perceptron_is_linear_layers_with_relu_between_them():
    network, inputs = Perceptron(6, 5, 4, 3), torch.randn(7, 2, 3)
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hidden = inputs.flatten(1)
    for layer in linear[:-1]:
        hidden = layer(hidden).relu()
    torch.testing.assert_close(network(inputs), linear[-1](hidden))
    assert linear[-1] is network.head


def test_examples_run():
    result = doctest.testmod(small_networks)
    assert result.attempted and not result.failed
