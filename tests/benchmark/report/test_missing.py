"""Results with holes: what is there is paired, and what is missing is named."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.report.texts import (
    MetricUnit,
    describe_code_versions,
    describe_comparison,
    describe_untested_strategies,
    summarise_findings,
)
from labelwise.benchmark.statistics import curve_area
from labelwise.errors import BadInput
from tests.benchmark.report.made_up import as_errors, drop, find, make_rounds


def test_a_run_that_stopped_is_left_out_of_pairs_and_named():
    whole = make_rounds({"random": 0.0, "badge": 0.1})
    rounds = drop(whole, lambda e: e.strategy == "badge" and e.seed == 2 and e.labels > 80)
    found = find(rounds)
    (comparison,) = found.comparisons["random"]
    assert comparison.area.seeds == 4
    rest = find(drop(whole, lambda e: e.seed == 2)).comparisons["random"][0]
    assert comparison.area.gain == rest.area.gain
    assert found.experiment.notes == (
        "badge, seed 2: stops at 80 of 320 labels; shown in figures, but not in areas and tests.",
    )


def test_missing_seeds_holes_and_broken_numbers_are_named():
    rounds = make_rounds({"random": 0.0, "badge": 0.1})
    rounds = drop(rounds, lambda e: e.strategy == "badge" and e.seed in (1, 3))
    rounds = [
        replace(e, value=np.nan) if (e.strategy, e.seed, e.labels) == ("random", 0, 80) else e
        for e in rounds
    ]
    found = find(rounds)
    assert found.experiment.notes == (
        "random, seed 0: has no number at 80 labels; shown in figures, but not in areas and tests.",
        "badge: there is no run of seed 1, 3.",
    )
    assert found.comparisons["random"][0].area.seeds == 2


def test_a_strategy_that_buys_all_at_once_is_compared_on_what_it_has():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1}, noise=0.0)
    found = find(drop(rounds, lambda e: e.strategy == "lewis" and e.round in (1, 2)))
    lewis = next(entry for entry in found.summaries if entry.strategy == "lewis")
    assert lewis.runs == 5 and lewis.area.value == pytest.approx(curve_area([40, 320], [0.5, 0.9]))
    assert found.experiment.notes == (
        "lewis was measured at 2 of the 4 numbers of labels, so its area is less precise; "
        "differences to it use only these.",
    )


def test_only_the_first_labels_can_be_reported_on():
    (experiment,) = group_experiments(make_rounds({"random": 0.0}), up_to=100)
    assert experiment.labels.tolist() == [40, 80]
    with pytest.raises(BadInput, match="no rounds with 10 labels or fewer"):
        group_experiments(make_rounds({"random": 0.0}), up_to=10)


def test_a_metric_that_is_better_both_ways_is_refused():
    rounds = make_rounds({"random": 0.0})
    rounds[3] = replace(rounds[3], higher_is_better=False)
    with pytest.raises(BadInput, match="better both high and low"):
        group_experiments(rounds)


def test_options_tell_runs_of_one_strategy_apart():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1})
    other = [replace(e, options={"p": 1}) for e in rounds if e.strategy == "lewis"]
    assert find(rounds + other).experiment.strategies == ("random", "lewis", "lewis (p=1)")
    assert find(rounds[:20] + other).experiment.strategies == ("random", "lewis")


def slow_pairs(rounds, name, other):
    """Seeds under which both runs have every measurement that they should have."""
    ends = {min(entry.labels for entry in rounds), max(entry.labels for entry in rounds)}

    def whole(strategy):
        wanted = ends | {entry.labels for entry in rounds if entry.strategy == strategy}
        runs = {(entry.seed, entry.labels) for entry in rounds if entry.strategy == strategy}
        return {seed for seed in range(3) if {(seed, labels) for labels in wanted} <= runs}

    return len(whole(name) & whole(other))


@given(st.sets(st.integers(0, 35), max_size=35), st.booleans())
def test_whatever_is_missing_the_rest_is_paired(lost, lower):
    rounds = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.0}, 3)
    rounds = [entry for place, entry in enumerate(rounds) if place not in lost]
    found = find(as_errors(rounds) if lower else rounds)
    for baseline, comparisons in found.comparisons.items():
        pairs = {comparison.strategy: comparison.area.seeds for comparison in comparisons}
        others = [name for name in found.names if name != baseline]
        slow = {name: slow_pairs(rounds, name, baseline) for name in others}
        assert pairs == {name: count for name, count in slow.items() if count}
        for comparison in comparisons:
            assert describe_comparison(comparison, MetricUnit("accuracy")).endswith(".")
    assert summarise_findings(found).endswith(".")


def test_one_that_is_measured_less_often_is_compared_at_the_labels_of_both():
    rounds = make_rounds({"random": 0.0, "lewis": 0.0}, noise=0.0)
    rounds = drop(rounds, lambda e: e.strategy == "lewis" and e.round in (1, 2))
    (comparison,) = find(rounds).comparisons["random"]  # the curves are the same, and bend
    assert comparison.area.gain.value == 0 and comparison.verdict == "unclear"
    rounds = make_rounds({"random": 0.0, "lewis": 0.05})
    few = drop(rounds, lambda e: e.strategy == "lewis" and e.round in (1, 2))
    both = drop(rounds, lambda e: e.round in (1, 2))
    assert find(few).comparisons["random"][0].area == find(both).comparisons["random"][0].area


def test_strategies_that_no_test_and_no_correction_counts_are_named():
    gains = {"random": 0.0, "badge": 0.1, "margin": 0.1, "lewis": 0.1}
    rounds = make_rounds(gains)
    assert describe_untested_strategies(find(rounds), "random") == ""
    less = drop(rounds, lambda e: e.strategy == "lewis" and e.labels > 160)
    found = find(less)
    assert found.untested("random") == ("lewis",)
    assert [entry.family for entry in found.comparisons["random"]] == [2, 2]
    assert describe_untested_strategies(found, "random") == (
        "lewis has no run up to 320 labels under a seed of random: it is not tested, and not among "
        "the 2 comparisons with random that the p-values are corrected for."
    )
    less = drop(less, lambda e: e.strategy == "margin" and e.labels > 80)
    assert "have no run up to 320 labels" in describe_untested_strategies(find(less), "random")
    assert "the 1 comparison with random" in describe_untested_strategies(find(less), "random")
    one = drop(less, lambda e: e.seed)
    assert (
        describe_untested_strategies(find(one), "random") == ""
    )  # with one seed there are no tests


def test_lines_of_several_versions_of_the_code_are_told_apart():
    rounds = make_rounds({"random": 0.0, "badge": 0.1}, code="0.1.0+aaa")
    assert describe_code_versions(find(rounds).experiment) == ""
    mixed = [replace(e, code="0.1.0+bbb" if e.seed == 4 else e.code) for e in rounds]
    assert describe_code_versions(find(mixed).experiment) == (
        "These results come from 2 versions of the code: 0.1.0+aaa (32 lines) and 0.1.0+bbb "
        "(8 lines)."
    )
    old = [replace(e, code="" if e.strategy == "random" else e.code) for e in rounds]
    assert "0.1.0+aaa (20 lines) and not recorded (20 lines)" in describe_code_versions(
        find(old).experiment
    )
