"""Random picks are uniform over items and over sets."""

import numpy as np
import pytest
from scipy.stats import chisquare

import labelwise


def test_every_item_is_equally_likely():
    picks = [labelwise.select("random", 3, ids=np.arange(12), seed=s).ids for s in range(800)]
    assert chisquare(np.bincount(np.concatenate(picks), minlength=12)).pvalue > 1e-3


def test_every_pair_is_equally_likely():
    pairs = [
        tuple(sorted(labelwise.select("random", 2, ids=np.arange(5) * 7, seed=s).ids.tolist()))
        for s in range(800)
    ]
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    assert len(counts) == 10
    assert chisquare(counts).pvalue > 1e-3


def test_labelled_items_are_left_out_of_a_pool_of_bare_ids():
    ids = labelwise.select("random", 8, ids=np.arange(10), labelled=[2, 5]).ids
    assert sorted(ids.tolist()) == [0, 1, 3, 4, 6, 7, 8, 9]


def test_needs_a_pool():
    with pytest.raises(labelwise.BadInput, match="random needs a pool: give features, or ids"):
        labelwise.select("random", 3)
