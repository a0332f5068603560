"""Rounds side by side, all at once, and of frozen networks."""

import numpy as np
import pytest
import torch

from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocol import Entrant, change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.runs import run_experiment
from labelwise.benchmark.splits import SplitCache
from labelwise.errors import BadInput
from tests.benchmark.tiny_runs import plain, tiny


def side_by_side(protocol, names, known=None, seeds=(0, 1)):
    stage = SplitCache(protocol, find_benchmark_device("cpu"), keep=len(seeds))
    runs = [BenchmarkRun(stage, Entrant(name), seed) for seed in seeds for name in names]
    return play_benchmark_runs(runs, known, on_cpu=True)


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


@pytest.mark.usefixtures("double_precision")
def test_runs_side_by_side_train_what_each_run_by_itself_trains():
    """A few steps in float64: longer trainings turn rounding into other networks."""
    protocol = tiny(networks=("lenet5",), learner={"epochs": 2}, rounds=1)
    stage = SplitCache(protocol, find_benchmark_device("cpu"), keep=2)
    runs = [[BenchmarkRun(stage, Entrant("random"), seed) for seed in (0, 1)] for _ in range(2)]
    together = list(play_benchmark_runs(runs[0], on_cpu=True))
    alone = [line for run in runs[1] for line in play_benchmark_runs([run])]
    picks = [{(line.seed, line.round): line.picks for line in part} for part in (together, alone)]
    assert picks[0] == picks[1]
    for ours, theirs in zip(*runs, strict=True):
        assert ours._reports[0].loss == pytest.approx(theirs._reports[0].loss, rel=1e-9)
        states = [run._models.learners["lenet5"].module.state_dict() for run in (ours, theirs)]
        torch.testing.assert_close(*states, rtol=1e-7, atol=1e-9)


def test_picking_all_at_once_buys_what_one_large_batch_buys():
    protocol = tiny("lewis-fig2-vanilla", networks=("mlp",), rounds=3)
    run = BenchmarkRun(
        SplitCache(protocol, find_benchmark_device("cpu")), Entrant("lewis", one_shot=True), 0
    )
    lines = list(play_benchmark_runs([run]))
    large = change_protocol(protocol, batch=30, rounds=1)
    run = BenchmarkRun(
        SplitCache(large, find_benchmark_device("cpu")), Entrant("lewis", one_shot=True), 0
    )
    (first, _) = play_benchmark_runs([run])
    assert [pick for line in lines for pick in line.picks] == list(first.picks)
    assert [line.seconds["represent"] > 0 for line in lines] == [True, False, False, False]
    assert [round(line.labels) for line in lines] == [30, 40, 50, 60]


def test_a_strategy_without_that_property_cannot_pick_at_once():
    protocol = tiny(rounds=3)
    run = BenchmarkRun(
        SplitCache(protocol, find_benchmark_device("cpu")), Entrant("ally", one_shot=True), 0
    )
    with pytest.raises(BadInput, match="cannot pick everything at once"):
        list(play_benchmark_runs([run]))


def test_an_own_network_is_measured_and_picks_like_the_one_beside_the_measured_network():
    protocol = tiny(rounds=2)
    cache = SplitCache(protocol, find_benchmark_device("cpu"))
    entrants = [Entrant("ally", own_network=own) for own in (False, True)]
    plain, own = (BenchmarkRun(cache, entrant, 0) for entrant in entrants)
    theirs, ours = list(play_benchmark_runs([plain])), list(play_benchmark_runs([own]))
    assert [line.picks for line in ours] == [line.picks for line in theirs]
    assert all(line.options == {"own_network": True} for line in ours)
    assert all(line.seconds["train"] > 0 for line in ours)
    test = cache.get(0)[1][1]
    accuracy = float((own._picker.predict(test) == own._split.test_targets).mean())
    assert ours[-1].values == (accuracy,)  # of the last round's primal-dual network
    together = [BenchmarkRun(cache, entrant, 0) for entrant in entrants]
    shared = list(play_benchmark_runs(together))
    assert together[0]._picker is together[1]._picker
    alone = sorted([*theirs, *ours], key=lambda line: (line.round, len(line.options)))
    assert [(line.picks, line.values) for line in shared] == [
        (line.picks, line.values) for line in alone
    ]
    with pytest.raises(BadInput, match="random does not read a learner of its own"):
        BenchmarkRun(cache, Entrant("random", own_network=True), 0)


def test_frozen_networks_only_learn_their_last_layers(tmp_path):
    protocol = change_protocol(
        get_experiment("lewis-fig3-finetune-casp").at("small").on("diabetes"),
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
    run = BenchmarkRun(SplitCache(protocol, find_benchmark_device("cpu")), Entrant("random"), 0)
    list(play_benchmark_runs([run]))
    kinds = [len(list(learner.module)) for learner in run._models.learners.values()]
    assert kinds == [1, 1]


def test_frozen_networks_learn_by_sgd_and_stay_above_the_smallest_value():
    base = get_experiment("lewis-fig3-sgd-casp").at("small").on("diabetes")
    changes = {"pool": 300, "test": 80, "start": 40, "batch": 40, "rounds": 1}
    protocol = change_protocol(base, **changes, networks=("mlp",))
    run = BenchmarkRun(SplitCache(protocol, find_benchmark_device("cpu")), Entrant("random"), 0)
    list(play_benchmark_runs([run]))
    (learner,) = run._models.learners.values()
    assert [type(layer).__name__ for layer in learner.module] == ["Linear", "RaisedReLU"]
    lowest = run._split.targets.min()
    with torch.no_grad():
        learner.module[0].bias.fill_(float(lowest) - 100)
        features = run._models.pool.batch(np.arange(5))
        assert (learner.module(features) == lowest).all()


def test_the_best_epoch_is_recorded_next_to_the_last():
    """Trainings of one, two and three epochs go the same way."""
    protocol = tiny("dynamics-table2", networks=("lenet5",), rounds=0)
    cache = SplitCache(protocol, find_benchmark_device("cpu"), keep=2)
    lines = {}
    for epochs in (1, 2, 3):
        shorter = change_protocol(protocol, learner={**protocol.learner, "epochs": epochs})
        own = SplitCache(shorter, cache.device, keep=2)
        runs = [BenchmarkRun(own, Entrant("random"), seed) for seed in (0, 1)]
        lines[epochs] = list(play_benchmark_runs(runs, on_cpu=True))
    for seed in (0, 1):
        last = [lines[epochs][seed].value for epochs in lines]
        assert lines[3][seed].measures["best_epoch_accuracy"] == pytest.approx(max(last), abs=0.011)
