"""``labelwise select``: what it picks, says before the work, and leaves after an interruption."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli.files import read_ids_file
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
    often = f"at most {cost.passes[1]} times, usually about {cost.expected:.0f}"
    assert lines[1].startswith(f"plan: k_center reads the rows {often}")
    most, usual = (round(300 * 6 * 8 * n / 1024) for n in (cost.passes[1], cost.expected))
    assert lines[2] == f"bytes read: at most {most} KiB, usually about {usual} KiB"
    assert re.match(r"kept in memory: 6\d bytes per item \(19 KiB\); .* may go to disk", lines[3])
    assert re.match(r"time: about \d.* (s|min) \(all rows are read in", lines[4])
    assert lines[5].startswith("memory that may be used: ")
    assert {path.name for path in folder.iterdir()} == {"f.npy", "g.npy", "p.npy", "done.txt"}


def test_a_dry_run_says_what_would_not_fit(folder, capsys):
    np.save("members.npy", np.full((4_000_000, 2, 2), 0.5, dtype=np.float32))
    arguments = ["--member-probabilities", "members.npy", "-s", "bayesian_coreset", "-b", "4"]
    code, out, err = answer(capsys, "select", *arguments, "--dry-run", "--memory", "0.5")
    assert code == 1 and out.startswith("pool: 4,000,000 items (member_probabilities 2x2)")
    assert "would take about" in err and "use bald or committee, which does not" in err
    code, out, err = answer(capsys, "select", *arguments, "-o", "p.csv", "--memory", "0.5")
    assert code == 1 and "use bald or committee" in err and not Path("p.csv").exists()


def refused(capsys, *arguments):
    """The error of a call, and that it was one."""
    code, _, err = answer(capsys, "select", *arguments)
    lines = [line for line in err.splitlines() if not line.startswith(("pool:", "plan:"))]
    assert code == 1 and len(lines) == 1
    return lines[0]


def write_table(path, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "301"], "budget is 301 but only 300 unlabelled items are left"),
        (["-b", "298", "--labelled", "done.txt"], "budget is 298 but only 297 unlabelled items"),
        (["-b", "-3"], "budget must be a whole number of items, 0 or more; got -3"),
        (["-b", "9", "--option", "p=-1"], "p must be a number above 0; got -1"),
        (["-b", "9", "--resume", "g.npy"], "resume must be a folder; g.npy is a file"),
        (["-b", "9", "--resume", ""], "resume must be the name of a folder; got ''"),
        (["-b", "9", "--resume", "."], ". holds other files and no selection to continue"),
        (["-b", "9", "--resume", "/proc/on"], "cannot write to /proc/on"),
        (["-b", "9", "--memory", "-1"], "memory must be a number of GiB above 0; got -1.0"),
        (["-b", "9", "--memory", "0.001"], "of memory for 300 items but 1 MiB may be used"),
        (["-b", "9", "--ids", "done.txt"], "pool has 3 ids but 300 items"),
        (["-b", "9", "--labelled", "far.txt"], "no item of the pool has id 999"),
        (["-b", "9", "--actors", "2"], "actors is 2 but on names no cluster"),
        (["-b", "9", "--on", "ray", "--resume", "on"], "Ray restores lost parts automatically"),
        (["-b", "301", "--on", "ray"], "budget is 301 but only 300 unlabelled items are left"),
    ],
)
def test_a_dry_run_refuses_what_a_selection_refuses(folder, capsys, arguments, message):
    Path("far.txt").write_text("999\n")
    before = {path.name for path in folder.iterdir()}
    call = ["f.npy", "-s", "lewis", *arguments]
    dry, real = refused(capsys, *call, "--dry-run"), refused(capsys, *call, "-o", "p.csv")
    assert dry == real and message in dry
    assert {path.name for path in folder.iterdir()} == before


def test_ids_in_a_file_may_be_texts(folder, capsys):
    write_table("pool.parquet", id=["a", "b", "c"], x=[1.0, 2.0, 3.5])
    code, _, _ = answer(capsys, "select", "pool.parquet", *"-s k_center -b 3 -o p.csv".split())
    lines = Path("p.csv").read_text().splitlines()
    assert code == 0 and sorted(line.split(",")[0] for line in lines[1:]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["pool.parquet", "-o", "pool.parquet"],
        ["pool.parquet", "-o", "./pool.parquet"],
        ["pool.parquet", "-o", "link.parquet"],
        ["*.parquet", "-o", "pool.parquet"],
        ["f.npy", "--duals", "pool.parquet", "-o", "pool.parquet"],
        ["f.npy", "--labelled", "done.csv", "-o", "done.csv"],
        ["f.npy", "--ids", "done.csv", "-o", "done.csv"],
    ],
)
def test_what_is_read_is_not_overwritten(folder, capsys, arguments):
    write_table("pool.parquet", x=[1.0, 2.0, 3.0])
    Path("link.parquet").symlink_to("pool.parquet")
    Path("done.csv").write_text("id\n1\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    message = refused(capsys, *arguments, "-s", "k_center", "-b", "2")
    assert re.search(r"--out \S+ would overwrite \S+, which is read; give another name", message)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_url_is_not_overwritten_either(folder, capsys):
    write_table("my pool.parquet", x=[1.0, 2.0, 3.0])
    url = (folder / "my pool.parquet").as_uri()
    message = refused(capsys, url, "-s", "k_center", "-b", "2", "-o", "my pool.parquet")
    assert "would overwrite" in message


def test_picks_do_not_become_a_part_of_the_pool(folder, capsys):
    Path("parts").mkdir()
    write_table("parts/0.parquet", x=[1.0, 2.0, 3.0])
    message = refused(capsys, "parts", "-s", "k_center", "-b", "2", "-o", "parts/p.parquet")
    assert "--out parts/p.parquet would become a part of the pool; give another folder" in message
    code, _, _ = answer(capsys, "select", "parts", "-s", "k_center", "-b", "2", "-o", "parts/p.csv")
    assert code == 0


def full(*arguments, **named):
    raise OSError(28, "No space left on device")


def test_a_failing_write_names_the_file(folder, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "mkstemp", full)
    message = refused(capsys, "f.npy", "-s", "lewis", "-b", "9", "-o", "p.csv")
    said = "cannot write p.csv (No space left on device); make room there, or give another --out"
    assert message == f"labelwise: {said}"


@pytest.mark.parametrize("out", ["p.csv", "elsewhere.jsonl"])
def test_picks_that_could_not_be_written_are_written_by_the_same_command(
    folder, capsys, monkeypatch, out
):
    arguments = ["f.npy", "-s", "lewis", "-b", "9", "--resume", "on"]
    with monkeypatch.context() as disk:
        make = tempfile.mkstemp
        disk.setattr(tempfile, "mkstemp", lambda **k: (full if k["dir"] == Path() else make)(**k))
        message = refused(capsys, *arguments, "-o", "p.csv")
    assert message.endswith("or give another --out; the same command continues from on")
    assert Path("on/picks").exists() and not Path("p.csv").exists()
    code, said, _ = answer(capsys, "select", *arguments, "-o", out)
    assert code == 0 and said.startswith(f"9 picks written to {out}, worth ")
    assert read_ids_file(Path(out)) == labelwise.select("lewis", 9, features="f.npy").ids.tolist()
    assert not Path("on").exists()


@pytest.mark.parametrize("name", ["one.csv", "one.jsonl", "one.parquet"])
def test_picks_of_any_format_are_labelled_in_the_next_call(folder, capsys, name):
    pytest.importorskip("pyarrow")
    arguments = ["select", "f.npy", "-s", "k_center"]
    answer(capsys, *arguments, "-b", "4", "-o", name)
    code, _, _ = answer(capsys, *arguments, "-b", "3", "--labelled", name, "-o", "two.csv")
    whole = labelwise.select("k_center", 7, features="f.npy").ids.tolist()
    assert code == 0 and picked("two.csv") == whole[4:]


def test_files_that_a_shell_made_of_a_pattern_are_told_to_be_models(folder, capsys):
    for number in (1, 2, 10):
        np.save(f"part-{number}.npy", make_features(30, 3, seed=number))
    files = [f"part-{number}.npy" for number in (1, 2, 10)]
    advice = "if they are parts of one pool, give their folder, or a pattern in quotes"
    code, _, err = answer(capsys, "select", *files, "-s", "lewis", "-b", "9", "-o", "p.csv")
    assert code == 0
    assert f"note: 3 files of features are 3 models of the same items; {advice}\n" in err
    code, _, err = answer(capsys, "select", *files, "-s", "k_center", "-b", "9", "-o", "p.csv")
    assert code == 1 and err.endswith(f"a strategy for several models; {advice}\n")
    _, _, err = answer(capsys, "select", "f.npy", "g.npy", "-s", "lewis", "-b", "9", "-o", "p.csv")
    assert "note:" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-b", "1e3"], 2, "'--budget' / '-b': Input should be a valid integer; got '1e3'; see"),
        (
            ["-b", "9", "--memory", "1GiB"],
            2,
            "'--memory': Input should be a valid number; got '1GiB';",
        ),
        (
            ["-b", "9", "--option", "p=1", "--option", "p=2"],
            2,
            "--option p is given more than",
        ),
        (["-b", "9", "--probabilities", "no.npy"], 1, "probabilities: there is no file no.npy"),
    ],
)
def test_a_mistake_is_said_with_its_value(folder, capsys, arguments, code, message):
    found, _, err = answer(capsys, "select", "f.npy", "-s", "lewis", "-o", "p.csv", *arguments)
    assert found == code and message in err and not Path("p.csv").exists()


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
    assert note.startswith("note: ") and note.endswith("in going-on; the same command continues")
    assert last == "labelwise: interrupted"
    assert Path("going-on/selection.json").exists() and not Path("picks.csv").exists()


def test_a_finished_selection_leaves_no_folder_to_resume_from(folder, capsys):
    arguments = ["select", "f.npy", "-s", "design", "-b", "7", "-o", "p.csv", "--resume", "on"]
    code, out, _ = answer(capsys, *arguments)
    assert (code, out) == (0, "7 picks written to p.csv\n")
    assert picked("p.csv") == labelwise.select("design", 7, features="f.npy").ids.tolist()
    assert not Path("on").exists()
