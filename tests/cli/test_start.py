"""``labelwise start``: what it says on the screen, and what it makes and refuses."""

import json
import shlex

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_wine

import labelwise.cli.start  # noqa: F401 (adds the command)
from labelwise.campaign.project import Project
from labelwise.campaign.runner import CampaignRunner
from labelwise.cli import run
from tests.cli.folders import answer

DIGITS, _ = load_digits(return_X_y=True)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test in a folder of its own, with twelve digits in it."""
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path, range(12))
    return tmp_path


def write_digits(folder, numbers):
    for number in numbers:
        path = folder / "photos" / f"part{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((DIGITS[number].reshape(8, 8) * 15).astype(np.uint8)).save(path)


def test_a_new_user_is_told_what_was_found_and_what_to_type(here, capsys):
    (here / "photos" / "notes.txt").write_text("not a picture")
    code, said, wrong = answer(capsys, "start", "photos", "--classes", "even, odd", "--batch", "5")
    assert (code, wrong) == (0, "")
    assert said.splitlines() == [
        "photos: 12 pictures in 2 folders",
        "  left out, not images: 1 .txt",
        "  encoded by efficientnet_lite0: 1,280 features each",
        "Campaign photos is in photos.labelwise: 12 items.",
        "  classes: even, odd",
        "  5 items per batch, chosen by uherding, 20 % of them drawn at random for evaluation",
        "Next: labelwise label",
    ]
    assert Project.open().classes == ("even", "odd")


def test_classes_may_be_told_later(capsys):
    code, said, _ = answer(capsys, "start", "photos", "--out", "deep/c")
    assert code == 0
    assert "  classes: none yet; add them on the page, or type\n" in said
    assert "    labelwise change classes=a,b,c -c deep/c\n" in said
    assert said.endswith("Next: labelwise label -c deep/c\n")
    assert answer(capsys, "change", "classes=a,b", "-c", "deep/c")[0] == 0
    assert Project.open("deep/c").classes == ("a", "b")


def test_the_next_command_names_the_campaign_where_there_are_several(capsys):
    assert run(["start", "photos"]) == 0
    code, said, _ = answer(capsys, "start", "photos", "--name", "my second", "--classes", "a,b")
    assert code == 0 and said.endswith("Next: labelwise label -c my-second.labelwise\n")


def test_every_option_reaches_the_settings(here, capsys):
    given = (
        "start photos --classes a,b --overlap 2 --validation 0.1 --budget-labels 10 --price 0.05 "
        "--budget-money 3 --budget-hours 2 --hourly 12 --seed 4 --strategy margin --name n --out c"
    )
    code, said, _ = answer(capsys, *shlex.split(given))
    assert code == 0 and "chosen by margin, 10 % of them" in said
    settings = Project.open("c").open_record().settings.to_dict()
    wanted = {"overlap": 2, "validation": 0.1, "budget_labels": 10, "price": 0.05, "seed": 4}
    wanted |= {"budget_money": 3.0, "budget_hours": 2.0, "hourly": 12.0, "strategy": "margin"}
    assert {name: settings[name] for name in wanted} == wanted
    assert Project.open("c").name == "n"


def test_tables_of_texts_and_of_numbers(here, capsys):
    rows = [{"title": f"title {n}", "body": "some words", "size": n} for n in range(9)]
    (here / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, said, _ = answer(
        capsys, "start", "notes.jsonl", "--text", "title,body", "--classes", "a,b"
    )
    assert code == 0 and said.startswith("notes.jsonl: 9 texts\n  texts: title, body\n")
    assert Project.open().items.entry(3)["text"] == "title 3 some words"
    wines, kinds = load_wine(return_X_y=True)
    lines = [",".join(map(str, [*row, kind])) for row, kind in zip(wines, kinds, strict=True)]
    head = ",".join([*(f"c{n}" for n in range(13)), "alcohol"])
    (here / "wine.csv").write_text("\n".join([head, *lines]))
    given = "start wine.csv --regression --without alcohol,c0 --out w"
    code, said, _ = answer(capsys, *given.split())
    assert code == 0 and "  numbers: c1, c2," in said and "  labels: numbers\n" in said
    assert "chosen by mixed_lcmd" in said and Project.open("w").inputs.shape == (178, 12)
    np.save("f.npy", wines)
    code, said, _ = answer(capsys, "start", "f.npy", "--columns", "", "--classes", "a,b")
    assert code == 0 and said.startswith("f.npy: 178 rows of 13 features\n")


def test_broken_pictures_are_listed_line_by_line(here, capsys):
    for number in range(25):
        (here / "photos" / f"bad{number:02d}.png").write_text("no picture")
    code, said, wrong = answer(capsys, "start", "photos", "--classes", "a,b")
    lines = wrong.splitlines()
    assert code == 1 and said == "" and len(lines) == 22
    assert lines[0] == "  bad00.png: not an image in a known format" and lines[20] == "  and 5 more"
    assert lines[21].startswith("labelwise: 25 of 37 items cannot be used (bad00.png: ")
    assert lines[21].endswith("or leave them out with --skip-broken")
    assert not (here / "photos.labelwise").exists()
    code, said, wrong = answer(capsys, "start", "photos", "--classes", "a,b", "--skip-broken")
    assert code == 0 and "left out, because they cannot be used: 25\n" in said
    assert "bad00.png: not an image" in wrong and "photos.labelwise: 12 items." in said


def test_what_is_new_and_gone_is_said_after_a_refresh(here, capsys):
    assert run(["start", "photos", "--classes", "a,b"]) == 0
    write_digits(here, [12, 13])
    (here / "photos" / "part1" / "3.png").unlink()
    code, said, wrong = answer(capsys, "start", "photos", "--refresh")
    assert code == 0
    assert said == "photos: 2 new items, 14 in all\n  missing, and no longer asked for: 1 item\n"
    assert wrong.endswith(": part1/3.png\n")
    write_digits(here, [3])
    assert "  available again: 1 item\n" in answer(capsys, "start", "photos", "--refresh")[1]
    code, _, wrong = answer(capsys, "start", "photos", "--classes", "a,b")
    assert code == 1 and "photos.labelwise exists already" in wrong and "--refresh" in wrong


def test_a_refresh_keeps_the_encoder(capsys):
    assert run(["start", "photos", "--classes", "a,b"]) == 0
    code, _, wrong = answer(capsys, "start", "photos", "--refresh", "--encoder", "none")
    assert code == 1 and "a campaign keeps its encoders and features" in wrong


def test_every_file_of_features_is_used(here, capsys):
    rng = np.random.default_rng(0)
    for name, width in (("f", 4), ("g", 3)):
        np.save(here / f"{name}.npy", rng.normal(size=(20, width)))
    given = "start f.npy --features f.npy --features g.npy --strategy lewis --classes a,b"
    assert answer(capsys, *given.split())[0] == 0
    project = Project.open("f.labelwise")
    assert project.description.widths == (4, 3) and project.inputs.shape == (20, 7)


def test_a_source_that_moved_is_pointed_to(here, capsys):
    assert run(["start", "photos", "--classes", "a,b"]) == 0
    (here / "photos").rename(here / "pictures")
    code, _, wrong = answer(capsys, "start", "photos", "--refresh")
    assert code == 1 and "labelwise start NEW_PLACE --moved --out photos.labelwise" in wrong
    code, _, wrong = answer(capsys, *"start pictures --refresh --out photos.labelwise".split())
    assert code == 1 and "if they were moved, add --moved" in wrong
    given = "start pictures --moved --refresh --out photos.labelwise"
    code, said, _ = answer(capsys, *given.split())
    assert code == 0 and "now reads its items from pictures" in said and "0 new items" in said
    assert Project.open().items.path(0).parent.parent.name == "pictures"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("start nowhere", "there is no file or folder nowhere"),
        ("start photos --classes a", "two classes or more"),
        ("start photos --strategy bagde", "bagde"),
        ("start photos --regression --classes a,b", "a regression has no classes"),
        ("start photos --refresh", "photos.labelwise is not a campaign's folder"),
        ("start photos --validation 1.5", "validation is a share from 0 to below 1; got 1.5"),
        ("start photos --storage labels.db", "a storage is given as a URL"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(given, message, here, capsys):
    code, said, wrong = answer(capsys, *given.split())
    assert code == 1 and said == ""
    assert wrong.count("\n") == 1 and message in wrong
    assert [path.name for path in here.iterdir()] == ["photos"]


def test_names_that_would_steer_the_terminal_are_shown_harmlessly(here, capsys):
    (here / "photos" / "a\x1b[2Jb.png").write_text("no picture")
    code, said, wrong = answer(capsys, "start", "photos", "--skip-broken", "--classes", "a,b")
    assert code == 0 and "\x1b" not in said + wrong and "a\\x1b[2Jb.png" in wrong


def test_existing_labels_and_a_test_set_are_imported(here, capsys):
    (here / "f.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(40)))
    (here / "old.csv").write_text("id,label\n0,low\n1,low\n30,high\n")
    (here / "test.csv").write_text("id,label\n5,low\n35,high\n2,low\n")
    given = "start f.csv --classes low,high --batch 6 --labels old.csv --test test.csv"
    code, said, _ = answer(capsys, *given.split())
    assert code == 0 and "old.csv: 3 new labels" in said and "test.csv: 3 new labels" in said
    project = Project.open("f.labelwise")
    ledger = project.open_record().ledger()
    assert ledger.validation == {2, 5, 35} and set(ledger.labels) == {0, 1, 2, 5, 30, 35}
    trained = project.campaign().train()
    assert trained.metrics["training_labels"] == trained.metrics["validation_labels"] == 3
    batch = project.campaign().ask()
    assert len(batch) == 6 and not set(batch.ids.tolist()) & set(ledger.labels)
    code, _, wrong = answer(capsys, *"start f.csv --out g --labels no.csv".split())
    assert code == 1 and "no file no.csv" in wrong and not (here / "g").exists()
    code, _, wrong = answer(capsys, *"start f.csv --out g --test f.csv".split())
    assert code == 1 and "no column called label" in wrong and not (here / "g").exists()


def test_a_test_set_alone_is_followed_by_a_batch(here, capsys):
    (here / "f.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(40)))
    (here / "test.csv").write_text("id,label\n5,low\n35,high\n")
    assert run("start f.csv --classes low,high --test test.csv".split()) == 0
    runner = CampaignRunner(Project.open("f.labelwise"))
    assert runner.choose_step() == "ask"


def test_guesses_are_shown_until_there_is_a_model(here, capsys):
    (here / "f.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(20)))
    rows = "".join(f"{n},{'low' if n < 12 else 'high'},{n / 20}\n" for n in range(20))
    (here / "guesses.csv").write_text("id,label,confidence\n" + rows)
    given = "start f.csv --classes low,high --batch 10 --guesses guesses.csv"
    code, said, _ = answer(capsys, *given.split())
    assert code == 0 and "guesses.csv: 20 guesses" in said
    campaign = Project.open("f.labelwise").campaign()
    first = campaign.ask()
    asked = campaign.ledger().batches[0].asked
    expected = [("low" if n < 12 else "high", n / 20) for n in first.ids.tolist()]
    assert list(asked.guesses) == expected
    campaign.tell({int(n): "low" if n < 10 else "high" for n in first.ids})
    assert "prequential" in campaign.train().metrics  # how good the guesses were
    (here / "wrong.csv").write_text("id,label\n99,low\n")
    code, _, wrong = answer(capsys, *"start f.csv --out g --guesses wrong.csv".split())
    assert code == 1 and "no item 99" in wrong
