"""Encoding many items, against one item at a time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise
from labelwise.encoders.encoding import find_items, prepare_image
from labelwise.encoders.registry import open_encoder
from labelwise.errors import BadInput
from tests.encoders.counting import CountingEncoder

MODELS = Path(__file__).parents[1] / "data" / "encoders"
FLOATS, WORDS = f"onnx:{MODELS / 'mean_of_floats.onnx'}", f"onnx:{MODELS / 'words.onnx'}"


def write_images(folder, count=21):
    rng = np.random.default_rng(0)
    for number in range(count):
        shape = (8 + number, 9, 3) if number % 2 else (8, 8 + number)
        pixels = rng.integers(0, 256, shape).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return sorted(folder.glob("*.png"))


def test_a_folder_is_encoded_like_its_images_one_by_one(tmp_path):
    paths = write_images(tmp_path)
    encoder = open_encoder(FLOATS, "images")
    slow = np.concatenate([encoder.encode_batch(prepare_image(p, 8)[None]) for p in paths])
    calls = []
    found = labelwise.encode(
        tmp_path, FLOATS, batch_size=4, progress=lambda *given: calls.append(given)
    )
    np.testing.assert_allclose(found, slow, atol=1e-5)
    assert found.dtype == np.float32 and calls[-1] == ("encoding", 21, 21)
    np.testing.assert_array_equal(labelwise.encode(paths, FLOATS, batch_size=4), found)
    names = [str(path) for path in paths]
    np.testing.assert_array_equal(labelwise.encode(names, encoder, batch_size=4), found)


def test_images_in_memory_may_have_any_usual_form(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 10, 12, 3)).astype(np.uint8)
    expected = labelwise.encode(pixels, FLOATS)
    forms = [
        pixels.transpose(0, 3, 1, 2),
        pixels / 255,
        list(pixels),
        [Image.fromarray(image) for image in pixels],
    ]
    for form in forms:
        np.testing.assert_array_equal(labelwise.encode(form, FLOATS), expected)
    grey = labelwise.encode(pixels[..., 0], FLOATS)
    np.testing.assert_array_equal(grey, labelwise.encode(pixels[..., [0, 0, 0]], FLOATS))


def test_texts_of_different_lengths_keep_their_order():
    texts = ["oak " * n + "red rose" for n in np.random.default_rng(0).integers(1, 30, 50)]
    encoder = open_encoder(WORDS, "texts")
    slow = np.concatenate([encoder.encode_batch([text]) for text in texts])
    np.testing.assert_array_equal(labelwise.encode(texts, WORDS, batch_size=7), slow)


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    write_images(tmp_path, 5)
    (tmp_path / "03.png").write_bytes(b"not an image")
    with pytest.raises(BadInput, match=r"1 of 5 images cannot be read \(.*03\.png: not an image"):
        labelwise.encode(tmp_path, FLOATS)
    with pytest.raises(BadInput, match=r"1 of 1 images cannot be read \(nothing\.jpg: "):
        labelwise.encode(["nothing.jpg"], FLOATS)
    bad = np.full((2, 8, 8, 3), 1.5)
    with pytest.raises(BadInput, match=r"item 0: images of floats have values from 0 to 1"):
        labelwise.encode(bad, FLOATS)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nowhere is not a folder of images"),
        ([], "the list is empty"),
        (["a text", 3], "texts only or images only; got texts and int"),
    ],
)
def test_a_source_that_cannot_be_encoded_is_an_error(source, message):
    with pytest.raises(BadInput, match=message):
        find_items(source)


def test_items_of_the_wrong_kind_are_rejected():
    with pytest.raises(BadInput, match="encodes texts, and these items are images"):
        labelwise.encode(np.zeros((1, 8, 8), np.uint8), WORDS)
    with pytest.raises(BadInput, match="counting encodes texts, and these items are images"):
        labelwise.encode(np.zeros((1, 8, 8), np.uint8), CountingEncoder())
    with pytest.raises(BadInput, match="a batch has one item or more; got 0"):
        labelwise.encode(["a"], CountingEncoder(), batch_size=0)


def test_an_error_of_the_model_ends_the_encoding():
    encoder = CountingEncoder(fail_after=10)
    with pytest.raises(RuntimeError, match="out of power"):
        labelwise.encode([f"text {number}" for number in range(100)], encoder)
    assert len(encoder.seen) < 50


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_every_mode_becomes_rgb_bytes(mode, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30)).astype(np.uint8)
    wide = {"I;16": np.uint16, "F": np.float32}.get(mode)
    picture = Image.fromarray(pixels if wide is None else pixels.astype(wide) * 257)
    path = tmp_path / "image.tif"
    (picture if wide else picture.convert(mode)).save(path)
    found = prepare_image(path, 16)
    assert found.shape == (3, 16, 16) and found.dtype == np.uint8
    if mode not in ("1", "P"):  # these lose grey levels
        expected = prepare_image(pixels, 16).astype(int)
        assert np.abs(found - expected).max() <= 8


def test_a_photo_taken_sideways_is_encoded_upright(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    turned, exif = Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    turned.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(prepare_image(tmp_path / "a.png", 16), prepare_image(pixels, 16))


def test_an_image_with_too_many_pixels_is_not_opened(tmp_path, monkeypatch):
    Image.new("L", (300, 300)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadInput, match="too many pixels to open safely"):
        labelwise.encode(tmp_path, FLOATS)
