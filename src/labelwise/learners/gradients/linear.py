r"""What a linear layer adds to every item's gradient norm and product, and how to choose a way.

Linear layers and convolutions multiply a weight with positions: with :math:`x_t \in R^a` the input
that position :math:`t` sees (for a convolution the patch under the kernel) and
:math:`\delta_t \in R^c` the gradient with respect to its output, the gradient of one item is
:math:`G = \sum_t \delta_t x_t^\top`. Its norm comes in one of three ways, whichever is cheapest
for the layer's shape:

* outer: form :math:`G` for a few items at a time; the product with :math:`V` comes with it;
* Gram: :math:`|G|^2 = \sum_{t,s} (x_t \cdot x_s)(\delta_t \cdot \delta_s)`, for few positions;
* shifted Gram, for convolutions (`.conv`): patches overlap, so that their
  Gram matrix is a sum of shifted pieces of the Gram matrix of single places.

With a Gram form the product is :math:`\sum_t \delta_t \cdot V x_t`: the layer once more, with
:math:`V` for its weight.

Cost per item, in multiplications: ``T a c`` for outer; ``T^2 (a + c)`` for Gram and
``P^2 C + T^2 c`` for shifted Gram (``P`` padded places, ``C`` input channels), plus ``T a c`` for
either if products are wanted.

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
"""How many multiplications in a matrix product take as long as passing over one number."""


class LinearShape(NamedTuple):
    """Sizes of a layer, for one group of channels where it has several.

    Attributes:
        positions: ``T``, of the output.
        places: ``P``, of the padded input.
        channels: ``C``, of the input.
        outputs: ``c``.
        offsets: how many weights a channel has, 1 for a linear layer.
    """

    positions: int
    places: int
    channels: int
    outputs: int
    offsets: int

    def way(self, products: bool, few_calls: bool = False) -> str:
        """The cheapest way to the norm, and to the product if that is wanted: see above.

        With ``few_calls``, the shifted Gram form, which makes one call per offset, is left out.
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
    """``(b, ..., a)`` as ``(b, a, T)``, without a copy where there is a choice."""
    return rows.reshape(len(rows), -1, rows.shape[-1]).mT
