"""Coverage and width of accuracy intervals in simulated campaigns.

    python benchmarks/accuracy_estimates.py digits breast_cancer --repeats 500 --out FILE.jsonl
    python benchmarks/accuracy_estimates.py newsgroups=features.npz ...   # arrays features, labels

A campaign labels batches of 20 items: 16 with the smallest margin and 4 at random, from a fifth of
the pool that is reserved for them. At 100, 200 and 400 labels three estimates are made:

- ``holdout``: trained on the picks, Wilson's interval from the random items;
- ``predictions``: the same model, `estimate_accuracy` with the reserved items without a label;
- ``out_of_fold``: trained on all labels, random items scored out of fold, `estimate_accuracy`.

Each is compared with the accuracy of its model on all random items that it was not trained on: the
test items and the reserved ones, without those drawn for ``out_of_fold``. A line of the results is
one estimate. The first two are made with 20 draws of the random items for every model, since it
does not depend on them.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import scale

from labelwise.kernels.calibration import softmax
from labelwise.learners.linear_probe import LinearProbe, ProbeTuning
from labelwise.rounds import estimate_accuracy

BATCH, RANDOM, RESERVED, CHECKPOINTS, DRAWS = 20, 4, 0.2, (100, 200, 400), 20


def load_rows(name: str) -> tuple[str, Any, Any]:
    """Name, features ``(n, d)`` and class numbers ``(n,)`` of a data set."""
    name, _, path = name.partition("=")
    if path:
        with np.load(path) as arrays:
            features, labels = arrays["features"], arrays["labels"]
    else:
        load = {"digits": load_digits, "breast_cancer": load_breast_cancer}[name]
        features, labels = load(return_X_y=True)
        features = scale(features) if name == "breast_cancer" else features
    return name, features.astype(np.float32), np.unique(labels, return_inverse=True)[1]


def predict(probe: LinearProbe, features: Any) -> tuple[Any, Any]:
    """Predicted classes and their probabilities, both ``(n,)``."""
    chances = probe.represent(features, ["probabilities"])["probabilities"]
    return chances.argmax(axis=1), chances.max(axis=1)


def run_campaign(features: Any, labels: Any, seed: int) -> list[dict[str, Any]]:
    """The estimates of one campaign; two thirds of the items are its pool."""
    rng = np.random.default_rng(seed)
    order, classes = rng.permutation(len(labels)), int(labels.max()) + 1
    size = len(order) * 2 // 3
    reserved, open_items = np.split(order[:size], [int(RESERVED * size)])
    test, picked, lines = order[size:], [], []
    for labelled in range(BATCH, min(CHECKPOINTS[-1], size // 2) + 1, BATCH):
        left = np.setdiff1d(open_items, picked)
        if not picked:
            best = rng.permutation(left)
        else:
            probe = LinearProbe(classes=classes)
            probe.fit(features[picked], labels[picked], seed=seed, tuning=ProbeTuning())
            chances = probe.represent(features[left], ["probabilities"])["probabilities"]
            top = np.partition(chances, classes - 2, axis=1)[:, -2:]
            best = left[np.argsort(np.abs(top[:, 1] - top[:, 0]))]
        picked += best[: BATCH - RANDOM].tolist()
        if labelled in CHECKPOINTS:
            count = labelled * RANDOM // BATCH
            lines += [
                {**line, "labels": labelled}
                for line in estimate(features, labels, picked, reserved, test, count, seed)
            ]
    return lines


def estimate(
    features: Any, labels: Any, picked: list[int], reserved: Any, test: Any, count: int, seed: int
) -> list[dict[str, Any]]:
    """The estimates with ``count`` random labels, drawn `DRAWS` times; out of fold only once."""
    classes, lines = int(labels.max()) + 1, []
    apart, together = LinearProbe(classes=classes), LinearProbe(classes=classes)
    apart.fit(features[picked], labels[picked], seed=seed)
    everything = np.concatenate([reserved[:count], picked])
    together.fit(features[everything], labels[everything], seed=seed)
    assert together.out_of_fold is not None
    chances = softmax(together.out_of_fold.logits[:count])
    folded = chances.argmax(axis=1) == labels[reserved[:count]]
    guesses = {model: predict(model, features) for model in (apart, together)}

    def add_line(method: str, model: LinearProbe, untrained: Any, *given: Any) -> None:
        unseen = np.concatenate([test, untrained])
        truth = float(np.mean(guesses[model][0][unseen] == labels[unseen]))
        found = estimate_accuracy(*given)
        lines.append({"method": method, "truth": truth, **found._asdict(), "random": count})

    mine, sure = guesses[apart]
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, count, draw])
        known, others = np.split(rng.permutation(reserved) if draw else reserved, [count])
        correct = mine[known] == labels[known]
        add_line("holdout", apart, reserved, correct, sure[known])
        add_line("predictions", apart, reserved, correct, sure[known], sure[others])
        if not draw:
            rest = guesses[together][1][others]
            add_line("out_of_fold", together, others, folded, chances.max(axis=1), rest)
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    """Coverage, width, its ratio to the holdout's, bias, and accuracy of the models; points."""
    groups = defaultdict(list)
    for line in lines:
        groups[line["data"], line["labels"], line["method"]].append(line)
    print("| data | labels (random) | method | coverage | width | ratio | bias | accuracy |")
    print("|---|---|---|---|---|---|---|---|")
    for (data, labels, method), own in groups.items():
        low, high, value, truth = (
            np.array([line[name] for line in own]) for name in ("low", "high", "value", "truth")
        )
        plain = np.mean([one["high"] - one["low"] for one in groups[data, labels, "holdout"]])
        width = float(np.mean(high - low))
        print(
            f"| {data} | {labels} ({own[0]['random']}) | {method} "
            f"| {np.mean((low <= truth) & (truth <= high)):.1%} | {100 * width:.1f} "
            f"| {width / plain:.2f} | {100 * np.mean(value - truth):+.1f} "
            f"| {np.mean(truth):.1%} |"
        )


def main() -> None:
    """Run the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", help="digits, breast_cancer, or NAME=FILE.npz")
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    for entry in given.data:
        name, features, labels = load_rows(entry)
        with given.out.open("a") as file:
            for seed in range(given.repeats):
                for line in run_campaign(features, labels, seed):
                    line |= {"data": name, "seed": seed}
                    kept = {k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}
                    file.write(json.dumps(kept) + "\n")
    print_table([json.loads(line) for line in given.out.read_text().splitlines()])


if __name__ == "__main__":
    main()
