"""Skips, withdrawals, undo, disputes, loans and settings on the command line."""

import json
from pathlib import Path

import pytest

from labelwise.campaign.project import Project
from tests.cli.folders import answer, ask, label_all, ledger, read, write


@pytest.fixture
def disputed(texts, capsys):
    """The ids of a batch that ann and bob labelled; they disagree about the first two."""
    items = [int(row["id"]) for row in ask(capsys)]
    rows = [{"id": item, "label": "low", "by": by} for item in items for by in ("ann", "bob")]
    rows[1]["label"] = rows[3]["label"] = "high"
    write("l.csv", rows)
    assert answer(capsys, "tell", "l.csv")[0] == 0
    return items


def test_skipped_items_wait_no_longer_until_they_are_brought_back(folder, capsys):
    rows = ask(capsys)
    first, second = rows[0]["id"], rows[1]["id"]
    _, out, _ = answer(capsys, "skip", first, second, "--reason", "dark", "--by", "ann")
    assert out == "2 items skipped\n"
    assert {item: skip.reason for item, skip in ledger().skipped.items()} == {
        int(first): "dark",
        int(second): "dark",
    }
    assert answer(capsys, "withdraw", first, "--by", "ann")[:2] == (0, "1 item withdrawn\n")
    assert list(ledger().skipped) == [int(second)] and int(first) in ledger().waiting


def test_only_the_own_label_can_be_withdrawn(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:1], by="ann")
    code, _, err = answer(capsys, "withdraw", rows[0]["id"], "--by", "bob")
    assert code == 1 and err.startswith("labelwise: 'bob' ") and rows[0]["id"] in err
    assert len(ledger().labels) == 1


def test_undo_takes_back_the_last_of_a_person(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:2], by="ann")
    label_all(capsys, rows[2:3], by="bob")
    assert answer(capsys, "undo", "--by", "ann")[1] == f"item {rows[1]['id']}: taken back\n"
    assert set(ledger().labels) == {int(rows[0]["id"]), int(rows[2]["id"])}
    code, _, err = answer(capsys, "undo", "--by", "eve")
    assert code == 1 and "eve has nothing to take back" in err


def test_disagreements_are_listed_with_who_said_what(disputed, capsys):
    _, out, _ = answer(capsys, "disagreements")
    lines = out.splitlines()
    assert len(lines) == 3 and lines[-1].startswith("2 disputed items")
    assert lines[0].split()[0] == str(disputed[0]) and lines[0].endswith("ann: low, bob: high")
    found = json.loads(answer(capsys, "disagreements", "--json")[1])
    assert [entry["id"] for entry in found] == disputed[:2]


def test_a_dispute_is_settled_on_the_line_or_by_a_file(disputed, capsys):
    first, second = disputed[:2]
    code, out, err = answer(capsys, "resolve", f"{first}=high", "--by", "eve")
    assert (code, out) == (0, "1 item settled\n"), err
    answer(capsys, "disagreements", "--out", "disputed.csv")
    rows = read("disputed.csv")
    assert [int(row["id"]) for row in rows] == [second]
    write("disputed.csv", [{**row, "label": "low"} for row in rows])
    assert answer(capsys, "resolve", "--from", "disputed.csv", "--by", "eve")[0] == 0
    assert (ledger().labels[first], ledger().labels[second]) == ("high", "low")
    assert answer(capsys, "disagreements")[1] == "0 disputed items\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resolve",), "nothing to settle; give ID=LABEL"),
        (("resolve", "low"), "write the item and its label as 12=cat; got 'low'"),
        (("resolve", "3="), "write the item and its label as 12=cat; got '3='"),
        (("resolve", "3=lwo"), "label of item 3 is 'lwo'"),
        (("skip", "999"), "item 999 was never asked for"),
        (("change", "batch"), "write a setting and its value as batch=20; got 'batch'"),
        (("change", "bacth=3"), "a campaign has no setting 'bacth'"),
        (("change", "batch=many"), "batch must be a whole number, 1 or more; got 'many'"),
        (("change", "batch=2.5"), "batch must be a whole number, 1 or more; got 2.5"),
        (("change", "regression=perhaps"), "regression is true or false; got 'perhaps'"),
        (("change", "strategy=nothing"), "no strategy is called 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(arguments, message, disputed, capsys):
    length = ledger().length
    code, _, err = answer(capsys, *arguments)
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert ledger().length == length


def test_misuse_of_an_id_is_exit_code_2(folder, capsys):
    assert answer(capsys, "skip", "seven")[0] == 2


def test_settings_are_listed_and_changed(folder, capsys):
    _, out, _ = answer(capsys, "change")
    assert "batch=10" in out.splitlines() and "classes=low,high" in out.splitlines()
    _, out, _ = answer(capsys, "change", "batch=20", "price=0.05", "strategy=lewis")
    assert out.splitlines() == [
        "strategy: margin -> lewis",
        "batch: 10 -> 20",
        "price: none -> 0.05",
    ]
    _, out, _ = answer(capsys, "change", "price=none", "options.p=1.5")
    assert out.splitlines() == ['options: {} -> {"p": 1.5}', "price: 0.05 -> none"]
    found = ledger().settings
    assert (found["batch"], found["price"], found["options"]) == (20, None, {"p": 1.5})


def test_settings_that_are_so_already_change_nothing(folder, capsys):
    length = ledger().length
    assert "nothing changed" in answer(capsys, "change", "batch=10")[1]
    assert ledger().length == length


def test_lent_items_can_be_given_back(folder, capsys):
    ask(capsys, "ann.csv", "--lend", "6", "--by", "ann")
    assert answer(capsys, "give-back", "--by", "ann")[:2] == (0, "6 items given back\n")
    assert not ledger().loans


def test_classes_can_be_added_to_numbers_that_were_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.csv").write_text("\n".join(["width", *map(str, range(20))]))
    assert answer(capsys, "start", "p.csv", "--classes", "0,1", "--batch", "6")[0] == 0
    rows = ask(capsys)
    label_all(capsys, rows, label=lambda row: int(row["id"]) % 2)
    assert answer(capsys, "change", "classes=0,1,2")[:2] == (0, "classes: 0,1 -> 0,1,2\n")
    settings = Project.open().desk().settings
    assert settings.classes == ("0", "1", "2")
    assert set(ledger().labels.values()) <= set(settings.classes)


def test_an_item_that_was_never_asked_for_cannot_be_skipped(folder, capsys):
    code, _, err = answer(capsys, "skip", "9999")
    assert (code, err) == (1, "labelwise: item 9999 was never asked for; check the id\n")
