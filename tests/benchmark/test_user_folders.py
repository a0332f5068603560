"""Protocols on data that users place in a folder: from files in their form to measured rounds."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from labelwise.benchmark import splits
from labelwise.benchmark.datasets import CATALOGUE, fetch_dataset
from labelwise.benchmark.datasets.readers import read_biwi
from labelwise.benchmark.protocol import change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.runs import run_experiment
from tests.benchmark.datasets import files

TRAIN, TEST = 48, 12
FORMS = {
    "kmnist": files.write_idx,
    "emnist_digits": partial(files.write_idx, prefix="emnist-digits-", test="test"),
    "svhn": files.write_svhn,
    "cifar100": files.write_cifar_100,
    "stl10": files.write_stl_10,
    "caltech101": files.write_caltech_101,
    "tiny_imagenet": files.write_tiny_imagenet,
    "celeba": files.write_celeba,
    "fld": files.write_fld,
    "biwi": files.write_biwi,
    "parkinsons": files.write_parkinsons,
}


def place_files(name, folder):
    """Write a few items in the form of a data set."""
    shape = CATALOGUE[name].shape
    rng = np.random.default_rng(0)
    if name == "parkinsons":
        return files.write_parkinsons(folder, rng.normal(size=(TRAIN + TEST, 22)).round(4), TRAIN)
    targets = files.some_classes(TRAIN + TEST, 4)
    if name == "biwi":
        targets = np.linalg.qr(rng.normal(size=(TRAIN + TEST, 3, 3)))[0]
    elif CATALOGUE[name].classes is None:
        targets = rng.integers(0, 32, (TRAIN + TEST, 10))
    images = files.some_images(TRAIN + TEST, shape[0], shape[1])
    return FORMS[name](folder, images, targets, TRAIN)


@pytest.mark.parametrize(
    ("experiment", "dataset", "strategy"),
    [
        ("ally-fig2-stl10", "stl10", "margin"),
        ("ally-fig2-svhn-1000", "svhn", "ally"),
        ("ally-fig3-regression", "parkinsons", "ally"),
        ("ally-fig7-tiny-imagenet", "tiny_imagenet", "badge"),
        ("dynamics-table6", "svhn", "dynamics"),
        ("dynamics-table9", "caltech101", "dynamics"),
        ("dynamics-table1-100-caltech101", "caltech101", "random"),
        ("lewis-fig2-vanilla", "kmnist", "lewis"),
        ("lewis-fig2-vanilla", "emnist_digits", "committee"),
        ("lewis-fig3-biwi", "biwi", "lewis"),
        ("lewis-fig3-celeba", "celeba", "lewis"),
        ("lewis-fig3-fld", "fld", "lewis"),
        ("sparse-table1-cifar100", "cifar100", "sparse_greedy"),
        ("sparse-table2-svhn", "svhn", "sparse_iht"),
        ("sparse-table3-time-svhn", "svhn", "sparse_greedy"),
    ],
)
def test_a_protocol_runs_on_files_that_a_user_has_placed(
    experiment, dataset, strategy, tmp_path, monkeypatch
):
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "cache"))
    counts = {"train": TRAIN, "test": TEST, "train_counts": None, "test_counts": None}
    entry = replace(CATALOGUE[dataset], **counts)
    if dataset == "biwi":
        read = partial(read_biwi, side=entry.shape[1], test=TEST)
        entry = replace(entry, layouts=(replace(entry.layouts[0], read=read),))
    monkeypatch.setitem(CATALOGUE, dataset, entry)
    splits.load_standardized_dataset.cache_clear()
    place_files(dataset, tmp_path / "files")
    fetch_dataset(dataset, tmp_path / "files")
    start = get_experiment(experiment).on(dataset)
    protocol = change_protocol(
        start,
        networks=("cnn",) if start.learner.get("loss") == "elbo" else ("mlp",),
        learner={**start.learner, "epochs": 1, "min_epochs": 1},
        validation=min(start.validation, 8),
        pool=None,
        start=12,
        batch=6,
        rounds=1,
    )
    lines = run_experiment(protocol, tmp_path / "r.jsonl", strategies=[strategy], seeds=1)
    rounds = {line.round for line in lines}
    assert rounds == ({0} if protocol.study else {0, 1}) and {x.dataset for x in lines} == {dataset}
    assert all(np.isfinite(line.value) for line in lines)
    splits.load_standardized_dataset.cache_clear()
