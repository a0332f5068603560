"""State that does not fit in memory lies in files, and strategies do not notice."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import labelwise
from labelwise.errors import StorageFailed
from labelwise.pool import blocks as spill
from labelwise.pool.blocks import LEAST_SPILLED, LocalShards, Shard, Spill, open_shards
from labelwise.pool.representations import open_sources
from labelwise.pool.rows import GrowingRows
from labelwise.selection import run
from tests.conftest import make_features, make_probabilities

LARGE = LEAST_SPILLED // 8


class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray


def test_large_arrays_are_mapped_and_small_ones_stay():
    state = {"large": np.arange(float(LARGE)), "small": np.arange(3.0)}
    kept = state["small"]
    Spill(limit=0).settle(state)
    assert state["small"] is kept
    assert not state["large"].flags.owndata
    np.testing.assert_array_equal(state["large"], np.arange(float(LARGE)))


def test_below_the_limit_everything_stays():
    state = {"large": np.arange(float(LARGE))}
    kept = state["large"]
    Spill(limit=2 * LEAST_SPILLED).settle(state)
    assert state["large"] is kept


def test_the_limit_is_for_all_blocks_together():
    keeper = Spill(limit=2 * LEAST_SPILLED)
    states = [{"large": np.arange(float(LARGE))} for _ in range(4)]
    for state in states:
        keeper.settle(state)
    assert [state["large"].flags.owndata for state in states] == [True, True, False, False]
    states[0].clear()  # a strategy forgets, and there is room again
    keeper.settle(states[0])
    states[2]["large"] = np.ones(LARGE)
    keeper.settle(states[2])
    assert states[2]["large"].flags.owndata


def test_mapped_arrays_are_written_to_and_read_again():
    keeper = Spill(limit=0)
    state = {"large": np.zeros((LARGE, 2), dtype=np.float32)}
    keeper.settle(state)
    state["large"][5] = 7
    keeper.settle(state)
    assert keeper.written == 8 * LARGE  # once: it was mapped already
    assert state["large"][5].tolist() == [7, 7] and state["large"].sum() == 14


def test_arrays_inside_of_everything_are_found_and_stay_one_array():
    rows = GrowingRows()
    rows.append({"features": np.ones((LARGE, 1))})
    one = np.arange(float(LARGE))
    state = {"a": Pair(one, one), "b": [(one, "text")], "c": rows}
    Spill(limit=0).settle(state)
    assert isinstance(state["a"], Pair)
    assert state["a"].left is state["a"].right is state["b"][0][0]
    assert not state["a"].left.flags.owndata
    state["a"].left[3] = -1
    assert state["b"][0][0][3] == -1
    np.testing.assert_array_equal(rows.since(0)["features"], np.ones((LARGE, 1)))


def test_views_of_the_rows_are_left_alone():
    rows = np.ones((LARGE, 4))
    state = {"view": rows[:, :2], "whole": rows[:]}
    Spill(limit=0).settle(state)
    assert np.shares_memory(state["view"], rows) and np.shares_memory(state["whole"], rows)


@pytest.mark.parametrize("name", ["k_center", "badge", "lewis", "kmeans", "design", "dynamics"])
def test_picks_are_the_same_with_all_state_in_files(name, monkeypatch):
    monkeypatch.setattr(spill, "LEAST_SPILLED", 1)
    strategy = labelwise.strategies()[name]
    options = {"p": 1.0} if name == "lewis" else {}
    strategy = strategy.with_options(**options)
    given = {"features": make_features(900, 5), "probabilities": make_probabilities(900, 3)}
    sources = open_sources({n: given[n] for n in strategy.needs if n in given} or given)
    keeper = Spill(limit=0)
    found = [
        run.select(strategy, open_shards(sources, block_bytes=1, spill=where)[0], 12, seed=2)
        for where in (None, keeper)
    ]
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert keeper.written > 0


def test_nothing_is_left_in_the_folder(tmp_path):
    state = {"large": np.arange(float(LARGE))}
    Spill(limit=0, folder=tmp_path).settle(state)
    assert list(tmp_path.iterdir()) == []
    assert state["large"].sum() == LARGE * (LARGE - 1) / 2


def test_the_files_take_the_place_of_memory(tmp_path):
    """Twenty blocks remember 8 MB each, of which no more than a few are ever resident."""
    script = (
        "import re, numpy\n"
        "from labelwise.pool.blocks import LocalShards, Shard\n"
        "from labelwise.pool.ids import RowNumbers\n"
        "from labelwise.pool.blocks import Spill\n"
        "def resident(field):\n"
        "    return int(re.search(field + r':\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "def remember(shard, number):\n"
        "    shard.state['x'] = numpy.full(1 << 20, number) + shard.state.get('x', 0)\n"
        "    return float(shard.state['x'][-1])\n"
        "shards = LocalShards([Shard(RowNumbers(i, i + 1), {}) for i in range(20)],\n"
        "                     spill=Spill(0))\n"
        "before = resident('VmRSS')\n"
        "for number in range(3):\n"
        "    answers = shards.map(remember, number + 1.0)\n"
        "print(resident('VmHWM') - before, set(answers))\n"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory is read from /proc")
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"TMPDIR": str(tmp_path), "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    kilobytes, answers = done.stdout.split(" ", 1)
    assert answers == "{6.0}\n"
    assert int(kilobytes) < 60_000  # all of them would be 160,000


def test_a_full_disk_is_an_error_and_not_a_crash(monkeypatch):
    class Full:
        def __init__(self, **where):
            self._file = open("/dev/full", "wb")

        def __enter__(self):
            return self._file

        def __exit__(self, *error):
            try:
                self._file.close()
            except OSError:
                pass

    if not Path("/dev/full").exists():
        pytest.skip("a full disk is made from /dev/full")
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    words = (
        rf"cannot be written to {tempfile.gettempdir()} \(.*(written|No space left).*\); .*TMPDIR"
    )
    with pytest.raises(StorageFailed, match=words):
        Spill(limit=0).settle({"large": np.arange(float(LARGE))})


def test_a_selection_within_little_memory_spills(monkeypatch):
    monkeypatch.setattr(spill, "LEAST_SPILLED", 1)
    written = []
    settle = Spill.settle

    def watched(self, state):
        settle(self, state)
        written.append(self.written)

    monkeypatch.setattr(Spill, "settle", watched)
    features = make_features(5000, 3)
    expected = labelwise.select("k_center", 9, features=features, memory=8)
    assert written[-1] == 0
    memory = labelwise.selection.plan.plan_selection(
        labelwise.strategies()["k_center"], {"features": features}, 9
    ).least_memory
    found = labelwise.select("k_center", 9, features=features, memory=memory / 2**30)
    assert written[-1] > 0
    assert found.ids.tolist() == expected.ids.tolist()


def test_blocks_settle_after_every_visit():
    class Notes:
        def __init__(self):
            self.seen = []

        def settle(self, state):
            self.seen.append(dict(state))

    def remember(shard, value):
        shard.state["value"] = value
        return value

    notes = Notes()
    shards = LocalShards([Shard(np.array([0]), {}), Shard(np.array([1]), {})], spill=notes)
    assert shards.map(remember, 3) == [3, 3] and shards.sum(remember, 4) == 8
    assert notes.seen == [{"value": 3}, {"value": 3}, {"value": 4}, {"value": 4}]
