"""Runs that are spread over a Ray cluster: the lines of processes of this machine."""

import os
import signal

import pytest

import labelwise.cli.benchmark  # noqa: F401  (adds its commands)
from labelwise.benchmark.results import read_results
from labelwise.benchmark.runs import run_experiment
from labelwise.cli import run as command
from labelwise.errors import BadInput, LabelwiseWarning
from tests.benchmark.tiny_runs import plain, tiny
from tests.pool.ray_fixtures import two_actors  # noqa: F401

pytest.importorskip("ray")
from labelwise.pool.ray import shards as ray_processes

pytestmark = pytest.mark.xdist_group("ray")
NAMES = ["random", "badge", "sparse_greedy"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "r.jsonl"
    return run_experiment(tiny(), path, strategies=NAMES, seeds=2, workers=2)


@pytest.mark.slow
def test_ray_gives_the_lines_of_processes(actors, expected, tmp_path):
    path = tmp_path / "r.jsonl"
    found = run_experiment(tiny(), path, strategies=NAMES, seeds=2, workers=2, on="ray")
    assert plain(found) == plain(expected)
    assert plain(read_results(path)) == plain(expected)


@pytest.mark.usefixtures("one_thread")
def test_the_command_spreads_runs_over_ray(actors, tmp_path):
    given = "benchmark run bss-recovery --scale small --strategies random --seeds 2".split()
    paths = [tmp_path / "here.jsonl", tmp_path / "there.jsonl"]
    assert command([*given, "--workers", "1", "--out", str(paths[0])]) == 0
    assert command([*given, "--workers", "1", "--on", "ray", "--out", str(paths[1])]) == 0
    here, there = map(read_results, paths)
    assert len(here) > 2 and plain(here) == plain(there)


@pytest.mark.slow
def test_a_run_that_fails_on_ray_is_left_and_the_others_go_on(actors, tmp_path):
    protocol = tiny("ally-fig6-clusters", rounds=1)  # 50 and 100 clusters do not fit into batches
    with pytest.warns(LabelwiseWarning, match="stopped: clusters must be") as caught:
        lines = run_experiment(
            protocol, tmp_path / "r.jsonl", strategies=["ally"], seeds=1, workers=2, on="ray"
        )
    assert len(caught) == 2 and len(lines) == 3 * 2


@pytest.mark.slow
def test_a_process_that_is_killed_costs_no_line(actors, expected, tmp_path, monkeypatch):
    started = []
    usual = ray_processes.RayProcess.__init__
    monkeypatch.setattr(
        ray_processes.RayProcess,
        "__init__",
        lambda self, crew, number: (started.append(crew), usual(self, crew, number))[1],
    )

    def kill(stage, done, total):
        if done in (4, 9):
            os.kill(started[0].processes[done % 2].pid, signal.SIGKILL)

    path = tmp_path / "r.jsonl"
    given = {"strategies": NAMES, "seeds": 2, "workers": 2, "on": "ray", "progress": kill}
    assert plain(run_experiment(tiny(), path, **given)) == plain(expected)
    assert sum(started[0].generations) == 2
    assert len(path.read_text().splitlines()) == len(expected)


def test_an_address_that_is_none_of_a_cluster_is_refused(tmp_path):
    with pytest.raises(BadInput, match="on must be ray, ray:HOST:PORT or ray://HOST:PORT; got"):
        run_experiment(tiny(), tmp_path / "r.jsonl", strategies=["random"], on="spark")
