"""Random commands on damaged files and folders: they work, or say why not in one line.

Every call is a function of its number, so a failure names the number to repeat.
"""

import contextlib
import io
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli import run
from labelwise.errors import LabelwiseError
from tests.cli.folders import start_plants

QUICK_CALLS, MANY_CALLS, CALLS_PER_TEST = 40, 1500, 20
SECONDS_PER_CALL = 30

WORDS = ["", "id", "label", "7", "-1", "1e99", "x,y", "nothing", "a\0b", "é", "../..", "=1+1", "/"]
OPTIONS = {
    "select": ["-s", "random", "-s", "k_center", "-b", "2", "-b", "99", "--id", "label", "--seed"],
    "start": ["--classes", "a,b", "--text", "item", "--id", "id", "--regression", "--columns", "x"],
    "encode": ["--text", "item", "--encoder", "tfidf", "--id", "id", "--encoder", "os:system"],
    "plan": ["--error", "0.5", "--p", "nan", "--labelled", "t.csv", "--id", "id", "--json"],
    "explain": ["--labels", "f.npy", "--classes", "2", "--ids", "t.csv", "--bias", "--json"],
    "simulate": ["--labels", "label", "--seeds", "0", "--text", "item", "--rounds", "1"],
    "tell": ["--by", "ann", "--anything", "--id", "label", "--anything"],
    "ask": ["--batch", "3", "--strategy", "margin", "--lend", "2", "--by", "ann", "--guesses"],
    "predict": ["--id", "id", "--representation", "x", "--spreadsheet"],
    "export": ["--votes", "--predictions", "--format", "coco", "--format", "cvat"],
    "status": ["--json"],
    "change": ["batch=5", "strategy=nothing", "classes=a", "price=x", "overlap=0"],
    "record history": ["--last", "5", "--item", "3", "--json"],
    "record withdraw": ["3", "99", "x"],
    "record resolve": ["3=low", "x", "4=", "--from", "t.csv"],
    "skip": ["3", "-7", "x"],
}
"""Commands with words to draw from."""

NEEDS_FILE = {"select", "start", "encode", "plan", "simulate", "tell", "explain"}
WRITES = {"select", "encode", "ask", "predict", "export"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind, and a campaign with a model."""
    place = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    with contextlib.chdir(place):
        np.save("f.npy", rng.normal(size=(40, 3)))
        np.savez("f.npz", features=rng.normal(size=(40, 3)), labels=np.arange(40) % 2)
        rows = [{"id": n, "label": "ab"[n % 2], "x": n / 7, "item": f"text {n}"} for n in range(40)]
        Path("t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        lines = [",".join(map(str, row.values())) for row in rows]
        Path("t.csv").write_text("\n".join(["id,label,x,item", *lines]))
        Path("tasks.json").write_text('[{"data": {"labelwise_id": 3}, "annotations": []}]')
        Path("cvat.xml").write_text('<annotations><image name="a.png"/></annotations>')
        Path("photos").mkdir()
        Path("photos/a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        start_plants()
        assert run(["ask", "--out", "b.csv"]) == 0
        asked = [line.partition(",")[0] for line in Path("b.csv").read_text().splitlines()[1:]]
        labels = "\n".join(f"{item},{('low', 'high')[int(item) % 2]}" for item in asked)
        Path("l.csv").write_text(f"id,label\n{labels}")
        assert run(["tell", "l.csv"]) == 0 and run(["train"]) == 0
    return place


def damage(rng, path):
    """Cut, empty, flip or lengthen a file, or put a folder in its place."""
    data = bytearray(path.read_bytes())
    kind = rng.integers(5)
    if kind == 0:
        data = data[: rng.integers(len(data) + 1)]
    elif kind == 1:
        for place in rng.integers(len(data), size=rng.integers(1, 20)) if data else ():
            data[place] ^= 1 << rng.integers(8)
    elif kind == 2:
        data = bytearray()
    elif kind == 3:
        data += bytes(rng.integers(256, size=50).astype(np.uint8))
    else:
        path.unlink()
        path.mkdir()
        return
    path.write_bytes(bytes(data))


def make_command(rng, files):
    """A command with some options; most of the words are plausible."""
    name = list(OPTIONS)[rng.integers(len(OPTIONS))]
    words = name.split()
    for _ in range(2 if name == "explain" else name in NEEDS_FILE):
        words.append(str(rng.choice(files)))
    given = OPTIONS[name]
    for place in sorted(rng.choice(len(given), size=rng.integers(len(given) + 1), replace=False)):
        words.append(given[place] if rng.random() < 0.9 else str(rng.choice(WORDS)))
    if name in WRITES:
        words += [
            "--out",
            str(rng.choice(["o.csv", "o.npy", "o.json", "o.parquet", "o", "photos"])),
        ]
    return words


def check_command(number, folder, place):
    """Run the command with this number on a fresh copy of the folder."""
    rng = np.random.default_rng([number, 19])
    shutil.copytree(folder, place)
    files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    for name in rng.choice(files, size=rng.integers(4)):
        if (place / name).is_file():
            damage(rng, place / name)
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.chdir(place), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = make_command(rng, [*files, "photos", "nothing.csv"])
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
                code = run(words)
            if rng.random() < 0.2:
                with contextlib.suppress(LabelwiseError):
                    labelwise.load_model("plants.labelwise").predict([[1.0, 2.0]])
        except Exception as error:
            raise AssertionError(f"call {number}, {words}: {type(error).__name__}") from error
    shutil.rmtree(place)
    errors = [line for line in wrong.getvalue().splitlines() if line.startswith("labelwise: ")]
    assert code in (0, 1, 2) and len(errors) == (code != 0), f"call {number}, {words}: {errors}"


@pytest.mark.timeout(SECONDS_PER_CALL * CALLS_PER_TEST)
@pytest.mark.parametrize("first", range(0, QUICK_CALLS, CALLS_PER_TEST))
def test_a_few_commands_on_damaged_files_say_what_is_wrong(first, folder, tmp_path):
    for number in range(first, first + CALLS_PER_TEST):
        check_command(number, folder, tmp_path / str(number))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_PER_CALL * CALLS_PER_TEST)
@pytest.mark.parametrize("first", range(QUICK_CALLS, QUICK_CALLS + MANY_CALLS, 100))
def test_many_commands_on_damaged_files_say_what_is_wrong(first, folder, tmp_path):
    for number in range(first, first + 100):
        check_command(number, folder, tmp_path / str(number))
