"""Label once for five different networks, and train all of them on the same picks.

Five small architectures are trained on a few random labels. Their last hidden layers are five
representations of the same pool. `lewis` draws one batch by the largest Lewis weight that an item
has in any of them, and weighs each pick so that sums over the batch stand for sums over the pool.
All five networks are then trained on it, beside batches of the same size by other strategies.

The number of labels that this needs grows with T, the sum of the items' largest weights. T lies
between the largest rank of a representation and the sum of all ranks; for networks that look at
the same images it should stay far below the sum.

Run: python examples/several_models.py [--images FOLDER] [--seeds 10] [--out several_models.png]

The images are scikit-learn's handwritten digits, or Fashion-MNIST from a folder that holds its four
``*-ubyte.gz`` files. Reference: S.-J. Huang, Y. Li, Y. Sun, Y.-P. Tang, "One-shot Active Learning
Based on Lewis Weight Sampling for Multiple Deep Models", ICLR 2024.
"""

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import labelwise
from labelwise.arrays import to_numpy
from labelwise.kernels import leverage_scores

STRATEGIES = ("random", "k_center", "committee", "lewis", "lewis, no weights")


@dataclass(frozen=True)
class Images:
    """Images ``(n, side, side)`` from 0 to 1, labels ``(n,)``: a pool, and others to test on."""

    pool: np.ndarray
    pool_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


class Residual(nn.Module):
    """Two convolutions around which the input goes on."""

    def __init__(self, channels: int) -> None:
        """The same number of channels in and out."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, images):
        """``(b, channels, side, side)`` to the same."""
        return (images + self.body(images)).relu()


def networks(side: int, classes: int = 10) -> dict[str, Callable[[], nn.Module]]:
    """Five architectures for ``(b, side, side)`` images; each call makes a new network."""
    half, cells = side // 2, side * side

    def convolutional(channels: int, kernel: int, width: int) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, side)),
            nn.Conv2d(1, channels, kernel, padding=kernel // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(channels * half * half, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )

    def perceptron(*widths: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        before = cells
        for width in widths:
            layers += [nn.Linear(before, width), nn.ReLU()]
            before = width
        return nn.Sequential(*layers, nn.Linear(before, classes))

    def residual(channels: int) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, side)),
            nn.Conv2d(1, channels, 3, padding=1, stride=2),
            nn.ReLU(),
            Residual(channels),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * channels, classes),
        )

    return {
        "perceptron": partial(perceptron, 64),
        "deep_perceptron": partial(perceptron, 96, 48),
        "convolution_3": partial(convolutional, 8, 3, 48),
        "convolution_5": partial(convolutional, 6, 5, 64),
        "residual": partial(residual, 16),
    }


def committee(side: int, epochs: int, device: str = "cpu") -> labelwise.Committee:
    """The five networks as one learner."""
    made = networks(side)
    learners = [
        labelwise.TorchLearner(make, epochs=epochs, lr=3e-3, batch_size=64, device=device)
        for make in made.values()
    ]
    return labelwise.Committee(learners, names=list(made))


def pick(strategy: str, rows: dict, labelled: np.ndarray, budget: int, seed: int):
    """One batch for all five networks."""
    name = strategy.split(",")[0]
    given = {
        "random": {"features": rows["features"][0]},
        "k_center": {"features": rows["features"][0]},  # it knows one network only
        "committee": {"member_probabilities": rows["member_probabilities"]},
        "lewis": {"features": rows["features"]},
    }[name]
    return labelwise.select(name, budget, **given, labelled=labelled, seed=seed)


def run(
    images: Images,
    seed: int,
    *,
    start: int = 100,
    budget: int = 200,
    epochs: int = 60,
    device: str = "cpu",
) -> dict[str, list[float]]:
    """Accuracy of every network after training on the picks of every strategy.

    Args:
        images: the pool and the test images.
        seed: decides the first labels and all draws.
        start: labels at the start, drawn at random.
        budget: labels bought at once.
        epochs: of every training.
        device: where to train.
    """
    learner = committee(images.pool.shape[1], epochs, device)
    first = np.random.default_rng(seed).permutation(len(images.pool))[:start]
    learner.fit(images.pool[first], images.pool_labels[first], seed=seed)
    rows = learner.represent(images.pool, ["features", "member_probabilities"])
    found = {"no batch": accuracies(learner, images)}
    for strategy in STRATEGIES:
        batch = pick(strategy, rows, first, budget, seed)
        bought = np.concatenate([first, batch.ids])
        weights = None
        if strategy == "lewis":
            # A first label stands for itself, a pick for as many items as its weight says.
            weights = np.concatenate([np.ones(start), batch.weights])
        learner.fit(images.pool[bought], images.pool_labels[bought], weights, seed=seed)
        found[strategy] = accuracies(learner, images)
    return found


def accuracies(learner: labelwise.Committee, images: Images) -> list[float]:
    """The share of test images that each network classifies rightly."""
    answers = learner.represent(images.test, ["probabilities"])["probabilities"]
    hits = [to_numpy(answer).argmax(axis=1) == images.test_labels for answer in answers]
    return [float(hit.mean()) for hit in hits]


def growth(features: list) -> tuple[list[float], list[float]]:
    """T with the first model, the first two, ...; and the sum of their ranks (p = 2)."""
    weights = [to_numpy(leverage_scores(part)) for part in features]
    largest = np.maximum.accumulate(np.stack(weights), axis=0)
    ranks = np.cumsum([part.sum() for part in weights])
    return largest.sum(axis=1).tolist(), ranks.tolist()


def digits() -> Images:
    """scikit-learn's 1,797 handwritten digits, 8 x 8; 1,200 in the pool."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 8, 8).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    pool, test = order[:1200], order[1200:]
    return Images(images[pool], labels[pool], images[test], labels[test])


def fashion(folder: Path, pool: int = 10_000) -> Images:
    """Fashion-MNIST, 28 x 28; the first ``pool`` training images, and all test images."""

    def read(name: str, header: int) -> np.ndarray:
        with gzip.open(folder / name) as file:
            return np.frombuffer(file.read(), dtype=np.uint8, offset=header)

    arrays = []
    for part in ("train", "t10k"):
        pixels = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        arrays += [pixels.astype(np.float32) / 255, read(f"{part}-labels-idx1-ubyte.gz", 8)]
    images, labels, test, test_labels = arrays
    labels, test_labels = labels.astype(np.int64), test_labels.astype(np.int64)
    return Images(images[:pool], labels[:pool], test, test_labels)


def draw(path: Path, tops: list[float], ranks: list[float], results: list[dict]) -> None:
    """Two plots: how T grows with the models, and the gain over random by strategy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    models = np.arange(1, len(tops) + 1)
    left.plot(models, ranks, "o--", color="grey", label="sum of ranks")
    left.plot(models, tops, "o-", label="T, the sum of the largest weights")
    left.set(xlabel="models", ylabel="labels scale with this", xticks=models, ylim=(0, None))
    left.set_title("What one more model costs")
    left.legend()
    names = [name for name in STRATEGIES if name != "random"]
    for place, name in enumerate(names):
        gains = [100 * (np.mean(run[name]) - np.mean(run["random"])) for run in results]
        right.plot(gains, np.full(len(gains), place), "o", alpha=0.4)
        right.plot(np.mean(gains), place, "k|", markersize=18)
    right.axvline(0, color="grey", linewidth=0.8)
    right.set(yticks=range(len(names)), yticklabels=names, xlabel="points of accuracy over random")
    right.set_title("Mean over the five models, one dot a seed")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run all seeds, print a table, draw the plots, and keep the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="a folder with Fashion-MNIST's files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("several_models.png"))
    given = parser.parse_args()
    images = digits() if given.images is None else fashion(given.images)
    learner = committee(images.pool.shape[1], 60, given.device)
    first = np.random.default_rng(0).permutation(len(images.pool))[:100]
    learner.fit(images.pool[first], images.pool_labels[first], seed=0)
    tops, ranks = growth(learner.represent(images.pool, ["features"])["features"])
    print("models  T  sum of ranks")
    for count, (top, rank) in enumerate(zip(tops, ranks, strict=True), start=1):
        print(f"{count:6}  {top:.0f}  {rank:.0f}")
    results = []
    for seed in range(given.seeds):
        results.append(run(images, seed, budget=given.budget, device=given.device))
        print(f"seed {seed} done", flush=True)
    base = np.array([np.mean(found["random"]) for found in results])
    print("strategy  mean accuracy  over random  standard error of that")
    for name in ("no batch", *STRATEGIES):
        values = np.array([np.mean(found[name]) for found in results])
        gain = values - base
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        print(f"{name:18} {values.mean():.4f} {gain.mean():+.4f} {error:.4f}")
    draw(given.out, tops, ranks, results)
    facts = {"T": tops, "ranks": ranks, "networks": list(networks(8)), "runs": results}
    given.out.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
