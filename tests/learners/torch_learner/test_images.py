"""Real images, from training to picks."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch import nn

import labelwise
from labelwise.learners.torch_learner import TorchLearner


def small_image_network(side, classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(side // 4),
        nn.Flatten(), nn.Linear(8 * 16, classes),
    )  # fmt: skip


@pytest.mark.parametrize("strategy", ["margin", "badge"])
def test_digits_train_and_select(strategy):
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8) / 16
    learner = TorchLearner(lambda: small_image_network(8, 10), epochs=3, lr=0.01)
    labelled = np.arange(60)
    for seed in range(3):
        learner.fit(images[labelled], digits[labelled], seed=seed)
        rows = learner.represent(images[:1000], ["features", "probabilities"])
        needs = {name: rows[name] for name in labelwise.strategies()[strategy].needs}
        picks = labelwise.select(strategy, 40, **needs, labelled=labelled, seed=seed)
        labelled = np.r_[labelled, picks.ids]
    assert len(np.unique(labelled)) == 180


FASHION = Path("/usr/share/datasets/fashion-mnist")


def idx(path):
    """An IDX file as an array."""
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def test_fashion_images_train_and_select():
    if not FASHION.exists():
        pytest.skip(f"Fashion-MNIST is not installed: no folder {FASHION}")
    images = idx(FASHION / "t10k-images-idx3-ubyte.gz")[:2000, None] / np.float32(255)
    labels = idx(FASHION / "t10k-labels-idx1-ubyte.gz")[:2000]
    learner = TorchLearner(lambda: small_image_network(28, 10), epochs=3, lr=0.01)
    learner.fit(images[:200], labels[:200], seed=0)
    rows = learner.represent(images[:1000], ["features", "probabilities"])
    picks = labelwise.select("badge", 50, **rows, labelled=np.arange(200), seed=0)
    assert len(picks.ids) == 50 and (picks.ids >= 200).all()
