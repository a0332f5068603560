"""Make the campaign folders and the record of version 0.1.0 in this folder, with that version.

Run it in an empty folder with labelwise 0.1.0 installed: ``python make.py``. It writes

- photos, reviews.csv and houses.csv, the sources, and a campaign's folder for each, made with the
  commands of 0.1.0: two annotators, a skip, an undo, a training and an open batch (the model of
  the photos is deleted because of its size);
- record.db, a record made from Python, with a snapshot and events after it;
- expected.json, what 0.1.0 reads from them.
"""

import csv
import io
import json
import random
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

import labelwise
from labelwise.campaign import snapshots
from labelwise.cli import run

LIGHT, WARM = ("dark", "light"), ("good", "bad")


def main() -> None:
    """Make everything."""
    expected = {}
    _make_photos()
    _call(
        "start",
        "photos",
        "--classes",
        ",".join(LIGHT),
        "--batch",
        "10",
        "--overlap",
        "2",
        "--seed",
        "1",
    )
    expected["photos"] = _work("photos", lambda row: LIGHT[int(Path(row["item"]).stem) % 2])
    shutil.rmtree("photos.labelwise/models")  # 1.7 MB
    _make_reviews()
    _call(
        *("start", "reviews.csv", "--text", "review", "--classes", ",".join(WARM)),
        *("--batch", "10", "--strategy", "margin", "--price", "0.05"),
    )
    expected["reviews"] = _work("reviews", lambda row: WARM["dull" in row["item"]])
    _make_houses()
    _call("start", "houses.csv", "--regression", "--without", "name", "--batch", "10")
    expected["houses"] = _work("houses", lambda row: float(json.loads(row["item"])["area"]) * 2)
    expected["record"] = _make_record()
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in expected.items()]
    Path("expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _make_photos() -> None:
    draw = np.random.default_rng(0)
    for number in range(30):
        folder = Path("photos", "ab"[number // 15])
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 90, (8, 8, 3)) + 150 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")


def _make_reviews() -> None:
    draw = random.Random(0)
    words = {0: ["bright", "moving", "lovely", "fresh"], 1: ["dull", "long", "tired", "flat"]}
    things = ["plot", "music", "cast", "ending", "café scene", "<b>title</b>"]
    with open("reviews.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["review"])
        for number in range(40):
            said = [words[number % 2][0], draw.choice(words[number % 2]), draw.choice(things)]
            writer.writerow([" ".join([*said, f"number {number}"])])


def _make_houses() -> None:
    draw = random.Random(1)
    lines = [f"house {n},{draw.randint(30, 200)},{draw.randint(1, 9)}" for n in range(40)]
    Path("houses.csv").write_text("\n".join(["name,area,rooms", *lines]) + "\n")


def _work(name, label):
    """Label a batch, skip, undo, train, open a batch and label one item of it."""
    folder = ("-c", f"{name}.labelwise")
    _call("ask", "--out", "batch.csv", *folder)
    rows = _read("batch.csv")
    overlap = 2 if name == "photos" else 1
    people = [("ann", rows[:-1]), ("ben", rows[1:-1] if overlap == 2 else [])]
    for person, part in people:
        told = [{"id": row["id"], "label": label(row), "seconds": 2.5} for row in part]
        if told:
            _write("labels.csv", told)
            _call("tell", "labels.csv", "--by", person, *folder)
    _call("undo", "--by", "ann", *folder)
    _call("skip", rows[-1]["id"], "--by", "ben", "--reason", "not clear", *folder)
    again = [{"id": row["id"], "label": label(row)} for row in rows[:-1]]
    _write("labels.csv", again)
    _call("tell", "labels.csv", "--by", "ann", *folder)
    if overlap == 2:
        _write("labels.csv", [{"id": rows[0]["id"], "label": label(rows[0])}])
        _call("tell", "labels.csv", "--by", "ben", *folder)
    _call("train", "--by", "ann", *folder)
    _call("ask", "--out", "batch.csv", *folder)
    rows = _read("batch.csv")
    _write("labels.csv", [{"id": rows[0]["id"], "label": label(rows[0])}])
    _call("tell", "labels.csv", "--by", "ben", *folder)
    _call("ask", "--out", "batch.csv", *folder)
    open_items = [int(row["id"]) for row in _read("batch.csv")]
    _call("export", "--out", "votes.jsonl", "--votes", *folder)
    _call("export", "--out", "labels.jsonl", *folder)
    lines = _call("history", "--json", *folder).splitlines()
    found = {
        "open": open_items,
        "next": label(_read("batch.csv")[0]),
        "labels": [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()],
        "votes": [json.loads(line) for line in Path("votes.jsonl").read_text().splitlines()],
        "events": [json.loads(line) for line in lines],
    }
    for left in ("batch.csv", "labels.csv", "labels.jsonl", "votes.jsonl"):
        Path(left).unlink()
    return found


def _make_record():
    """A record of a campaign in Python, with a snapshot in the middle."""
    draw = np.random.default_rng(2)
    rows = np.round(draw.normal(size=(60, 4)), 3)
    np.save("record.npy", rows)
    classes = ["minus", "plus"]
    storage = labelwise.open_storage("sqlite:///record.db")
    campaign = labelwise.Campaign(
        "signs",
        labelwise.Pool(rows),
        labelwise.SklearnLearner(lambda: LogisticRegression(max_iter=1000)),
        storage,
        strategy="margin",
        classes=classes,
        batch=10,
        validation=0.2,
        seed=3,
    )
    truth = [classes[int(value > 0)] for value in rows[:, 0]]
    first = campaign.ask().ids
    campaign.tell({int(item): truth[item] for item in first[:-1]}, by="ann", seconds=1.5)
    campaign.skip([int(first[-1])], by="ann")
    campaign.undo("ann")
    campaign.tell({int(first[-1]): truth[first[-1]]}, by="ben")
    campaign.train()
    snapshots.keep(storage, "signs", campaign.ledger())
    second = campaign.ask()
    campaign.tell({int(second.ids[0]): truth[second.ids[0]]}, by="ben")
    found = {
        "labels": {str(item): label for item, label in sorted(campaign.labels().items())},
        "rows": campaign.labelled(),
        "open": [int(item) for item in second.ids[1:]],
        "weights": None if second.weights is None else second.weights.tolist(),
        "events": storage.length("signs"),
        "snapshot": storage.snapshot("signs")[0],
    }
    storage.close()
    return json.loads(json.dumps(found))


def _call(*arguments: str) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        assert run(list(arguments)) == 0, arguments
    return said.getvalue()


def _read(name):
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(name, rows) -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
