"""``labelwise encode`` and ``labelwise encoders``."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import labelwise
from labelwise.cli import run
from tests.cli.folders import answer

MODELS = Path(__file__).parents[1] / "data" / "encoders"
FLOATS, WORDS = f"onnx:{MODELS / 'mean_of_floats.onnx'}", f"onnx:{MODELS / 'words.onnx'}"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder with 30 images in two folders."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in range(30):
        path = Path("photos", f"part{number % 2}", f"{number:02}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 8, 3)).astype(np.uint8)).save(path)
    return tmp_path


def test_a_folder_is_encoded_into_rows_or_a_table_with_paths(photos, capsys):
    code, said, wrong = answer(capsys, "encode", "photos", "--out", "f.npy", "--encoder", FLOATS)
    assert (code, wrong) == (0, "")
    assert said.startswith(f"30 items of photos encoded by {FLOATS}: 3 features each, in f.npy")
    expected = labelwise.encode("photos", FLOATS)
    np.testing.assert_allclose(np.load("f.npy"), expected, atol=1e-6)
    assert answer(capsys, "encode", "photos", "-o", "f.parquet", "--encoder", FLOATS)[0] == 0
    table = pq.read_table("f.parquet")
    assert table["id"].to_pylist()[:2] == ["part0/00.png", "part0/02.png"]
    np.testing.assert_allclose(table["features"].to_pylist(), expected, atol=1e-6)
    picks = labelwise.select("k_center", 3, features="f.parquet", seed=0)
    assert all(key.endswith(".png") for key in picks.keys)
    assert sorted(path.name for path in photos.iterdir()) == ["f.npy", "f.parquet", "photos"]


def test_texts_of_a_table_are_encoded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("title,body,size\na,red rose,1\nan,oak,2\n")
    arguments = ("encode", "t.csv", "--text", "title,body", "--encoder", WORDS, "--out")
    assert answer(capsys, *arguments, "f.parquet")[0] == 0
    table = pq.read_table("f.parquet")
    expected = labelwise.encode(["a red rose", "an oak"], WORDS)
    np.testing.assert_array_equal(table["features"].to_pylist(), expected)
    assert table["id"].to_pylist() == [0, 1]
    code, said, wrong = answer(capsys, "encode", "t.csv", "--text", "body", "--out", "g.npy")
    assert code == 0 and "encoded by tfidf" in said
    assert wrong.startswith("note: texts are encoded by their words (tfidf)")


def test_an_interrupted_command_goes_on(photos, capsys):
    Path("stopping.py").write_text(
        "from pathlib import Path\n"
        "def colours(images):\n"
        "    with open('log', 'a') as file: file.write('.' * len(images))\n"
        "    enough = len(Path('log').read_text()) > 15\n"
        "    if enough and Path('stop').exists(): raise KeyboardInterrupt\n"
        "    return images.mean(axis=(2, 3))\n"
        "colours.side = 8\n"
    )
    Path("stop").touch()
    command = "encode photos --out f.npy --encoder stopping:colours --batch-size 4".split()
    code, _, wrong = answer(capsys, *command)
    assert code == 130 and "the same command continues" in wrong and not Path("f.npy").exists()
    Path("stop").unlink()
    Path("log").write_text("")
    assert answer(capsys, *command)[0] == 0
    assert len(Path("log").read_text()) < 25 and not list(photos.glob(".f.npy*"))
    assert np.load("f.npy").shape == (30, 3)
    del sys.modules["stopping"]


def test_images_that_cannot_be_read_are_listed(photos, capsys):
    Path("photos/part0/bad.png").write_text("not an image")
    command = ("encode", "photos", "--out", "f.parquet", "--encoder", FLOATS)
    code, _, wrong = answer(capsys, *command)
    assert code == 1 and "  part0/bad.png: not an image in a known format\n" in wrong
    assert "labelwise: 1 of 31 images cannot be read; repair or remove them, or" in wrong
    code, said, wrong = answer(capsys, *command, "--skip-broken")
    assert code == 0 and said.startswith("30 items") and "1 of 31 images" in wrong
    assert "part0/bad.png" not in pq.read_table("f.parquet")["id"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("encode photos --out f.csv", "cannot write 'f.csv'; end the name in .npy, .parquet"),
        ("encode photos --out no/f.npy", "there is no folder no to write f.npy to"),
        ("encode nothing --out f.npy", "there is no file nothing"),
        ("encode empty --out f.npy", "empty has no images"),
        ("encode photos --out f.npy --text a", "name columns of a table"),
        ("encode photos --out f.npy --encoder resnet", "there is no encoder 'resnet'"),
        ("encode photos --out f.npy --encoder onnx:t.csv", "cannot be loaded as an ONNX model"),
        ("encode photos --out f.npy --device tpu", "device is auto, cpu or cuda; got 'tpu'"),
        ("encode t.csv --out f.npy --text c", "t.csv has no column 'c'; it has a, b"),
        ("encode t.csv --out f.npy", "name the texts of t.csv with --text, of a, b"),
        ("encode t.csv --text a --out f.npy --encoder minilm", "labelwise encoders fetch minilm"),
        ("encoders fetch resnet", "there is no encoder 'resnet'; choose from efficientnet_lite0"),
    ],
)
def test_mistakes_are_one_line(photos, arguments, message, capsys):
    Path("empty").mkdir()
    Path("t.csv").write_text("a,b\nsome text,1\nanother text,2\n")
    code, said, wrong = answer(capsys, *arguments.split())
    assert (code, said) == (1, "") and message in wrong and wrong.count("\n") == 1


def test_encoders_are_listed_and_those_of_the_package_need_no_download(capsys):
    code, said, _ = answer(capsys, "encoders")
    assert code == 0
    for word in ("1,280", "384", "6.7 MB", "22.9 MB", "ready", "tfidf", "timm:NAME"):
        assert word in said
    assert run(["encoders", "fetch", "tfidf", "efficientnet_lite0"]) == 0
    said = capsys.readouterr().out
    assert "tfidf needs no file" in said and "efficientnet_lite0 is in" in said
