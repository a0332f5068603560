"""``labelwise record``: skips, corrections, disputes, reserved items, settings and history."""

import json
from pathlib import Path

import pytest

from labelwise.campaign.history import DESCRIPTIONS, describe_events
from labelwise.campaign.project import Project
from labelwise.record.events import (
    KINDS,
    Asked,
    Changed,
    Lent,
    Skipped,
    Told,
    Trained,
    event_from_json,
)
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
    assert answer(capsys, "record", "withdraw", first, "--by", "ann")[:2] == (
        0,
        "1 item withdrawn\n",
    )
    assert list(ledger().skipped) == [int(second)] and int(first) in ledger().waiting


@pytest.mark.parametrize("name", ["undo", "withdraw", "resolve", "give-back", "history"])
def test_old_names_of_record_commands_still_work(name, folder, capsys):
    new, old = (answer(capsys, *words, "--help") for words in (("record", name), (name,)))
    assert new[0] == old[0] == 0
    assert new[1].split(f"record {name}", 1)[1].split() == old[1].split(name, 1)[1].split()
    assert f" {name} " not in answer(capsys, "--help")[1]


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
    assert answer(capsys, "undo", "--by", "ann")[1] == f"item {rows[1]['id']}: withdrawn\n"
    assert set(ledger().labels) == {int(rows[0]["id"]), int(rows[2]["id"])}
    code, _, err = answer(capsys, "undo", "--by", "eve")
    assert code == 1 and "eve has nothing to undo" in err


def test_disagreements_are_listed_with_who_said_what(disputed, capsys):
    _, out, _ = answer(capsys, "disagreements")
    lines = out.splitlines()
    assert len(lines) == 3 and lines[-1].startswith("2 disputed items")
    assert lines[0].split()[0] == str(disputed[0]) and lines[0].endswith("ann: low, bob: high")
    found = json.loads(answer(capsys, "record", "disagreements", "--json")[1])
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


def test_suspicious_labels_are_listed_until_they_are_corrected(disputed, capsys):
    first, second = disputed[2:4]
    listed = [[first, 0.01, "high"], [second, 0.2, "high"], [99, 0.3, "high"]]
    metrics = {"out_of_fold": {"accuracy": 0.5, "suspicious": listed}}
    record = Project.open().open_record()
    record.commit(lambda ledger, now: ([Trained(now, 1, 20, 1.0, metrics)], None))
    found = json.loads(answer(capsys, "record", "suspects", "--json")[1])
    assert [(one["id"], one["current"], one["suggested"]) for one in found] == [
        (first, "low", "high"),
        (second, "low", "high"),
    ]
    assert answer(capsys, "record", "suspects", "--out", "s.csv")[0] == 0
    write("s.csv", [{**row, "label": "high"} for row in read("s.csv")[:1]])
    assert answer(capsys, "record", "resolve", "--from", "s.csv", "--by", "eve")[0] == 0
    lines = answer(capsys, "record", "suspects")[1].splitlines()
    assert len(lines) == 2 and lines[0].split()[0] == str(second)
    assert lines[0].endswith("low, rather high?") and lines[1].startswith("1 suspicious label")


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
        (("change", "regression=perhaps"), "regression must be True or False; got 'perhaps'"),
        (("change", "strategy=nothing"), "no strategy is called 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(arguments, message, disputed, capsys):
    length = ledger().length
    code, _, err = answer(capsys, *arguments)
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert ledger().length == length


def test_misuse_of_an_id_is_an_error(folder, capsys):
    assert answer(capsys, "skip", "seven")[0] == 1


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
    assert not ledger().leases


def test_classes_can_be_added_to_numbers_that_were_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.csv").write_text("\n".join(["width", *map(str, range(20))]))
    assert answer(capsys, "start", "p.csv", "--classes", "0,1", "--batch", "6")[0] == 0
    rows = ask(capsys)
    label_all(capsys, rows, label=lambda row: int(row["id"]) % 2)
    assert answer(capsys, "change", "classes=0,1,2")[:2] == (0, "classes: 0,1 -> 0,1,2\n")
    settings = Project.open().open_record().settings
    assert settings.classes == ("0", "1", "2")
    assert set(ledger().labels.values()) <= set(settings.classes)


def test_an_item_that_was_never_asked_for_cannot_be_skipped(folder, capsys):
    code, _, err = answer(capsys, "skip", "9999")
    assert (code, err) == (1, "labelwise: item 9999 was never asked for; check the id\n")


def history(capsys, *more):
    code, out, err = answer(capsys, "record", "history", *more)
    assert code == 0, err
    return out.splitlines()


def test_every_kind_of_event_can_be_told():
    assert set(DESCRIPTIONS) == set(KINDS)


def test_people_s_work_is_told_in_order(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:9], by="ann", seconds=10)
    answer(capsys, "skip", rows[9]["id"], "--reason", "blurred", "--by", "bob")
    lines = [line[21:] for line in history(capsys)]
    assert lines[0] == "campaign started with 60 items"
    assert lines[1].startswith("batch 1: 10 items asked for, chosen by random")
    assert lines[2].startswith("ann labelled 9 items (") and lines[2].endswith(" in 1 min 30 s")
    assert lines[3] == f"bob skipped item {rows[9]['id']} (blurred)"


def test_trainings_and_what_was_chosen_with_them_are_told(trained, capsys):
    lines = [line[21:] for line in history(capsys)]
    assert lines[3] == "training 1 began, with 10 labels in all"
    assert lines[4].startswith("model 1 (")
    assert lines[4].endswith("): trained on 7 labels; evaluating: 3 of 30 held-out labels")
    assert lines[5].endswith("with model 1") and "chosen by margin" in lines[5]


def test_the_last_lines_are_shown_and_the_rest_is_said(folder, capsys):
    rows = ask(capsys)
    for row in rows[:4]:
        answer(capsys, "skip", row["id"])
    lines = history(capsys, "--last", "2")
    assert lines[0] == "(4 earlier lines: labelwise record history --last 0)"
    assert [line.split("skipped ")[1] for line in lines[1:]] == [
        f"item {row['id']}" for row in rows[2:4]
    ]
    assert len(history(capsys, "--last", "0")) == 6


def test_json_is_the_record_itself(folder, capsys):
    label_all(capsys, ask(capsys), by="ann")
    project = Project.open()
    events = [event_from_json(json.loads(line)) for line in history(capsys, "--json")]
    assert events == project.storage().read(project.name)


def test_one_item_has_a_history_of_its_own(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows, by="ann")
    lines = history(capsys, "--item", rows[3]["id"])
    assert len(lines) == 2
    assert f"ann labelled item {rows[3]['id']}" in lines[1]


def test_labels_in_a_row_by_one_person_are_one_line_despite_loans():
    events = [
        Told(at=1.0, id=1, label="a", by="ann"),
        Lent(at=2.0, ids=(5,), by="ann", until=9.0),
        Told(at=3.0, id=2, label="b", by="ann"),
        Told(at=4.0, id=3, label="a", by="bob"),
        Told(at=5.0, id=4, label="a", by="ann"),
    ]
    assert list(describe_events(events)) == [
        (3.0, "ann labelled 2 items (1 × a, 1 × b)"),
        (4.0, "bob labelled item 3 a"),
        (5.0, "ann labelled item 4 a"),
    ]


def test_labels_of_many_kinds_are_cut():
    events = [Told(at=1.0, id=n, label=f"c{n}") for n in range(8)]
    ((_, line),) = describe_events(events)
    assert line == "(no name) labelled 8 items (1 × c0, 1 × c1, 1 × c2, 1 × c3, 1 × c4 and 3 more)"


@pytest.mark.parametrize(
    "event",
    [
        Told(at=1.0, id=1, label="\x1b[2Jgone", by="\x1b]0;x"),
        Skipped(at=1.0, id=1, by="ann", reason="\x1b[2J\r\nlabelwise: "),
        Changed(at=1.0, settings={"strategy": "\x1b[2J"}),
        Asked(at=1.0, batch=1, ids=(1,), strategy="\u202emargin"),
    ],
)
def test_no_text_of_the_record_can_steer_the_terminal(event):
    ((_, line),) = describe_events([event])
    assert line.isprintable()


def test_a_negative_number_of_lines_is_refused(folder, capsys):
    code, _, err = answer(capsys, "history", "--last", "-1")
    assert code == 1 and "--last must be 0 or more; got -1" in err


def test_an_item_to_which_nothing_happened_is_said_to_be_so(folder, capsys):
    asked = {int(row["id"]) for row in ask(capsys)}
    quiet = min(set(range(60)) - asked)
    code, out, _ = answer(capsys, "history", "--item", str(quiet))
    assert code == 0
    assert out == f"item {quiet} has no events yet; it was never asked for\n"
    code, out, err = answer(capsys, "history", "--item", "9999")
    assert (code, out) == (1, "")
    assert err == "labelwise: the campaign has no item 9999; check the id\n"
