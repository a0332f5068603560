"""Active learning with a skorch net: skorch trains, labelwise selects.

pip install 'labelwise[skorch]' scikit-learn
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from torch import nn

import labelwise


def make_module() -> nn.Module:
    """A network for 64 pixels and 10 classes."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def run(rounds: int = 2) -> list[float]:
    """The accuracy on the whole pool after every round of 20 labels."""
    images, digits = load_digits(return_X_y=True)
    images, digits = (images / 16).astype(np.float32), digits.astype(np.int64)
    net = NeuralNetClassifier(
        make_module,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        max_epochs=100,
        lr=0.01,
        train_split=None,
        verbose=0,
    )
    learner = labelwise.SkorchLearner(net)
    labelled = labelwise.select("max_herding", 20, features=images).ids
    accuracies = []
    for _ in range(rounds):
        learner.fit(images[labelled], digits[labelled], seed=0)
        rows = learner.represent(images, ["features", "probabilities"])
        accuracies.append(float(np.mean(rows["probabilities"].argmax(axis=1) == digits)))
        picks = labelwise.select("badge", 20, **rows, labelled=labelled)
        labelled = np.concatenate([labelled, picks.ids])
    return accuracies


if __name__ == "__main__":
    print(run())
