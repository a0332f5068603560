"""The papers' other data sets, each loaded by name from small files in its original form."""

import gzip
import io
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from labelwise.benchmark.datasets import CATALOGUE, load
from labelwise.benchmark.datasets.readers import read_biwi
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import (
    idx,
    put,
    python_2_batch,
    some_classes,
    some_images,
    tarred,
    zipped,
)


def small(name, folder, train, test, **changes):
    """The data set of the catalogue, but with few items."""
    few = {"train": train, "test": test, "train_counts": None, "test_counts": None}
    return load(replace(CATALOGUE[name], **few, **changes), folder)


def as_written(found, images, classes, train):
    """Images in [0, 1] and classes, the first ``train`` of them for training."""
    np.testing.assert_allclose(found.inputs, images[:train] / 255, rtol=1e-6)
    np.testing.assert_allclose(found.test_inputs, images[train:] / 255, rtol=1e-6)
    assert [*found.targets, *found.test_targets] == classes.tolist()
    assert found.shape == CATALOGUE[found.name].shape


def four_idx_files(images, classes, train, prefix="", test="t10k"):
    names = [f"{prefix}{part}-{kind}" for part in ("train", test) for kind in ("images", "labels")]
    arrays = images[:train], classes[:train], images[train:], classes[train:]
    return {
        f"{name}-idx{array.ndim}-ubyte.gz": gzip.compress(idx(array))
        for name, array in zip(names, arrays, strict=True)
    }


def test_kmnist_from_idx_files(tmp_path):
    images, classes = some_images(9, 1, 28), some_classes(9, 10)
    for name, data in four_idx_files(images[:, 0], classes, 6).items():
        put(tmp_path, name, data)
    as_written(small("kmnist", tmp_path, 6, 3), images, classes, 6)


@pytest.mark.parametrize(("split", "first"), [("digits", 0), ("letters", 1)])
def test_emnist_from_its_zip_file_with_all_splits_and_images_on_their_side(split, first, tmp_path):
    images, classes = some_images(9, 1, 28), some_classes(9, 10)
    lying = images[:, 0].transpose(0, 2, 1)
    files = four_idx_files(lying, classes + first, 6, f"gzip/emnist-{split}-", "test")
    other = four_idx_files(lying[::-1], classes, 5, "gzip/emnist-balanced-", "test")
    put(tmp_path, "gzip.zip", zipped({**other, **files}))
    as_written(small(f"emnist_{split}", tmp_path, 6, 3), images, classes, 6)


def test_svhn_from_its_cropped_digits(tmp_path):
    images, digits = some_images(9, 3, 32), some_classes(9, 10)
    for part, rows in (("train", slice(6)), ("test", slice(6, None))):
        labels = np.where(digits == 0, 10, digits)[rows, None].astype(np.uint8)
        file = io.BytesIO()
        savemat(file, {"X": images[rows].transpose(2, 3, 1, 0), "y": labels})
        put(tmp_path, f"{part}_32x32.mat", file.getvalue())
    as_written(small("svhn", tmp_path, 6, 3), images, digits, 6)


@pytest.mark.parametrize("old", [True, False])
def test_cifar_100_from_its_pickles(old, tmp_path):
    images, fine = some_images(9, 3, 32), some_classes(9, 9) * 11

    def batch(rows):
        if old:
            return python_2_batch(images[rows], fine[rows], "fine_labels")
        data = images[rows].reshape(-1, 3072)
        return pickle.dumps({b"data": data, b"fine_labels": fine[rows].tolist()})

    put(tmp_path, "cifar-100-python/train", batch(slice(6)))
    put(tmp_path, "cifar-100-python/test", batch(slice(6, None)))
    for folder in (tmp_path, tmp_path / "cifar-100-python"):
        as_written(small("cifar100", folder, 6, 3), images, fine, 6)


def test_cifar_10_from_pickles_that_would_do_harm_is_refused(tmp_path):
    for name in ("data_batch_1", "test_batch"):
        put(tmp_path, f"cifar-10-batches-py/{name}", pickle.dumps({"data": print}))
    with pytest.raises(BadInput, match=r"builtins.print"):
        small("cifar10", tmp_path, 6, 3)


def test_stl_10_from_its_archive_beside_the_unlabelled_part(tmp_path):
    images, classes = some_images(5, 3, 96), some_classes(5, 5)
    columns = images.transpose(0, 1, 3, 2)
    members = {
        "stl10_binary/train_X.bin": columns[:3].tobytes(),
        "stl10_binary/train_y.bin": (classes[:3] + 1).astype(np.uint8).tobytes(),
        "stl10_binary/test_X.bin": columns[3:].tobytes(),
        "stl10_binary/test_y.bin": (classes[3:] + 1).astype(np.uint8).tobytes(),
        "stl10_binary/unlabeled_X.bin": b"never read",
    }
    put(tmp_path, "stl10_binary.tar.gz", tarred(members))
    as_written(small("stl10", tmp_path, 3, 2), images, classes, 3)


def jpeg(grey, height, width):
    """A picture of one colour, which JPEG keeps."""
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), grey, np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


def test_caltech_101_from_an_archive_inside_its_archive(tmp_path):
    greys = {"accordion": [10, 20, 30], "BACKGROUND_Google": [1, 2], "yin_yang": [110, 120]}
    members = {
        f"101_ObjectCategories/{name}/image_{n:04}.jpg": jpeg(grey, 30 + n, 50)
        for name, values in greys.items()
        for n, grey in enumerate(values)
    }
    inside = tarred(members)
    put(tmp_path, "caltech-101.zip", zipped({"caltech-101/101_ObjectCategories.tar.gz": inside}))
    found = small("caltech101", tmp_path, 4, 1)
    assert found.shape == (3, 64, 64)
    images = np.concatenate([found.inputs, found.test_inputs])
    greys_found = (images.mean(axis=(1, 2, 3)) * 255).round().astype(int)
    classes = np.concatenate([found.targets, found.test_targets])
    pairs = sorted(zip(greys_found, classes, strict=True))
    assert pairs == [(10, 0), (20, 0), (30, 0), (110, 1), (120, 1)]


def test_tiny_imagenet_from_its_folders(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    put(root, "wnids.txt", b"n02\nn01\n")
    put(root, "train/n01/images/n01_0.JPEG", jpeg(10, 64, 64))
    put(root, "train/n01/images/n01_1.JPEG", jpeg(20, 64, 64))
    put(root, "train/n02/images/n02_0.JPEG", jpeg(30, 64, 64))
    put(root, "train/n02/n02_boxes.txt", b"n02_0.JPEG\t0\t0\t9\t9\n")
    put(root, "val/images/val_0.JPEG", jpeg(40, 64, 64))
    put(root, "val/images/val_1.JPEG", jpeg(50, 64, 64))
    listed = "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n"
    put(root, "val/val_annotations.txt", listed.encode())
    put(root, "test/images/test_0.JPEG", b"no label, never read")
    found = small("tiny_imagenet", tmp_path, 3, 2)
    means = (found.inputs.mean(axis=(1, 2, 3)) * 255).round().tolist()
    assert (means, found.targets.tolist()) == ([10, 20, 30], [0, 0, 1])
    means = (found.test_inputs.mean(axis=(1, 2, 3)) * 255).round().tolist()
    assert (means, found.test_targets.tolist()) == ([40, 50], [1, 0])


def test_parkinsons_telemonitoring_from_its_table(tmp_path):
    names = ["subject#", "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS"]
    names += [f"measure{number}" for number in range(16)]
    table = np.random.default_rng(0).normal(size=(10, 22)).round(4)
    lines = [",".join(names), *(",".join(map(str, row)) for row in table)]
    put(tmp_path, "parkinsons_updrs.data", "\n".join(lines).encode())
    found = small("parkinsons", tmp_path, 8, 2)
    rows = np.concatenate([found.inputs, found.test_inputs])
    values = np.concatenate([found.targets, found.test_targets])
    order = [int(np.argmin(np.abs(table[:, 5] - value))) for value in values[:, 0]]
    assert sorted(order) == list(range(10))
    kept = [1, 2, 3, *range(6, 22)]
    np.testing.assert_allclose(rows, table[order][:, kept], rtol=1e-5)
    assert found.classes is None


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if not e.bundled])
def test_an_empty_folder_says_which_files_are_wanted(name, tmp_path):
    with pytest.raises(BadInput, match=f"the files of {name} are not all in .*; wanted "):
        load(name, tmp_path)


def picture(image, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, form)
    return file.getvalue()


def test_celeba_from_images_landmarks_and_partition(tmp_path):
    images = some_images(4, 3, 32)
    points = np.arange(40).reshape(4, 10)
    lines = [f"00000{n}.jpg " + " ".join(map(str, row)) for n, row in enumerate(points)]
    put(tmp_path, "list_landmarks_align_celeba.txt", "\n".join(["4", "names", *lines]).encode())
    parts = "\n".join(f"00000{n}.jpg {part}" for n, part in enumerate("0102"))
    put(tmp_path, "list_eval_partition.txt", parts.encode())
    pictures = {f"img_align_celeba/00000{n}.jpg": picture(im) for n, im in enumerate(images)}
    put(tmp_path, "img_align_celeba.zip", zipped(pictures))
    found = small("celeba", tmp_path, 2, 1)
    np.testing.assert_allclose(found.inputs, images[[0, 2]] / 255, rtol=1e-6)
    np.testing.assert_allclose(found.targets, points[[0, 2]] / 32, rtol=1e-6)
    np.testing.assert_allclose(found.test_targets, points[[3]] / 32, rtol=1e-6)


def test_faces_are_cut_by_their_boxes_and_points_counted_from_there(tmp_path):
    whole = some_images(1, 3, 48)[0]
    put(tmp_path, "lfw/A_0001.jpg", picture(whole))
    points = "14 6 44 36 24 21 14 36 44 6"
    put(tmp_path, "trainImageList.txt", f"lfw\\A_0001.jpg 10 41 4 35 {points}\r\n".encode())
    put(tmp_path, "testImageList.txt", f"lfw\\A_0001.jpg 0 31 0 31 {points}".encode())
    found = small("fld", tmp_path, 1, 1)
    np.testing.assert_allclose(found.inputs[0], whole[:, 4:36, 10:42] / 255, rtol=1e-6)
    np.testing.assert_allclose(found.targets[0, :4], [4 / 32, 2 / 32, 34 / 32, 1.0], rtol=1e-6)
    put(tmp_path, "testImageList.txt", b"lfw\\B.jpg 0 31 0 31 " + points.encode())
    with pytest.raises(BadInput, match=r"lists lfw/B.jpg, which is not there"):
        small("fld", tmp_path, 1, 1)


def test_biwi_from_frames_and_rotation_matrices(tmp_path):
    yaw, pitch = np.radians(30), np.radians(-10)
    around_y = [[np.cos(yaw), 0, -np.sin(yaw)], [0, 1, 0], [np.sin(yaw), 0, np.cos(yaw)]]
    around_x = [[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]]
    turn = (np.array(around_y) @ around_x).T
    images = some_images(3, 3, 64)
    for number, image in enumerate(images):
        put(tmp_path, f"01/frame_0000{number}_rgb.png", picture(image))
        lines = [" ".join(map(str, row)) for row in turn] + ["", "1 2 900"]
        put(tmp_path, f"01/frame_0000{number}_pose.txt", "\n".join(lines).encode())
    layout = replace(CATALOGUE["biwi"].layouts[0], read=partial(read_biwi, side=64, test=1))
    found = small("biwi", tmp_path, 2, 1, layouts=(layout,))
    assert found.inputs.shape == (2, 3, 64, 64)
    np.testing.assert_allclose(np.abs(found.targets[0]), [30, 10], rtol=1e-4)
