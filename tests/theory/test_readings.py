"""What the sentences say for good and for bad values."""

import numpy as np
import pytest

from labelwise.theory import readings
from labelwise.theory.budgets import whole
from labelwise.theory.embedding import Distortion
from labelwise.theory.mmd import Discrepancy
from labelwise.theory.planning import plan
from labelwise.theory.spectrum import Spectrum
from tests.conftest import make_features
from tests.theory.doctests import run_examples
from tests.theory.test_planning import blocks_apart


def test_examples_run():
    run_examples(readings)


def spectrum(*values):
    return Spectrum(np.array(values), np.eye(len(values)), np.eye(len(values)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (readings.read_size(95.0, 100), "nearly even"),
        (readings.read_size(10.0, 100), "noisy"),
        (readings.read_spectrum(spectrum(0.8, 1.2)), "all within"),
        (readings.read_spectrum(spectrum(0.5, 1.2)), "covered too little"),
        (readings.read_spectrum(spectrum(0.9, 2.0)), "count too much"),
        (readings.read_spectrum(spectrum(0.0, 1.0)), "1 of them are not covered at all"),
        (readings.read_distortion(Distortion(0.9, 1.1, 1.0, False)), "found by search"),
        (readings.read_distortion(Distortion(0.1, 1.1, 2.0, True)), "too wide"),
        (readings.read_coverage(10, 0.95, 3), "the models agree"),
        (readings.read_coverage(10, 0.5, 3), "partly agree"),
        (readings.read_coverage(10, 0.34, 3), "different items"),
        (readings.read_imbalance(np.inf, 2, False, None), "2 of the classes have no pick"),
        (readings.read_imbalance(5.0, 0, False, 4.8), "balanced enough"),
        (readings.read_imbalance(5.0, 0, True, 1.1), "rare classes"),
        (readings.read_ratio(np.nan, True), "gains nothing"),
        (readings.read_ratio(1.0, True), "hardly overlap"),
        (readings.read_ratio(0.3, False), "redundant"),
        (readings.read_ratio(3.0, False), "pull against"),
        (readings.read_alignment(1.0, 0.9), "train fast"),
        (readings.read_alignment(1.0, 0.1), "trains slowly"),
        (readings.read_bound(0.5, False), "is informative"),
        (readings.read_bound(5.0, False), "not informative"),
        (readings.read_bound(5.0, True), "set by the jitter"),
        (readings.read_bound(np.nan, False), "not computed"),
        (readings.read_agreement(np.nan), "cannot be ranked"),
        (readings.read_mmd(Discrepancy(-0.1, 1.0, 1.0), "x"), "not more than for random picks"),
        (readings.read_mmd(Discrepancy(9.0, 1.0, 1.0), "x"), "9 times the spread"),
        (
            readings.read_mmd(Discrepancy(0.0001, 1.0), "x"),
            "1.0 % of a typical item's length: close",
        ),
        (readings.read_agreement(0.9), "also picks by alignment"),
        (readings.read_agreement(0.3), "agree in part"),
        (readings.read_agreement(-0.3), "they disagree"),
    ],
)
def test_a_sentence_follows_from_the_value(text, words):
    assert words in text and "\n" not in text


def test_a_plan_is_read_from_features_to_pool():
    alike = make_features(5000, 4, clusters=1)
    lines = " | ".join(readings.read_plan(plan([alike, alike], error=0.5)))
    assert "model 2: all 4 features are independent" in lines
    assert "the models need the same items" in lines
    assert "with bss are enough by its bound" in lines
    assert "provably enough" in lines


def test_the_cheapest_bound_that_leaves_some_of_the_pool_is_named():
    found = plan(np.random.default_rng(0).normal(size=(2000, 16)))
    bss, lewis = found.budgets[1], found.budgets[2]
    assert bss.draws > 2000 > lewis.labels and (bss.known, lewis.known) == (True, True)
    assert not any(budget.known for budget in (found.budgets[0], *found.budgets[3:]))
    lines = " | ".join(readings.read_plan(found))
    assert f"160 labels; {whole(lewis.labels):,} with lewis are enough by its bound" in lines


def test_weighted_picks_are_not_told_to_take_a_strategy_with_weights():
    low = spectrum(0.5, 1.2)
    assert readings.read_spectrum(low, weighted=True).endswith("covered too little; pick more")
    assert "use bss or lewis" in readings.read_spectrum(low, weighted=False)


def test_a_small_spiky_pool_is_called_so():
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    rows[:, 2] = 0.0
    rows[0, 2] = 1.0
    lines = " | ".join(readings.read_plan(plan(rows)))
    assert "a few items carry whole directions" in lines
    assert "add unlabelled items" in lines


def test_models_that_share_nothing_are_called_so():
    lines = " | ".join(readings.read_plan(plan(blocks_apart(3, 40, 4), error=0.01)))
    assert "sharing a selection saves little" in lines
    assert "the bounds ask for the whole pool or more" in lines
