"""Items of a block, found among those that are wanted."""

import numpy as np
import pytest

from labelwise.kernels.loop.index import places


@pytest.mark.parametrize("ids", [np.arange(5, 25), np.array([40, 3, 17, 9]), np.empty(0, int)])
@pytest.mark.parametrize("wanted", [[9, 24, 2, 40, 300], [9], [300], []])
def test_wanted_items_are_found_where_they_are(ids, wanted):
    slow = [place for place, item in enumerate(ids.tolist()) if item in wanted]
    assert places(ids, np.array(wanted, dtype=np.int64)).tolist() == slow
