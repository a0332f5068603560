"""Commands in hints and errors work when they are pasted, for a folder with spaces in its name."""

import re
import shlex
from pathlib import Path

import pytest

import labelwise.cli.commands  # noqa: F401 (registers the commands)
from labelwise.campaign.project import Project
from labelwise.cli import run
from labelwise.cli.app import complete_command_hints, set_campaign_folder
from labelwise.record.events import Resolved
from tests.cli.folders import answer, read, write

HOME = "our campaigns/two plants"
"""Without its ending, as a user may give it."""


@pytest.fixture
def plants(tmp_path, monkeypatch):
    """A campaign in a folder with spaces, and another one that commands would find without -c."""
    monkeypatch.chdir(tmp_path)
    lines = ["width,height", *(f"{row % 30},{(7 * row) % 11}" for row in range(60))]
    Path("my plants.csv").write_text("\n".join(lines))
    settings = {"classes": ("low", "high"), "batch": 6, "validation": 0.0}
    Project.start(Path("my plants.csv"), home=Path(f"{HOME}.labelwise"), **settings)
    Project.start(Path("my plants.csv"), home=Path("other.labelwise"), name="other", **settings)
    return tmp_path


def first_command(text):
    """The command at the beginning of a hint, cut where prose begins again."""
    whole = shlex.split(re.split(r"[;,()]|(?: goes on)|(?: says)", text)[0])
    assert whole[0] == "labelwise"
    return whole[1:]


def test_the_folder_is_added_to_commands_of_campaigns_alone():
    set_campaign_folder(Path("a b"))
    try:
        text = "labelwise label-studio serve; labelwise label, labelwise select f.npy, labelwises"
        assert complete_command_hints(text) == (
            "labelwise label-studio serve -c 'a b'; labelwise label -c 'a b', "
            "labelwise select f.npy, labelwises"
        )
        once = complete_command_hints("labelwise record give-back --by ann (or labelwise undo)")
        assert once == "labelwise record give-back -c 'a b' --by ann (or labelwise undo -c 'a b')"
        assert complete_command_hints(once) == once
    finally:
        set_campaign_folder(None)


def next_of(capsys, *arguments):
    code, out, err = answer(capsys, *arguments)
    assert code == 0, err
    return re.search(r"^next:?\s+(.*)$", out, re.M)[1]


def test_from_start_to_export_every_next_step_can_be_pasted(plants, capsys):
    hint = next_of(capsys, "status", "-c", HOME)
    label, ask = hint.split(" (or ")
    assert label == f"labelwise label -c '{HOME}'"
    assert first_command(ask) == ["ask", "-c", HOME, "--out", "batch.csv"]
    hint = next_of(capsys, "ask", "-c", HOME, "--out", "my batch.csv")
    tell = first_command(hint.removeprefix("fill in the column label, then "))
    assert tell == ["tell", "-c", HOME, "my batch.csv"]
    rows = [row | {"label": "low", "by": "ann"} for row in read("my batch.csv")]
    rows[0]["label"] = "high"
    write("my batch.csv", rows)
    train = first_command(next_of(capsys, *tell))
    assert train == ["train", "-c", HOME]
    code, out, err = answer(capsys, *train)
    assert code == 0, err
    assert run(["change", "-c", HOME, "batch=5"]) == 0
    assert first_command(re.search(r"^next: (.*)", out, re.M)[1])[:3] == ["label", "-c", HOME]
    assert len(Project.open(HOME).open_record().ledger().trainings) == 1
    assert Project.open("other").open_record().ledger().length == 1


def test_hints_about_disagreements_lead_to_where_they_are_settled(plants, capsys):
    assert run(["ask", "-c", HOME, "--out", "batch.csv"]) == 0
    first = read("batch.csv")[0]["id"]
    votes = [{"id": first, "label": label, "by": label} for label in ("low", "high")]
    write("votes.csv", votes)
    assert run(["tell", "-c", HOME, "votes.csv"]) == 0
    _, out, _ = answer(capsys, "export", "-c", HOME, "--out", "labels.csv")
    show = first_command(out.split("left out: ")[1])
    assert show == ["record", "disagreements", "-c", HOME]
    assert shlex.join(["labelwise", *show]) in answer(capsys, "status", "-c", HOME)[1]
    _, out, _ = answer(capsys, *show)
    settle = first_command(out.split("disputed item: ")[1].replace("ID=LABEL", f"{first}=low"))
    assert run(settle) == 0
    events = Project.open(HOME).storage().read("my plants")
    assert isinstance(events[-1], Resolved) and events[-1].label == "low"


def test_errors_name_the_folder_too(plants, capsys):
    code, _, err = answer(capsys, "undo", "-c", HOME, "--by", "ann")
    assert code == 1
    assert err == (
        f"labelwise: ann has nothing to undo; see labelwise record history -c '{HOME}'\n"
    )
    code, _, err = answer(capsys, "undo", "-c", "other.labelwise", "--by", "ann")
    assert code == 1 and err.endswith("see labelwise record history -c other.labelwise\n")


def test_history_says_how_to_see_the_rest(plants, capsys):
    assert run(["change", "-c", HOME, "batch=8"]) == 0
    assert run(["change", "-c", HOME, "batch=9"]) == 0
    _, out, _ = answer(capsys, "history", "-c", HOME, "--last", "1")
    again = first_command(re.search(r"labelwise [^)]*", out)[0])
    code, everything, _ = answer(capsys, *again)
    assert code == 0 and len(everything.splitlines()) == 3


def test_without_the_option_hints_stay_short(plants, capsys, monkeypatch):
    monkeypatch.chdir(f"{HOME}.labelwise")
    assert next_of(capsys, "status").startswith("labelwise label (or labelwise ask --out batch.csv")


def test_a_campaign_that_is_there_already_can_be_gone_on_with(plants, capsys):
    home = f"{HOME}.labelwise"
    code, _, err = answer(capsys, "start", "my plants.csv", "--out", home)
    assert code == 1
    label, refresh = (
        shlex.split(re.split(", (?:add|or)", part)[0])
        for part in err.split("labelwise: ")[1].split(" labelwise ")[1:]
    )
    assert label == ["label", "-c", home]
    assert refresh == ["start", "my plants.csv", "--refresh", "--out", home]
    code, out, _ = answer(capsys, *refresh)
    assert code == 0 and "0 new items, 60 in all" in out


def test_among_several_campaigns_the_option_is_shown_as_it_is_typed(plants, capsys, monkeypatch):
    monkeypatch.chdir("our campaigns")
    Project.start(Path("../my plants.csv"), home=Path("a b.labelwise"), name="ab")
    code, _, err = answer(capsys, "status")
    assert code == 1 and err.endswith("as in -c 'a b.labelwise'\n")
    assert run(["status", *shlex.split(err.split("as in ")[1])]) == 0
