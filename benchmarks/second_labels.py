"""A second label of an item, or the label of a new one: which helps more, with real label noise.

    python benchmarks/second_labels.py cifar10n=features.npz --out FILE.jsonl

The file holds ``features``, ``labels`` (right ones) and ``noisy`` (labels of real people). Every
budget of labels is spent in three ways, and a linear probe is trained on the result:

- ``new``: as many random items as the budget, one label each;
- ``twice``: fewer items, two labels each; where they differ, a third one decides and counts too;
- ``suspicious``: as ``new`` with 4/5 of the budget; the rest asks again for the items whose labels
  are least probable out of fold, and two against one decide.

A second label is wrong as often as the first: with the probability of ``noisy`` it comes from the
confusions of the people (a draw from the row of the right class), independent of the first label.
``noise`` scales the share of wrong labels: 1 keeps the people's errors, 0.5 keeps a random half. A
line of the results is one probe; precision is the share of wrong labels among the 50 that are most
suspicious with 1,000 labels.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.learners.linear_probe import LinearProbe
from labelwise.rounds import rank_suspicious_labels

BUDGETS, NOISES, SHOWN = (200, 500, 1000, 2000), (1.0, 0.5, 0.25), 50


class Annotators:
    """People whose errors follow the confusions of real ones."""

    def __init__(self, labels: Any, noisy: Any, noise: float, seed: int) -> None:
        self._rng, self._labels = np.random.default_rng(seed), labels
        keep = self._rng.random(len(labels)) < noise
        self.first = np.where(keep, noisy, labels)
        counts = np.zeros((labels.max() + 1,) * 2)
        np.add.at(counts, (labels, self.first), 1)
        self._chances = counts / counts.sum(axis=1, keepdims=True)

    def ask_again(self, items: Any) -> Any:
        """Independent labels of some items."""
        rows = self._chances[self._labels[items]].cumsum(axis=1)
        draws = self._rng.random((len(items), 1)) * rows[:, -1:]
        return (rows < draws).sum(axis=1)


def buy_labels(people: Annotators, order: Any, features: Any, way: str, budget: int) -> Any:
    """The items and their labels that a budget buys."""
    if way == "new":
        return order[:budget], people.first[order[:budget]]
    if way == "twice":
        second, used, count = people.ask_again(order), 0, 0
        labels = people.first[order].copy()
        third = people.ask_again(order)
        while used + 2 <= budget:
            differs = labels[count] != second[count]
            used += 3 if differs else 2
            if differs and third[count] == second[count]:
                labels[count] = second[count]
            count += 1
        return order[:count], labels[:count]
    items = order[: budget * 4 // 5]
    labels = people.first[items].copy()
    probe = LinearProbe(classes=int(people.first.max()) + 1)
    probe.fit(features[items], labels, seed=0)
    left = budget - len(items)
    for one in rank_suspicious_labels(*probe.out_of_fold, len(items)):
        if left <= 0:
            break
        second = people.ask_again(items[one.row : one.row + 1])[0]
        left -= 1
        if second != labels[one.row] and left > 0:  # a third label decides
            left -= 1
            if people.ask_again(items[one.row : one.row + 1])[0] == second:
                labels[one.row] = second
    return items, labels


def run(features: Any, labels: Any, noisy: Any, noise: float, seed: int) -> list[dict[str, Any]]:
    """All ways and budgets with one draw of the items."""
    order, lines, classes = np.random.default_rng(seed).permutation(len(labels)), [], 10
    pool, test = np.split(order, [len(order) * 2 // 3])
    for budget in BUDGETS:
        for way in ("new", "twice", "suspicious"):
            people = Annotators(labels, noisy, noise, seed)
            items, given = buy_labels(people, pool, features, way, budget)
            probe = LinearProbe(classes=classes)
            probe.fit(features[items], given, seed=seed)
            chances = probe.represent(features[test], ["probabilities"])["probabilities"]
            line = {
                "noise": noise,
                "wrong": round(float(np.mean(people.first != labels)), 4),
                "seed": seed,
                "budget": budget,
                "way": way,
                "items": len(items),
                "accuracy": round(float(np.mean(chances.argmax(axis=1) == labels[test])), 4),
            }
            if way == "new" and budget == 1000:
                found = rank_suspicious_labels(*probe.out_of_fold, SHOWN)
                wrong = [given[one.row] != labels[items[one.row]] for one in found]
                line["precision"] = float(np.mean(wrong))
            lines.append(line)
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    """Accuracy by noise, budget and way, and precision at 50."""
    groups = defaultdict(list)
    for line in lines:
        groups[line["noise"], line["budget"], line["way"]].append(line)
    print("| wrong labels | budget | new | twice | suspicious |")
    print("|---|---|---|---|---|")
    for noise in sorted({line["noise"] for line in lines}):
        for budget in BUDGETS:
            own = [groups[noise, budget, way] for way in ("new", "twice", "suspicious")]
            base = np.array([line["accuracy"] for line in own[0]])
            cells = [f"{base.mean():.1%}"]
            for other in own[1:]:
                change = 100 * (np.array([line["accuracy"] for line in other]) - base)
                error = change.std(ddof=1) / np.sqrt(len(change))
                cells.append(f"{change.mean():+.1f} ± {error:.1f}")
            print(f"| {own[0][0]['wrong']:.0%} | {budget} | {' | '.join(cells)} |")
    for noise in sorted({line["noise"] for line in lines}):
        found = [line["precision"] for line in groups[noise, 1000, "new"]]
        share = groups[noise, 1000, "new"][0]["wrong"]
        print(f"{share:.0%} of the labels wrong: precision at {SHOWN} {np.mean(found):.0%}")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="NAME=FILE.npz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    name, _, path = given.data.partition("=")
    with np.load(path) as arrays:
        features = arrays["features"].astype(np.float32)
        labels, noisy = (arrays[key].astype(np.int64) for key in ("labels", "noisy"))
    lines = []
    with given.out.open("w") as file:
        for noise in NOISES:
            for seed in range(given.seeds):
                for line in run(features, labels, noisy, noise, seed):
                    lines.append({"data": name, **line})
                    file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    print_table(lines)


if __name__ == "__main__":
    main()
