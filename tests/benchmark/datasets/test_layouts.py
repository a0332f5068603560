"""The papers' other data sets, each loaded by name from small files in its original form."""

import pickle
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from labelwise.benchmark.datasets import CATALOGUE, load
from labelwise.benchmark.datasets.readers import read_biwi
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import (
    picture,
    put,
    some_classes,
    some_images,
    write_biwi,
    write_caltech_101,
    write_celeba,
    write_cifar_100,
    write_idx,
    write_parkinsons,
    write_stl_10,
    write_svhn,
    write_tiny_imagenet,
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


def test_kmnist_from_idx_files(tmp_path):
    images, classes = some_images(9, 1, 28), some_classes(9, 10)
    write_idx(tmp_path, images, classes, 6)
    as_written(small("kmnist", tmp_path, 6, 3), images, classes, 6)


@pytest.mark.parametrize(("split", "first"), [("digits", 0), ("letters", 1)])
def test_emnist_from_its_zip_file_with_all_splits_and_images_on_their_side(split, first, tmp_path):
    images, classes = some_images(9, 1, 28), some_classes(9, 10)
    lying = images.transpose(0, 1, 3, 2)
    packed = tmp_path / "packed"
    write_idx(packed, lying, classes + first, 6, f"gzip/emnist-{split}-", "test")
    write_idx(packed, lying[::-1], classes, 5, "gzip/emnist-balanced-", "test")
    files = {f"gzip/{path.name}": path.read_bytes() for path in (packed / "gzip").iterdir()}
    put(tmp_path, "gzip.zip", zipped(files))
    shutil.rmtree(packed)
    as_written(small(f"emnist_{split}", tmp_path, 6, 3), images, classes, 6)


def test_svhn_from_its_cropped_digits(tmp_path):
    images, digits = some_images(9, 3, 32), some_classes(9, 10)
    write_svhn(tmp_path, images, digits, 6)
    as_written(small("svhn", tmp_path, 6, 3), images, digits, 6)


@pytest.mark.parametrize("old", [True, False])
def test_cifar_100_from_its_pickles(old, tmp_path):
    images, fine = some_images(9, 3, 32), some_classes(9, 9) * 11
    write_cifar_100(tmp_path, images, fine, 6, old)
    for folder in (tmp_path, tmp_path / "cifar-100-python"):
        as_written(small("cifar100", folder, 6, 3), images, fine, 6)


def test_cifar_10_from_pickles_that_would_do_harm_is_refused(tmp_path):
    for name in ("data_batch_1", "test_batch"):
        put(tmp_path, f"cifar-10-batches-py/{name}", pickle.dumps({"data": print}))
    with pytest.raises(BadInput, match=r"builtins.print"):
        small("cifar10", tmp_path, 6, 3)


def test_stl_10_from_its_archive_beside_the_unlabelled_part(tmp_path):
    images, classes = some_images(5, 3, 96), some_classes(5, 5)
    write_stl_10(tmp_path, images, classes, 3)
    as_written(small("stl10", tmp_path, 3, 2), images, classes, 3)


def flat(greys, side=64):
    """Images of one colour each, which JPEG keeps."""
    return np.ones((1, 3, side, side), np.uint8) * np.array(greys, np.uint8)[:, None, None, None]


def test_caltech_101_from_an_archive_inside_its_archive(tmp_path):
    write_caltech_101(tmp_path, flat([10, 20, 30, 110, 120], 50), [0, 0, 0, 1, 1], 4)
    found = small("caltech101", tmp_path, 4, 1)
    assert found.shape == (3, 64, 64)
    images = np.concatenate([found.inputs, found.test_inputs])
    greys_found = (images.mean(axis=(1, 2, 3)) * 255).round().astype(int)
    classes = np.concatenate([found.targets, found.test_targets])
    pairs = sorted(zip(greys_found, classes, strict=True))
    assert pairs == [(10, 0), (20, 0), (30, 0), (110, 1), (120, 1)]


def test_tiny_imagenet_from_its_folders(tmp_path):
    write_tiny_imagenet(tmp_path, flat([10, 20, 30, 40, 50]), [1, 1, 0, 0, 1], 3)
    put(tmp_path, "tiny-imagenet-200/train/n0/n0_boxes.txt", b"n0_0.JPEG\t0\t0\t9\t9\n")
    put(tmp_path, "tiny-imagenet-200/test/images/test_0.JPEG", b"no label, never read")
    found = small("tiny_imagenet", tmp_path, 3, 2)
    means = (found.inputs.mean(axis=(1, 2, 3)) * 255).round().tolist()
    assert sorted(zip(means, found.targets.tolist(), strict=True)) == [(10, 1), (20, 1), (30, 0)]
    means = (found.test_inputs.mean(axis=(1, 2, 3)) * 255).round().tolist()
    assert (means, found.test_targets.tolist()) == ([40, 50], [0, 1])


def test_parkinsons_telemonitoring_from_its_table(tmp_path):
    table = np.random.default_rng(0).normal(size=(10, 22)).round(4)
    write_parkinsons(tmp_path, table, 8)
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


def test_celeba_from_images_landmarks_and_partition(tmp_path):
    images = some_images(4, 3, 32)
    points = np.arange(40).reshape(4, 10)
    write_celeba(tmp_path, images, points, 3)
    parts = "\n".join(f"{n:06}.jpg {part}" for n, part in enumerate("0102"))
    put(tmp_path, "list_eval_partition.txt", parts.encode())
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
    write_biwi(tmp_path, some_images(3, 3, 64), [turn] * 3, 2)
    layout = replace(CATALOGUE["biwi"].layouts[0], read=partial(read_biwi, side=64, test=1))
    found = small("biwi", tmp_path, 2, 1, layouts=(layout,))
    assert found.inputs.shape == (2, 3, 64, 64)
    np.testing.assert_allclose(np.abs(found.targets[0]), [30, 10], rtol=1e-4)
