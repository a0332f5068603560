"""Runs end to end on handwritten digits: lines, pairing, weights, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

import labelwise.cli.benchmark  # noqa: F401  (adds its commands)
from labelwise.benchmark import benchmark_run, models
from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.lines import describe_code_version
from labelwise.benchmark.models import draw_network_seeds
from labelwise.benchmark.protocol import Entrant, change_protocol
from labelwise.benchmark.results import append_result, read_results
from labelwise.benchmark.runs import run_experiment
from labelwise.benchmark.splits import SplitCache, split_dataset
from labelwise.cli import run as command
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from tests.benchmark.tiny_runs import tiny


def test_every_round_is_a_complete_line(tmp_path):
    lines = run_experiment(
        tiny(), tmp_path / "r.jsonl", strategies=["margin", "sparse_greedy"], seeds=1
    )
    assert read_results(tmp_path / "r.jsonl") == lines
    margin, sparse = lines[:3], lines[3:]
    assert [line.labels for line in margin] == [30, 40, 50]
    assert [len(line.picks) for line in sparse] == [10, 10, 0]
    assert [line.round for line in sparse] == [0, 1, 2]
    for line in lines:
        assert line.metric == "accuracy" and line.higher_is_better
        assert 0.1 < line.value == line.values[0] < 1
        assert line.scale == "small" and "digits in place of mnist" in line.reduced
        assert set(line.seconds) == {"train", "represent", "select"} and line.seconds["train"] > 0
        assert line.peak_megabytes > 50 and line.imbalance >= 1 and line.started
        assert set(line.versions) == {"labelwise", "torch", "numpy"}
        assert line.code == describe_code_version()
    assert margin[0].weights is None and margin[0].effective_size is None
    assert len(sparse[0].weights) == 10 and 1 <= sparse[0].effective_size <= 10.001
    assert margin[0].validation_labels == 0  # only a calibration spends those labels
    assert sparse[0].validation_labels == 60
    assert sparse[0].options == {"alpha": 1e-8, "beta": 0.1}


def test_the_measurement_is_the_accuracy_of_the_network_trained_on_what_was_bought(tmp_path):
    protocol = tiny()
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["badge"], seeds=1)
    scene = split_dataset(protocol, 0)
    bought = np.concatenate([scene.first, *(line.picks for line in lines[:1])]).astype(int)
    assert len(set(bought.tolist())) == 40 and np.isin(bought, scene.ids).all()
    places = scene.find_positions(bought)
    stage = SplitCache(protocol, find_benchmark_device("cpu"))
    learner = models.make_benchmark_networks(
        protocol, Entrant("badge"), scene, stage.device
    ).learners["mlp"]
    seed = int(np.random.SeedSequence([0, 1, benchmark_run.TRAINING]).generate_state(1)[0])
    learner.fit(scene.inputs[places], scene.targets[places], seed=seed)
    right = learner.predict(scene.test_inputs) == scene.test_targets
    assert lines[1].value == right.mean()
    counts = np.bincount(scene.targets[places], minlength=10)
    assert lines[1].imbalance == (counts.max() / counts.min() if counts.min() else np.inf)


def test_all_strategies_of_a_seed_begin_alike(tmp_path):
    names = [
        "random",
        "margin",
        "badge",
        "sparse_iht",
        "lewis",
        "bald",
        "disagreement",
        "ally",
        "dynamics",
        "bandit",
    ]
    lines = run_experiment(tiny(rounds=1), tmp_path / "r.jsonl", strategies=names, seeds=2)
    first = [line for line in lines if line.round == 0]
    assert len(first) == 20
    for seed in range(2):
        values = {line.value for line in first if line.seed == seed}
        assert len(values) == 1
        picks = [line.picks for line in first if line.seed == seed]
        assert len(set(picks)) >= 8  # and then each goes its way
    assert {line.value for line in first if line.seed == 0} != {
        line.value for line in first if line.seed == 1
    }


def weights_of(protocol, entrant):
    """What the second round trains with."""
    run = BenchmarkRun(SplitCache(protocol, find_benchmark_device("cpu")), entrant, 0)
    lines = play_benchmark_runs([run])
    line = next(lines)
    return line, run.begin_round()[0].weights


@pytest.mark.parametrize("mode", ["none", "mean", "sum"])
def test_training_uses_the_weights_as_the_protocol_says(mode):
    line, weights = weights_of(tiny(weights=mode), Entrant("lewis"))
    given = np.array(line.weights)
    if mode == "none":
        assert weights is None
        return
    np.testing.assert_array_equal(weights[:30], 1)
    expected = given / given.mean() if mode == "mean" else given
    np.testing.assert_allclose(weights[30:], expected)
    assert given.sum() == pytest.approx(370, rel=0.5) and given.std() > 0
    assert weights_of(tiny(weights=mode), Entrant("lewis", weights="none"))[1] is None


def test_weights_change_what_is_learnt(tmp_path):
    protocol = tiny(entrants=(Entrant("lewis"), Entrant("lewis", weights="mean")))
    lines = run_experiment(protocol, tmp_path / "r.jsonl", seeds=3)
    plain_runs = [line for line in lines if "weights" not in line.options]
    weighted = [line for line in lines if line.options.get("weights") == "mean"]
    assert [line.value for line in plain_runs if line.round == 0] == [
        line.value for line in weighted if line.round == 0
    ]
    assert [line.value for line in plain_runs if line.round] != [
        line.value for line in weighted if line.round
    ]


def test_a_run_that_fails_is_left_and_the_others_go_on(tmp_path):
    protocol = tiny("ally-fig6-clusters")  # 50 and 100 clusters do not fit into batches of 10
    with pytest.warns(LabelwiseWarning, match="stopped: clusters must be") as caught:
        lines = run_experiment(
            protocol, tmp_path / "r.jsonl", strategies=["random", "ally"], seeds=1
        )
    assert len(caught) == 2 and len(lines) == 4 * 3
    only = change_protocol(protocol, entrants=(Entrant("ally", {"clusters": 50}),))
    with pytest.raises(BadInput, match="clusters must be from 1 to the budget"):
        run_experiment(only, tmp_path / "s.jsonl", seeds=1)


def test_a_file_of_another_protocol_is_not_gone_on_with(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = run_experiment(tiny(), path, strategies=["random"], seeds=1)
    with pytest.raises(BadInput, match="by another protocol; choose another results file"):
        run_experiment(tiny(batch=20), path, strategies=["random"], seeds=1)
    other = tmp_path / "s.jsonl"
    for line in lines[1:]:
        append_result(other, line)
    with pytest.raises(BadInput, match="round 0 of random, seed 0, is missing"):
        run_experiment(tiny(), other, strategies=["random"], seeds=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 0}, "seeds must be one or more"),
        ({"seeds": [1, 1]}, "seeds must be one or more different numbers"),
        ({"workers": 0}, "workers must be 1 or more; got 0"),
        ({"strategies": ["bagde"]}, "no strategy is called 'bagde'"),
    ],
)
def test_wrong_requests_are_refused_before_the_work(tmp_path, given, message):
    with pytest.raises((BadInput, UnknownName), match=message):
        run_experiment(tiny(), tmp_path / "r.jsonl", **given)
    assert not (tmp_path / "r.jsonl").exists()


def test_several_networks_have_seeds_of_their_own():
    seeds = draw_network_seeds(3, 4)
    assert seeds[0] == 3 and len(set(seeds)) == 4 and draw_network_seeds(3, 2) == seeds[:2]


def test_the_command_lists_and_runs_experiments(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(["benchmark", "list"]) == 0
    head, *listed = capsys.readouterr().out.splitlines()
    assert head.startswith("name\t") and any(
        row.startswith("sparse-table2-mnist\t") for row in listed
    )
    given = ["benchmark", "run", "bss-recovery", "--scale", "small", "--seeds", "2"]
    assert command([*given, "--strategies", "random, lewis", "--workers", "1"]) == 0
    shown = capsys.readouterr()
    assert "reduced: 2,000 items" in shown.out and "rounds: 24 of 24" in shown.err
    assert "labelwise benchmark report results.jsonl" in shown.out
    assert len(read_results(Path("results.jsonl"))) == 24
    assert command(["benchmark", "run", "sparse-tabel2"]) == 1
    assert "there is no experiment 'sparse-tabel2'" in capsys.readouterr().err
