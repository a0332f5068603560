"""Precision of the most suspicious labels when a tenth of the labels is wrong.

    python benchmarks/label_errors.py digits NAME=features.npz --repeats 10 --out FILE.jsonl

Half of the items train a model that plays the annotator: an item gets a wrong label where that
model doubts most between two classes (``plausible``), or at random (``uniform``). The other half
provides 1,000 labelled items, or as many as there are. Precision at 50 is the share of wrong labels
among the 50 that `rank_suspicious_labels` puts first.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_estimates import load_rows

from labelwise.learners.linear_probe import LinearProbe
from labelwise.rounds import rank_suspicious_labels

LABELS, WRONG, SHOWN = 1000, 0.1, 50


def measure_precision(features: Any, labels: Any, noise: str, seed: int) -> dict[str, Any]:
    """Precision at 50 with one draw of items and errors."""
    rng = np.random.default_rng(seed)
    first, second = np.array_split(rng.permutation(len(labels)), 2)
    second, classes = second[:LABELS], int(labels.max()) + 1
    count, given = int(WRONG * len(second)), labels[second].copy()
    if noise == "uniform":
        flipped = rng.choice(len(second), count, replace=False)
        given[flipped] = (given[flipped] + rng.integers(1, classes, count)) % classes
    else:
        annotator = LinearProbe(classes=classes)
        annotator.fit(features[first[:LABELS]], labels[first[:LABELS]], seed=seed)
        chances = annotator.represent(features[second], ["probabilities"])["probabilities"]
        chances[np.arange(len(second)), given] = 0.0
        flipped = np.argsort(-chances.max(axis=1))[:count]
        given[flipped] = chances[flipped].argmax(axis=1)
    probe = LinearProbe(classes=classes)
    probe.fit(features[second], given, seed=seed)
    assert probe.out_of_fold is not None
    found = rank_suspicious_labels(*probe.out_of_fold, SHOWN)
    wrong = set(flipped.tolist())
    precision = sum(one.row in wrong for one in found) / len(found)
    return {"noise": noise, "seed": seed, "labels": len(second), "precision": precision}


def main() -> None:
    """Measure and print the means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="digits, breast_cancer, or NAME=FILE.npz")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    with given.out.open("w") as file:
        for entry in given.data:
            name, features, labels = load_rows(entry)
            for noise in ("uniform", "plausible"):
                lines = [
                    {"data": name, **measure_precision(features, labels, noise, seed)}
                    for seed in range(given.repeats)
                ]
                file.writelines(json.dumps(line) + "\n" for line in lines)
                mean = np.mean([line["precision"] for line in lines])
                print(f"{name}, {noise}: precision at {SHOWN} {mean:.0%}")


if __name__ == "__main__":
    main()
