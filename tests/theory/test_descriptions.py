"""What the sentences say for good and for bad values."""

import numpy as np
import pytest

from labelwise.theory import explanations, planning
from labelwise.theory.budgets import whole
from labelwise.theory.mmd import Discrepancy
from labelwise.theory.planning import plan
from labelwise.theory.spectrum import Distortion, Spectrum
from tests.conftest import make_features
from tests.theory.test_planning import blocks_apart


def spectrum(*values):
    return Spectrum(np.array(values), np.eye(len(values)), np.eye(len(values)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (explanations.describe_size(95.0, 100), "nearly even"),
        (explanations.describe_size(10.0, 100), "noisy"),
        (explanations.describe_spectrum(spectrum(0.8, 1.2)), "all within"),
        (explanations.describe_spectrum(spectrum(0.5, 1.2)), "covered too little"),
        (explanations.describe_spectrum(spectrum(0.9, 2.0)), "count too much"),
        (explanations.describe_spectrum(spectrum(0.0, 1.0)), "1 of them are not covered at all"),
        (explanations.describe_distortion(Distortion(0.9, 1.1, 1.0, False)), "found by search"),
        (explanations.describe_distortion(Distortion(0.1, 1.1, 2.0, True)), "too wide"),
        (explanations.describe_model_coverage(10, 0.95, 3), "the models agree"),
        (explanations.describe_model_coverage(10, 0.5, 3), "partly agree"),
        (explanations.describe_model_coverage(10, 0.34, 3), "different items"),
        (explanations.describe_imbalance(np.inf, 2, False, None), "2 of the classes have no pick"),
        (explanations.describe_imbalance(5.0, 0, False, 4.8), "balanced enough"),
        (explanations.describe_imbalance(5.0, 0, True, 1.1), "rare classes"),
        (explanations.describe_approximation_ratio(np.nan, True), "gains nothing"),
        (explanations.describe_approximation_ratio(1.0, True), "hardly overlap"),
        (explanations.describe_approximation_ratio(0.3, False), "redundant"),
        (explanations.describe_approximation_ratio(3.0, False), "pull against"),
        (explanations.describe_alignment(1.0, 0.9), "train fast"),
        (explanations.describe_alignment(1.0, 0.1), "trains slowly"),
        (explanations.describe_generalisation_bound(0.5, False), "is informative"),
        (explanations.describe_generalisation_bound(5.0, False), "not informative"),
        (explanations.describe_generalisation_bound(5.0, True), "set by the jitter"),
        (explanations.describe_generalisation_bound(np.nan, False), "not computed"),
        (explanations.describe_agreement(np.nan), "cannot be ranked"),
        (
            explanations.describe_mmd(Discrepancy(-0.1, 1.0, 1.0), "x"),
            "not more than for random picks",
        ),
        (explanations.describe_mmd(Discrepancy(9.0, 1.0, 1.0), "x"), "9 times the spread"),
        (
            explanations.describe_mmd(Discrepancy(0.0001, 1.0), "x"),
            "1.0 % of a typical item's length: close",
        ),
        (explanations.describe_agreement(0.9), "also picks by alignment"),
        (explanations.describe_agreement(0.3), "agree in part"),
        (explanations.describe_agreement(-0.3), "they disagree"),
    ],
)
def test_a_sentence_follows_from_the_value(text, words):
    assert words in text and "\n" not in text


def test_a_plan_is_read_from_features_to_pool():
    alike = make_features(5000, 4, clusters=1)
    lines = " | ".join(planning.describe_plan(plan([alike, alike], error=0.5)))
    assert "model 2: all 4 features are independent" in lines
    assert "the models need the same items" in lines
    assert "with bss are enough by its bound" in lines
    assert "provably enough" in lines


def test_the_cheapest_bound_that_leaves_some_of_the_pool_is_named():
    found = plan(np.random.default_rng(0).normal(size=(2000, 16)))
    bss, lewis = found.budgets[1], found.budgets[2]
    assert bss.draws > 2000 > lewis.labels and (bss.known, lewis.known) == (True, True)
    assert not any(budget.known for budget in (found.budgets[0], *found.budgets[3:]))
    lines = " | ".join(planning.describe_plan(found))
    assert f"160 labels; {whole(lewis.labels):,} with lewis are enough by its bound" in lines


def test_weighted_picks_are_not_told_to_take_a_strategy_with_weights():
    low = spectrum(0.5, 1.2)
    assert explanations.describe_spectrum(low, weighted=True).endswith(
        "covered too little; pick more"
    )
    assert "use bss or lewis" in explanations.describe_spectrum(low, weighted=False)


def test_a_small_spiky_pool_is_called_so():
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    rows[:, 2] = 0.0
    rows[0, 2] = 1.0
    lines = " | ".join(planning.describe_plan(plan(rows)))
    assert "a few items carry whole directions" in lines
    assert "add unlabelled items" in lines


def test_models_that_share_nothing_are_called_so():
    lines = " | ".join(planning.describe_plan(plan(blocks_apart(3, 40, 4), error=0.01)))
    assert "sharing a selection saves little" in lines
    assert "the bounds ask for the whole pool or more" in lines
