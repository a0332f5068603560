"""A selection on Ray that is interrupted from the keyboard: one line, and nothing is left."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import make_features
from tests.pool.ray_heads import in_session
from tests.pool.test_ray_shards import alone

pytest.importorskip("ray")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]

COMMAND = "select f.npy -s herding -b 19000 -o p.csv --on ray --actors 2".split()


def waited(condition, seconds=300):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.1)
    return condition()


def selecting(session):
    """Whether actors of a session are at work."""
    return any("ray::_Actor.call" in line for line in in_session(session).values())


def test_an_interruption_is_one_line_and_leaves_no_process(tmp_path):
    np.save(tmp_path / "f.npy", make_features(20_000, 64).astype(np.float32))
    command = [str(Path(sys.executable).parent / "labelwise"), *COMMAND]
    with alone(command, {**os.environ, "RAY_ADDRESS": ""}, tmp_path) as process:
        assert waited(lambda: selecting(process.pid))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 130, errors
        assert errors.splitlines()[-1] == "labelwise: interrupted"
        assert "Traceback" not in errors
        assert waited(lambda: not in_session(process.pid)), in_session(process.pid)
    assert not (tmp_path / "p.csv").exists()
