"""Studies end to end: their lines, and what their values must obey."""

import numpy as np
import pytest

from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocol import change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.results import append_result
from labelwise.benchmark.runs import run_experiment
from labelwise.benchmark.studies.growth import measure_shared_leverage
from labelwise.benchmark.studies.recovery import make_recovery_problem
from tests.benchmark.tiny_runs import plain

RATIO = {"epochs": (1, 8), "draws": 2}


@pytest.mark.parametrize(
    ("name", "dataset", "changes", "count"),
    [
        ("lewis-fig1-growth", "digits", {"networks": ("mlp", "small_deep"), "start": 40}, 2),
        ("dynamics-fig4-ratio", "digits", {"start": 40, "settings": RATIO}, 2),
        ("bss-recovery", "heavy_tailed", {}, 4),
        ("bss-recovery-trained", "digits", {"pool": 800, "start": 60}, 3),
        ("bss-teacher-student", "teacher_student", {}, 3),
        ("ally-fig1-generation", "digits", {"start": 60, "pool": 300}, 3),
        ("sparse-table3-time", "digits", {"start": 40, "batch": 20, "validation": 50}, 1),
    ],
)
def test_studies_write_lines_too_and_go_on(tmp_path, name, dataset, changes, count):
    protocol = change_protocol(get_experiment(name).at("small").on(dataset), **changes)
    path = tmp_path / "r.jsonl"
    entrants = [entrant.strategy for entrant in protocol.entrants[:1]]
    lines = run_experiment(protocol, path, strategies=entrants, seeds=1)
    own = [line for line in lines if line.options == protocol.entrants[0].facts]
    assert [line.round for line in own] == list(range(count))
    assert all(np.isfinite(line.value) and not line.higher_is_better for line in own)
    assert {line.metric for line in own} == {protocol.metric}
    part = tmp_path / "part.jsonl"
    for line in own[: count // 2]:
        append_result(part, line)
    again = run_experiment(protocol, part, strategies=entrants, seeds=1)
    if protocol.study != "first_query":  # whose value is a time
        assert plain(again) == plain(lines)


def test_t_lies_between_the_largest_rank_and_their_sum(tmp_path):
    protocol = change_protocol(
        get_experiment("lewis-fig1-growth").at("small").on("digits"),
        start=60,
        networks=("mlp", "small_perceptron_64", "small_perceptron_96_48"),
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", seeds=1)
    total = [line.value for line in lines if line.options == {"p": 2.0}]
    ranks = [line.value for line in lines if line.options.get("curve") == "ranks"]
    assert total[0] == pytest.approx(ranks[0], rel=1e-6)
    assert (np.diff(total) >= -1e-9).all() and (np.diff(ranks) > 0).all()
    assert max(np.diff(ranks, prepend=0)) <= total[-1] + 1e-6 < ranks[-1]


def test_all_models_share_all_items_and_one_model_shares_its_own(tmp_path):
    protocol = change_protocol(
        get_experiment("lewis-fig4-shared").at("medium").on("digits"),
        pool=300,
        start=40,
        networks=("mlp", "small_deep"),
        learner={"optimizer": "adam", "lr": 0.01, "epochs": 2, "loss": "mse"},
        settings={"percents": [10, 100]},
    )
    values = [line.value for line in run_experiment(protocol, tmp_path / "r.jsonl", seeds=1)]
    assert 0 <= values[0] <= 1 and values[1] == 1
    one = change_protocol(protocol, networks=("mlp",))
    lines = run_experiment(one, tmp_path / "one.jsonl", seeds=1)
    assert [line.value for line in lines] == [1, 1]


@pytest.mark.parametrize("percent", [10, 25, 60])
def test_sharing_is_the_mean_overlap_of_sets(percent):
    weights = np.random.default_rng(percent).random((4, 60))

    def top(row):
        return set(sorted(range(60), key=lambda item: -row[item])[: round(0.6 * percent)])

    common = top(weights.max(axis=0))
    expected = np.mean([len(top(row) & common) / len(common) for row in weights])
    assert measure_shared_leverage(weights, percent) == pytest.approx(expected)


def test_the_budgets_of_trained_features_are_those_of_the_networks_width(tmp_path):
    protocol = change_protocol(
        get_experiment("bss-recovery-trained").at("small").on("digits"), pool=800, start=60
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["random"], seeds=2)
    columns = {
        seed: make_recovery_problem(protocol, seed, find_benchmark_device("cpu"))[0].shape[1]
        for seed in (0, 1)
    }
    assert columns[0] != columns[1] and max(columns.values()) < 85  # some are the same in all items
    for seed in columns:
        assert [line.labels for line in lines if line.seed == seed] == [2 * 85, 4 * 85, 8 * 85]


def test_leverage_recovers_what_uniform_labels_miss(tmp_path):
    protocol = change_protocol(
        get_experiment("bss-recovery").at("small"),
        settings={"items": 2000, "columns": 10, "budgets": (4, 8)},
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["random", "lewis"], seeds=6)
    uniform = [line.value for line in lines if line.strategy == "random" and line.round == 1]
    leverage = [line.value for line in lines if line.options == {"p": 2.0} and line.round == 1]
    assert np.median(leverage) < np.median(uniform)
