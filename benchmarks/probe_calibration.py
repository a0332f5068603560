"""Calibration of `labelwise.LinearProbe` on new items, by number of labels.

Random labels, means of 8 draws: accuracy, mean probability of the predicted class, expected
calibration error over ten bins, and log loss, with the chosen temperature and without one.

Run: python benchmarks/probe_calibration.py --out docs/results/probe_calibration.jsonl
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import labelwise
from labelwise.benchmark.datasets import load
from labelwise.kernels.calibration import softmax

PER_CLASS = (2, 4, 10, 30)
DRAWS = 8


def load_features(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes: digits as pixels, 1,500 images of CIFAR-10, BBC news by its words."""
    if name == "digits":
        return load_digits(return_X_y=True)
    data = load(name)
    if name == "bbc_news":
        return labelwise.encode([str(text) for text in data.inputs], "tfidf"), data.targets
    places = np.random.default_rng(5).permutation(len(data.inputs))[:1500]
    images = (255 * data.inputs[places]).round().astype(np.uint8)
    return labelwise.encode(images), data.targets[places]


def measure_probabilities(chances: np.ndarray, targets: np.ndarray) -> list[float]:
    """Accuracy, mean confidence, expected calibration error, log loss."""
    sure, right = chances.max(axis=1), chances.argmax(axis=1) == targets
    bins = np.minimum((10 * sure).astype(int), 9)
    gaps = [abs(float(np.sum(sure[bins == n] - right[bins == n]))) for n in range(10)]
    own = np.maximum(chances[np.arange(len(targets)), targets], 1e-12)
    return [right.mean(), sure.mean(), sum(gaps) / len(targets), -np.log(own).mean()]


def main() -> None:
    """Measure every data set, and print or append one JSON line per number of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in ("bbc_news", "digits", "cifar10"):
        features, targets = load_features(name)
        classes = int(targets.max()) + 1
        for count in (classes * each for each in PER_CLASS):
            found = {"temperature": [], "plain": []}
            heat = []
            for draw in range(DRAWS):
                mixed = np.random.default_rng(draw).permutation(len(targets))
                own, rest = mixed[:count], mixed[count:]
                probe = labelwise.LinearProbe(classes=classes)
                probe.fit(features[own], targets[own], seed=draw)
                logits = probe.represent(features[rest], ["logits"])["logits"]
                heat.append(probe.tuning.temperature)
                for kind, scale in (("temperature", 1.0), ("plain", heat[-1])):
                    chances = softmax(logits * scale)
                    found[kind].append(measure_probabilities(chances, targets[rest]))
            line = {"dataset": name, "labels": count, "chosen_temperature": np.mean(heat).round(3)}
            for kind, rows in found.items():
                names = ("accuracy", "confidence", "calibration_error", "log_loss")
                line[kind] = dict(zip(names, np.mean(rows, axis=0).round(4).tolist(), strict=True))
            print(json.dumps(line), flush=True)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
