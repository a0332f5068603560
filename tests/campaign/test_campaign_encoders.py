"""Encoders of a campaign: encoded once, resumed, verified, several at a time."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.campaign.folder.encoders import encode_new_items
from labelwise.campaign.project import Project
from labelwise.errors import BadInput, MissingDependency
from tests.campaign.sources import NAMES, digit_of, write_digits, write_texts

MODELS = Path(__file__).parents[1] / "data" / "encoders"
COUNTING = """
from pathlib import Path

def colours(images):
    with Path({log!r}).open("a") as file:
        file.write("." * len(images))
    if Path({stop!r}).exists() and len(Path({log!r}).read_text()) > 40:
        raise KeyboardInterrupt
    return images[:, 0].reshape(len(images), -1)[:, ::50]

colours.side = 32
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """An encoder next to the campaign that counts images, and is interrupted after 40 of them."""
    log, stop, name = tmp_path / "log", tmp_path / "stop", "counting_colours"
    log.write_text("")
    (tmp_path / f"{name}.py").write_text(COUNTING.format(log=str(log), stop=str(stop)))
    yield lambda: len(log.read_text())
    sys.modules.pop(name, None)


def test_an_interrupted_start_goes_on_and_a_refresh_encodes_new_files_only(tmp_path, counting):
    source = write_digits(tmp_path / "digits", range(100))
    start = {"home": tmp_path / "c", "encoder": "counting_colours:colours", "classes": NAMES}
    (tmp_path / "stop").touch()
    with pytest.raises(KeyboardInterrupt):
        Project.start(source, **start)
    assert not (tmp_path / "c").exists() and counting() > 40
    (tmp_path / "stop").unlink()
    before = counting()
    project = Project.start(source, **start)
    assert counting() - before < 100 - 30 and not (tmp_path / ".c.encoding").exists()
    paths = [project.items.path(item) for item in project.items]
    sys.path.insert(0, str(tmp_path))
    try:
        expected = labelwise.encode(paths, "counting_colours:colours")
    finally:
        sys.path.remove(str(tmp_path))
    np.testing.assert_array_equal(project.inputs, expected)
    write_digits(source, range(100, 107))
    before = counting()
    assert project.refresh().new == 7
    assert counting() - before == 8  # one more to find the number of features
    assert project.inputs.shape == (107, expected.shape[1])


def test_a_changed_encoder_is_detected(tmp_path, counting):
    source = write_digits(tmp_path / "digits", range(5))
    project = Project.start(source, home=tmp_path / "c", encoder="counting_colours:colours")
    before = np.array(project.inputs)
    write_digits(source, range(5, 7))
    module = tmp_path / "counting_colours.py"
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(BadInput, match="the encoder counting_colours:colours has changed since"):
        project.refresh()
    np.testing.assert_array_equal(Project.open(tmp_path / "c").inputs, before)


def test_a_model_moves_with_the_campaign_and_must_stay_the_same(tmp_path, monkeypatch):
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    write_digits(place / "digits", range(6))
    shutil.copy(MODELS / "mean_of_floats.onnx", place / "model.onnx")
    project = Project.start("digits", encoder="onnx:model.onnx")
    assert project.description.encoder == "onnx:../model.onnx"
    monkeypatch.chdir(tmp_path)
    place.rename(tmp_path / "there")
    write_digits(tmp_path / "there" / "digits", range(6, 9))
    moved = Project.open(tmp_path / "there" / "digits.labelwise")
    assert moved.refresh().new == 3
    new = encode_new_items(moved.home, moved.description, [moved.items.path(0)])
    np.testing.assert_allclose(new[0], moved.inputs[0], atol=1e-6)
    shutil.copy(MODELS / "mean_of_bytes.onnx", tmp_path / "there" / "model.onnx")
    write_digits(tmp_path / "there" / "digits", [9])
    with pytest.raises(BadInput, match=r"model\.onnx has changed since the campaign was started"):
        moved.refresh()


@pytest.mark.parametrize("strategy", ["lewis", "disagreement"])
def test_several_encoders_give_several_models(strategy, tmp_path):
    source = write_digits(tmp_path / "digits", range(60))
    encoders = [f"onnx:{MODELS / name}.onnx" for name in ("mean_of_floats", "mean_of_bytes")]
    project = Project.start(
        source,
        home=tmp_path / "c",
        encoder=["auto", *encoders],
        classes=NAMES,
        strategy=strategy,
        batch=20,
    )
    assert project.description.widths == (1280, 3, 3) and project.inputs.shape == (60, 1286)
    np.testing.assert_allclose(
        project.inputs[:, 1280:1283], labelwise.encode(source, encoders[0]), atol=1e-5
    )
    campaign = project.campaign(device="cpu")
    first = campaign.ask()
    campaign.tell({item: digit_of(project, item) for item in first.ids.tolist()})
    campaign.train()
    second = campaign.ask()
    assert second.info["strategy"] == strategy and not set(first.ids) & set(second.ids)
    features = campaign.learner.represent(campaign.pool.inputs, ["features"])["features"]
    assert [rows.shape[0] for rows in features] == [60, 60, 60]


def test_several_files_of_features_are_several_representations(tmp_path):
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    np.save(tmp_path / "f.npy", one)
    np.save(tmp_path / "g.npy", two)
    files = [tmp_path / "f.npy", tmp_path / "g.npy"]
    project = Project.start(
        files[0],
        home=tmp_path / "c",
        features=files,
        strategy="lewis",
        classes=["a", "b"],
        batch=10,
    )
    both = np.concatenate([one, two], axis=1)
    np.testing.assert_allclose(
        project.inputs, (both - both.mean(axis=0)) / both.std(axis=0), atol=1e-5
    )
    assert project.description.widths == (4, 3)
    campaign = project.campaign(device="cpu")
    first = campaign.ask()
    campaign.tell({item: "ab"[item % 2] for item in first.ids.tolist()})
    campaign.train()
    assert campaign.ask().info["strategy"] == "lewis"
    np.save(tmp_path / "f.npy", rng.normal(size=(52, 4)))
    with pytest.raises(BadInput, match=r"g\.npy has 50 rows for 52 items"):
        project.refresh()


def test_values_may_be_asked_for_by_a_committee_of_several_models(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for name in ("f", "g"):
        files.append(tmp_path / f"{name}.npy")
        np.save(files[-1], rng.normal(size=(40, 3)))
    settings = {"strategy": "committee", "regression": True, "batch": 10}
    project = Project.start(files[0], home=tmp_path / "c", features=files, **settings)
    campaign = project.campaign(device="cpu")
    campaign.tell({item: float(item) for item in campaign.ask().ids.tolist()})
    campaign.train()
    assert campaign.ask().info["strategy"] == "committee"
    with pytest.raises(BadInput, match="committee needs"):
        Project.start(files[0], home=tmp_path / "d", features=files[0], **settings)


def test_encoders_and_features_are_not_combined(tmp_path):
    write_texts(tmp_path / "notes.jsonl", 10)
    np.save(tmp_path / "f.npy", np.ones((10, 2)))
    for source in ("notes.jsonl", "f.npy"):
        with pytest.raises(BadInput, match="give features or encoders, not both"):
            Project.start(
                tmp_path / source, home=tmp_path / "c", encoder="tfidf", features=tmp_path / "f.npy"
            )


def test_numbers_are_not_encoded(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(BadInput, match="minilm cannot encode numbers"):
        Project.start(tmp_path / "t.csv", home=tmp_path / "c", encoder="minilm")


def test_texts_are_encoded_by_a_model_or_by_their_words(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "empty"))
    write_texts(tmp_path / "notes.jsonl", 20)
    words = Project.start(tmp_path / "notes.jsonl", home=tmp_path / "a")
    assert words.description.encoder == "tfidf"
    assert any("labelwise encoders fetch minilm" in note for note in words.ingested.notes)
    spec = f"onnx:{MODELS / 'words.onnx'}"
    model = Project.start(tmp_path / "notes.jsonl", home=tmp_path / "b", encoder=spec)
    texts = [model.items.entry(item)["text"] for item in model.items]
    np.testing.assert_array_equal(model.inputs, labelwise.encode(texts, spec))


def test_without_onnxruntime_the_remedy_is_named(tmp_path, monkeypatch):
    source = write_digits(tmp_path / "digits", range(3))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match=r"run pip install 'labelwise\[encoders\]'"):
        Project.start(source, home=tmp_path / "c")
    assert not list(tmp_path.glob("*c*/*"))
    assert len(Project.start(source, home=tmp_path / "c", encoder="none").inputs) == 3
