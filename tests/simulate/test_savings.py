"""What a simulation saved, in numbers and words."""

import numpy as np
import pytest

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.statistics import Estimate, bootstrap, label_saving, labels_needed
from labelwise.errors import BadInput
from labelwise.simulate.savings import (
    compute_savings,
    describe_saving_conclusion,
    format_saving_interval,
    list_saving_caveats,
)


def curves(gains, seeds=5, noise=0.01, higher=True):
    """Rounds of strategies whose mean curve is known."""
    rng = np.random.default_rng(0)
    made = []
    for name, gain in {"random": 0.0, **gains}.items():
        for seed in range(seeds):
            for number in range(6):
                value = 0.5 + 0.06 * number + gain * (number > 0) + rng.normal(0, noise)
                value = value if higher else 1.5 - value
                metric = "accuracy" if higher else "mse"
                made.append(
                    RoundResult(
                        "simulate",
                        "own data",
                        "x",
                        "mlp",
                        name,
                        seed,
                        number,
                        20 + 20 * number,
                        metric,
                        value,
                        higher_is_better=higher,
                    )
                )
    return made


@pytest.mark.parametrize("higher", [True, False])
def test_savings_are_those_of_the_statistics(higher):
    lines = curves({"good": 0.08, "bad": -0.2}, higher=higher)
    (experiment,) = group_experiments(lines)
    labels, theirs = experiment.labels, experiment.curves("random")
    found = {entry.strategy: entry for entry in compute_savings(lines)}
    for name, entry in found.items():
        ours = experiment.curves(name)

        def saved(shares, ours=ours):
            goal = shares @ theirs[:, -1]
            counts = [
                labels_needed(labels, shares @ c, goal, higher_is_better=higher)
                for c in (ours, theirs)
            ]
            return label_saving(*counts)

        expected = bootstrap(saved, 5)
        assert vars(entry.saved) == pytest.approx(vars(expected))
        mean = labels_needed(
            labels, ours.mean(axis=0), theirs[:, -1].mean(), higher_is_better=higher
        )
        assert entry.needed.value == pytest.approx(float(mean))
    assert list(found) == ["good", "bad"]
    assert found["good"].clear and not found["bad"].clear
    assert 0.1 < found["good"].saved.value < 0.4 and found["bad"].saved.value == -np.inf


def test_sentences_say_what_the_numbers_say():
    good, bad = compute_savings(curves({"good": 0.08, "bad": -0.2}))
    needed, most = good.needed.value, good.baseline
    assert good.sentence.startswith(f"good needs {needed:.0f} of the {most:.0f} labels that random")
    assert f"saves {100 * good.saved.value:.0f} % (95 % interval" in good.sentence
    assert bad.sentence.startswith("bad does not reach the final value of random")
    few = "Better than random over the whole curve, as far as 5 seeds can show: good."
    assert describe_saving_conclusion([good, bad], seeds=5) == few
    assert describe_saving_conclusion([bad], seeds=5) == "No strategy beats random clearly here."
    (many,) = compute_savings(curves({"good": 0.08}, seeds=8))
    assert (
        describe_saving_conclusion([many], seeds=8)
        == "Better than random over the whole curve: good."
    )
    (alike,) = compute_savings(curves({"alike": 0.0}, noise=0.03))
    assert describe_saving_conclusion([alike], seeds=5) == "No strategy beats random clearly here."
    (lonely,) = compute_savings(curves({"good": 0.08}, seeds=1))
    assert lonely.sentence.endswith("one seed is not enough to tell") and not lonely.clear


def test_intervals_that_are_open_are_put_in_words():
    assert format_saving_interval(Estimate(-np.inf, -np.inf, -np.inf)) == "never there"
    assert format_saving_interval(Estimate(0.1, -np.inf, 0.2)) == "never there to 20 %"
    assert format_saving_interval(Estimate(0.1, np.nan, np.nan)) == ""


def test_caveats_go_by_seeds_strategies_and_test_items():
    found = compute_savings(curves({"good": 0.08, "bad": -0.2}))
    few = list_saving_caveats(found, seeds=3, tested=40)
    assert [part in " ".join(few) for part in ("at most 75 %", "best of 2", "40 test items")] == [
        True
    ] * 3
    assert list_saving_caveats(found[:1], seeds=10, tested=500) == []


def test_savings_need_random_and_one_simulation():
    with pytest.raises(BadInput, match="random was not run"):
        compute_savings([line for line in curves({"good": 0.1}) if line.strategy != "random"])
    with pytest.raises(BadInput, match="those of 2"):
        compute_savings(curves({}) + curves({"good": 0.1}, higher=False))
