"""``labelwise history``: every kind of event in words, and the record as JSON."""

import json

import pytest

from labelwise.campaign.project import Project
from labelwise.cli.history import _SAYS, told_lines
from labelwise.record.events import KINDS, Asked, Changed, Lent, Skipped, Told, event_from_json
from tests.cli.folders import answer, ask, label_all, ledger


def history(capsys, *more):
    code, out, err = answer(capsys, "history", *more)
    assert code == 0, err
    return out.splitlines()


def test_every_kind_of_event_can_be_told():
    assert set(_SAYS) == set(KINDS)


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
    accuracy = ledger().trainings[0].metrics["accuracy"]
    assert lines[3] == "training 1 began, with 10 labels in all"
    assert lines[4].startswith("model 1 trained on 7 labels in ")
    assert lines[4].endswith(f": accuracy {100 * accuracy:.1f} %")
    assert lines[5].endswith("with model 1") and "chosen by margin" in lines[5]


def test_the_last_lines_are_shown_and_the_rest_is_said(folder, capsys):
    rows = ask(capsys)
    for row in rows[:4]:
        answer(capsys, "skip", row["id"])
    lines = history(capsys, "--last", "2")
    assert lines[0] == "(4 earlier lines: labelwise history --last 0)"
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
    assert list(told_lines(events)) == [
        (3.0, "ann labelled 2 items (1 × a, 1 × b)"),
        (4.0, "bob labelled item 3 a"),
        (5.0, "ann labelled item 4 a"),
    ]


def test_labels_of_many_kinds_are_cut():
    events = [Told(at=1.0, id=n, label=f"c{n}") for n in range(8)]
    ((_, line),) = told_lines(events)
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
    ((_, line),) = told_lines([event])
    assert line.isprintable()


def test_a_negative_number_of_lines_is_refused(folder, capsys):
    code, _, err = answer(capsys, "history", "--last", "-1")
    assert code == 1 and "--last must be 0 or more; got -1" in err


def test_an_item_to_which_nothing_happened_is_said_to_be_so(folder, capsys):
    asked = {int(row["id"]) for row in ask(capsys)}
    quiet = min(set(range(60)) - asked)
    code, out, _ = answer(capsys, "history", "--item", str(quiet))
    assert code == 0
    assert out == f"nothing has happened to item {quiet} yet; it was never asked for\n"
    code, out, err = answer(capsys, "history", "--item", "9999")
    assert (code, out) == (1, "")
    assert err == "labelwise: the campaign has no item 9999; check the id\n"
