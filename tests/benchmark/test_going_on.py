"""Runs that were stopped, killed or spread over processes give the same numbers."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from labelwise.benchmark.results import append_result, read_results
from labelwise.benchmark.runs import run_experiment
from labelwise.errors import BadInput
from tests.benchmark.tiny_runs import plain, tiny

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
    for most in (1, 8, 100):

        def stop(stage, done, total, most=most):
            if done >= most < total:
                raise Stop

        try:
            lines = run_experiment(protocol, path, strategies=names, seeds=2, progress=stop)
        except Stop:
            assert len(read_results(path)) == most
    assert plain(lines) == plain(whole)
    assert len(path.read_text().splitlines()) == len(whole)  # nothing was written twice
    assert run_experiment(protocol, path, strategies=names, seeds=2) == lines


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
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
    assert plain(alone) == plain(spread)
    assert done == [("rounds", count, 18) for count in range(19)]


COMMAND = "import labelwise.cli.benchmark; from labelwise.cli import main; main()"
KILLED = """
import os, signal
from labelwise.benchmark import runs
append_result = runs.append_result
def append_four(path, line):
    append_result(path, line)
    if path.read_bytes().count(b"\\n") == 4:
        os.kill(os.getpid(), signal.SIGKILL)
runs.append_result = append_four
"""


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(tmp_path):
    given = "benchmark run ally-fig2-mnist --scale small --dataset digits --workers 1".split()
    given += ["--strategies", "random,margin", "--seeds", "2", "--out"]
    path = tmp_path / "r.jsonl"

    def start(program, file):
        command = [sys.executable, "-c", program, *given, file]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode

    assert start(KILLED + COMMAND, path) == -signal.SIGKILL
    assert len(read_results(path)) == 4
    assert start(COMMAND, path) == start(COMMAND, tmp_path / "whole.jsonl") == 0
    assert plain(read_results(path)) == plain(read_results(tmp_path / "whole.jsonl"))
    assert len(read_results(path)) == 24


def test_picks_that_do_not_come_out_again_are_an_error(tmp_path):
    protocol, path = STATEFUL["trained on"][0], tmp_path / "r.jsonl"
    lines = run_experiment(protocol, tmp_path / "whole.jsonl", strategies=["bandit"], seeds=1)
    append_result(path, replace(lines[0], picks=lines[0].picks[::-1]))
    with pytest.raises(BadInput, match="picks other items than its recorded line"):
        run_experiment(protocol, path, strategies=["bandit"], seeds=1)
