r"""Greedy k-center: pick the item farthest from everything labelled or picked.

With :math:`C` the labelled and already picked items, the next pick is

.. math:: \arg\max_i \; \min_{c \in C} \lVert x_i - x_c \rVert^2 .

The resulting radius is at most twice the optimum. With :math:`C` empty, the first pick is the item
farthest from the mean of the pool.

Cost: at most ``n b d`` multiplications in matrix products (`kernels.distance.farthest`); memory
``O(n)``.

Reference: O. Sener, S. Savarese, "Active Learning for Convolutional Neural Networks: A Core-Set
Approach", ICLR 2018, Algorithm 1.
"""

from labelwise.kernels.distance.farthest import make_farthest_strategy
from labelwise.pool.rows import read_features
from labelwise.strategy import read_reference

STRATEGY = make_farthest_strategy(
    read_features,
    name="k_center",
    needs=("features",),
    explain="It was the item farthest from everything labelled or picked before it.",
    good_for="covering the pool: no item is far from a labelled one",
    reference=read_reference(__doc__),
)
