r"""The Gaussian kernel :math:`k(x, y) = \exp(-|x - y|^2 / 2 h^2)`, in float64.

Norms and products cancel in the distance of rows that lie close together or far from the origin;
float64 leaves nine digits where float32 would leave none.
"""

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    float64,
    like,
    namespace,
    squared_distances,
    squared_norms,
)
from labelwise.kernels.float64_blocks import multiply_in_float64
from labelwise.kernels.scaling import apply_scale, scale_near_one

KERNELS = 1 << 22  # Kernel values held at a time (32 MB)


def median_distance(features: Floats) -> float:
    """The median distance between two distinct rows; if it is 0, the mean, or 1."""
    scale = scale_near_one(float(np.abs(features).max(initial=0.0)))
    features = apply_scale(features, scale)
    distances = np.sqrt(squared_distances(features, features)[np.triu_indices(len(features), 1)])
    median = float(np.median(distances)) if len(distances) else 0.0
    if median == 0:
        median = float(distances.mean()) if len(distances) else 0.0
    return median / scale or 1.0


def kernel_sums(features: Array, norms: Array, points: Array, bandwidth: float) -> Array:
    """``sum_p k(i, p)`` for every row ``i``, in float64.

    Args:
        features: ``(n, d)``.
        norms: ``(n,)`` their squared norms in float64.
        points: ``(m, d)``.
        bandwidth: ``h``.

    Returns:
        ``(n,)``.
    """
    xp = namespace(features)
    points = like(float64(points), features)
    step = max(KERNELS // max(points.shape[0], 1), 64)
    sums = []
    for first in range(0, max(features.shape[0], 1), step):
        rows = slice(first, first + step)
        distances = multiply_in_float64(features[rows], xp.matrix_transpose(points))
        distances *= -2
        distances += norms[rows, None]
        distances += squared_norms(points)[None, :]
        kernels = xp.exp(xp.clip(distances, 0, None) * (-0.5 / bandwidth**2))
        sums.append(xp.sum(kernels, axis=1))
    return xp.concat(sums)
