"""Every image format gives back the images and classes that were written in it."""

import io
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from labelwise.benchmark.datasets import CATALOGUE, readers
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import (
    idx,
    matched,
    python_2_batch,
    some_classes,
    some_images,
    zipped,
)


def same(parts, train, classes, test, test_classes):
    """All four arrays are as written, and of the types that stores keep."""
    for found, wanted in zip(parts, (train, classes, test, test_classes), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert (parts.targets.dtype, parts.test_targets.dtype) == (np.int64, np.int64)


def read(name, files, layout=0, **options):
    """Read files by a layout of a data set."""
    chosen = CATALOGUE[name].layouts[layout]
    return chosen.read(matched(files, *chosen.patterns), **options)


def sets(channels, side, classes=10, train=12, test=5):
    return (
        some_images(train, channels, side, 1),
        some_classes(train, classes, 1),
        some_images(test, channels, side, 2),
        some_classes(test, classes, 2),
    )


def test_idx_files_in_the_names_of_mnist():
    train, classes, test, test_classes = wanted = sets(1, 28)
    files = {
        "train-images-idx3-ubyte": idx(train[:, 0]),
        "train-labels-idx1-ubyte": idx(classes),
        "raw/t10k-images.idx3-ubyte": idx(test[:, 0]),
        "raw/t10k-labels.idx1-ubyte": idx(test_classes),
    }
    same(read("mnist", files), *wanted)


@pytest.mark.parametrize(
    ("code", "dtype"), [(8, ">u1"), (9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_files_of_every_type(code, dtype):
    values = np.array([[1, 2, 3], [4, 5, -6 if code != 8 else 6]], dtype)
    head = bytes([0, 0, code, 2, 0, 0, 0, 2, 0, 0, 0, 3])
    found = readers.read_idx("x", head + values.tobytes())
    np.testing.assert_array_equal(found, values)
    assert found.dtype.isnative


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x1f\x8b\x08\x00", "is not an IDX file"),
        (b"", "is not an IDX file"),
        (idx(np.zeros(5))[:-1], "instead of 13"),
        (idx(np.zeros(5)) + b"0", "instead of 13"),
    ],
)
def test_a_broken_idx_file_is_refused(data, words):
    with pytest.raises(BadInput, match=words):
        readers.read_idx("labels", data)


@pytest.mark.parametrize("old", [True, False])
def test_cifar_in_pickles_of_python_2_and_3(old):
    train, classes, test, test_classes = wanted = sets(3, 32)

    def batch(pictures, labels):
        if old:
            return python_2_batch(pictures, labels)
        rows = pictures.reshape(len(pictures), -1)
        return pickle.dumps({"data": rows, "labels": labels.tolist()})

    files = {
        "p/data_batch_1": batch(train[:4], classes[:4]),
        "p/data_batch_2": batch(train[4:], classes[4:]),
        "p/test_batch": batch(test, test_classes),
    }
    same(read("cifar10", files, 1), *wanted)


def test_a_pickle_without_the_labels_wanted_is_named():
    files = {"train": python_2_batch(some_images(2, 3, 32), [1, 2]), "test": b""}
    with pytest.raises(BadInput, match=r"train is not a CIFAR batch \('fine_labels'\)"):
        readers.read_cifar_pickles(matched(files, "train", "test"), labels="fine_labels")


def picture(array, form="PNG", **options):
    """An image file from ``(channels, height, width)``."""
    file = io.BytesIO()
    shown = array[0] if len(array) == 1 else array.transpose(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(shown)).save(file, form, **options)
    return file.getvalue()


def rows(pictures):
    """Pictures as the rows of one large picture, the colours of a pixel beside each other."""
    flat = pictures.transpose(0, 2, 3, 1).reshape(len(pictures), -1, 3)
    return picture(flat.transpose(2, 0, 1))


def cifar_rows():
    train, classes, test, test_classes = wanted = sets(3, 32)
    files = {
        "data_batch_1.png": rows(train[:5]),
        "data_batch_2.png": rows(train[5:]),
        "test_batch.png": rows(test),
        "train_lables.json": json.dumps(classes.tolist()).encode(),
        "test_lables.json": json.dumps(test_classes.tolist()).encode(),
    }
    return files, wanted


def test_cifar_in_rows_of_png_files():
    files, wanted = cifar_rows()
    same(read("cifar10", files), *wanted)


def human_file(**labels):
    return zipped({"archive/data.pkl": pickle.dumps(labels, 2), "archive/version": b"3"})


def test_human_labels_replace_those_of_the_training_pool_alone():
    files, (train, classes, test, test_classes) = cifar_rows()
    worse = (classes + 1) % 10
    files["CIFAR-10_human.pt"] = human_file(clean_label=classes, worse_label=worse)
    found = read("cifar10n_worse", files)
    same(found, train, worse, test, test_classes)


def test_human_labels_for_images_in_another_order_are_refused():
    files, (_, classes, *_) = cifar_rows()
    files["CIFAR-10_human.pt"] = human_file(clean_label=np.roll(classes, 1), worse_label=classes)
    with pytest.raises(BadInput, match="clean labels that differ"):
        read("cifar10n_worse", files)


def test_stl_10_lies_column_by_column_and_counts_from_1():
    train, classes, test, test_classes = wanted = sets(3, 96)
    files = {
        "stl10_binary/train_X.bin": train.transpose(0, 1, 3, 2).tobytes(),
        "stl10_binary/train_y.bin": (classes + 1).astype(np.uint8).tobytes(),
        "stl10_binary/test_X.bin": test.transpose(0, 1, 3, 2).tobytes(),
        "stl10_binary/test_y.bin": (test_classes + 1).astype(np.uint8).tobytes(),
    }
    same(read("stl10", files), *wanted)


def test_image_folders_scale_every_picture_to_a_square():
    flat = {"ant": (30, 200), "bee": (90, 10), "BACKGROUND_Google": (7, 7)}
    files = {
        f"c/{name}/image_{n}.jpg": picture(np.full((3, 40, 60), grey, np.uint8), "JPEG")
        for name, greys in flat.items()
        for n, grey in enumerate(greys)
    }
    found = readers.read_image_folders(
        matched(files, "*/*.jpg"), side=8, share=0.25, without=("BACKGROUND_Google",)
    )
    assert found.inputs.shape == (3, 3, 8, 8)
    both = np.concatenate([found.inputs, found.test_inputs]).mean(axis=(1, 2, 3)).round()
    classes = np.concatenate([found.targets, found.test_targets])
    assert sorted(zip(classes, both, strict=True)) == [(0, 30), (0, 200), (1, 10), (1, 90)]


def test_grey_pictures_become_coloured_where_colours_are_wanted():
    grey = some_images(1, 1, 6)[0]
    found = readers.decode_dataset_images([("x.png", picture(grey))], 6)
    np.testing.assert_array_equal(found, np.repeat(grey, 3, axis=0)[None])


def test_what_is_no_picture_is_named():
    with pytest.raises(BadInput, match=r"broken.jpg is not an image"):
        readers.decode_dataset_image("broken.jpg", b"hello", "RGB")


def mat(**arrays):
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, arrays)
    return file.getvalue()


def test_svhn_writes_the_digit_0_as_10():
    train, classes, test, test_classes = wanted = sets(3, 32)

    def part(pictures, digits):
        labels = np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]
        return mat(X=pictures.transpose(2, 3, 1, 0), y=labels)

    files = {"train_32x32.mat": part(train, classes), "test_32x32.mat": part(test, test_classes)}
    same(read("svhn", files), *wanted)


def test_usps_goes_from_minus_1_to_1():
    generator = np.random.default_rng(0)
    patterns, digits = generator.uniform(-1, 1, (4, 256)), np.array([3, 0, 9, 3])
    labels = np.where(np.arange(10)[:, None] == digits, 1, -1).astype(np.int16)
    part = {"train_patterns": patterns.T, "train_labels": labels}
    test = {"test_patterns": patterns.T[:, :2], "test_labels": labels[:, :2]}
    found = read("usps", {"usps_resampled.mat": mat(**part, **test)})
    np.testing.assert_allclose(found.inputs, (patterns.reshape(4, 1, 16, 16) + 1) / 2, atol=1e-7)
    assert found.targets.tolist() == [3, 0, 9, 3]
    assert (found.test_inputs.shape, found.test_targets.tolist()) == ((2, 1, 16, 16), [3, 0])


def test_a_broken_mat_file_is_named():
    with pytest.raises(BadInput, match=r"train_32x32.mat is not a .mat file with X and y"):
        read("svhn", {"train_32x32.mat": b"MATLAB 5.0", "test_32x32.mat": b""})
