"""Tables of the frozen feature experiments against numbers worked out here."""

import numpy as np
import pytest
from frozen_tables import (
    format_experiment,
    format_needed,
    format_oracle,
    format_overview,
    summarise_curves,
)

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.statistics import paired_t_test

LABELS = np.arange(10, 70, 10)
BASE = np.array([0.1, 0.3, 0.5, 0.6, 0.7, 0.8])


def make_runs(shifts, metric="accuracy", seeds=4):
    """Curves of strategies that are shifted from random by a number, with noise by seed."""
    noise = np.random.default_rng(0).normal(0, 0.01, size=(len(shifts), seeds))
    return group_experiments(
        RoundResult(
            *("frozen-toy", "full", "toy", "linear on columns", name, seed, place, int(labels)),
            metric,
            float(BASE[place] + shift + noise[number, seed]),
            metric == "accuracy",
            measures={metric: 0.5, "macro_accuracy": 0.25},
        )
        for number, (name, shift) in enumerate(shifts.items())
        for seed in range(seeds)
        for place, labels in enumerate(LABELS)
    )[0]


def test_thirds_are_means_over_two_of_six_rounds():
    experiment = make_runs({"random": 0.0, "margin": 0.1})
    found = {entry.strategy: entry for entry in summarise_curves(experiment)}
    curves = experiment.curves("margin")
    wanted = [curves[:, 2 * part : 2 * part + 2].mean() for part in range(3)]
    assert found["margin"].thirds == pytest.approx(wanted)
    assert found["margin"].measures == {"accuracy": 0.5, "macro_accuracy": 0.25}


def test_labels_needed_are_read_off_the_mean_curves():
    """Random has 0.5 with 30 and 0.8 with 60 labels; margin is a tenth above, without noise."""
    experiment = make_runs({"random": 0.0, "margin": 0.1})
    experiment.values[:] = experiment.values.mean(axis=1, keepdims=True)  # all seeds alike
    shift = experiment.curves("margin")[0, 0] - experiment.curves("random")[0, 0]
    (margin,) = [e for e in summarise_curves(experiment) if e.strategy == "margin"]
    assert margin.needed[0] == pytest.approx(30 - shift / 0.02)  # 0.2 per 10 labels there
    assert margin.needed[1] == pytest.approx(60 - shift / 0.01)  # 0.1 per 10 labels there


def test_gains_are_paired_by_seed_and_corrected_for_the_strategies():
    experiment = make_runs({"random": 0.0, "margin": 0.1, "badge": 0.001})
    found = {entry.strategy: entry for entry in summarise_curves(experiment)}
    raw = {}
    for name in ("margin", "badge"):
        own = (experiment.curves(name) - experiment.curves("random")).mean(axis=1)
        assert found[name].gains["random"].value == pytest.approx(own.mean())
        raw[name] = paired_t_test(own)
    assert found["margin"].gains["random"].p == pytest.approx(2 * raw["margin"])
    assert found["badge"].gains["random"].p == pytest.approx(raw["badge"])


def test_a_share_of_the_oracles_gain_needs_an_oracle():
    experiment = make_runs({"random": 0.0, "margin": 0.1, "oracle": 0.2})
    found = {entry.strategy: entry for entry in summarise_curves(experiment)}
    gains = {
        name: (experiment.curves(name) - experiment.curves("random")).mean()
        for name in ("margin", "oracle")
    }
    assert found["margin"].oracle_share == pytest.approx(gains["margin"] / gains["oracle"])
    assert "oracle" not in found["random"].gains and not found["oracle"].gains
    without = make_runs({"random": 0.0, "margin": 0.1})
    assert all(np.isnan(entry.oracle_share) for entry in summarise_curves(without))


def test_the_best_strategy_comes_first_in_a_table_whatever_the_direction():
    rows = format_experiment(make_runs({"random": 0.0, "margin": 0.1})).splitlines()
    assert rows[2].startswith("| `margin` | 4 |") and "*" in rows[2]
    rows = format_experiment(make_runs({"random": 0.0, "lcmd": 0.1}, "rmse")).splitlines()
    assert rows[2].startswith("| `random` | 4 |")


def test_an_overview_has_a_row_per_strategy_and_no_baseline():
    runs = make_runs({"margin": 0.05, "random": 0.0, "badge": 0.1})
    head, _, first, second = format_overview([runs]).splitlines()
    assert head == "| strategy | seeds | toy |"
    assert first.startswith("| `badge` | 4 | +") and first.count("*") == 2
    assert second.startswith("| `margin` | 4 | +")


def test_the_labels_needed_are_those_of_the_summary():
    runs = make_runs({"random": 0.0, "margin": 0.1, "badge": -0.1, "uherding": 0.2})
    found = {entry.strategy: entry.needed[1] for entry in summarise_curves(runs)}
    row = format_needed([runs]).splitlines()[-1]
    assert row == (
        f"| toy | 4 | 60 | {found['margin']:.0f} | over 60 | **{found['uherding']:.0f}** |"
    )


def test_shares_of_the_oracle_are_on_its_seeds():
    runs = make_runs({"random": 0.0, "uherding": 0.1, "oracle": 0.2})
    runs.values[runs.strategies.index("oracle"), 2:] = np.nan  # two seeds only
    means = {name: runs.curves(name)[:2].mean() for name in runs.strategies}
    best, own = (100 * (means[name] - means["random"]) for name in ("oracle", "uherding"))
    row = format_oracle([runs]).splitlines()[2]
    assert row.startswith(f"| toy | 2 | {best:+.2f} | {own:+.2f} ({100 * own / best:.0f} %) |  |")
