"""``labelwise benchmark report``: what it writes, prints and refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

import labelwise.cli.benchmark  # noqa: F401  (adds the commands)
from labelwise.benchmark.results import append_result
from labelwise.cli import run
from tests.benchmark.report.made_up import make_rounds
from tests.benchmark.report.outline import outline


@pytest.fixture
def results_file(tmp_path):
    path = tmp_path / "results.jsonl"
    for entry in make_rounds({"random": 0.0, "badge": 0.1}, 2):
        append_result(path, entry)
    return path


def test_the_command_writes_a_page_and_says_what_it_found(results_file, capsys):
    out = results_file.with_name("page.html")
    with results_file.open("a") as file:
        file.write('{"format": 1')
    assert run(["benchmark", "report", str(results_file), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "note: line 17 of" in said.err and "unfinished" in said.err
    assert "sparse-table2-mnist (mnist, lenet5): " in said.out and str(out) in said.out
    assert ("h1", "sparse-table2-mnist") in outline(out).texts


def test_without_out_the_command_prints_a_summary_and_writes_no_page(
    results_file, capsys, monkeypatch
):
    monkeypatch.chdir(results_file.parent)
    assert run(["benchmark", "report", str(results_file), "--csv", "numbers.csv"]) == 0
    said = capsys.readouterr().out
    assert "sparse-table2-mnist (mnist, lenet5): " in said and "--out report.html" in said
    assert {path.name for path in Path().iterdir()} == {results_file.name, "numbers.csv"}


def test_the_command_takes_baselines_and_a_limit(results_file, capsys):
    out = results_file.with_name("page.html")
    options = ["--out", str(out), "--baseline", "badge", "--up-to", "160"]
    assert run(["benchmark", "report", str(results_file), *options]) == 0
    texts = [text for _, text in outline(out).texts]
    assert "Against badge" in texts and "Against random" not in texts
    assert any("40 to 160 labels" in text for text in texts)


def test_a_baseline_is_named_as_the_report_names_it(results_file, capsys):
    for entry in make_rounds({"lewis": 0.0, "again": 0.1}, 2):
        p = {"lewis": 1.0, "again": 2.0}[entry.strategy]
        append_result(results_file, replace(entry, strategy="lewis", options={"p": p}))
    page = results_file.with_name("page.html")
    command = ["benchmark", "report", str(results_file), "--out", str(page), "--baseline"]
    assert run([*command, "lewis (p=2.0)"]) == 0
    texts = [text for _, text in outline(page).texts]
    assert "Against lewis (p=2.0)" in texts and "Against random" not in texts
    page.unlink()
    assert run([*command, "lewis"]) == 1  # there are two of them
    assert "choose from badge, lewis (p=1.0), lewis (p=2.0), random" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.jsonl"], "there is no results file nothing.jsonl"),
        (["RESULTS", "--baseline", "margin"], "margin was run; choose from badge, random"),
        (["RESULTS", "--up-to", "7"], "no rounds with 7 labels or fewer"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, words, results_file, capsys, monkeypatch):
    monkeypatch.chdir(results_file.parent)
    given = [str(results_file) if part == "RESULTS" else part for part in arguments]
    assert run(["benchmark", "report", *given, "--out", "report.html"]) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not Path("report.html").exists()
