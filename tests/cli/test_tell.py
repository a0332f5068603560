"""``labelwise tell``: every kind of file, all or nothing, and errors with the row."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from labelwise.campaign.project import Project
from labelwise.cli.tell import read_label_file
from tests.cli.folders import CLASSES, answer, ask, label_all, ledger, write


@pytest.fixture
def ids(folder, capsys):
    """The ids of an open batch of ten."""
    return [int(row["id"]) for row in ask(capsys)]


def told(capsys, name, *more):
    code, out, err = answer(capsys, "tell", name, *more)
    assert code == 0, err
    return out


def test_the_filled_in_batch_is_told_and_empty_labels_wait(folder, capsys):
    rows = ask(capsys)
    for row in rows[:6]:
        row["label"] = "low"
    write("batch.csv", rows)
    out = told(capsys, "batch.csv", "--by", "ann")
    assert "6 new labels, 4 rows without a label left out" in out
    assert "batch 1: 6 of 10 done" in out
    assert ledger().labels == {int(row["id"]): "low" for row in rows[:6]}
    assert set(ledger().per_annotator) == {"ann"}


def test_names_and_times_in_the_file_come_before_the_option(ids, capsys):
    write(
        "l.csv",
        [
            {"id": ids[0], "label": "low", "by": "bob", "seconds": "2.5"},
            {"id": ids[1], "label": "high", "by": "", "seconds": ""},
        ],
    )
    told(capsys, "l.csv", "--by", "ann")
    found = ledger()
    assert found.votes == {ids[0]: {"bob": "low"}, ids[1]: {"ann": "high"}}
    assert found.per_annotator["bob"].seconds == 2.5


def test_semicolons_a_byte_order_mark_and_blanks_are_read(ids, capsys):
    Path("l.csv").write_text(f"\ufeffid;label\n{ids[0]}; low \n\n{ids[1]};high\n")
    told(capsys, "l.csv")
    assert ledger().labels == {ids[0]: "low", ids[1]: "high"}


def test_jsonl_is_read(ids, capsys):
    lines = [{"id": ids[0], "label": "low", "by": "ann"}, {"id": ids[1], "label": None}]
    Path("l.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert "1 new label, 1 row without a label left out" in told(capsys, "l.jsonl")
    assert ledger().votes == {ids[0]: {"ann": "low"}}


def test_parquet_is_read(ids, capsys):
    columns = {"id": ids[:2], "label": ["low", "high"], "seconds": [1.5, None]}
    parquet.write_table(pyarrow.table(columns), "l.parquet")
    told(capsys, "l.parquet")
    assert ledger().labels == {ids[0]: "low", ids[1]: "high"}
    assert ledger().seconds_spent == 1.5


def test_label_studio_s_export_is_read_with_skips_and_times(ids, capsys):
    def task(item, **annotation):
        return {"id": 900, "data": {"labelwise_id": item}, "annotations": [annotation]}

    def choice(label):
        return [{"type": "choices", "value": {"choices": [label]}}]

    tasks = [
        task(ids[0], result=choice("high"), completed_by=4, lead_time=3.5),
        task(ids[1], result=choice("low"), completed_by={"id": 1, "email": "eve@example.org"}),
        task(ids[2], result=[], was_cancelled=True, completed_by=4),
        {"id": 901, "data": {"labelwise_id": ids[3]}, "annotations": []},
    ]
    Path("tasks.json").write_text(json.dumps(tasks))
    out = told(capsys, "tasks.json")
    assert "2 new labels, 1 skipped, 1 row without a label left out" in out
    found = ledger()
    assert found.votes == {ids[0]: {"4": "high"}, ids[1]: {"eve@example.org": "low"}}
    assert found.skipped[ids[2]].by == "4"
    assert found.seconds_spent == 3.5


def test_labels_told_twice_are_recorded_once_and_other_ones_are_changes(ids, capsys):
    write("l.csv", [{"id": item, "label": "low"} for item in ids[:3]])
    told(capsys, "l.csv")
    length = ledger().length
    assert "0 new labels, 3 known before" in told(capsys, "l.csv")
    assert ledger().length == length
    write("l.csv", [{"id": ids[0], "label": "high"}])
    assert "0 new labels, 1 changed" in told(capsys, "l.csv")
    assert ledger().labels[ids[0]] == "high"


MISTAKES = [
    ("id,label\n{0},low\n{1},lwo\n", "row 3 of l.csv: label of item {1} is 'lwo'"),
    ("id,label\n{0},low\nseven,low\n", "row 3 of l.csv: id must be a whole number; got"),
    ("id,label\n{0},low\n7.5,low\n", "row 3 of l.csv: id must be a whole number; got"),
    ("id,label,seconds\n{0},low,-1\n", "row 2 of l.csv: seconds must be a number from 0"),
    ("id,label,seconds\n{0},low,nan\n", "row 2 of l.csv: seconds must be a number from 0"),
    ("id,label\n{0},low\n{0},high\n", "row 3 of l.csv: item {0} is 'high' by (no name), but 'low'"),
    ("id,label\n{0},low\n999,low\n", "row 3 of l.csv: item 999 was never asked for"),
    ("id,label,by\n{0},low,a\x07b\n", "row 2 of l.csv: an annotator's name"),
    ("item,label\n{0},low\n", "l.csv has no column called id; it has item, label"),
    ("id,lable\n{0},low\n", "l.csv has no column called label; it has id, lable"),
    ("id,label\n{0}\n", "row 2 of l.csv has 1 fields"),
    ("", "l.csv has no rows"),
]


def test_images_are_found_by_their_path_or_file_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("birds/1.png", "birds/2.png", "fish/2.png", "fish/3.png"):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(Path("photos", name))
    Project.start(Path("photos"), classes=CLASSES, batch=2)
    write("l.csv", [{"file": "1.png", "label": "low"}, {"file": "fish/2.png", "label": "high"}])
    assert told(capsys, "l.csv", "--anything").startswith("2 new labels")
    for column in ("item", "path"):  # the first is a column of labelwise's own files
        write("l.csv", [{column: "birds/1.png", "label": "low"}])
        assert told(capsys, "l.csv", "--anything").startswith("0 new labels, 1 known before")
    assert ledger().labels == {0: "low", 2: "high"}
    write("l.csv", [{"id": "3", "label": "low"}, {"id": "2.png", "label": "high"}])
    assert "2 images are called '2.png'" in answer(capsys, "tell", "l.csv", "--anything")[2]


@pytest.mark.parametrize("form", ["coco", "cvat", "fiftyone"])
def test_labels_go_to_another_tool_and_come_back(tmp_path, monkeypatch, capsys, form):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in range(3):  # without their endings the names are numbers, but not of the items
        Image.new("RGB", (8, 8)).save(f"photos/{2 - number}0.png")
    Project.start(Path("photos"), classes=CLASSES, batch=3, encoder="none")
    file = f"labels.{'xml' if form == 'cvat' else 'json'}"
    write("l.csv", [{"file": "10", "label": "low"}, {"file": "20.png", "label": "high"}])
    told(capsys, "l.csv", "--anything")
    assert answer(capsys, "export", "--format", form, "--out", file)[0] == 0
    assert told(capsys, file, "--anything", "--by", "ann").startswith("2 new labels")
    assert ledger().votes == {1: {"": "low", "ann": "low"}, 2: {"": "high", "ann": "high"}}


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_names_its_row_and_nothing_is_recorded(text, message, ids, capsys):
    Path("l.csv").write_text(text.format(*ids))
    length = ledger().length
    code, out, err = answer(capsys, "tell", "l.csv")
    assert (code, out) == (1, "")
    assert message.format(*ids) in err and len(err.splitlines()) == 1
    assert ledger().length == length and not ledger().labels


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.jsonl", '{{"id": {0}, "label": "low"}}\nnonsense', "line 2 of l.jsonl is not JSON"),
        ("l.jsonl", '{{"id": [3], "label": "low"}}', "row 1 of l.jsonl: id must be a whole number"),
        ("l.jsonl", '{{"id": true, "label": "low"}}', "row 1 of l.jsonl: id must be a whole"),
        ("l.jsonl", '{{"id": {0}, "label": [1]}}', "row 1 of l.jsonl: label of item"),
        ("l.json", '{{"id": {0}}}', "l.json is not a file of labels"),
        ("l.json", '[{{"annotations": []}}]', "task 1 of l.json must have annotations, and"),
        ("l.json", "[[]]", "task 1 of l.json must have annotations"),
        ("l.json", "[", "l.json is not readable JSON"),
        ("l.txt", "", "cannot read labels from 'l.txt'; give .csv, .tsv, .jsonl, .parquet"),
        ("l.parquet", "PAR1", "l.parquet is not a Parquet file"),
    ],
)
def test_other_files_are_checked_as_well(name, text, message, ids, capsys):
    Path(name).write_text(text.format(*ids))
    code, _, err = answer(capsys, "tell", name)
    assert code == 1 and message in err
    assert not ledger().labels


def test_two_choices_for_one_item_are_refused(tmp_path):
    result = [{"type": "choices", "value": {"choices": ["a", "b"]}}]
    task = {"data": {"labelwise_id": 1}, "annotations": [{"result": result}]}
    (tmp_path / "l.json").write_text(json.dumps([task]))
    with pytest.raises(ValueError, match="has 2 choices; items have one label"):
        read_label_file(tmp_path / "l.json", None)


def test_labels_of_items_never_asked_for_are_taken_on_request(ids, capsys):
    other = next(item for item in range(60) if item not in ids)
    write("l.csv", [{"id": other, "label": "low"}])
    assert answer(capsys, "tell", "l.csv")[0] == 1
    told(capsys, "l.csv", "--anything")
    assert ledger().labels == {other: "low"}
    write("l.csv", [{"id": 999, "label": "low"}])
    code, _, err = answer(capsys, "tell", "l.csv", "--anything")
    assert code == 1 and "the campaign has no item 999" in err


def test_several_people_in_one_file_are_told_in_one_step(texts, capsys):
    items = [int(row["id"]) for row in ask(capsys)]
    rows = [
        {"id": item, "label": "low", "by": person}
        for item in items[:3]
        for person in ("ann", "bob")
    ]
    write("good.csv", rows)
    write("bad.csv", [*rows, {"id": items[4], "label": "lwo", "by": "eve"}])
    assert answer(capsys, "tell", "bad.csv")[0] == 1
    assert ledger().vote_count == 0
    told(capsys, "good.csv")
    assert ledger().votes == {item: {"ann": "low", "bob": "low"} for item in items[:3]}


def test_exported_votes_can_be_told_to_another_campaign(texts, capsys, monkeypatch):
    items = [int(row["id"]) for row in ask(capsys)]
    write("l.csv", [{"id": i, "label": "low", "by": b, "seconds": 2} for i in items for b in "ab"])
    told(capsys, "l.csv")
    before = {item: dict(votes) for item, votes in ledger().votes.items()}
    answer(capsys, "export", "--votes", "--out", "votes.csv")
    answer(capsys, "export", "--out", "tasks.json")
    for name in ("votes.csv", "tasks.json"):
        for person in ("a", "b"):
            answer(capsys, "withdraw", *map(str, items), "--by", person)
        assert not ledger().votes
        assert "24 new labels" in told(capsys, name)
        assert ledger().votes == before


def test_tell_status_and_export_never_load_torch(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows)
    program = """
import sys
import labelwise.cli.status, labelwise.cli.tell, labelwise.cli.export, labelwise.cli.record
from labelwise.cli import run
for command in (["status"], ["tell", "labels.csv"], ["export", "--out", "l.csv"], ["history"],
                ["disagreements"], ["change"], ["report"], ["ask", "--out", "b.csv", "-c", "no"]):
    assert run(command) == (command[0] == "ask"), command
loaded = [name for name in ("torch", "sklearn", "fastapi") if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", ["{0},1\n", "{0},0\n"])
def test_a_number_is_no_class_that_has_a_name(ids, capsys, line):
    Path("l.csv").write_text("id,label\n" + line.format(*ids))
    code, _, err = answer(capsys, "tell", "l.csv")
    assert code == 1 and "which is not a class; choose from low, high; nothing was recorded" in err
    assert not ledger().labels


@pytest.mark.parametrize("name", ["l.jsonl", "l.json"])
def test_json_that_is_nested_too_deeply_is_one_line_of_error(ids, capsys, name):
    Path(name).write_text("[" * 100_000 + "]" * 100_000)
    code, _, err = answer(capsys, "tell", name)
    assert code == 1 and "JSON" in err and len(err.splitlines()) == 1
