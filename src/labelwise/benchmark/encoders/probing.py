"""How good an encoder is: the accuracy of logistic regression on its features.

The features are centred and scaled to mean square 1; the regression is penalised (``C = 0.01``),
and is trained on the first so many of the encoded items, in the order of a hash.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import row_noise
from labelwise.benchmark.encoders.features import Encoded

STRENGTH = 0.01


def scaled(features: NDArray[Any], test_features: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Both centred and scaled by the first, to mean square 1; one scale for all columns.

    >>> near, far = scaled(np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[2.0, 3.0]]))
    >>> near.round(3).tolist(), far.round(3).tolist()
    ([[-1.414, 0.0], [1.414, 0.0]], [[0.0, 1.414]])
    """
    centre = features.mean(axis=0)
    spread = float(np.sqrt(np.square(features - centre).mean()))
    if not spread > 0:
        spread = 1.0  # all items are the same
    return (features - centre) / spread, (test_features - centre) / spread


def probe(
    encoded: Encoded, targets: NDArray[Any], test_targets: NDArray[Any], labels: int
) -> float:
    """The share of the test items that are told right with so many labels.

    Args:
        encoded: features of ``n`` training and ``m`` test items.
        targets: ``(n,)`` classes.
        test_targets: ``(m,)`` classes.
        labels: how many of the ``n`` are used.
    """
    from sklearn.linear_model import LogisticRegression

    order = np.argsort(row_noise(1, encoded.rows), kind="stable")[:labels]
    near, far = scaled(encoded.features, encoded.test_features)
    model = LogisticRegression(C=STRENGTH, max_iter=1000).fit(near[order], targets[order])
    return float(model.score(far, test_targets))
