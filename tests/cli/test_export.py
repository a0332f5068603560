"""``labelwise export``: files of a real campaign."""

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from labelwise.campaign.project import Project
from tests.cli.folders import HOSTILE, answer, ask, label_all, ledger, read, write


def test_csv_has_every_label_with_who_and_how_long(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows, by="ann", seconds=2)
    code, out, _ = answer(capsys, "export", "--out", "out.csv")
    assert (code, out) == (0, "10 labels written to out.csv\n")
    found = {int(row["id"]): row for row in read("out.csv")}
    assert {item: row["label"] for item, row in found.items()} == ledger().labels
    assert {(row["by"], row["seconds"], row["batch"]) for row in found.values()} == {
        ("ann", "2.0", "1")
    }
    measured = {item for item, row in found.items() if row["validation"] == "true"}
    assert measured == ledger().validation and measured
    assert {row["item"] for row in found.values()} == {row["item"] for row in rows}


def test_weights_of_the_picks_are_exported(folder, capsys):
    answer(capsys, "change", "first=lewis")
    label_all(capsys, ask(capsys))
    answer(capsys, "export", "--out", "out.jsonl")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    asked = ledger().batches[0].asked
    assert {row["id"]: row["weight"] for row in rows} == dict(
        zip(asked.ids, asked.weights, strict=True)
    )


def test_all_formats_hold_the_same_labels(folder, capsys):
    label_all(capsys, ask(capsys), by="ann")
    for ending in ("csv", "jsonl", "parquet", "json"):
        assert answer(capsys, "export", "--out", f"out.{ending}")[0] == 0
    wanted = ledger().labels
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    tasks = json.loads(Path("out.json").read_text())
    assert {int(row["id"]): row["label"] for row in read("out.csv")} == wanted
    assert {row["id"]: row["label"] for row in lines} == wanted
    table = parquet.read_table("out.parquet").to_pylist()
    assert {row["id"]: row["label"] for row in table} == wanted
    chosen = {
        task["data"]["labelwise_id"]: task["annotations"][0]["result"][0]["value"]["choices"][0]
        for task in tasks
    }
    assert chosen == wanted


def test_disputed_items_are_left_out_and_said(texts, capsys):
    items = [row["id"] for row in ask(capsys)]
    rows = [{"id": item, "label": "low", "by": by} for item in items for by in ("ann", "bob")]
    rows[1]["label"] = "high"
    write("l.csv", rows)
    answer(capsys, "tell", "l.csv")
    _, out, _ = answer(capsys, "export", "--out", "out.csv")
    assert out.startswith("11 labels written to out.csv; 1 disputed item left out")
    assert len(read("out.csv")) == 11


def test_weighted_resolution_decides_what_is_exported(texts, capsys):
    answer(capsys, "change", "resolution=weighted", "overlap=3")
    items = [row["id"] for row in ask(capsys)]
    rows = [
        {"id": item, "label": ("low", "high")[place % 2], "by": by}
        for place, item in enumerate(items)
        for by in ("ann", "bob")
    ]
    rows += [
        {"id": item, "label": ("low", "high")[place % 3 == 0], "by": "eve"}
        for place, item in enumerate(items)
    ]
    write("l.csv", rows)
    answer(capsys, "tell", "l.csv")
    answer(capsys, "export", "--out", "out.csv")
    found = {row["id"]: row["label"] for row in read("out.csv")}
    assert found == {item: ("low", "high")[place % 2] for place, item in enumerate(items)}


def test_hostile_text_is_exported_as_it_is(texts, capsys):
    items = {row["item"]: row["id"] for row in ask(capsys)}
    write("l.csv", [{"id": items[HOSTILE], "label": "low"}])
    answer(capsys, "tell", "l.csv")
    answer(capsys, "export", "--out", "out.csv")
    answer(capsys, "export", "--out", "out.json")
    assert read("out.csv")[0]["item"] == HOSTILE
    assert json.loads(Path("out.json").read_text())[0]["data"]["text"] == HOSTILE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "l.xlsx"), "cannot write 'l.xlsx'"),
        (("--out", "no/l.csv"), "there is no folder no"),
        (("--votes", "--out", "l.json"), "--votes is for tables"),
        (("--spreadsheet", "--out", "l.jsonl"), "--spreadsheet is for .csv files"),
        (("--votes", "--spreadsheet", "--out", "l.csv"), "leave out --spreadsheet"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(arguments, message, folder, capsys):
    code, _, err = answer(capsys, "export", *arguments)
    assert code == 1 and message in err


def formulas(capsys):
    """A campaign of texts of which three look like formulas; all are labelled."""
    write("notes.csv", [{"note": text} for text in ("=1+1", "@ann", "-- no", "owl", "wren", "tit")])
    Project.start(
        Path("notes.csv"),
        text=["note"],
        encoder="tfidf",
        classes=("low", "high"),
        batch=6,
        validation=0,
    )
    return ask(capsys)


def test_texts_like_formulas_are_exported_as_they_are_with_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = formulas(capsys)
    label_all(capsys, rows, label=lambda row: "low")
    code, _, err = answer(capsys, "export", "--out", "out.csv")
    assert code == 0
    assert err == (
        "note: 3 texts begin like a formula in out.csv; a spreadsheet program would compute them: "
        "add --spreadsheet\n"
    )
    texts = {"=1+1", "@ann", "-- no", "owl", "wren", "tit"}
    assert {row["item"] for row in read("out.csv")} == texts
    code, _, err = answer(capsys, "export", "--out", "safe.csv", "--spreadsheet")
    assert (code, err) == (0, "")
    assert {row["item"] for row in read("safe.csv")} == {
        "'=1+1",
        "'@ann",
        "'-- no",
        "owl",
        "wren",
        "tit",
    }
    _, _, err = answer(capsys, "export", "--votes", "--out", "votes.csv")
    assert "import its columns as text" in err


def test_a_batch_for_a_spreadsheet_can_be_told_when_it_is_filled_in(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    formulas(capsys)
    code, _, err = answer(capsys, "ask", "--out", "batch.csv", "--spreadsheet")
    assert (code, err) == (0, "")
    rows = read("batch.csv")
    assert {"'=1+1", "'@ann", "'-- no"} < {row["item"] for row in rows}
    write("batch.csv", [row | {"label": "high"} for row in rows])
    assert answer(capsys, "tell", "batch.csv", "--by", "ann")[0] == 0
    assert set(ledger().labels.values()) == {"high"} and len(ledger().labels) == 6


@pytest.mark.parametrize("command", ["export", "report", "ask"])
def test_a_folder_is_no_file_to_write(folder, capsys, command):
    code, _, err = answer(capsys, command, "--out", ".")
    assert (code, err) == (1, "labelwise: . is a folder; give the name of a file\n")
