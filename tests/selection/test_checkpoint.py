"""Selections that are interrupted and go on: the same picks, and no pass done twice."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning, StorageFailed
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import take_rows
from labelwise.selection import checkpoint, run
from labelwise.selection.checkpoint import (
    RecordedShards,
    count_resumable_results,
    load_or_select,
    record_calls,
)
from tests.conftest import make_features
from tests.pool.counting import CountingShards
from tests.strategies.test_contract import make_inputs

STRATEGIES = labelwise.strategies()


class Interrupted(Exception):
    """In the place of a power cut."""


class Mortal(LocalShards):
    """Blocks that fail in the middle of a pass, after so many visits."""

    visits, deadly = 0, 10**9

    def __init__(self, shards):
        super().__init__(shards, spill=self)

    def settle(self, state):
        self.visits += 1
        if self.visits > self.deadly:
            raise Interrupted


def blocks(rows, count=60, deadly=10**9):
    parts = np.array_split(np.arange(count), 4)
    shards = Mortal(Shard(part, take_rows(rows, part)) for part in parts)
    shards.deadly = deadly
    return shards


def select(strategy, shards, folder):
    """Select with everything written down after every call; picks, and how much was replayed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        with record_calls(shards, folder, {"strategy": strategy.name}, seconds=0.0) as pool:
            return run.select(strategy, pool, 9, seed=3), pool.replayed


@pytest.mark.parametrize("name", STRATEGIES)
def test_any_strategy_goes_on_where_it_was_interrupted(name, tmp_path):
    check_interrupted(STRATEGIES[name], make_inputs(STRATEGIES[name]), tmp_path)


@pytest.mark.parametrize("name", ["k_center", "badge", "design", "lewis", "sparse_greedy"])
def test_what_blocks_remember_in_tensors_comes_back_in_tensors(name, tmp_path):
    torch = pytest.importorskip("torch")
    rows = make_inputs(STRATEGIES[name])
    tensors = {name: torch.asarray(value) for name, value in rows.items()}
    check_interrupted(STRATEGIES[name], tensors, tmp_path)


def check_interrupted(strategy, rows, tmp_path):
    """Interrupt a selection twice, in the middle and near its end."""
    whole = blocks(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        expected = run.select(strategy, whole, 9, seed=3)
    # Every call is followed by a writing of all states, which visits the blocks once more.
    for number, deadly in enumerate((whole.visits - 2, 2 * whole.visits - 6)):
        folder = tmp_path / str(number)
        with pytest.raises(Interrupted):
            select(strategy, blocks(rows, deadly=deadly), folder)
        found, replayed = select(strategy, blocks(rows), folder)
        assert found.ids.tolist() == expected.ids.tolist()
        assert replayed > 0 or deadly < 8
        assert not folder.exists()
        if expected.weights is not None:
            np.testing.assert_array_equal(found.weights, expected.weights)


def test_what_was_done_is_not_done_again(tmp_path):
    rows = {"features": make_features(300, 5)}
    design = STRATEGIES["design"]
    whole = CountingShards(rows, blocks=4)
    expected = run.select(design, whole, 20)
    first = blocks(rows, 300, deadly=8 * 13 + 2)  # thirteen calls and writings, and a half
    with pytest.raises(Interrupted), record_calls(first, tmp_path / "on", {}, seconds=0.0) as pool:
        run.select(design, pool, 20)
    rest = CountingShards(rows, blocks=4)
    with record_calls(rest, tmp_path / "on", {}, seconds=0.0) as pool:
        found = run.select(design, pool, 20)
    assert found.ids.tolist() == expected.ids.tolist()
    assert rest.passes <= whole.passes - 5


def test_blocks_remember_only_what_was_written_in_time(tmp_path):
    """With long pauses between two writings, more is done again, and the picks are the same."""
    rows = {"features": make_features(300, 5)}
    expected = run.select(STRATEGIES["design"], blocks(rows, 300), 20)
    broken = blocks(rows, 300, deadly=50)
    with pytest.raises(Interrupted), record_calls(broken, tmp_path / "on", {}, seconds=1e9) as pool:
        run.select(STRATEGIES["design"], pool, 20)
    assert count_resumable_results(tmp_path / "on") == 0
    with record_calls(blocks(rows, 300), tmp_path / "on", {}, seconds=1e9) as pool:
        found = run.select(STRATEGIES["design"], pool, 20)
        assert pool.replayed == 0
    assert found.ids.tolist() == expected.ids.tolist()


def killed(folder, deadly, path):
    arguments = [
        sys.executable,
        "-m",
        "tests.selection.killed",
        str(folder),
        str(deadly),
        str(path),
    ]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, cwd=root, env=environment)


def test_a_killed_process_is_followed_by_one_that_goes_on(tmp_path):
    path, folder = tmp_path / "f.npy", tmp_path / "going-on"
    np.save(path, make_features(2000, 6))
    whole = json.loads(killed(tmp_path / "whole", 0, path).stdout)
    visits = whole[0]
    for _ in range(2):
        died = killed(folder, visits // 3, path)
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert count_resumable_results(folder) > 5
    calls, replayed, *picks = json.loads(killed(folder, 0, path).stdout)
    assert picks == whole[2:]
    assert replayed > 10 and calls < 0.6 * visits
    assert not folder.exists()


def test_the_public_call_resumes_from_files(tmp_path, monkeypatch):
    monkeypatch.setattr(record_calls.__wrapped__, "__defaults__", (0.0,))
    path, folder = tmp_path / "f.npy", tmp_path / "going-on"
    np.save(path, make_features(500, 4))
    expected = labelwise.select("design", 12, features=path, labelled=[3])

    def stop(stage, done, total):
        if done == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        labelwise.select("design", 12, features=path, labelled=[3], resume=folder, progress=stop)
    assert count_resumable_results(folder) > 0
    found = labelwise.select("design", 12, features=path, labelled=[3], resume=folder)
    assert found.ids.tolist() == expected.ids.tolist()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"budget": 5}, "budget is 4, now it is 5"),
        ({"seed": 1}, "seed is 0, now it is 1"),
        ({"strategy": "k_center"}, "strategy is design, now it is k_center"),
        ({"labelled": [1]}, "labelled is None, now it is 1 ids"),
        ({"ids": np.arange(30) + 5}, "ids is None"),
        ({"regularisation": 0.5}, "options, regularisation is 0.01, now it is 0.5"),
        ({"features": make_features(30, 3, seed=8)}, "pool, features, 1, sum is "),
    ],
)
def test_another_selection_is_refused(change, name, tmp_path):
    call = {"strategy": "design", "budget": 4, "features": make_features(30, 3)}

    def stop(stage, done, total):
        raise Interrupted

    with pytest.raises(Interrupted):
        labelwise.select(**call, resume=tmp_path / "on", progress=stop)
    with pytest.raises(BadInput, match=f"on holds another selection: its {name}"):
        labelwise.select(**(call | change), resume=tmp_path / "on")


def test_a_file_that_has_changed_is_another_pool(tmp_path):
    path, folder = tmp_path / "f.npy", tmp_path / "on"
    np.save(path, make_features(30, 3))

    def stop(stage, done, total):
        raise Interrupted

    with pytest.raises(Interrupted):
        labelwise.select("design", 4, features=path, resume=folder, progress=stop)
    os.utime(path, (1, 1))
    words = r"f.npy, changed is 20\d\d.*, now it is 1970-01-01 00:00:01.000000000 UTC; delete"
    with pytest.raises(BadInput, match=f"on holds another selection: its pool, features.*{words}"):
        labelwise.select("design", 4, features=path, resume=folder)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"png")
    with pytest.raises(BadInput, match="holds other files and no selection to continue"):
        labelwise.select("design", 1, features=np.eye(3), resume=tmp_path)
    with pytest.raises(BadInput, match=r"resume must be a folder; .*photo.png is a file"):
        labelwise.select("design", 1, features=np.eye(3), resume=tmp_path / "photo.png")
    assert (tmp_path / "photo.png").exists()


def test_two_selections_cannot_share_a_folder(tmp_path):
    shards = blocks({"features": make_features(60, 3)})
    with (
        record_calls(shards, tmp_path / "on", {}),
        pytest.raises(BadInput, match="another selection"),
    ):
        with record_calls(shards, tmp_path / "on", {}):
            pass


def test_an_answer_that_does_not_fit_is_refused(tmp_path):
    rows = {"features": make_features(60, 3)}
    folder = tmp_path / "on"
    with pytest.raises(Interrupted), record_calls(blocks(rows), folder, {}, seconds=0.0) as pool:
        pool.map(len)
        raise Interrupted
    with pytest.raises(BadInput, match=r"holds another selection \(it has map len where"):
        with record_calls(blocks(rows), folder, {}, seconds=0.0) as pool:
            pool.sum(len)


def test_half_written_files_do_not_count(tmp_path):
    """What a process leaves that dies while it writes: more answers, and states without a name."""
    rows, folder = {"features": make_features(300, 5)}, tmp_path / "on"
    expected = run.select(STRATEGIES["design"], blocks(rows, 300), 20)
    broken = blocks(rows, 300, deadly=50)
    with pytest.raises(Interrupted), record_calls(broken, folder, {}, seconds=0.0) as pool:
        run.select(STRATEGIES["design"], pool, 20)
    with (folder / checkpoint.ANSWERS).open("ab") as file:
        file.write(b'[1, ["list"')
    (folder / "states-999").write_bytes(b"[2, ")
    (folder / ".snapshot.x1.part.json").write_text('{"calls": 9')
    with record_calls(blocks(rows, 300), folder, {}, seconds=0.0) as pool:
        found = run.select(STRATEGIES["design"], pool, 20)
    assert found.ids.tolist() == expected.ids.tolist()
    assert not folder.exists()


def test_picks_are_kept_until_the_caller_has_saved_them(tmp_path):
    """Saving fails after the last pick; the next time nothing is asked of the blocks."""
    folder, rows = tmp_path / "on", {"features": make_features(300, 5)}
    lewis = STRATEGIES["lewis"]
    made = run.select(lewis, blocks(rows, 300), 20, seed=3)
    with (
        pytest.raises(OSError, match="no room"),
        record_calls(blocks(rows, 300), folder, {}) as pool,
    ):
        load_or_select(folder, lambda: run.select(lewis, pool, 20, seed=3))
        raise OSError("no room")
    assert count_resumable_results(folder) == 1
    with record_calls(blocks(rows, 300, deadly=0), folder, {}) as pool:
        found = load_or_select(folder, lambda: run.select(lewis, pool, 20, seed=3))
    assert not folder.exists()
    assert found.info == made.info and found.ids.tolist() == made.ids.tolist()
    for name in ("weights", "counts", "scores"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))


def test_picks_are_not_lost_because_there_is_no_room_to_keep_them(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    picks = run.select(STRATEGIES["k_center"], blocks({"features": make_features(60, 3)}), 5)
    with record_calls(blocks({"features": make_features(60, 3)}), tmp_path / "on", {}):
        monkeypatch.setattr(tempfile, "mkstemp", full)
        assert load_or_select(tmp_path / "on", lambda: picks) is picks
    assert not (tmp_path / "on").exists()


def test_another_part_of_a_map_is_another_pool(tmp_path):
    np.save(tmp_path / "f.npy", make_features(60, 3))
    whole = np.load(tmp_path / "f.npy", mmap_mode="r")

    def stop(stage, done, total):
        raise Interrupted

    with pytest.raises(Interrupted):
        labelwise.select("design", 4, features=whole[:30], resume=tmp_path / "on", progress=stop)
    with pytest.raises(BadInput, match=r"its pool, features, 1, sum is \d+, now it is \d+"):
        labelwise.select("design", 4, features=whole[30:], resume=tmp_path / "on")


def broken_off(folder):
    """A folder with what a selection leaves that is interrupted after a few calls."""
    shards = blocks({"features": make_features(300, 5)}, 300, deadly=50)
    with pytest.raises(Interrupted), record_calls(shards, folder, {}, seconds=0.0) as pool:
        run.select(STRATEGIES["design"], pool, 20)


FILES = ["snapshot.json", "selection.json", "answers", "states"]
DAMAGES = [(name, damage) for name in FILES for damage in ("empty", "cut", "other")]


@pytest.mark.parametrize(("name", "damage"), [*DAMAGES, ("answers", "gone"), ("states", "gone")])
def test_a_damaged_folder_is_said_to_be_so(tmp_path, name, damage):
    folder = tmp_path / "on"
    broken_off(folder)
    states = json.loads((folder / "snapshot.json").read_text())["states"]
    path = folder / (states if name == "states" else name)
    whole = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"[]\n"}[damage])
    with pytest.raises(
        BadInput, match=rf"on is damaged \({path.name}: .*\); delete the folder and"
    ):
        shards = blocks({"features": make_features(300, 5)}, 300)
        with record_calls(shards, folder, {}, seconds=0.0) as pool:
            run.select(STRATEGIES["design"], pool, 20)


def test_damaged_picks_are_said_to_be_so(tmp_path):
    with pytest.raises(BadInput, match=r"on is damaged \(picks: .*\); delete the folder"):
        with record_calls(blocks({"features": make_features(60, 3)}), tmp_path / "on", {}):
            (tmp_path / "on" / "picks").write_bytes(b"[3, ")
            load_or_select(tmp_path / "on", lambda: pytest.fail("there are picks already"))


def test_a_full_disk_is_said_with_the_folder(tmp_path):
    shards = blocks({"features": make_features(60, 3)})
    words = r"cannot write to .*on \(No space left on device\), .* make room there, or give another"
    with pytest.raises(StorageFailed, match=words):
        with record_calls(shards, tmp_path / "on", {}, seconds=0.0) as pool:
            (tmp_path / "on" / "states-1").symlink_to("/dev/full")
            pool.map(len)


def test_a_folder_that_cannot_be_made_is_refused_before_the_work():
    with pytest.raises(StorageFailed, match=r"cannot write to /proc/on/and/on \(No such file"):
        labelwise.select("design", 1, features=np.eye(3), resume="/proc/on/and/on")


def test_an_empty_name_is_no_folder():
    with pytest.raises(BadInput, match="resume must be the name of a folder; got ''"):
        labelwise.select("design", 1, features=np.eye(3), resume="")


def test_what_is_refused_leaves_nothing_in_the_folder(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"png")
    (tmp_path / "on").mkdir()
    with pytest.raises(BadInput, match="holds other files"):
        labelwise.select("design", 1, features=np.eye(3), resume=tmp_path)
    with pytest.raises(BadInput, match="budget is 4 but only 3"):
        labelwise.select("design", 4, features=np.eye(3), resume=tmp_path / "on")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert found == {"photo.png", "on"}


def test_on_a_cluster_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(BadInput, match="Ray restores lost parts automatically"):
        labelwise.select("design", 1, features=np.eye(3), resume=tmp_path / "on", on="ray")


def test_recorded_blocks_look_like_the_blocks(tmp_path):
    shards = blocks({"features": make_features(60, 3)})
    pool = RecordedShards(shards, tmp_path)
    assert len(pool) == 60 and pool.ids.tolist() == list(range(60))
    np.testing.assert_array_equal(
        pool.rows(np.array([7, 3]))["features"], shards.rows(np.array([7, 3]))["features"]
    )
    pool.close()
