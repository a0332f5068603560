"""``labelwise plan`` and ``labelwise explain`` as users meet them."""

import json
import os
import re
import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import labelwise
from labelwise.cli import run
from labelwise.theory import explain, plan
from labelwise.theory.budgets import whole
from tests.cli.pools import COMMAND
from tests.conftest import make_features, make_probabilities
from tests.test_cli import without_extras


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a small pool, labels and picks, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    np.save("f.npy", make_features(300, 6))
    np.save("g.npy", make_features(300, 4, seed=1).astype("float32"))
    np.save("p.npy", make_probabilities(300, 3))
    np.save("y.npy", np.random.default_rng(2).integers(3, size=300))
    labelwise.select("lewis", 50, features=["f.npy", "g.npy"]).save("picks.csv")
    return tmp_path


def answer(capsys, *arguments):
    """Exit code, stdout and stderr of a call."""
    code = run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def values(out):
    return {entry["name"]: entry["values"] for entry in json.loads(out)["findings"]}


def test_plan_prints_what_the_library_finds(folder, capsys):
    code, out, err = answer(capsys, "plan", "f.npy", "g.npy", "--error", "0.2", "--p", "1")
    found = plan([np.load("f.npy"), np.load("g.npy")], error=0.2, p=1.0)
    assert (code, err) == (0, "")
    assert out.startswith("300 items, p = 1, error 0.2\n")
    for name, model in zip(("f.npy", "g.npy"), found.models, strict=True):
        assert re.search(rf"{name} +{model.columns} +{model.rank} .* {model.total:.1f} ", out)
    assert re.search(rf"rule of thumb +{whole(found.budgets[0].labels):,} ", out)
    assert "All numbers are guidance" in out and "- T = " in out


def test_plan_as_json_is_the_plan(folder, capsys):
    code, out, _ = answer(capsys, "plan", "f.npy", "--json")
    expected = json.loads(json.dumps(plan(np.load("f.npy")).to_dict()))
    found = json.loads(out)
    assert code == 0 and found.keys() == expected.keys()
    assert found["models"][0]["condition"] == pytest.approx(expected["models"][0]["condition"])
    assert found["budgets"][1] == expected["budgets"][1]


@pytest.mark.parametrize("name", ["plan.png", "plan.html"])
def test_plan_draws(folder, capsys, name):
    code, out, _ = answer(capsys, "plan", "f.npy", "g.npy", "--out", name)
    assert code == 0 and out.endswith(f"Plot written to {name}\n")
    assert Path(name).stat().st_size > 10_000


def test_plan_judges_the_rank_of_half_precision_by_its_rounding(folder, capsys):
    rows = np.random.default_rng(0).normal(size=(500, 3))
    np.save("half.npy", (rows @ np.random.default_rng(1).normal(size=(3, 8))).astype("float16"))
    _, out, _ = answer(capsys, "plan", "half.npy", "--json")
    assert json.loads(out)["models"][0]["rank"] == 3


def test_plan_leaves_out_what_is_labelled(folder, capsys):
    Path("done.txt").write_text("\n".join(str(item) for item in range(100)))
    _, out, _ = answer(capsys, "plan", "f.npy", "--labelled", "done.txt", "--json")
    expected = plan(np.load("f.npy")[100:])
    assert json.loads(out)["items"] == 200
    assert json.loads(out)["models"][0]["condition"] == pytest.approx(expected.models[0].condition)


def test_explain_prints_each_diagnostic_with_its_reading(folder, capsys):
    arguments = ["f.npy", "g.npy", "--labels", "y.npy", "--probabilities", "p.npy"]
    code, out, err = answer(capsys, "explain", "picks.csv", *arguments)
    assert (code, err) == (0, "")
    assert out.startswith("50 picks of 300 items\n")
    for name in ("effective size", "coverage", "class imbalance", "approximation ratio", "bound B"):
        assert name in out
    assert "how to read it" in out and "(sum w)^2 / sum w^2" in out


def test_explain_as_json_is_what_the_library_finds(folder, capsys):
    arguments = ["f.npy", "g.npy", "--labels", "y.npy", "--probabilities", "p.npy", "--p", "1.5"]
    code, out, _ = answer(capsys, "explain", "picks.csv", *arguments, "--json")
    picks = labelwise.select("lewis", 50, features=["f.npy", "g.npy"])
    features = [np.load("f.npy"), np.load("g.npy")]
    options = {"labels": np.load("y.npy"), "probabilities": np.load("p.npy"), "p": 1.5}
    expected = explain(picks, features, **options)
    found = values(out)
    assert code == 0 and list(found) == [entry.name for entry in expected.findings]
    for name in ("spectrum, model 2", "embedding, model 1", "coverage", "approximation ratio"):
        for key, value in expected[name].items():
            assert found[name][key] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", ["same.jsonl", "same.parquet"])
@pytest.mark.parametrize("strategy", ["lewis", "k_center"])
def test_explain_reads_all_that_select_writes(folder, capsys, name, strategy):
    picks = labelwise.select(strategy, 30, features="f.npy")
    picks.save("same.csv")
    picks.save(name)
    first = values(answer(capsys, "explain", "same.csv", "f.npy", "--json")[1])
    second = values(answer(capsys, "explain", name, "f.npy", "--json")[1])
    assert first == second
    assert first["effective size"]["sum_of_weights"] == pytest.approx(
        300 if picks.weights is None else picks.weights.sum()
    )


def test_explain_keeps_labelled_items_apart(folder, capsys):
    Path("done.txt").write_text("\n".join(str(item) for item in range(40)))
    labelwise.select("k_center", 20, features="f.npy", labelled=range(40)).save("more.csv")
    arguments = ["--labelled", "done.txt", "--labels", "y.npy", "--probabilities", "p.npy"]
    code, out, _ = answer(capsys, "explain", "more.csv", "f.npy", *arguments, "--json")
    f, p, y = np.load("f.npy"), np.load("p.npy"), np.load("y.npy")
    picks = labelwise.select("k_center", 20, features="f.npy", labelled=range(40))
    moved = labelwise.Selection(picks.ids - 40)
    before = {"features": f[:40], "probabilities": p[:40], "labels": y[:40]}
    expected = explain(moved, f[40:], probabilities=p[40:], labels=y[40:], labelled=before)
    found = values(out)
    assert code == 0 and json.loads(out)["items"] == 260
    for name in ("spectrum", "mmd of the labelled items", "approximation ratio", "class imbalance"):
        for key, value in expected[name].items():
            assert found[name][key] == pytest.approx(value, rel=1e-6)


def test_explain_knows_items_by_their_ids(folder, capsys):
    Path("ids.txt").write_text("\n".join(str(1000 + row) for row in range(300)))
    ids = 1000 + np.arange(300)
    labelwise.select("lewis", 30, features="f.npy").save("plain.csv")
    labelwise.select("random", 30, ids=ids).save("own.csv")
    arguments = ["f.npy", "--labels", "y.npy", "--ids", "ids.txt", "--json"]
    code, out, _ = answer(capsys, "explain", "own.csv", *arguments)
    own = labelwise.select("random", 30, ids=ids).ids - 1000
    counts = np.bincount(np.load("y.npy")[own], minlength=3).tolist()
    assert code == 0 and values(out)["class imbalance"]["counts"] == counts
    code, _, err = answer(capsys, "explain", "plain.csv", *arguments)
    assert code == 1 and "no item of the pool has id" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "no.npy"], "there is no file no.npy"),
        (["plan", "f.npy", "--error", "2"], "error must be above 0 and at most 1; got 2"),
        (["plan", "f.npy", "--out", "plan.txt"], "cannot write 'plan.txt'"),
        (["plan", "f.npy", "--out", "no/plan.png"], "there is no folder no"),
        (["explain", "no.csv", "f.npy"], "there is no file no.csv to read picks from"),
        (["explain", "picks.txt", "f.npy"], "cannot read picks from 'picks.txt'"),
        (["explain", "none.csv", "f.npy"], "none.csv has no rows"),
        (["explain", "some.csv", "f.npy"], "a weight for some picks only"),
        (["explain", "word.csv", "f.npy"], "a weight in word.csv is not a number"),
        (["explain", "bad.jsonl", "f.npy"], "bad.jsonl has no column called id"),
        (["explain", "far.csv", "f.npy"], "no item of the pool has id 999"),
        (["explain", "picks.csv", "f.npy", "--labels", "no.npy"], "no.npy to read labels from"),
        (["explain", "picks.csv", "f.npy", "--labels", "picks.csv"], "not a readable .npy file"),
        (["explain", "picks.csv", "f.npy", "--p", "0.5"], "p must be 1 or more"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(folder, capsys, arguments, message):
    Path("picks.txt").write_text("1\n")
    Path("none.csv").write_text("id,weight\n")
    Path("some.csv").write_text("id,weight\n1,2.0\n2,\n")
    Path("word.csv").write_text("id,weight\n1,heavy\n")
    Path("far.csv").write_text("id,weight\n999,\n")
    Path("bad.jsonl").write_text('{"item": 1}\n')
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("labelwise: ") and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_help_teaches_with_an_example(capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0 and f"labelwise {command} " in out


def test_neither_needs_an_extra_but_the_plot_names_its_own(folder):
    assert without_extras("plan", "f.npy").returncode == 0
    done = without_extras("explain", "picks.csv", "f.npy", "g.npy", "--labels", "y.npy")
    assert done.returncode == 0, done.stderr
    done = without_extras("plan", "f.npy", "--out", "plan.png")
    assert done.returncode == 1 and "pip install 'labelwise[demo]'" in done.stderr


def test_a_file_is_planned_in_less_memory_than_it_has(folder):
    size, step, limit = 250_000, 10_000, 220 << 20  # 244 MiB; mapped ranges do not count as data
    array = np.lib.format.open_memmap("big.npy", "w+", "float32", (size, 256))
    noise = np.random.default_rng(0).normal(size=(step, 256)).astype("float32")
    for start in range(0, size, step):
        array[start : start + step] = noise
    array.flush()
    del array

    def less():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    done = subprocess.run(
        [*COMMAND, "plan", "big.npy", "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=less,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["rank"] == 256


def test_plan_says_the_same_numbers_in_its_table_and_its_sentences(folder, capsys):
    np.save("n.npy", np.random.default_rng(0).normal(size=(2000, 16)))
    code, out, _ = answer(capsys, "plan", "n.npy")
    assert code == 0 and re.search(r"rule of thumb +160 +160 ", out)
    (sentence,) = re.findall(r"start with about 160 labels; ([\d,]+) with lewis are", out)
    assert re.search(rf"  lewis +{sentence} ", out)


def test_plan_cuts_no_name_and_no_heading_on_a_narrow_terminal(folder, monkeypatch, capsys):
    monkeypatch.setattr("labelwise.cli.theory.make_table_console", lambda: Console(width=80))
    Path("f.npy").rename("features_of_my_own_model_after_training.npy")
    code, out, _ = answer(capsys, "plan", "features_of_my_own_model_after_training.npy", "g.npy")
    head, *lines = [line for line in out.splitlines() if line.strip()][1:]
    names = ["model", "cols", "rank", "eff. d", "K", "peak", "top 1%", "top 10%", "eff. n", "T"]
    assert code == 0
    assert [name for name in [*names, "bound"] if name not in head] == [] and "…" not in out
    cells = [line[1:].split(" ")[0] for line in lines[1:] if not line.startswith("eff. d")]
    assert "".join(cells).startswith("features_of_my_own_model_after_training.npyg.npy")


@pytest.mark.parametrize("classes", ["-2", "0"])
def test_explain_refuses_a_number_of_classes_that_cannot_be(folder, capsys, classes):
    code, _, err = answer(capsys, "explain", "picks.csv", "f.npy", "--classes", classes)
    assert (code, err) == (1, f"labelwise: classes must be 1 or more; got {classes}\n")


@pytest.mark.parametrize("name", ["noise.csv", "noise.jsonl"])
def test_explain_refuses_picks_that_are_no_text(folder, capsys, name):
    Path(name).write_bytes(b"\x93NUMPY\x01\x00\xff\xfe")
    code, _, err = answer(capsys, "explain", name, "f.npy")
    assert code == 1 and name in err and "'utf-8' codec can't decode" in err


def test_the_help_of_explain_shows_no_default_where_there_is_none(capsys):
    assert "[default: ()]" not in answer(capsys, "explain", "--help")[1]


@pytest.mark.parametrize("arguments", [["plan", ""], ["explain", "picks.csv", ""]])
def test_an_empty_name_is_no_folder(folder, capsys, arguments):
    code, _, err = answer(capsys, *arguments)
    assert (code, err) == (1, "labelwise: features: '' is not a file; give its name\n")
