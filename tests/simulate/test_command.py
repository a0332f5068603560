"""``labelwise simulate``: what it reads, writes and says."""

import numpy as np
from PIL import Image

import labelwise.cli.simulate  # noqa: F401 (adds the command)
from labelwise.cli import run
from tests.simulate.digits import DIGITS, KINDS


def test_the_command_reads_folders_writes_the_page_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, (image, kind) in enumerate(zip(DIGITS[:120], KINDS[:120] % 2, strict=True)):
        folder = tmp_path / "digits" / ("odd" if kind else "even")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (image.reshape(8, 8) * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    given = "simulate digits --strategies margin --seeds 2 --rounds 2 --batch 8"
    assert run([*given.split(), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "digits: 120 items (images), 2 classes" in said
    assert "24 items for testing, a pool of 96; 8 to 16 labels, 8 at a time" in said
    assert "margin" in said and "With 2 seeds" in said and "only 24 test items" in said
    page = (tmp_path / "simulate.html").read_text()
    assert "What active learning saves on digits" in page
    assert "labelwise simulate digits --strategies margin --seeds 2 --batch 8" in page
    lines = (tmp_path / "simulate.jsonl").read_bytes()
    assert run([*given.split(), "--workers", "1"]) == 0
    assert (tmp_path / "simulate.jsonl").read_bytes() == lines and lines.count(b"\n") == 8


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,x\n" * 40)
    for given, message in [
        ("simulate t.csv --labels c", "has no column 'c'; it has a, b"),
        ("simulate t.csv --labels b", "have the label 'x'"),
        ("simulate t.csv --labels b --out t.txt", "the page is HTML; got --out t.txt"),
        ("simulate none.csv --labels b", "there is no file or folder none.csv"),
    ]:
        assert run(given.split()) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "simulate.jsonl").exists()
