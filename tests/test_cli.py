"""The command line as users meet it: what it prints, writes and answers."""

import ast
import contextlib
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import labelwise
from tests.cli.pools import COMMAND, answer, picked, write_pool


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a small pool, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    write_pool()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nofile.npy", "-s", "k_center"], "there is no file nofile.npy"),
        (["f.npy", "-s", "k_centre"], "'k_centre'; did you mean k_center? or choose from"),
        (
            ["f.npy", "-s", "margin"],
            "margin needs probabilities, or member_probabilities; got features; "
            "give --probabilities FILE",
        ),
        (["f.npy", "-s", "badge"], "got features; give --probabilities FILE"),
        (["--probabilities", "p.npy", "-s", "k_center"], "give a FILE of features"),
        (["f.npy", "g.npy", "-s", "k_center"], "takes one array of features; got a list of 2"),
        (["", "-s", "k_center"], "features: '' is not a file; give its name"),
        (["empty.npy", "-s", "k_center"], "the pool has no items"),
        (["f.npy", "-s", "k_center", "--labelled", "f.npy"], "f.npy is not UTF-8 text; give one"),
        (["f.npy", "-s", "k_center", "--ids", "f.npy"], "f.npy is not UTF-8 text; give one id"),
        (["f.npy", "-s", "lewis", "--option", "rtol=abc"], "takes a number, or none; got 'abc'"),
        (["f.npy", "-s", "bss", "--option", "rtol=abc"], "takes a number, or none; got 'abc'"),
        (["f.npy", "-s", "bss", "--option", "length_scale=abc"], "takes a number, or none; got"),
        (["f.npy", "-s", "herding", "--option", "bandwidth=abc"], "takes a number, or none; got"),
        (
            ["f.npy", "--probabilities", "p.npy", "-s", "sparse_iht", "--option", "alpha=abc"],
            "option alpha of sparse_iht takes a number, or none; got 'abc'",
        ),
        (["f.npy", "-s", "kmeans", "--option", "rounds=-1"], "rounds must be a whole number, 0 or"),
        (["f.npy", "-s", "lewis", "--option", "q=1"], "lewis has no option 'q'; choose from p"),
        (
            ["f.npy", "-s", "lewis", "--option", "p=two"],
            "option p of lewis takes a number; got 'two'",
        ),
        (["f.npy", "-s", "lewis", "--labelled", "no.txt"], "there is no file no.txt to read ids"),
        (
            ["f.npy", "-s", "k_center", "--labelled", "bad.txt"],
            "id 2 in bad.txt must be",
        ),
        (["f.npy", "-s", "k_center", "--labelled", "bad.csv"], "bad.csv has no column called id"),
        (["f.npy", "-s", "k_center", "--labelled", "far.txt"], "has id 999"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(folder, capsys, arguments, message):
    Path("bad.txt").write_text("1\ntwo\n")
    Path("bad.csv").write_text("item\n1\n")
    Path("far.txt").write_text("999\n")
    np.save("empty.npy", np.empty((0, 4)))
    code, out, err = answer(capsys, "select", *arguments, "-b", "5", "-o", "picks.csv")
    problem = [line for line in err.splitlines() if not line.startswith(("pool:", "plan:"))]
    assert (code, out) == (1, "")
    assert len(problem) == 1 and problem[0].startswith("labelwise: ") and message in problem[0]
    assert not Path("picks.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["select", "f.npy", "-s", "k_center", "-b", "5"], "'--out'"),
        (["select", "f.npy", "-s", "k_center", "-b", "five", "-o", "p.csv"], "'--budget'"),
        (
            ["select", "f.npy", "-s", "lewis", "-b", "5", "-o", "p.csv", "--option", "p"],
            "name=value",
        ),
        (["select", "--frobnicate"], "--frobnicate; see labelwise select --help"),
        (["pick"], "No such command 'pick'; see labelwise --help"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(folder, capsys, arguments, message):
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("labelwise: ") and err.count("\n") == 1 and message in err


def test_strategies_lists_every_strategy_once(capsys):
    code, out, _ = answer(capsys, "strategies")
    head, *lines = [line.split("\t") for line in out.splitlines()]
    known = labelwise.strategies()
    assert code == 0
    assert head == ["name", "needs", "weights", "good for", "reference"]
    assert [line[0] for line in lines] == list(known)
    for name, _needs, weights, good_for, reference in lines:
        assert (weights == "yes") == known[name].weighted
        assert (good_for, reference) == (known[name].good_for, known[name].reference)


def test_one_strategy_is_shown_with_its_options(capsys):
    code, out, _ = answer(capsys, "strategies", "lewis")
    assert code == 0
    assert "reads features, of one or several models" in out
    for option, default in labelwise.strategies()["lewis"].options.items():
        assert f"--option {option}={default}\n    " in out
    assert "\n    the norm of the loss, any positive number.\n" in out
    assert '\n    "with_replacement" or "poisson".\n' in out


def test_the_version_is_that_of_the_package(capsys):
    code, out, _ = answer(capsys, "--version")
    assert code == 0 and re.fullmatch(r"labelwise \d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["select", "-h"], ["demo", "--help"]])
def test_help_teaches_with_an_example(capsys, arguments):
    code, out, _ = answer(capsys, *arguments)
    assert code == 0
    assert "labelwise demo" in out or "labelwise select f.npy --strategy lewis" in out


def test_the_demo_refuses_more_labels_than_it_has_images(folder, capsys):
    code, _, err = answer(capsys, "demo", "--labels", "100000")
    assert code == 1 and "only 1,198 items are left after 599 test items" in err


def test_a_benchmark_refuses_a_number_of_seeds_that_cannot_be(folder, capsys):
    code, _, err = answer(capsys, "benchmark", "run", "sparse-table2-mnist", "--seeds", "-1")
    assert code == 2 and "'--seeds': Input should be greater than or equal to 1; got '-1'" in err


def test_a_report_refuses_a_file_where_its_pictures_should_go(folder, capsys):
    arguments = ["benchmark", "report", "r.jsonl", "--out", "r.html", "--figures", "f.npy"]
    code, _, err = answer(capsys, *arguments)
    assert (code, err) == (1, "labelwise: f.npy is a file; give a folder\n")


def test_the_demo_prints_a_table_and_writes_a_page(folder, capsys):
    code, out, err = answer(
        capsys, "demo", "--seeds", "2", "--labels", "30", "--strategy", "margin", "--workers", "1"
    )
    assert code == 0
    assert re.search(r"random +30 ", out) and re.search(r"margin +", out)
    assert "Curves and images: demo/report.html" in out
    assert "runs: 4 of 4" in err
    assert Path("demo/report.html").stat().st_size > 10_000


BARE = """
import array_api_compat, numpy, sys, typer
from rich import console, table
app = typer.Typer(rich_markup_mode="rich")
app.command(help="[bold]Nothing[/bold] is done.")(lambda: None)
app(["--help"], standalone_mode=False)
"""


def test_help_takes_little_longer_than_the_imports_it_cannot_do_without():
    """A command of NumPy and Typer that does nothing takes two thirds of the time of ours."""

    def seconds(command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = [sys.executable, "-c", BARE]
    pairs = [(seconds(bare), seconds([*COMMAND, "--help"])) for _ in range(3)]
    assert min(ours / theirs for theirs, ours in pairs) < 4, pairs


def test_help_imports_no_package_but_those_it_cannot_do_without():
    def packages(code):
        after = "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
        command = [sys.executable, "-c", f"{code}\nimport sys\n{after}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return set(ast.literal_eval(done.stderr)) - set(sys.stdlib_module_names)

    ours = "from labelwise.cli import run; run(['--help'])"
    assert packages(ours) - packages(BARE) == {"labelwise"}


def test_nothing_heavy_is_imported_to_start():
    heavy = ["torch", "sklearn", "matplotlib", "pyarrow", "pandas", "ray", "scipy.optimize"]
    there = f"[name for name in {heavy} if name in sys.modules]"
    code = f"import sys, labelwise.cli.commands; print({there})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_an_interruption_while_commands_are_imported_is_one_line(folder):
    """The import of Typer stands for any: it interrupts the command as Ctrl-C would."""
    Path("typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [*COMMAND, "--help"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "labelwise: interrupted\n"


def test_an_interrupted_simulation_says_where_its_rounds_are(folder):
    np.save("y.npy", np.arange(300) % 3)
    arguments = ["simulate", "f.npy", "--labels", "y.npy", "--results", "s.jsonl", "--seeds", "50"]
    with subprocess.Popen(
        [*COMMAND, *arguments, "--workers", "1", "--strategies", "margin", "--rounds", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        while not (Path("s.jsonl").exists() and Path("s.jsonl").stat().st_size):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        last = process.stderr.read().splitlines()[-1]
    assert process.returncode == 130
    goes_on = "the rounds so far are in s.jsonl, the same command continues from there"
    assert last == f"labelwise: interrupted; {goes_on}"


def on_a_terminal(*arguments):
    """What the command writes to a terminal that stands for stdout and stderr."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # the terminal is gone once the command has ended
            while part := os.read(ours, 4096):
                text += part
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())


def test_a_terminal_shows_a_bar_that_fills_up(folder):
    text = on_a_terminal("select", "f.npy", "-s", "k_center", "-b", "40", "-o", "picks.csv")
    assert re.search(r"k_center ━+ 40/40 \d:\d\d:\d\d", text)
    assert "40 picks written to picks.csv" in text


def test_a_terminal_shows_the_strategies_as_a_table_and_the_reference_of_one():
    text = on_a_terminal("strategies")
    assert re.search(r"name +needs +weights +good for", text)
    assert re.search(r"k_center +features", text)
    assert "\t" not in text
    assert "ICLR 2018" in on_a_terminal("strategies", "k_center")


EXTRAS = "torch sklearn matplotlib pyarrow pandas joblib sqlalchemy fastapi PIL".split()
BLOCKED = f"""
import sys
EXTRAS = {EXTRAS}
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from labelwise.cli import run
from labelwise.strategy import Job
sys.exit(run(sys.argv[1:]))
"""


def without_extras(*arguments):
    command = [sys.executable, "-c", BLOCKED, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_core_works_without_any_extra(folder):
    done = without_extras("select", "f.npy", "-s", "lewis", "-b", "20", "-o", "picks.csv")
    assert done.returncode == 0, done.stderr
    assert picked("picks.csv") == labelwise.select("lewis", 20, features="f.npy").ids.tolist()


def test_the_demo_without_torch_leaves_out_strategies_that_read_a_network(folder):
    code = BLOCKED.replace(f"EXTRAS = {EXTRAS}", "EXTRAS = ['torch']")
    arguments = ["demo", "--seeds", "2", "--labels", "20", "--workers", "1", "--out", "d.html"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert left[:2] == ["left", "out:"] and "'labelwise[torch]'" in left
    absent = {"dynamics", "ally"}
    assert absent <= {word.rstrip(",") for word in left}
    shown = {row[0] for row in rows}
    assert "uherding" in shown and not absent & shown


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo"], "labelwise[demo]"),
        (["start", "f.npy", "--classes", "a,b"], "labelwise[web]"),
        (["select", "f.npy", "-s", "k_center", "-b", "5", "-o", "p.parquet"], "labelwise[parquet]"),
    ],
)
def test_a_missing_extra_is_named(folder, arguments, extra):
    done = without_extras(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("labelwise: ") and done.stderr.count("\n") == 1
    assert f"pip install '{extra}'" in done.stderr


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("SklearnLearner", "sklearn"),
        ("TorchLearner", "torch"),
        ("SkorchLearner", "skorch"),
        ("HuggingFaceClassifier", "huggingface"),
    ],
)
def test_a_learner_without_its_package_names_the_extra_that_has_it(name, extra):
    code = BLOCKED.replace("from labelwise.cli import run", "import labelwise").replace(
        "sys.exit(run(sys.argv[1:]))", f"labelwise.{name}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("labelwise.errors.MissingDependency: ")
    assert last.endswith(f"run pip install 'labelwise[{extra}]'")


@pytest.mark.parametrize("group", ["record", "benchmark", "data", "label-studio"])
def test_a_group_without_a_command_prints_its_help_and_no_error(capsys, group):
    from labelwise.cli import run

    assert run([group]) == 2
    out, err = capsys.readouterr()
    assert "Commands" in out and err == ""
