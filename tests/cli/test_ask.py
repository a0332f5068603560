"""``labelwise ask``: what it writes, and when it chooses."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.project import Project
from labelwise.cli.ask import find_pick_guess
from labelwise.record.events import Asked
from tests.cli.folders import answer, ask, label_all, ledger, read, write


def test_the_file_has_the_batch_in_the_order_of_picking(folder, capsys):
    rows = ask(capsys)
    (batch,) = ledger().batches
    assert [int(row["id"]) for row in rows] == list(batch.asked.ids)
    assert [int(row["rank"]) for row in rows] == list(range(10))
    assert list(rows[0]) == ["id", "item", "label", "rank", "weight", "why"]
    assert [row["why"] for row in rows] == [explain_pick(batch.asked, rank) for rank in range(10)]
    assert {row["label"] for row in rows} == {""}


def test_an_open_batch_is_given_again_without_what_is_labelled(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:4])
    code, out, _ = answer(capsys, "ask", "--out", "rest.csv")
    assert code == 0 and "batch 1 is open: 4 of 10 done" in out
    assert [row["id"] for row in read("rest.csv")] == [row["id"] for row in rows[4:]]
    assert len(ledger().batches) == 1


def test_jsonl_and_parquet_hold_the_same_as_csv(folder, capsys):
    rows = ask(capsys)
    ask_again = [answer(capsys, "ask", "--out", name) for name in ("b.jsonl", "b.parquet")]
    assert [code for code, _, _ in ask_again] == [0, 0]
    lines = [json.loads(line) for line in Path("b.jsonl").read_text().splitlines()]
    table = parquet.read_table("b.parquet").to_pylist()
    wanted = [(int(row["id"]), row["item"], row["why"]) for row in rows]
    for found in (lines, table):
        assert [(row["id"], row["item"], row["why"]) for row in found] == wanted
        assert {row["label"] for row in found} == {None}


def test_size_and_strategy_can_be_chosen_for_a_batch(folder, capsys):
    rows = ask(capsys, "batch.csv", "--batch", "7", "--strategy", "kmeans", "--seed", "3")
    (batch,) = ledger().batches
    assert len(rows) == 7
    assert (batch.asked.strategy, batch.asked.seed) == ("kmeans", 3)


def test_options_of_the_strategy_reach_it(folder, capsys):
    ask(capsys, "batch.csv", "-s", "lewis", "--option", "p=1.5")
    assert ledger().batches[0].asked.options["p"] == 1.5


def test_a_wish_that_an_open_batch_would_ignore_is_refused(folder, capsys):
    ask(capsys)
    code, _, err = answer(capsys, "ask", "--out", "b.csv", "--batch", "3")
    assert code == 1
    assert "batch 1 is open (10 items to label), so budget would have no effect" in err
    assert not Path("b.csv").exists()


def test_guesses_are_there_only_once_there_is_a_model(folder, capsys):
    rows = ask(capsys, "batch.csv", "--guesses")
    assert {row["guess"] for row in rows} == {row["confidence"] for row in rows} == {""}


def test_guesses_are_given_only_if_asked_for(trained, capsys):
    assert "guess" not in ask(capsys, "third.csv")[0]
    rows = ask(capsys, "third.csv", "--guesses")
    guesses = ledger().batches[2].asked.guesses
    assert [row["guess"] for row in rows] == [label for label, _ in guesses]
    assert [float(row["confidence"]) for row in rows] == [share for _, share in guesses]


def test_lent_items_are_kept_for_one_person(texts, capsys):
    _ = answer(capsys, "change", "overlap=1")
    anns = ask(capsys, "ann.csv", "--lend", "5", "--by", "ann")
    bobs = ask(capsys, "bob.csv", "--lend", "20", "--by", "bob")
    assert (len(anns), len(bobs)) == (5, 7)
    assert not {row["id"] for row in anns} & {row["id"] for row in bobs}
    assert ask(capsys, "again.csv", "--lend", "5", "--by", "ann") == anns


def test_texts_are_written_as_they_are(texts, capsys):
    rows = ask(capsys)
    assert sorted(row["item"] for row in rows)[0] == "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "b.txt"), "cannot write 'b.txt'; end the name in .csv, .jsonl, .parquet"),
        (("--out", "no/b.csv"), "there is no folder no"),
        (("--out", "b.csv", "-s", "nothing"), "no strategy is called 'nothing'"),
        (("--out", "b.csv", "-s", "lewis", "--option", "q=1"), "lewis has no option 'q'"),
        (("--out", "b.csv", "--batch", "100"), "100"),
        (("--out", "b.csv", "-c", "nowhere"), "nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_opens_no_batch(arguments, message, folder, capsys):
    code, _, err = answer(capsys, "ask", *arguments)
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert not ledger().batches and not Path("b.csv").exists()


def test_an_option_without_a_value_is_misuse(folder, capsys):
    code, _, err = answer(capsys, "ask", "--out", "b.csv", "--option", "p")
    assert code == 2 and "--option is written name=value; got 'p'" in err


def test_a_batch_is_no_larger_than_the_budget_pays_for(folder, capsys):
    assert answer(capsys, "change", "budget_labels=14")[0] == 0
    label_all(capsys, ask(capsys))
    assert answer(capsys, "change", "strategy=random")[0] == 0
    rows = ask(capsys)
    assert len(rows) == 4
    label_all(capsys, rows)
    code, out, err = answer(capsys, "ask", "--out", "more.csv")
    assert (code, out) == (1, "")
    assert "the budget is spent: 14 of 14 labels" in err and "--batch" in err
    assert len(ask(capsys, "more.csv", "--batch", "3")) == 3


def test_the_guesses_of_a_regression_are_amounts():
    asked = Asked(0.0, 1, (5, 7), info={"predicted": [2.5, 3.5]})
    assert [find_pick_guess(asked, rank) for rank in (0, 1)] == [(2.5, None), (3.5, None)]
    assert find_pick_guess(Asked(0.0, 1, (5,)), 0) == (None, None)


def test_pictures_that_are_gone_are_left_out_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in range(8):
        grey = np.full((8, 8), 30 * number, dtype=np.uint8)
        Image.fromarray(grey).save(f"photos/{number}.png")
    Project.start(Path("photos"), classes=("low", "high"), batch=4, overlap=2, validation=0)
    rows = ask(capsys)
    first, second, third, fourth = (row["id"] for row in rows)
    write("l.csv", [{"id": first, "label": "low", "by": "ann"}])
    assert answer(capsys, "tell", "l.csv")[0] == 0
    for row in rows[:2]:
        (Path("photos") / row["item"]).unlink()
    code, out, err = answer(capsys, "ask", "--out", "rest.csv")
    assert code == 0 and "2 items to label written to rest.csv" in out
    assert err == f"note: 2 items left out because files are missing: {first}, {second}\n"
    assert [row["id"] for row in read("rest.csv")] == [third, fourth]
    assert ledger().labels == {int(first): "low"}
    _, out, _ = answer(capsys, "status")
    assert "2 items: files or rows were removed" in out
