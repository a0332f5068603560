"""ONNX encoders, against NumPy and, for the shipped model, against torch."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from labelwise.encoders.encoder import check_features
from labelwise.encoders.onnx_models import DEVIATION, MEAN, open_onnx
from labelwise.encoders.registry import BUILT_IN, open_encoder
from labelwise.errors import BadInput

MODELS = Path(__file__).parents[1] / "data" / "encoders"


def random_images(count, side):
    return np.random.default_rng(0).integers(0, 256, (count, 3, side, side)).astype(np.uint8)


def test_the_shipped_model_gives_the_features_of_torch():
    y, x = np.mgrid[0:224, 0:224]
    first = np.stack([x, y, (x + y) // 2])
    second = np.stack([(x // 28 + y // 28) % 2 * 200 + 20, (x * y) % 256, 255 - y])
    found = open_encoder("efficientnet_lite0", "images").encode_batch(
        np.stack([first, second]).astype(np.uint8)
    )
    expected = np.load(MODELS / "efficientnet_lite0_torch.npy").astype(np.float32)
    for row, wanted in zip(found, expected, strict=True):
        assert np.corrcoef(row, wanted)[0, 1] > 0.999  # the weights are rounded to float16
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_the_entry_of_the_shipped_model_is_true():
    entry, encoder = BUILT_IN["efficientnet_lite0"], open_encoder("efficientnet_lite0", "images")
    assert (encoder.dimension, encoder.checksum) == (entry.dimension, entry.sha256)
    assert entry.path.stat().st_size == pytest.approx(entry.megabytes * 1e6, rel=0.02)


def test_floats_are_scaled_by_the_mean_and_deviation_of_imagenet():
    encoder, images = open_onnx(MODELS / "mean_of_floats.onnx", name="m"), random_images(5, 8)
    pixels = images / 255
    expected = [
        [(image[channel].mean() - MEAN[channel]) / DEVIATION[channel] for channel in range(3)]
        for image in pixels
    ]
    assert (encoder.kind, encoder.side, encoder.dimension) == ("images", 8, 3)
    np.testing.assert_allclose(encoder.encode_batch(images), expected, atol=1e-5)


def test_a_fixed_batch_size_with_channels_last_takes_any_number_of_images():
    encoder, images = open_onnx(MODELS / "mean_of_bytes.onnx", name="m"), random_images(5, 6)
    assert (encoder.side, encoder.batch_size) == (6, 2)
    np.testing.assert_allclose(encoder.encode_batch(images), images.mean(axis=(2, 3)), rtol=1e-5)


def test_texts_are_means_of_their_tokens_of_length_one():
    encoder = open_onnx(MODELS / "words.onnx", name="w")
    table = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    tokenizer = Tokenizer.from_file(str(MODELS / "tokenizer.json"))
    texts = ["a red rose", "oak", "a b c d e f g oak"]
    found = encoder.encode_batch(texts)
    for text, row in zip(texts, found, strict=True):
        mean = np.mean([table[number] for number in tokenizer.encode(text).ids], axis=0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), rtol=1e-5)
    assert encoder.kind == "texts" and encoder.dimension == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.onnx", "there is no file"),
        ("tokenizer.json", "cannot be loaded as an ONNX model"),
        ("rows.onnx", r"takes rows \['b', 5\]; an encoder takes one input of images"),
    ],
)
def test_a_file_that_is_not_an_encoder_is_one_line(name, message):
    with pytest.raises(BadInput, match=message) as caught:
        open_onnx(MODELS / name, name=name)
    assert "\n" not in str(caught.value)


def test_a_model_of_texts_needs_its_tokenizer(tmp_path):
    path = tmp_path / "words.onnx"
    path.write_bytes((MODELS / "words.onnx").read_bytes())
    with pytest.raises(BadInput, match=r"needs .*tokenizer\.json"):
        open_onnx(path, name="w")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="is not a tokenizer"):
        open_onnx(path, name="w")


def test_a_gpu_that_is_not_there_is_an_error_only_if_asked_for():
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("there is a GPU")
    assert open_onnx(MODELS / "words.onnx", name="w", device="auto").dimension == 4
    with pytest.raises(BadInput, match="finds no GPU; run pip install onnxruntime-gpu"):
        open_onnx(MODELS / "words.onnx", name="w", device="cuda")
    with pytest.raises(BadInput, match="device is auto, cpu or cuda; got 'tpu'"):
        open_onnx(MODELS / "words.onnx", name="w", device="tpu")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (np.ones(3), r"returns an array of shape \(3,\) for 3 items"),
        (np.ones((2, 4)), r"must return \(3, d\)"),
        (np.ones((3, 5)), "returns 5 features but returned 4 before"),
        (np.full((3, 4), np.nan), "returns NaN or infinite features"),
        ([["a"]], "does not return numbers"),
    ],
)
def test_wrong_features_are_rejected(found, message):
    with pytest.raises(BadInput, match=message):
        check_features("mine", found, 3, 4)
