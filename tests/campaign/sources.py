"""What campaigns are started from in the tests: pictures, tables and texts."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from labelwise.campaign.project import Project

DIGITS, KINDS = load_digits(return_X_y=True)
NAMES = [str(kind) for kind in range(10)]
TOPICS = {
    "garden": "rose soil seed water leaf tree flower root spade rain".split(),
    "kitchen": "pan oven salt flour butter knife bread sugar soup spoon".split(),
}


def write_digits(folder, numbers):
    """Digits as pictures in folders; the class is in no name."""
    for number in numbers:
        path = folder / f"part{number % 3}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((DIGITS[number].reshape(8, 8) * 15).astype(np.uint8)).save(path)
    return folder


def write_table(path, rows, values, names):
    lines = [",".join(names)]
    lines += [",".join(map(str, [*row, value])) for row, value in zip(rows, values, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_texts(path, count=120):
    """Short texts of two topics; returns the topic of each."""
    rng = np.random.default_rng(0)
    names = [list(TOPICS)[n % 2] for n in range(count)]
    common = "the a and with of".split()
    texts = [
        f"{n} " + " ".join(rng.choice(TOPICS[name] + common, 8)) for n, name in enumerate(names)
    ]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return names


def digit_of(project, item):
    return str(KINDS[int(project.items.describe(int(item))["name"][-8:-4])])


def content(folder):
    """All files below a folder with their bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def started_digits(tmp_path_factory):
    """A folder with 60 digits and a campaign on them, whose encoding takes a while."""
    folder = tmp_path_factory.mktemp("started")
    source = write_digits(folder / "digits", range(60))
    Project.start(source, home=folder / "c", classes=NAMES, batch=10).close()
    return folder


@pytest.fixture
def digits(started_digits, tmp_path):
    """A campaign on 60 digits: a copy of its own."""
    shutil.copytree(started_digits, tmp_path, dirs_exist_ok=True)
    return Project.open(tmp_path / "c")
