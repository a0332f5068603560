"""What an export holds, in every format, against values worked out by hand."""

import csv
import json
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from labelwise.campaign import export
from labelwise.errors import BadInput
from labelwise.files import check_output_path
from labelwise.record.events import Asked, Resolved, Skipped, Started, Told, Withdrawn
from labelwise.record.ledger import replay

EVENTS = [
    Started(at=0.0, settings={"overlap": 2}, items=100),
    Asked(
        at=1.0,
        batch=1,
        ids=(30, 7, 9, 4, 5),
        weights=(40.0, 20.0, 0.0, 25.0, 15.0),
        strategy="lewis",
        validation=(9,),
    ),
    Told(at=10.0, id=7, label="cat", by="ann", seconds=2.0),
    Told(at=20.0, id=7, label="cat", by="bob", seconds=3.5),
    Told(at=30.0, id=30, label="dog", by="ann"),
    Told(at=40.0, id=30, label="cat", by="ann", seconds=1.0),
    Told(at=50.0, id=9, label="dog", by="bob"),
    Told(at=60.0, id=4, label="dog", by="ann"),
    Told(at=61.0, id=4, label="cat", by="bob"),
    Resolved(at=3600.0, id=4, label="cat", by="eve"),
    Told(at=62.0, id=5, label="dog", by="bob"),
    Withdrawn(at=63.0, id=5, by="bob"),
    Skipped(at=70.0, id=5, by="bob", reason="<blurred>"),
]


def describe(item):
    return f"photos/{item}.png"


@pytest.fixture
def ledger():
    return replay(EVENTS)


@pytest.fixture
def rows(ledger):
    return export.label_rows(ledger, ledger.labels, EVENTS, describe)


def test_there_is_a_row_per_labelled_item_in_the_order_of_ids(rows):
    assert [(row["id"], row["label"]) for row in rows] == [
        (4, "cat"),
        (7, "cat"),
        (9, "dog"),
        (30, "cat"),
    ]


def test_a_row_holds_weight_batch_rank_and_what_chose_it(rows):
    found = [tuple(row[k] for k in ("weight", "batch", "rank", "strategy")) for row in rows]
    assert found == [
        (25.0, 1, 3, "lewis"),
        (20.0, 1, 1, "lewis"),
        (0.0, 1, 2, "random"),
        (40.0, 1, 0, "lewis"),
    ]
    assert [row["validation"] for row in rows] == [False, False, True, False]


def test_votes_say_who_said_what_when_and_a_changed_label_counts_once(rows):
    assert rows[1]["votes"] == [
        {"by": "ann", "label": "cat", "at": "1970-01-01T00:00:10Z", "seconds": 2.0},
        {"by": "bob", "label": "cat", "at": "1970-01-01T00:00:20Z", "seconds": 3.5},
    ]
    assert rows[3]["votes"] == [
        {"by": "ann", "label": "cat", "at": "1970-01-01T00:00:40Z", "seconds": 1.0}
    ]
    assert [row["seconds"] for row in rows] == [None, 5.5, None, 1.0]


def test_who_settled_an_item_has_the_last_word(rows):
    assert (rows[0]["by"], rows[0]["at"]) == ("eve", "1970-01-01T01:00:00Z")
    assert (rows[1]["by"], rows[1]["at"]) == ("ann", "1970-01-01T00:00:20Z")


def test_the_labels_may_come_from_another_rule_than_the_ledger_s(ledger):
    (row,) = export.label_rows(ledger, {7: "dog"}, EVENTS, describe)
    assert (row["label"], row["by"]) == ("dog", "")


def test_every_vote_that_stands_has_a_row_of_its_own(ledger):
    rows = export.vote_rows(ledger, EVENTS, describe)
    assert [(row["id"], row["by"], row["label"]) for row in rows] == [
        (4, "ann", "dog"),
        (4, "bob", "cat"),
        (7, "ann", "cat"),
        (7, "bob", "cat"),
        (9, "bob", "dog"),
        (30, "ann", "cat"),
    ]
    assert set(rows[0]) == set(export.VOTE_COLUMNS)


def test_csv_has_votes_as_json_and_truth_as_words(rows, tmp_path):
    path = tmp_path / "labels.csv"
    export.write_table(path, export.COLUMNS, rows)
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert tuple(found[0]) == export.COLUMNS
    assert [row["validation"] for row in found] == ["false", "false", "true", "false"]
    assert [json.loads(row["votes"]) for row in found] == [row["votes"] for row in rows]
    assert (found[0]["seconds"], found[1]["seconds"]) == ("", "5.5")


def test_jsonl_holds_the_rows_as_they_are(rows, tmp_path):
    path = tmp_path / "labels.jsonl"
    export.write_table(path, export.COLUMNS, rows)
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_parquet_has_numbers_as_numbers(rows, tmp_path):
    path = tmp_path / "labels.parquet"
    export.write_table(path, export.COLUMNS, rows)
    table = parquet.read_table(path)
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types["id"] == "int64" and types["weight"] == types["seconds"] == "double"
    assert types["label"] == "string" and types["validation"] == "bool"
    assert table.column("seconds").to_pylist() == [None, 5.5, None, 1.0]
    assert [json.loads(text) for text in table.column("votes").to_pylist()] == [
        row["votes"] for row in rows
    ]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([1, 0], "int64"), ([1, 0.5], "double"), ([1, "x"], "string"), ([None, None], "string")],
)
def test_labels_in_parquet_have_the_type_that_holds_them_all(labels, kind, tmp_path):
    path = tmp_path / "labels.parquet"
    export.write_table(path, ("id", "label"), [{"id": 1, "label": label} for label in labels])
    table = parquet.read_table(path)
    assert str(table.schema.field("label").type) == kind
    wanted = [None if v is None else str(v) if kind == "string" else v for v in labels]
    assert table.column("label").to_pylist() == wanted


def test_an_empty_campaign_gives_files_with_columns_and_no_rows(tmp_path):
    for ending in (".csv", ".jsonl", ".parquet"):
        export.write_table(tmp_path / f"labels{ending}", export.COLUMNS, [])
    assert (tmp_path / "labels.csv").read_text().strip() == ",".join(export.COLUMNS)
    assert (tmp_path / "labels.jsonl").read_text() == ""
    assert parquet.read_table(tmp_path / "labels.parquet").column_names == list(export.COLUMNS)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back_from_a_csv_file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "labels.csv"
    export.write_table(path, ("id", "item"), [{"id": 1, "item": text}])
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["id", "item"], ["1", text]]


def test_label_studio_gets_a_task_per_item_and_an_annotation_per_vote(rows, ledger):
    tasks = export.label_studio_tasks(rows, ledger.skipped, describe, kind="images")
    assert [task["id"] for task in tasks] == [4, 7, 9, 30, 5]
    task = tasks[1]
    assert task["data"] == {"image": "photos/7.png", "labelwise_id": 7}
    assert task["meta"]["labelwise"]["weight"] == 20.0
    assert [entry["lead_time"] for entry in task["annotations"]] == [2.0, 3.5]
    assert task["annotations"][0]["result"] == [
        {
            "from_name": "label",
            "to_name": "item",
            "type": "choices",
            "value": {"choices": ["cat"]},
        }
    ]


def test_label_studio_gets_what_was_skipped_as_cancelled(rows, ledger):
    task = export.label_studio_tasks(rows, ledger.skipped, describe, kind="texts")[-1]
    assert task["data"] == {"text": "photos/5.png", "labelwise_id": 5}
    assert task["annotations"] == [{"result": [], "was_cancelled": True}]
    assert task["meta"]["labelwise"] == {"by": "bob", "reason": "<blurred>"}


def test_numbers_are_numbers_in_label_studio():
    events = [Told(at=0.0, id=3, label=2.5, by="ann")]
    ledger = replay(events)
    rows = export.label_rows(ledger, ledger.labels, events, describe)
    (task,) = export.label_studio_tasks(rows, {}, describe, kind="numbers", regression=True)
    (result,) = task["annotations"][0]["result"]
    assert (result["type"], result["value"]) == ("number", {"number": 2.5})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("labels.txt", "cannot write 'labels.txt'; end the name in .csv, .jsonl, .parquet, .json"),
        ("nowhere/labels.csv", "there is no folder"),
        ("folder.csv", "is a folder; give the name of a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(name, message, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BadInput, match=message):
        check_output_path(tmp_path / name, export.FORMATS)


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("old")
    with pytest.raises(KeyError):
        export.write_table(path, ("id", "nothing"), [{"id": 1}])
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["labels.csv"]


def test_an_export_can_be_read_by_whoever_may_read_new_files(tmp_path):
    plain, written = tmp_path / "plain", tmp_path / "labels.csv"
    plain.write_text("")
    export.write_table(written, ("id",), [{"id": np.int64(1).item()}])
    assert stat.S_IMODE(written.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
