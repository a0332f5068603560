"""Campaigns in folders, for the tests of the commands."""

import csv
import json
from pathlib import Path

from labelwise.campaign.project import Project
from labelwise.cli import run

HOSTILE = "<script>alert(1)</script>"
CLASSES = ("low", "high")


def start_plants():
    """A campaign over 60 rows of two numbers; the first tells the class."""
    lines = ["width,height", *(f"{row % 30},{(7 * row) % 11}" for row in range(60))]
    Path("plants.csv").write_text("\n".join(lines))
    Project.start(Path("plants.csv"), classes=CLASSES, batch=10, strategy="margin", validation=0.3)


def answer(capsys, *arguments):
    """Exit code, stdout and stderr of a call."""
    capsys.readouterr()
    code = run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def ask(capsys, name="batch.csv", *more):
    """Ask for a batch, and read it."""
    code, _, err = answer(capsys, "ask", "--out", name, *more)
    assert code == 0, err
    return read(name)


def read(name):
    with open(name, newline="") as file:
        return list(csv.DictReader(file))


def write(name, rows):
    with open(name, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def true_label(row):
    """The class of a row of plants.csv."""
    return CLASSES[int(json.loads(row["item"])["width"]) >= 15]


def label_all(capsys, rows, label=true_label, **more):
    """Label all rows, and tell them."""
    write("labels.csv", [{"id": row["id"], "label": label(row), **more} for row in rows])
    code, out, err = answer(capsys, "tell", "labels.csv")
    assert code == 0, err
    return out


def ledger():
    return Project.open().open_record().ledger()
