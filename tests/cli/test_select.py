"""``labelwise select``: what it picks, says before the work, and leaves after an interruption."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.strategy import Job
from tests.cli.pools import COMMAND, answer, picked, write_pool
from tests.conftest import make_features


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a small pool, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    write_pool()
    return tmp_path


def test_select_writes_what_the_library_picks(folder, capsys):
    code, out, _ = answer(
        capsys, "select", "f.npy", "--strategy", "k_center", "--budget", "7", "--out", "picks.csv"
    )
    assert (code, out) == (0, "7 picks written to picks.csv\n")
    expected = labelwise.select("k_center", 7, features=np.load("f.npy"))
    assert picked("picks.csv") == expected.ids.tolist()


def test_all_inputs_reach_the_strategy(folder, capsys):
    code, _, _ = answer(
        capsys,
        *("select", "f.npy", "--probabilities", "p.npy", "--labelled", "done.txt"),
        *("-s", "badge", "-b", "5", "--seed", "9", "-o", "picks.csv"),
    )
    expected = labelwise.select(
        "badge", 5, features="f.npy", probabilities="p.npy", labelled=[3, 17, 42], seed=9
    )
    assert code == 0
    assert picked("picks.csv") == expected.ids.tolist()


def test_several_files_are_several_models(folder, capsys):
    arguments = ["-s", "lewis", "-b", "20", "--option", "p=1.5", "-o", "picks.jsonl"]
    code, out, _ = answer(capsys, "select", "f.npy", "g.npy", *arguments)
    expected = labelwise.select("lewis", 20, features=["f.npy", "g.npy"], p=1.5)
    lines = [json.loads(line) for line in Path("picks.jsonl").read_text().splitlines()]
    assert code == 0
    assert [line["id"] for line in lines] == expected.ids.tolist()
    np.testing.assert_allclose([line["weight"] for line in lines], expected.weights)
    assert out.startswith("20 picks written to picks.jsonl, worth ")


def test_picks_of_one_call_are_labelled_in_the_next(folder, capsys):
    answer(capsys, "select", "f.npy", "-s", "k_center", "-b", "4", "-o", "one.csv")
    answer(
        capsys,
        *("select", "f.npy", "-s", "k_center", "-b", "3", "--labelled", "one.csv"),
        "-o",
        "two.csv",
    )
    whole = labelwise.select("k_center", 7, features="f.npy").ids.tolist()
    assert picked("one.csv") + picked("two.csv") == whole


def test_items_keep_the_ids_that_are_given(folder, capsys):
    Path("ids.txt").write_text("\n".join(str(1000 + row) for row in range(300)))
    answer(
        capsys, *("select", "f.npy", "-s", "k_center", "-b", "4", "--ids", "ids.txt", "-o", "p.csv")
    )
    plain = labelwise.select("k_center", 4, features="f.npy").ids
    assert picked("p.csv") == (1000 + plain).tolist()


def k_center_cost(budget):
    """What the strategy declares for the pool of the folder."""
    return labelwise.strategies()["k_center"].costs(Job(300, budget, {"features": ((6,),)}, {}))


def test_an_estimate_comes_before_the_work(folder, capsys):
    _, out, err = answer(capsys, "select", "f.npy", "-s", "k_center", "-b", "4", "-o", "p.csv")
    assert "pool: 300 items (features 6), 14 KiB, read in one block" in err
    assert f"plan: k_center reads the rows at most {k_center_cost(4).passes[1]} times" in err
    assert "pool:" not in out


def test_warnings_of_the_library_are_one_line_notes(folder, capsys):
    np.save("wide.npy", make_features(300, 40))
    code, _, err = answer(capsys, "select", "wide.npy", "-s", "bss", "-b", "10", "-o", "p.csv")
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert code == 0
    assert len(notes) == 1 and "budget is 10" in notes[0]
    assert "Warning" not in err


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("picks.txt", "cannot write 'picks.txt'"),
        ("no/picks.csv", "there is no folder no"),
        (".", "labelwise: . is a folder; give the name of a file"),
        ("/proc/picks.csv", "cannot write to the folder /proc"),
    ],
)
def test_a_result_that_cannot_be_written_is_refused_before_the_work(folder, capsys, out, message):
    code, _, err = answer(capsys, "select", "f.npy", "-s", "k_center", "-b", "5", "-o", out)
    assert code == 1
    assert message in err and "plan:" not in err


def test_options_are_read_by_the_type_of_their_default(folder, capsys):
    arguments = ["select", "f.npy", "-b", "20", "-s", "bss", "-o", "p.csv"]
    code, _, _ = answer(capsys, *arguments, "--option", "bias=no", "--option", "degree=2")
    expected = labelwise.select("bss", 20, features="f.npy", bias=False, degree=2)
    assert code == 0 and picked("p.csv") == expected.ids.tolist()
    for wrong in ("bias=perhaps", "degree=2.5"):
        code, _, err = answer(capsys, *arguments, "--option", wrong)
        assert code == 1
        assert re.search(r"takes (true or false|a whole number); got '(perhaps|2.5)'", err)


def test_representations_of_one_number_per_item_reach_the_strategy(folder, capsys):
    rng = np.random.default_rng(0)
    norms, products = rng.uniform(size=300), rng.normal(size=300)
    np.save("norms.npy", norms)
    np.save("products.npy", products)
    code, _, _ = answer(
        capsys,
        *("select", "--gradient-norms", "norms.npy", "--gradient-products", "products.npy"),
        *("-s", "dynamics", "-b", "4", "-o", "picks.csv"),
    )
    assert code == 0
    assert picked("picks.csv") == np.argsort(-(norms + 2 * products))[:4].tolist()


def test_a_dry_run_says_what_it_would_take_and_picks_nothing(folder, capsys):
    code, out, err = answer(capsys, "select", "f.npy", "-s", "k_center", "-b", "4", "--dry-run")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "pool: 300 items (features 6), 14 KiB, read in one block"
    cost = k_center_cost(4)
    often = f"at most {cost.passes[1]} times, as a rule about {cost.expected:.0f}"
    assert lines[1].startswith(f"plan: k_center reads the rows {often}")
    most, usual = (round(300 * 6 * 8 * n / 1024) for n in (cost.passes[1], cost.expected))
    assert lines[2] == f"bytes read: at most {most} KiB, as a rule about {usual} KiB"
    assert re.match(r"kept in memory: 6\d bytes per item \(19 KiB\); .* may go to disk", lines[3])
    assert re.match(r"time: about \d.* (seconds|minutes) \(all rows are read in", lines[4])
    assert lines[5].startswith("memory that may be taken: ")
    assert {path.name for path in folder.iterdir()} == {"f.npy", "g.npy", "p.npy", "done.txt"}


def test_a_dry_run_says_what_would_not_fit(folder, capsys):
    np.save("members.npy", np.full((4000, 20, 2), 0.5))
    arguments = ["--member-probabilities", "members.npy", "-s", "bayesian_coreset", "-b", "4"]
    code, out, err = answer(capsys, "select", *arguments, "--dry-run", "--memory", "0.001")
    assert code == 1 and out.startswith("pool: 4,000 items (member_probabilities 20x2)")
    assert "would take about" in err and "use bald or committee, which need not" in err
    code, out, err = answer(capsys, "select", *arguments, "-o", "p.csv", "--memory", "0.001")
    assert code == 1 and "use bald or committee" in err and not Path("p.csv").exists()


def test_a_folder_of_parts_is_one_pool(folder, capsys):
    Path("parts").mkdir()
    for number, part in enumerate(np.split(np.load("f.npy"), [120, 200])):
        np.save(f"parts/f-{number}.npy", part)
    for name in ("parts", "parts/f-*.npy"):
        code, _, _ = answer(capsys, "select", name, "-s", "k_center", "-b", "7", "-o", "p.csv")
        assert code == 0
        assert picked("p.csv") == labelwise.select("k_center", 7, features="f.npy").ids.tolist()


def test_a_selection_on_the_processor_device_picks_the_same(folder, capsys):
    pytest.importorskip("torch")
    arguments = ["select", "f.npy", "-s", "k_center", "-b", "7", "-o", "p.csv", "--device", "cpu"]
    code, _, _ = answer(capsys, *arguments)
    assert code == 0
    assert picked("p.csv") == labelwise.select("k_center", 7, features="f.npy").ids.tolist()


def interrupted(*arguments, begun=lambda: True):
    """Select for a minute; interrupt it a second after it has begun: exit code and last words."""
    np.save("big.npy", np.random.default_rng(0).normal(size=(80_000, 32)))
    arguments = [
        "select",
        "big.npy",
        "-s",
        "k_center",
        "-b",
        "60000",
        "-o",
        "picks.csv",
        *arguments,
    ]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        for line in process.stderr:
            if line.startswith("plan:"):
                break
        while not begun():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    return process.returncode, rest


def test_an_interruption_is_one_line_and_leaves_no_file(folder):
    code, rest = interrupted()
    assert code == 130
    assert rest == "labelwise: interrupted\n"
    assert [path.name for path in folder.iterdir() if "picks" in path.name] == []


def test_an_interrupted_selection_says_how_to_go_on(folder):
    code, rest = interrupted("--resume", "going-on", begun=Path("going-on/answers").exists)
    assert code == 130
    note, last = rest.splitlines()
    assert note.startswith("note: ") and note.endswith("in going-on; the same command goes on")
    assert last == "labelwise: interrupted"
    assert Path("going-on/selection.json").exists() and not Path("picks.csv").exists()


def test_a_finished_selection_leaves_no_folder_to_resume_from(folder, capsys):
    arguments = ["select", "f.npy", "-s", "design", "-b", "7", "-o", "p.csv", "--resume", "on"]
    code, out, _ = answer(capsys, *arguments)
    assert (code, out) == (0, "7 picks written to p.csv\n")
    assert picked("p.csv") == labelwise.select("design", 7, features="f.npy").ids.tolist()
    assert not Path("on").exists()
