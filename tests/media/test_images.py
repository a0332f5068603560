"""What pictures become before a network sees them, against plain NumPy and Pillow."""

import numpy as np
import pytest
from PIL import Image

from labelwise.errors import BadInput
from labelwise.media.images import find_image_format, read_image, read_images


def saved(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


def test_a_picture_is_shrunk_to_the_means_of_its_squares(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3)).astype(np.uint8)
    got = read_image(saved(tmp_path / "a.png", pixels), 4, grey=False)
    means = pixels.reshape(4, 3, 4, 3, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert got.shape == (3, 4, 4) and got.dtype == np.uint8
    np.testing.assert_allclose(got, means, atol=1)


def test_a_picture_stands_as_its_camera_held_it(tmp_path):
    pixels = np.zeros((8, 8), dtype=np.uint8)
    pixels[0] = 200  # the top row is bright
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    got = read_image(saved(tmp_path / "a.png", pixels, exif=exif), 8, grey=True)[0]
    np.testing.assert_array_equal(got, np.rot90(pixels, -1))


@pytest.mark.parametrize(("mode", "clear"), [("RGBA", (9, 9, 9, 0)), ("LA", (9, 0))])
def test_what_is_transparent_is_white(mode, clear, tmp_path):
    Image.new(mode, (8, 8), clear).save(tmp_path / "a.png")
    assert (read_image(tmp_path / "a.png", 4, grey=False) == 255).all()


def test_a_palette_with_a_transparent_colour_is_white_there(tmp_path):
    picture = Image.new("P", (8, 8), 0)
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.putpixel((0, 0), 1)
    picture.save(tmp_path / "a.png", transparency=0)
    got = read_image(tmp_path / "a.png", 8, grey=False)
    assert got[:, 0, 0].tolist() == [40, 50, 60] and (got[:, 1:, :] == 255).all()


def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path):
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    got = read_image(saved(tmp_path / "a.png", values), 8, grey=True)[0]
    np.testing.assert_array_equal(got, values // 257)
    floats = values.astype(np.float32) / 7 - 100
    got = read_image(saved(tmp_path / "f.tif", floats), 8, grey=True)[0]
    np.testing.assert_allclose(got, np.linspace(0, 255, 64).reshape(8, 8), atol=1.01)


def test_the_first_picture_of_an_animation_and_print_colours_are_read(tmp_path):
    frames = [Image.new("L", (8, 8), shade) for shade in (50, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (read_image(tmp_path / "a.gif", 4, grey=True) == 50).all()
    Image.new("CMYK", (8, 8), (0, 0, 0, 255)).save(tmp_path / "c.jpg")
    assert (read_image(tmp_path / "c.jpg", 4, grey=False) < 8).all()


def test_a_large_jpeg_decoded_small_is_the_same_picture(tmp_path):
    ramp = np.tile(np.linspace(0, 255, 1024), (1024, 1)).astype(np.uint8)
    got = read_image(saved(tmp_path / "a.jpg", ramp, quality=95), 16, grey=True)[0]
    np.testing.assert_allclose(got, ramp.reshape(16, 64, 16, 64).mean(axis=(1, 3)), atol=3)


def test_the_form_is_that_of_all_pictures_and_broken_ones_are_named(tmp_path):
    small = saved(tmp_path / "s.png", np.zeros((6, 9), np.uint8))
    large = saved(tmp_path / "l.png", np.zeros((50, 40), np.uint8))
    colour = saved(tmp_path / "c.png", np.zeros((5, 5, 3), np.uint8))
    (tmp_path / "b.png").write_text("no picture")
    assert find_image_format([small]).shape == (1, 9, 9)
    assert str(find_image_format([small, large])) == "32 x 32, grey"
    assert find_image_format([small, colour], side=8).shape == (3, 8, 8)
    form = find_image_format([small, tmp_path / "b.png", tmp_path / "none.png"])
    assert form.broken == {
        tmp_path / "b.png": "not an image in a known format",
        tmp_path / "none.png": "no such file or directory",
    }
    with pytest.raises(BadInput, match="a side of 4 or more; got 2"):
        find_image_format([small], side=2)


def test_pictures_are_read_in_order_and_broken_ones_leave_their_row(tmp_path):
    files = [saved(tmp_path / f"{n}.png", np.full((8, 8), n, np.uint8)) for n in range(5)]
    noise = np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)
    whole = saved(files[2], noise).read_bytes()
    files[2].write_bytes(whole[: len(whole) // 2])
    out, told = np.full((5, 1, 4, 4), 77, dtype=np.uint8), []
    broken = read_images(files, out, progress=lambda *words: told.append(words))
    assert list(broken) == [files[2]] and "truncated" in broken[files[2]].lower()
    assert out[:, 0, 0, 0].tolist() == [0, 1, 77, 3, 4]
    assert told == [("reading images", 5, 5)]
