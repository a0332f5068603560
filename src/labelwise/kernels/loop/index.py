"""Where a block of rows has some items."""

from typing import Any

import numpy as np

from labelwise.arrays import Ids


def places(ids: Ids, wanted: Ids) -> Any:
    """Positions of the wanted items among a block's, in increasing order, as far as it has them.

    Args:
        ids: ``(n,)`` of the block.
        wanted: ``(m,)``, of which most are elsewhere as a rule.

    Example:
        >>> places(np.array([3, 7, 5]), np.array([5, 3, 90])).tolist()
        [0, 2]
    """
    if len(wanted) == 1:
        return np.flatnonzero(ids == wanted[0])
    if len(ids):  # to look for none, or for few, is much faster
        wanted = wanted[(wanted >= ids.min()) & (wanted <= ids.max())]
    return np.flatnonzero(np.isin(ids, wanted)) if len(wanted) else np.empty(0, dtype=np.intp)
