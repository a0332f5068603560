"""Ids of the user in a column of a table: from the start of a campaign to its exports."""

import json

import pandas as pd
import pytest

from tests.cli.folders import answer, read, write

KEYS = [f"R-{row:02}" for row in range(40)]


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """A campaign over 40 texts with the ids R-00 to R-39 in the column sku."""
    monkeypatch.chdir(tmp_path)
    words = ("good and fast", "bad and slow")
    write("r.csv", [{"sku": k, "review": f"{words[n % 2]} {n}"} for n, k in enumerate(KEYS)])
    return tmp_path


def start(capsys):
    code, _, err = answer(
        *(capsys, "start", "r.csv", "--text", "review", "--id", "sku", "--encoder", "tfidf"),
        *("--classes", "good,bad", "--batch", "8", "--validation", "0"),
    )
    assert code == 0, err


def test_own_ids_come_back_in_batches_labels_and_predictions(capsys, reviews):
    start(capsys)
    assert answer(capsys, "ask", "--out", "batch.csv")[0] == 0
    asked = [row["id"] for row in read("batch.csv")]
    assert set(asked) <= set(KEYS)
    labels = {key: ("good", "bad")[KEYS.index(key) % 2] for key in asked}
    write("labels.csv", [{"sku": key, "label": label} for key, label in labels.items()])
    assert answer(capsys, "tell", "labels.csv", "--by", "ann")[0] == 0
    assert answer(capsys, "train")[0] == 0
    assert answer(capsys, "export", "--out", "out.parquet")[0] == 0
    assert pd.read_parquet("out.parquet").set_index("id")["label"].to_dict() == labels
    assert answer(capsys, "predict", "--out", "all.csv")[0] == 0
    assert [row["id"] for row in read("all.csv")] == KEYS
    write("new.csv", [{"sku": "N-1", "review": "good"}, {"sku": "N-2", "review": "bad"}])
    assert answer(capsys, "predict", "new.csv", "--out", "new.jsonl")[0] == 0
    with open("new.jsonl") as file:
        assert [json.loads(line)["id"] for line in file] == ["N-1", "N-2"]
    assert answer(capsys, "record", "withdraw", asked[0], "--by", "ann")[0] == 0
    code, _, err = answer(capsys, "skip", "R-99")
    assert (code, err) == (1, "labelwise: no item has the id 'R-99'; check the ids\n")


def test_own_ids_are_in_errors_and_in_the_history(capsys, reviews):
    start(capsys)
    assert answer(capsys, "ask", "--out", "batch.csv")[0] == 0
    asked = [row["id"] for row in read("batch.csv")]
    other = next(key for key in KEYS if key not in asked)
    for ids, label, message in [
        ([other], "good", f"item {other} was never asked for"),
        (asked[:1], "fine", f"label of item {asked[0]} is 'fine', which is not a class"),
    ]:
        write("labels.csv", [{"id": key, "label": label} for key in ids])
        code, _, err = answer(capsys, "tell", "labels.csv")
        assert code == 1 and message in err
    write("labels.csv", [{"id": asked[1], "label": "good"}])
    assert answer(capsys, "tell", "labels.csv", "--by", "ann")[0] == 0
    assert f"ann labelled item {asked[1]} good" in answer(capsys, "record", "history")[1]
    (reviews / "r.labelwise" / "items.jsonl").write_text("")
    code, _, err = answer(capsys, "ask", "--out", "batch.csv")
    assert code == 1 and "items.jsonl is empty" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sku": "R-03"}, "rows 4 and 41 of .*r.csv have the id 'R-03'"),
        ({"sku": ""}, "row 41 of .*r.csv has no id in column 'sku'"),
    ],
)
def test_ids_must_be_unique_and_complete(capsys, reviews, change, message):
    write("r.csv", [*read("r.csv"), {"review": "one more", **change}])
    code, _, err = answer(
        *(capsys, "start", "r.csv", "--text", "review", "--id", "sku", "--encoder", "tfidf")
    )
    assert code == 1
    with pytest.raises(ValueError, match=message):
        raise ValueError(err)


def test_a_changed_row_under_a_known_id_is_rejected_and_new_rows_are_added(capsys, reviews):
    start(capsys)
    rows = read("r.csv")
    write("r.csv", [*rows, {"sku": "R-40", "review": rows[0]["review"]}])
    assert answer(capsys, "start", "r.csv", "--refresh")[1].startswith("r: 1 new item, 41 in all")
    rows[3]["review"] = "another text"
    write("r.csv", rows)
    code, _, err = answer(capsys, "start", "r.csv", "--refresh")
    assert code == 1 and "the id 'R-03' differs" in err


def test_ids_of_a_table_are_those_of_encoded_rows_and_of_picks(capsys, reviews):
    encode = ("encode", "r.csv", "--text", "review", "--id", "sku", "--encoder", "tfidf")
    assert answer(capsys, *encode, "--out", "f.npy")[0] == 1  # .npy holds no ids
    assert answer(capsys, *encode, "--out", "f.parquet")[0] == 0
    pd.read_parquet("f.parquet").rename(columns={"id": "key"}).to_parquet("g.parquet")
    select = ("select", "g.parquet", "--id", "key", "-s", "k_center", "-b", "3")
    code, _, err = answer(capsys, *select, "-o", "picks.csv")
    assert code == 0, err
    first = {row["id"] for row in read("picks.csv")}
    assert answer(capsys, *select, "-o", "more.csv", "--labelled", "picks.csv")[0] == 0
    assert first <= set(KEYS) and not first & {row["id"] for row in read("more.csv")}
    explain = ("explain", "more.csv", "g.parquet", "--id", "key", "--labelled", "picks.csv")
    code, out, err = answer(capsys, *explain, "--json", "--plot", "picks.png")
    assert (reviews / "picks.png").read_bytes().startswith(b"\x89PNG")
    assert code == 0 and json.loads(out)["items"] == 37, err
    code, _, err = answer(capsys, *select[:2], "--id", "nothing", *select[4:], "-o", "x.csv")
    assert code == 1 and "no column 'nothing' with ids" in err
