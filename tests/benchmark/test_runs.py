"""Runs end to end on handwritten digits: lines, pairing, weights, and going on after a stop."""

import doctest
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise.cli.benchmark_run  # noqa: F401  (adds its commands)
from labelwise.benchmark import devices, models, rounds, runs
from labelwise.benchmark.devices import find_device
from labelwise.benchmark.models import network_seeds
from labelwise.benchmark.protocol import Entrant, changed
from labelwise.benchmark.protocols import get
from labelwise.benchmark.results import append, read, to_json
from labelwise.benchmark.rounds import Run, Stage, play
from labelwise.benchmark.runs import run_experiment
from labelwise.benchmark.scenes import prepare
from labelwise.benchmark.study_recovery import _problem
from labelwise.cli import run as command
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName

RATIO = {"epochs": (1, 8), "draws": 2}
FAST = {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.0, "batch_size": 32, "epochs": 8}


def tiny(name="sparse-table2-mnist", **changes):
    """An experiment on digits that takes a second."""
    start = get(name).at("small").on("digits")
    small = {"pool": 400, "test": 200, "start": 30, "batch": 10, "rounds": 2, "networks": ("mlp",)}
    small["validation"] = min(start.validation, 60)
    learner = {**start.learner, **FAST, **changes.pop("learner", {})}
    return changed(start, **{**small, "learner": learner, **changes})


def plain(lines):
    """Lines without what may differ between two runs: times and memory."""
    facts = []
    for line in lines:
        content = json.loads(to_json(line))
        for name in ("seconds", "peak_megabytes", "started"):
            del content[name]
        facts.append(content)
    return sorted(
        facts,
        key=lambda fact: json.dumps(
            [fact["strategy"], fact["options"], fact["seed"], fact["round"]]
        ),
    )


@pytest.mark.parametrize("module", [rounds, runs, models, devices])
def test_the_examples_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


def test_every_round_is_a_complete_line(tmp_path):
    lines = run_experiment(
        tiny(), tmp_path / "r.jsonl", strategies=["margin", "sparse_greedy"], seeds=1
    )
    assert read(tmp_path / "r.jsonl") == lines
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
    assert margin[0].weights is None and margin[0].effective_size is None
    assert len(sparse[0].weights) == 10 and 1 <= sparse[0].effective_size <= 10.001
    assert margin[0].validation_labels == 0  # only a calibration spends those labels
    assert sparse[0].validation_labels == 60
    assert sparse[0].options == {"alpha": 1e-8, "beta": 0.1}


def test_the_measurement_is_the_accuracy_of_the_network_trained_on_what_was_bought(tmp_path):
    protocol = tiny()
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["badge"], seeds=1)
    scene = prepare(protocol, 0)
    bought = np.concatenate([scene.first, *(line.picks for line in lines[:1])]).astype(int)
    assert len(set(bought.tolist())) == 40 and np.isin(bought, scene.ids).all()
    places = scene.positions(bought)
    stage = Stage(protocol, find_device("cpu"))
    learner = models.make_models(protocol, Entrant("badge"), scene, stage.device).learners["mlp"]
    seed = int(np.random.SeedSequence([0, 1, rounds.TRAINING]).generate_state(1)[0])
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
    run = Run(Stage(protocol, find_device("cpu")), entrant, 0)
    lines = play([run])
    line = next(lines)
    return line, run.tasks()[0].weights


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


STATEFUL = {
    "anew": (tiny(), ["random", "badge", "sparse_greedy", "ally"]),
    "trained on": (tiny("dynamics-table2", networks=("mlp",)), ["dynamics", "bandit", "ally"]),
    "several models": (
        tiny("lewis-fig2-vanilla", networks=("mlp", "small_perceptron_64")),
        ["lewis", "committee", "k_center"],
    ),
    "early stopping": (tiny("ally-fig2-mnist"), ["ally", "margin"]),
}


class Stop(Exception):
    """Raised from a progress callback, in the middle of everything."""


@pytest.mark.parametrize("kind", STATEFUL)
def test_stopped_anywhere_it_goes_on_and_gives_the_same_numbers(tmp_path, kind):
    protocol, names = STATEFUL[kind]
    whole = run_experiment(protocol, tmp_path / "whole.jsonl", strategies=names, seeds=2)
    path = tmp_path / "parts.jsonl"
    for most in (1, 5, 8, 100):

        def stop(stage, done, total, most=most):
            if done >= most < total:
                raise Stop

        try:
            lines = run_experiment(protocol, path, strategies=names, seeds=2, progress=stop)
        except Stop:
            assert len(read(path)) == most
    assert plain(lines) == plain(whole)
    assert len(path.read_text().splitlines()) == len(whole)  # nothing was written twice
    assert run_experiment(protocol, path, strategies=names, seeds=2) == lines


@pytest.mark.slow
def test_processes_give_the_lines_of_one_process(tmp_path):
    protocol = tiny()
    names = ["random", "badge", "sparse_greedy"]
    alone = run_experiment(protocol, tmp_path / "a.jsonl", strategies=names, seeds=2)
    done = []
    spread = run_experiment(
        protocol,
        tmp_path / "b.jsonl",
        strategies=names,
        seeds=2,
        workers=2,
        progress=lambda stage, count, total: done.append((stage, count, total)),
    )
    for line, other in zip(alone, spread, strict=True):
        assert (line.key, line.round) == (other.key, other.round)
        assert line.value == pytest.approx(other.value, abs=0.02)  # one thread may round otherwise
    assert done == [("rounds", count, 18) for count in range(19)]


COMMAND = "import labelwise.cli.benchmark_run; from labelwise.cli import main; main()"


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(tmp_path):
    given = "benchmark run ally-fig2-mnist --scale small --dataset digits --workers 1".split()
    given += ["--strategies", "random,margin", "--seeds", "2", "--out"]
    start = [sys.executable, "-c", COMMAND, *given]
    path = tmp_path / "r.jsonl"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*start, path], env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and (not path.is_file() or path.read_bytes().count(b"\n") < 4):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 4 <= len(read(path)) < 24
    for file in (path, tmp_path / "whole.jsonl"):
        subprocess.run([*start, file], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert plain(read(path)) == plain(read(tmp_path / "whole.jsonl"))
    assert len(read(path)) == 24


def side_by_side(protocol, names, known=None, seeds=(0, 1)):
    stage = Stage(protocol, find_device("cpu"), keep=len(seeds))
    runs = [Run(stage, Entrant(name), seed) for seed in seeds for name in names]
    return play(runs, known, on_cpu=True)


@pytest.mark.parametrize("name", ["sparse-table2-mnist", "dynamics-table2"])
def test_runs_side_by_side_are_batched_and_go_on_with_the_same_numbers(name):
    protocol, names = tiny(name, networks=("lenet5",)), ["random", "margin"]
    whole = list(side_by_side(protocol, names))
    assert [line.round for line in whole] == [0] * 4 + [1] * 4 + [2] * 4
    for stopped in (1, 4, 6, 11):  # in the middle of a round, too
        known = {}
        for line in whole[:stopped]:
            known.setdefault(line.key, []).append(line)
        rest = list(side_by_side(protocol, names, known))
        assert plain(rest) == plain(whole[stopped:])


def test_runs_side_by_side_measure_what_each_run_by_itself_measures():
    protocol = tiny(networks=("lenet5",), learner={"epochs": 15})
    together = list(side_by_side(protocol, ["random"]))
    stage = Stage(protocol, find_device("cpu"))
    alone = [line for seed in (0, 1) for line in play([Run(stage, Entrant("random"), seed)])]
    values = [{(line.seed, line.round): line.value for line in part} for part in (together, alone)]
    assert values[0] == pytest.approx(values[1], abs=0.011)  # two of 200 test images
    assert [line["picks"] for line in plain(together)] == [line["picks"] for line in plain(alone)]


def test_picking_all_at_once_buys_what_one_large_batch_buys():
    protocol = tiny("lewis-fig2-vanilla", networks=("mlp",), rounds=3)
    run = Run(Stage(protocol, find_device("cpu")), Entrant("lewis", one_shot=True), 0)
    lines = list(play([run]))
    large = changed(protocol, batch=30, rounds=1)
    run = Run(Stage(large, find_device("cpu")), Entrant("lewis", one_shot=True), 0)
    (first, _) = play([run])
    assert [pick for line in lines for pick in line.picks] == list(first.picks)
    assert [line.seconds["represent"] > 0 for line in lines] == [True, False, False, False]
    assert [round(line.labels) for line in lines] == [30, 40, 50, 60]


def test_a_strategy_without_that_property_cannot_pick_at_once():
    protocol = tiny(rounds=3)
    run = Run(Stage(protocol, find_device("cpu")), Entrant("ally", one_shot=True), 0)
    with pytest.raises(BadInput, match="cannot pick everything at once"):
        list(play([run]))


def test_frozen_networks_only_learn_their_last_layers(tmp_path):
    protocol = changed(
        get("lewis-fig3-finetune-casp").at("small").on("diabetes"),
        pool=300,
        test=80,
        start=40,
        batch=40,
        rounds=2,
        networks=("mlp", "small_perceptron_64"),
    )
    path = tmp_path / "r.jsonl"
    lines = run_experiment(protocol, path, strategies=["random", "lewis"], seeds=1)
    assert all(line.metric == "mse" and len(line.values) == 2 for line in lines)
    assert all(line.value < 1.2 and line.imbalance is None for line in lines)
    assert all(line.options["one_shot"] for line in lines)
    run = Run(Stage(protocol, find_device("cpu")), Entrant("random"), 0)
    list(play([run]))
    kinds = [len(list(learner.module)) for learner in run._models.learners.values()]
    assert kinds == [1, 1]


@pytest.mark.parametrize(
    ("name", "dataset", "changes", "count"),
    [
        ("lewis-fig1-growth", "digits", {"networks": ("mlp", "small_deep"), "start": 40}, 2),
        ("dynamics-fig4-ratio", "digits", {"start": 40, "settings": RATIO}, 2),
        ("bss-recovery", "heavy_tailed", {}, 4),
        ("bss-recovery-trained", "digits", {"pool": 800, "start": 60}, 3),
        ("bss-teacher-student", "teacher_student", {}, 3),
        ("sparse-table3-time", "digits", {"start": 40, "batch": 20, "validation": 50}, 1),
    ],
)
def test_studies_write_lines_too_and_go_on(tmp_path, name, dataset, changes, count):
    protocol = changed(get(name).at("small").on(dataset), **changes)
    path = tmp_path / "r.jsonl"
    entrants = [entrant.strategy for entrant in protocol.entrants[:1]]
    lines = run_experiment(protocol, path, strategies=entrants, seeds=1)
    own = [line for line in lines if line.options == protocol.entrants[0].facts]
    assert [line.round for line in own] == list(range(count))
    assert all(np.isfinite(line.value) and not line.higher_is_better for line in own)
    assert {line.metric for line in own} == {protocol.metric}
    part = tmp_path / "part.jsonl"
    for line in own[: count // 2]:
        append(part, line)
    again = run_experiment(protocol, part, strategies=entrants, seeds=1)
    if protocol.study != "first_query":  # whose value is a time
        assert plain(again) == plain(lines)


def test_t_lies_between_the_largest_rank_and_their_sum(tmp_path):
    protocol = changed(
        get("lewis-fig1-growth").at("small").on("digits"),
        start=60,
        networks=("mlp", "small_perceptron_64", "small_perceptron_96_48"),
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", seeds=1)
    total = [line.value for line in lines if line.options == {"p": 2.0}]
    ranks = [line.value for line in lines if line.options.get("curve") == "ranks"]
    assert total[0] == pytest.approx(ranks[0], rel=1e-6)
    assert (np.diff(total) >= -1e-9).all() and (np.diff(ranks) > 0).all()
    assert max(np.diff(ranks, prepend=0)) <= total[-1] + 1e-6 < ranks[-1]


def test_the_budgets_of_trained_features_are_those_of_the_networks_width(tmp_path):
    protocol = changed(get("bss-recovery-trained").at("small").on("digits"), pool=800, start=60)
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["random"], seeds=2)
    columns = {seed: _problem(protocol, seed, find_device("cpu"))[0].shape[1] for seed in (0, 1)}
    assert columns[0] != columns[1] and max(columns.values()) < 85  # some are the same in all items
    for seed in columns:
        assert [line.labels for line in lines if line.seed == seed] == [2 * 85, 4 * 85, 8 * 85]


def test_leverage_recovers_what_uniform_labels_miss(tmp_path):
    protocol = changed(
        get("bss-recovery").at("small"), settings={"items": 2000, "columns": 10, "budgets": (4, 8)}
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=["random", "lewis"], seeds=6)
    uniform = [line.value for line in lines if line.strategy == "random" and line.round == 1]
    leverage = [line.value for line in lines if line.options == {"p": 2.0} and line.round == 1]
    assert np.median(leverage) < np.median(uniform)


def test_a_run_that_fails_is_left_and_the_others_go_on(tmp_path):
    protocol = tiny("ally-fig6-clusters")  # 50 and 100 clusters do not fit into batches of 10
    with pytest.warns(LabelwiseWarning, match="stopped: clusters must be") as caught:
        lines = run_experiment(
            protocol, tmp_path / "r.jsonl", strategies=["random", "ally"], seeds=1
        )
    assert len(caught) == 2 and len(lines) == 4 * 3
    only = changed(protocol, entrants=(Entrant("ally", {"clusters": 50}),))
    with pytest.raises(BadInput, match="clusters must be from 1 to the budget"):
        run_experiment(only, tmp_path / "s.jsonl", seeds=1)


def test_a_file_of_another_protocol_is_not_gone_on_with(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = run_experiment(tiny(), path, strategies=["random"], seeds=1)
    with pytest.raises(BadInput, match="by another protocol; take another results file"):
        run_experiment(tiny(batch=20), path, strategies=["random"], seeds=1)
    other = tmp_path / "s.jsonl"
    for line in lines[1:]:
        append(other, line)
    with pytest.raises(BadInput, match="round 0 of random, seed 0, is missing"):
        run_experiment(tiny(), other, strategies=["random"], seeds=1)


def test_picks_that_do_not_come_out_again_are_an_error(tmp_path):
    protocol, path = STATEFUL["trained on"][0], tmp_path / "r.jsonl"
    lines = run_experiment(protocol, tmp_path / "whole.jsonl", strategies=["bandit"], seeds=1)
    append(path, replace(lines[0], picks=lines[0].picks[::-1]))
    with pytest.raises(BadInput, match="picks other items than its line says"):
        run_experiment(protocol, path, strategies=["bandit"], seeds=1)


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
    seeds = network_seeds(3, 4)
    assert seeds[0] == 3 and len(set(seeds)) == 4 and network_seeds(3, 2) == seeds[:2]


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
    assert len(read(Path("results.jsonl"))) == 24
    assert command(["benchmark", "run", "sparse-tabel2"]) == 1
    assert "no experiment is called 'sparse-tabel2'" in capsys.readouterr().err
