"""The demo's numbers against slow twins, and its page."""

import itertools
import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from labelwise.benchmark.statistics import Estimate, labels_needed, tail_probability
from labelwise.demo.page import make_rows, render_demo_page
from labelwise.demo.runs import (
    DemoComparison,
    DemoPlan,
    compare_strategies,
    group_accuracies,
    run_demo,
    run_one,
)
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName

pytestmark = pytest.mark.xdist_group("demo")  # one process trains the runs that all tests read
SMALL = DemoPlan(strategies=("margin", "lewis"), seeds=2, labels=40, workers=1)
LABELS = np.array([20, 30, 40, 50])


@pytest.fixture(scope="module")
def runs():
    return run_demo(SMALL)


@pytest.mark.parametrize(
    ("curve", "target", "expected"),
    [
        ([0.5, 0.6, 0.7, 0.8], 0.65, 35.0),
        ([0.5, 0.6, 0.7, 0.8], 0.7, 40.0),
        ([0.5, 0.6, 0.7, 0.8], 0.4, 20.0),
        ([0.5, 0.6, 0.7, 0.8], 0.81, np.inf),
        ([0.5, 0.7, 0.6, 0.8], 0.65, 27.5),  # the first time counts
        ([0.5, 0.5, 0.5, 0.8], 0.5, 20.0),
    ],
)
def test_labels_needed_is_read_off_the_straight_line_between_two_rounds(curve, target, expected):
    assert labels_needed(LABELS, np.array(curve), target) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0, 1))
def test_the_curve_is_below_the_target_until_the_labels_needed(curve, target):
    needed = labels_needed(LABELS, np.array(curve), target)
    before = np.array(curve)[needed > LABELS]
    assert (before < target).all()
    if np.isfinite(needed):
        assert np.interp(needed, LABELS, curve) == pytest.approx(target, abs=1e-9) or needed == 20


def slow_comparison(accuracies, name):
    """Labels needed for all resamples of the seeds, one after the other."""
    seeds = len(accuracies["random"])
    found = []
    for drawn in itertools.product(range(seeds), repeat=seeds):
        target = accuracies["random"][list(drawn)].mean(axis=0)[-1]
        found.append(labels_needed(LABELS, accuracies[name][list(drawn)].mean(axis=0), target))
    return np.sort(found)


def test_the_interval_is_the_bootstrap_over_seeds_drawn_for_all_strategies_together():
    generator = np.random.default_rng(0)
    base = np.sort(generator.uniform(0.5, 0.9, size=(5, 4)), axis=1)
    accuracies = {"random": base, "other": base + generator.normal(0.02, 0.01, size=(5, 4))}
    other = compare_strategies(LABELS, accuracies)[1]
    found = slow_comparison(accuracies, "other")
    place = int(np.ceil(tail_probability(5) * len(found))) - 1  # fewer beyond each end than 2.5 %
    assert 0 < place < 0.025 * len(found) - 1
    assert other.needed.low == pytest.approx(found[place])
    assert other.needed.high == pytest.approx(found[-place - 1])
    mean = {name: curves.mean(axis=0) for name, curves in accuracies.items()}
    assert other.gain.value == pytest.approx(mean["other"][-1] - mean["random"][-1])
    assert other.needed.value == pytest.approx(
        labels_needed(LABELS, mean["other"], mean["random"][-1])
    )


def test_pairing_takes_away_what_all_strategies_share():
    shift = np.random.default_rng(0).normal(0, 0.2, size=(8, 1))
    base = np.linspace(0.5, 0.8, 4) + shift
    better = compare_strategies(LABELS, {"random": base, "better": base + 0.05})[1]
    assert better.gain.low == pytest.approx(0.05) and better.gain.high == pytest.approx(0.05)
    assert better.final.high - better.final.low > 0.1


def test_curves_of_different_numbers_of_seeds_are_refused():
    with pytest.raises(BadInput, match="one curve per seed"):
        compare_strategies(LABELS, {"random": np.ones((3, 4)), "other": np.ones((2, 4))})


def test_a_strategy_that_needs_a_model_starts_like_random(runs):
    """The first measurement is that of random's first batch; lewis picks its own."""
    for seed in range(2):
        random, margin, lewis = (run for run in runs if run.seed == seed)
        assert [random.strategy, margin.strategy, lewis.strategy] == ["random", "margin", "lewis"]
        assert random.accuracies[0] == margin.accuracies[0]
        assert not np.isin(margin.first, random.first).any()
        assert lewis.weights is not None and len(lewis.weights) == 10


def test_what_is_bought_was_not_held_out(runs):
    for run in runs:
        held_out = np.random.default_rng(run.seed).permutation(1797)[: SMALL.held_out]
        assert len(set(run.first.tolist())) == 10
        assert not np.isin(run.first, held_out).any()


def test_a_run_is_repeated_by_its_seed(runs):
    again = run_one(SMALL, "margin", 1)
    run = next(run for run in runs if run.strategy == "margin" and run.seed == 1)
    np.testing.assert_array_equal(again.accuracies, run.accuracies)
    np.testing.assert_array_equal(again.first, run.first)


def test_labels_teach_the_model_to_read_digits(runs):
    for curves in group_accuracies(runs).values():
        assert curves.shape == (2, 4)
        assert curves[:, -1].mean() > 0.5
        assert curves[:, -1].mean() > curves[:, 0].mean()


@pytest.mark.usefixtures("one_thread")
def test_two_processes_give_what_one_gives():
    alone = run_demo(DemoPlan(strategies=("margin",), seeds=2, labels=30, workers=1))
    plan = DemoPlan(strategies=("margin",), seeds=2, labels=30, workers=2)
    calls = []
    both = run_demo(plan, lambda *call: calls.append(call))
    for ours, theirs in zip(both, alone, strict=True):
        np.testing.assert_array_equal(ours.first, theirs.first)
        np.testing.assert_allclose(ours.accuracies, theirs.accuracies)
    assert calls[:2] == [("random", 0, 2), ("margin", 0, 2)]
    assert sorted(calls[2:]) == [
        ("margin", 1, 2),
        ("margin", 2, 2),
        ("random", 1, 2),
        ("random", 2, 2),
    ]


def test_a_strategy_that_warns_is_quoted_once():
    plan = DemoPlan(strategies=("bss",), seeds=2, labels=40, workers=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_demo(plan)
    notes = [str(w.message) for w in caught if w.category is LabelwiseWarning]
    assert len(notes) == 1 and notes[0].startswith("bss: budget is 10 but")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 1}, "needs 2 seeds or more; got 1"),
        ({"workers": 0}, "workers must be 1 or more; got 0"),
        ({"labels": 10}, "two or more batches of 10; got 10"),
        ({"labels": 35}, "two or more batches of 10; got 35"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        DemoPlan(**changes)


def test_a_wrong_name_is_refused_before_the_work():
    with pytest.raises(UnknownName, match="no strategy is called 'margni'"):
        run_demo(DemoPlan(strategies=("margni",)))


def entry(value, low, high):
    sure = Estimate(0.9, 0.9, 0.9)
    return DemoComparison("any", Estimate(value, low, high), sure, sure)


def test_the_verdict_follows_the_interval():
    assert entry(80, 70, 95).verdict(130) == "fewer labels"
    assert entry(80, 70, np.inf).verdict(130) == "unclear"
    assert entry(np.inf, 120, np.inf).verdict(130) == "unclear"
    assert entry(np.inf, np.inf, np.inf).verdict(130) == "more labels"


def test_the_table_says_in_words_what_was_not_reached():
    plan = DemoPlan(strategies=("any",))
    lines = make_rows(plan, [entry(np.inf, 120.4, np.inf)])
    assert lines[1][:3] == ["any", (">130", "120 to >130"), ("90.0", "90.0 to 90.0")]


def test_the_page_holds_curves_pictures_and_how_to_repeat_it(runs):
    comparisons = compare_strategies(SMALL.counts, group_accuracies(runs))
    text = render_demo_page(SMALL, runs, comparisons, 12.3)
    assert text.count("<figure>") == 2  # margin and lewis, each with random
    assert text.count("<img ") == 3 * 10
    assert "labelwise demo --strategy margin --strategy lewis --seeds 2 --labels 40" in text
    assert not re.search(r"https?://(?!www.w3.org|purl.org)", text)


def test_the_drawings_on_the_page_are_well_formed_and_follow_its_colours(runs):
    comparisons = compare_strategies(SMALL.counts, group_accuracies(runs))
    text = render_demo_page(SMALL, runs, comparisons, 1.0)
    for part in text.split("<figure>")[1:]:
        svg = part[: part.index("</figure>")]
        ElementTree.fromstring(svg)
        assert "var(--s0)" in svg and "var(--base)" in svg and "#01010" not in svg


def test_the_pictures_are_labelled_with_what_they_show(runs):
    comparisons = compare_strategies(SMALL.counts, group_accuracies(runs))
    text = render_demo_page(SMALL, runs, comparisons, 1.0)
    digits = load_digits().target
    strip = text[text.index("<h3>margin</h3>") : text.index("<h3>lewis</h3>")]
    margin = next(run for run in runs if run.strategy == "margin")
    assert [f'alt="a {digits[row]}"' in strip for row in margin.first] == [True] * 10
