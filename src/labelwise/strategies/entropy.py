r"""Entropy: pick the items whose class probabilities are most spread out.

The score of item :math:`i` is :math:`-\sum_k p_{ik} \log p_{ik}`. Scores of several models are
scaled to [0, 1] over the pool and averaged.

Cost: one pass over the probabilities, ``O(n K)``.

Reference: D. Joshi, F. Porikli, N. Papanikolopoulos, "Multi-class Active Learning for Image
Classification", CVPR 2009.
"""

from labelwise.kernels.information.uncertainty import entropy, make_uncertainty_strategy
from labelwise.strategy import read_reference

STRATEGY = make_uncertainty_strategy(
    entropy,
    name="entropy",
    good_for="uncertainty over all classes; with several models, their mean",
    reference=read_reference(__doc__),
)
