"""LCMD with a random part: what is drawn, and what follows it."""

import numpy as np
import pytest

import labelwise
from tests.conftest import make_features


def test_the_rest_is_what_lcmd_picks_after_the_drawn_items():
    features = make_features(200, 4)
    mixed = labelwise.select("mixed_lcmd", 20, features=features, labelled=[3], seed=5).ids
    after = labelwise.select("lcmd", 10, features=features, labelled=[3, *mixed[:10]], seed=5).ids
    assert set(mixed[10:]) == set(after)


def test_the_drawn_items_depend_on_the_seed_only():
    features = make_features(200, 4)
    first, again, other = (
        labelwise.select("mixed_lcmd", 8, features=own, seed=seed).ids[:4].tolist()
        for own, seed in ((features, 0), (features[:, ::-1] ** 2, 0), (features, 1))
    )
    assert first == again != other


@pytest.mark.parametrize("share", [-0.1, 1.5, "half"])
def test_a_share_out_of_range_is_an_error(share):
    with pytest.raises(labelwise.BadInput, match="random_share must be a number from 0 to 1"):
        labelwise.select("lcmd", 2, features=np.eye(4), random_share=share)
