r"""Contribution of a linear layer to the per-item gradient norms and products.

Linear layers and convolutions apply a weight at every position: with :math:`x_t \in R^a` the input
at position :math:`t` (for a convolution the patch under the kernel) and
:math:`\delta_t \in R^c` the gradient with respect to its output, the gradient of one item is
:math:`G = \sum_t \delta_t x_t^\top`. Three methods compute its norm; the cheapest for
the layer's shape is used:

* outer: form :math:`G` for a few items at a time, which also gives the product with :math:`V`;
* Gram: :math:`|G|^2 = \sum_{t,s} (x_t \cdot x_s)(\delta_t \cdot \delta_s)`, for few positions;
* shifted Gram, for convolutions (`.conv`): patches overlap, so their Gram matrix is a sum of
  shifted blocks of the Gram matrix of single input locations.

With a Gram form the product is :math:`\sum_t \delta_t \cdot V x_t`, a second call of the layer
with weight :math:`V`.

Cost per item in multiplications: ``T a c`` for outer; ``T^2 (a + c)`` for Gram and
``P^2 C + T^2 c`` for shifted Gram (``P`` padded input locations, ``C`` input channels), plus
``T a c`` for both if products are requested.

References: I. Goodfellow, "Efficient Per-Example Gradient Computations", arXiv 1510.01799, 2015;
X. Li, F. Tramèr, P. Liang, T. Hashimoto, "Large Language Models Can Be Strong Differentially
Private Learners", ICLR 2022 (positions); Z. Bu, J. Mao, S. Xu, "Scalable and Efficient Training of
Large Convolutional Neural Networks with Differential Privacy", NeurIPS 2022 (choice per layer).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.learners.gradients.tally import (
    GradientTally,
    inner_products,
    split_items,
    squared_norms,
)

_PASS = 32
"""Multiplications of a matrix product that take as long as one memory access."""


class LinearShape(NamedTuple):
    """Sizes of a layer; those of one group for grouped convolutions.

    Attributes:
        positions: ``T``, number of output positions.
        places: ``P``, number of locations of the padded input.
        channels: ``C``, number of input channels.
        outputs: ``c``, number of output channels.
        offsets: number of weights per channel; 1 for a linear layer.
    """

    positions: int
    places: int
    channels: int
    outputs: int
    offsets: int

    def way(self, products: bool, few_calls: bool = False) -> str:
        """The cheapest method for the norm, and for the product if ``products``.

        ``few_calls`` excludes the shifted Gram form, which makes one call per offset.
        """
        t, a = self.positions, self.channels * self.offsets
        weights = a * self.outputs
        again = t * weights if products else 0
        copied = _PASS * t * a if self.offsets > 1 else 0
        costs = {
            "outer": t * weights + _PASS * weights + copied,
            "gram": t * t * (a + self.outputs + _PASS) + copied + again,
        }
        if self.offsets > 1 and not few_calls:
            single = self.places**2 * self.channels + t * t * self.outputs
            costs["shifted"] = single + _PASS * t * t * self.offsets + again
        return min(costs, key=costs.__getitem__)


def linear_gradients(layer: nn.Linear, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """Per-item gradients, ``(b, c, a)`` and ``(b, c)``."""
    x, delta = _flatten_columns(x), _flatten_columns(delta)
    return {"weight": torch.bmm(delta, x.mT), "bias": delta.sum(2)}


def tally_linear(
    layer: nn.Linear, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    """Add a linear layer; ``x`` is ``(b, ..., a)``, ``delta`` is ``(b, ..., c)``."""
    inputs, outputs = _flatten_columns(x), _flatten_columns(delta)
    everything = slice(0, len(x))
    if "bias" in names:
        tally.add_gradients(everything, outputs.sum(2), tally.get_vector(names["bias"]))
    if "weight" not in names:
        return
    (_, a, t), c = inputs.shape, outputs.shape[1]
    shape = LinearShape(t, t, a, c, 1)
    way = shape.way(tally.vector is not None) if tally.wants_norms else "none"
    if way == "outer":
        for rows in split_items(a * c, x, delta):
            outer = torch.bmm(outputs[rows], inputs[rows].mT)
            tally.add_gradients(rows, outer, tally.get_vector(names["weight"]))
        return
    if way == "gram":
        for rows in split_items(3 * t * t, x, delta):
            tally.add_norms(rows, gram_norms(inputs[rows], outputs[rows]))
    if tally.vector is not None:
        again = functional.linear(x, tally.vector[names["weight"]].to(x.dtype))
        tally.add_products(everything, inner_products(again, delta))


def gram_norms(x: Tensor, delta: Tensor) -> Tensor:
    """``(m, a, T), (m, c, T) -> (m,)``: the squared norm of the sum of outer products."""
    if x.shape[2] == 1:
        return squared_norms(x.mT) * squared_norms(delta.mT)
    return inner_products(torch.bmm(x.mT, x), torch.bmm(delta.mT, delta))


def _flatten_columns(rows: Tensor) -> Tensor:
    """``(b, ..., a)`` as ``(b, a, T)``, without a copy if possible."""
    return rows.reshape(len(rows), -1, rows.shape[-1]).mT
