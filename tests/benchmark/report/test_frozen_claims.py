"""Numbers in the prose about frozen features, recomputed from the committed lines."""

from pathlib import Path

import numpy as np
import pytest
from frozen_tables import MIXED, summarise_curves

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.results import read_results

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [DOCS / "which_strategy.md", DOCS / "results" / "frozen.md"]


def read_one(name):
    return group_experiments(read_results(DOCS / "results" / "frozen" / f"{name}.jsonl.gz"))[0]


def summarise(name, strategy, *more):
    files = [DOCS / "results" / "frozen" / f"{part}.jsonl.gz" for part in (name, *more)]
    found = summarise_curves(group_experiments(read_results(files))[0])
    return next(entry for entry in found if entry.strategy == strategy)


@pytest.mark.parametrize(
    ("name", "strategy", "labels"),
    [
        ("cifar10", "uherding", "74"),
        ("newsgroups", "uherding", "194"),
        ("newsgroups", "max_herding", "159"),
        ("reuters_r8", "uherding", "28"),
    ],
)
def test_labels_for_the_last_accuracy_of_random(name, strategy, labels):
    assert f"{summarise(name, strategy).needed[1]:.0f}" == labels
    assert labels in PAGES[0].read_text()


@pytest.mark.parametrize(("name", "goal"), [("cifar10", 70), ("newsgroups", 130)])
def test_labels_with_a_self_trained_head(name, goal):
    found = summarise(name, "uherding (self_training=True)", f"{name}-self_training").needed[1]
    assert found <= goal
    assert all(f"{found:.0f}" in page.read_text() for page in PAGES)


@pytest.mark.parametrize(
    ("name", "strategy", "gain"),
    [
        ("cifar10-copies", "uherding", "+6.6"),
        ("cifar10-copies", "badge", "+2.1"),
        ("cifar10-copies", "margin", "-12.6"),
        ("cifar10-tail", "uherding", "+12.3"),
        ("cifar10-tail", "margin", "+5.2"),
    ],
)
def test_gains_over_the_curve(name, strategy, gain):
    assert f"{100 * summarise(name, strategy).gains['random'].value:+.1f}" == gain
    assert gain in PAGES[0].read_text()


def test_the_default_for_values_has_lower_errors_on_every_table():
    tables = map(read_one, "airfoil compactiv puma32h wine_quality diabetes casp".split())
    logs = [np.log(own.curves(MIXED[0]).mean() / own.curves("random").mean()) for own in tables]
    assert max(logs) < 0
    assert f"{100 * (1 - np.exp(np.mean(logs))):.1f} % lower" in PAGES[0].read_text()
