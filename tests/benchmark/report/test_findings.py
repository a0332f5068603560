"""What is found in curves with known answers."""

from dataclasses import replace

import numpy as np
import pytest

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.report.findings import analyse_experiment, combine_findings
from labelwise.benchmark.report.tables import make_area_table
from labelwise.benchmark.statistics import curve_area
from tests.benchmark.report.made_up import LABELS, as_errors, find, make_rounds


def test_areas_and_finals_are_means_over_seeds():
    rounds = make_rounds({"random": 0.0, "badge": 0.1})
    found = find(rounds)
    curves = {
        seed: [e.value for e in rounds if e.strategy == "badge" and e.seed == seed]
        for seed in range(5)
    }
    areas = [curve_area(LABELS, curve) for curve in curves.values()]
    best = found.summaries[0]
    assert best.strategy == "badge" and best.runs == 5
    assert best.area.value == pytest.approx(np.mean(areas))
    assert best.area_deviation == pytest.approx(np.std(areas, ddof=1))
    assert best.final.value == pytest.approx(np.mean([curve[-1] for curve in curves.values()]))


def test_labels_needed_and_saved_without_noise():
    found = find(make_rounds({"random": 0.0, "badge": 0.1}, noise=0.0))
    badge, random = found.summaries
    assert found.target == pytest.approx(0.97 * 0.9)
    assert badge.needed.value == pytest.approx(160 + 160 * 0.73)
    assert random.needed.value == np.inf
    assert badge.needed_baseline.value == pytest.approx(160.0)
    assert random.needed_baseline.value == 320.0
    assert badge.saved.value == 1.0 and random.saved.value == -np.inf


def test_a_saving_is_taken_against_the_best_other_baseline():
    found = find(make_rounds({"random": 0.1, "badge": 0.08, "lewis": 0.09}, noise=0.0))
    saved = {entry.strategy: entry.saved.value for entry in found.summaries}
    needed = {entry.strategy: entry.needed.value for entry in found.summaries}
    assert saved["lewis"] == pytest.approx(1 - needed["lewis"] / needed["random"])
    assert saved["random"] == pytest.approx(1 - needed["random"] / needed["badge"])


def test_a_clear_gain_with_many_seeds_is_better_and_with_few_only_likely():
    gains = {"random": 0.0, "badge": 0.1, "lewis": -0.1}
    many = {c.strategy: c.verdict for c in find(make_rounds(gains, 10)).comparisons["random"]}
    few = {c.strategy: c.verdict for c in find(make_rounds(gains, 5)).comparisons["random"]}
    assert many == {"badge": "better", "lewis": "worse"}
    assert few == {"badge": "likely better", "lewis": "likely worse"}


def test_corrected_p_values_count_all_comparisons_with_the_baseline():
    found = find(make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.1, "margin": 0.1}))
    assert [entry.p_flip for entry in found.comparisons["random"]] == [0.1875] * 3
    assert {entry.family for entry in found.comparisons["random"]} == {3}


def test_errors_turn_every_comparison_round():
    rounds = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.02})
    high, low = find(rounds), find(as_errors(rounds))
    assert high.names == low.names
    for ours, theirs in zip(high.comparisons["random"], low.comparisons["random"], strict=True):
        assert ours.area.gain.value == pytest.approx(theirs.area.gain.value)
        assert ours.verdict == theirs.verdict
    np.testing.assert_array_equal(high.wins, low.wins)
    assert low.target == pytest.approx(low.summaries[0].final.value / 0.97)


def test_costs_are_those_of_rounds_that_bought():
    (random, lewis) = find(make_rounds({"random": 0.01, "lewis": 0.0})).costs
    assert random.first == pytest.approx(0.75)
    assert random.batch == pytest.approx(0.25 + 0.5 + 1.0)
    assert random.train == 2.0 and random.imbalance == 4.0
    assert np.isnan(random.effective) and lewis.effective == 0.75


def test_the_effective_size_in_one_shot_is_a_share_of_all_picks_up_to_now():
    rounds = make_rounds({"random": 0.0})
    size = {0: 1.5, 1: 3.0, 2: 4.5, 3: None}  # of 2, 4 and 6 picks
    weighted = [
        replace(e, strategy="lewis", options={"one_shot": True}, effective_size=size[e.round])
        for e in rounds
    ]
    batches = [replace(e, strategy="bss", effective_size=1.0) for e in rounds]
    shares = {entry.strategy: entry.effective for entry in find(weighted + batches).costs}
    assert shares == pytest.approx({"lewis": 0.75, "bss": 0.5})


def test_several_models_have_a_spread():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1})
    rounds = [replace(e, values=(e.value - 0.02, e.value + 0.02)) for e in rounds]
    assert [entry.spread for entry in find(rounds).costs] == pytest.approx([0.02, 0.02])
    assert "deviation over the models" in make_area_table(find(rounds)).head


def test_seconds_of_a_first_batch_stand_beside_the_papers():
    rounds = [e for e in make_rounds({"random": 0.0, "badge": 0.1}) if e.round == 0]
    change = {"experiment": "sparse-table3-time", "dataset": "cifar10", "metric": "seconds"}
    rounds = [replace(e, **change, higher_is_better=False) for e in rounds]
    found = make_area_table(find(rounds))
    assert found.head[-1] == "paper (sparse, Table 3)"
    assert dict((row[0], row[-1]) for row in found.rows)["badge"] == ("1,207", "± 121.09")


def test_several_experiments_are_ranked_over_the_strategies_they_share():
    first = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.2})
    second = make_rounds({"random": 0.0, "badge": 0.1}, dataset="cifar10")
    third = as_errors(make_rounds({"random": 0.0, "badge": 0.1}, dataset="casp"))
    found = combine_findings(
        [analyse_experiment(entry) for entry in group_experiments(first + second + third)]
    )
    assert found.ranks.names == ("badge", "random") and found.ranks.data_sets == 3
    assert found.ranks.ranks.tolist() == [1.0, 2.0]
    assert found.left_out == ("lewis",)
    assert found.wins[0, 1] == 1.0 and found.wins[1, 0] == 0.0
