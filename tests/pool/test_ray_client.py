"""Selections from outside a cluster, through Ray's client: the picks of one process.

Ray's client is one for a whole process, so that it runs in processes of its own here
(`tests.pool.ray_client_runs`). One test has all that needs a cluster and is quick: to start one
takes longer than all the rest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise
from tests.pool.test_ray_shards import ROOT, alone

pytest.importorskip("ray")
pytest.importorskip("grpc")
from tests.pool.ray_client_runs import BUDGET, NEEDS, make_pool, select_arguments
from tests.pool.ray_heads import new_secret, started_head

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(name="head")
def small_head():
    with started_head() as head:
        yield head


def ran(command, environment=None, folder=ROOT):
    pipes = {"capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command, cwd=folder, env=environment, **pipes)


def select_command(on):
    """A selection from features.npy by the installed command."""
    return [str(Path(sys.executable).parent / "labelwise"), *select_arguments(on)]


def test_the_picks_are_those_of_one_process(head, tmp_path):
    script = [sys.executable, "-m", "tests.pool.ray_client_runs", "picks"]
    done = ran([*script, head.address, str(tmp_path)], head.environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    pool = make_pool()
    for strategy, name in NEEDS.items():
        given = {name: pool[name], "labelled": [5, 1500]}
        expected = labelwise.select(strategy, BUDGET, **given, seed=5).ids.tolist()
        assert found[f"{strategy} array"] == expected
        assert found[f"{strategy} file"] == expected
    labelwise.select("k_center", BUDGET, features=pool["features"]).save(tmp_path / "here.csv")
    assert (tmp_path / "there.csv").read_text() == (tmp_path / "here.csv").read_text()
    assert len(set(found["pids"])) == 3  # this process and two actors
    assert found["power"] == 1024
    joined = f"this process has joined the Ray cluster at {head.address}; call ray.shutdown()"
    assert found["another"].startswith(joined)
    assert found["ray data"].startswith("Ray Data does not run through Ray's client (ray://);")


@pytest.mark.slow
def test_the_command_joins_the_cluster_by_itself(head, tmp_path):
    features = make_pool()["features"]
    np.save(tmp_path / "features.npy", features)
    done = ran(select_command(head.address), head.environment, tmp_path)
    assert done.returncode == 0, done.stderr
    labelwise.select("k_center", BUDGET, features=features).save(tmp_path / "here.csv")
    assert (tmp_path / "there.csv").read_text() == (tmp_path / "here.csv").read_text()


def test_an_address_without_a_cluster_is_named(tmp_path):
    np.save(tmp_path / "features.npy", np.eye(30))
    done = ran(select_command("ray://127.0.0.1:9"), folder=tmp_path)
    assert done.returncode == 1
    assert "no Ray cluster answers at ray://127.0.0.1:9; check the address and" in done.stderr


def test_without_grpcio_the_command_to_install_it_is_named():
    code = "import sys; sys.modules['grpc'] = None\n"
    code += "from labelwise.pool.ray.shards import connect\nconnect('ray://127.0.0.1:9')"
    done = ran([sys.executable, "-c", code])
    assert "MissingDependency: joining ray://127.0.0.1:9 needs grpcio, for Ray's" in done.stderr
    assert "client; run pip install 'labelwise[ray]'" in done.stderr


@pytest.mark.slow
def test_another_token_is_refused(head, tmp_path):
    np.save(tmp_path / "features.npy", np.eye(30))
    environment = {**head.environment, "RAY_AUTH_TOKEN": "another" * 9}
    done = ran(select_command(head.address), environment, tmp_path)
    assert done.returncode == 1
    assert "cannot join the Ray cluster at" in done.stderr and "needs its token" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("event", ["killed", "headless", "silent"])
def test_a_lost_head_is_told_within_a_minute_and_another_can_be_joined(event, tmp_path):
    command = [sys.executable, "-m", "tests.pool.ray_client_runs", event, str(tmp_path)]
    with alone(command, {**os.environ, **new_secret()}) as process:
        out, errors = process.communicate(timeout=1200)
    assert out.startswith("the head of the Ray cluster, ray://127.0.0.2:"), out + errors
    assert "start the cluster and the selection again" in out
    assert float(out.split("seconds")[1].split()[0]) < 60
    expected = labelwise.select("herding", BUDGET, features=make_pool()["features"])
    assert out.strip().endswith(f"again {expected.ids.tolist()}"), out + errors
