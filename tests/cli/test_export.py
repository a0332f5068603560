"""``labelwise export``: files of a real campaign."""

import json
from pathlib import Path

import pytest
from pyarrow import parquet

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
    ],
)
def test_a_file_that_cannot_be_written_is_refused(arguments, message, folder, capsys):
    code, _, err = answer(capsys, "export", *arguments)
    assert code == 1 and message in err
