"""What hard votes of several members say: how they are spread over the classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats


def vote_entropy(votes: NDArray[Any]) -> Floats:
    """The entropy in nats of the votes in every row of ``(n, M)``; values may be any.

    Cost ``O(n M log M)``, whatever the number of classes.

    >>> vote_entropy(np.array([[4, 4, 4, 4], [0, 1, 0, 1], [2, 2, 2, 0]])).round(4).tolist()
    [0.0, 0.6931, 0.5623]
    """
    size = votes.shape[1]
    ordered = np.sort(votes, axis=1)
    # A run of equal votes that ends at place j and began at place i has j - i + 1 votes.
    places = np.broadcast_to(np.arange(size), votes.shape)
    begins = np.ones(votes.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones(votes.shape, dtype=bool)
    ends[:, :-1] = begins[:, 1:]
    started = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    shares = np.where(ends, places - started + 1, size) / size
    # Adding 0 turns -0.0 of a unanimous vote into 0.
    return np.asarray(-np.sum(shares * np.log(shares), axis=1) + 0.0)
