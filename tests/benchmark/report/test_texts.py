"""Findings in plain sentences."""

import numpy as np

from labelwise.benchmark.report.findings import StrategyComparison
from labelwise.benchmark.report.texts import MetricUnit, describe_comparison, summarise_findings
from labelwise.benchmark.statistics import paired_difference
from tests.benchmark.report.made_up import find, make_rounds


def test_a_strategy_that_does_not_beat_random_is_said_plainly():
    found = find(make_rounds({"random": 0.0, "lewis": 0.0}))
    (comparison,) = found.comparisons["random"]
    text = describe_comparison(comparison, MetricUnit("accuracy"))
    gain = comparison.area.gain
    assert gain.low < 0 < gain.high
    assert text == (
        f"No evidence that lewis beats random here: {100 * gain.value:+.2f} points, "
        f"95 % interval {100 * gain.low:+.2f} to {100 * gain.high:+.2f}."
    )
    assert "no evidence of beating random: lewis" in summarise_findings(found).lower()


def test_one_seed_and_no_baseline_claim_nothing():
    (comparison,) = find(make_rounds({"random": 0.0, "badge": 0.1}, 1)).comparisons["random"]
    assert describe_comparison(comparison, MetricUnit("accuracy")).startswith(
        "One seed is not enough"
    )
    found = find(make_rounds({"margin": 0.0, "lewis": 0.1}))
    assert found.comparisons == {} and summarise_findings(found).startswith("No baseline was run")


def test_a_gain_that_does_not_survive_correction_is_no_evidence():
    differences = np.linspace(-0.3, 0.92, 10)
    measured = paired_difference(differences, np.zeros(10))
    assert measured.gain.low > 0 and 0.05 / 5 < measured.p_flip < 0.05
    tests = 5 * measured.p_flip, 5 * measured.p_t
    comparison = StrategyComparison("lewis", "random", measured, measured, *tests, 5)
    assert comparison.verdict == "unclear"
    text = describe_comparison(comparison, MetricUnit("mse"))
    assert text.startswith("No evidence that lewis beats random here: +0.31 mse")
    assert "excludes 0, but not after correction" in text
