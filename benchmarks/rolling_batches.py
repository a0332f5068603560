"""Rolling batches against fixed ones: accuracy by the number of labels.

    python benchmarks/rolling_batches.py bbc_news=features.npz cifar10=features.npz --out FILE.jsonl

Each file holds the arrays ``features`` and ``labels``. Two thirds of the items are the pool of a
campaign with default settings; one annotator labels an item at a time, and the schedule of the
campaign trains and selects in between, as on the labelling page. Three ways: batches of 50, batches
of 50 that roll, and batches of 10. At each number of labels (held-out ones included) a linear probe
is trained on the labels bought so far and measured on the last third. A line of the results is one
campaign.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_estimates import load_rows
from scipy.stats import ttest_rel

from labelwise.campaign.campaign import Campaign
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.defaults import make_default_settings
from labelwise.campaign.runner import CampaignRunner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.pool import Pool
from labelwise.record import open_storage

CHECKPOINTS = (60, 100, 150, 200, 300, 400)
WAYS = {
    "batches of 50": {"batch": 50},
    "rolling": {"batch": 50, "rolling": True},
    "batches of 10": {"batch": 10},
}


class PoolProject:
    """What a `CampaignRunner` needs of a campaign's folder, for features in memory."""

    def __init__(self, features: Any, classes: int, settings: dict[str, Any]) -> None:
        self.items, self.storage = range(len(features)), open_storage("memory://")
        names = [f"c{number}" for number in range(classes)]
        chosen = make_default_settings(None, names, **settings)
        self._campaign = Campaign(
            "c", Pool(features), LinearProbe(classes=classes), self.storage, **chosen.to_dict()
        )

    def open_record(self) -> CampaignRecord:
        """The record of the campaign."""
        return CampaignRecord("c", self.storage)

    def campaign(self, **options: Any) -> Campaign:
        """The campaign."""
        return self._campaign


def run_campaign(features: Any, labels: Any, way: str, seed: int) -> dict[str, Any]:
    """Accuracy by the number of labels, and the number of models."""
    rng = np.random.default_rng(seed)
    pool, test = np.split(rng.permutation(len(labels)), [len(labels) * 2 // 3])
    classes = int(labels.max()) + 1
    project: Any = PoolProject(features[pool], classes, {**WAYS[way], "seed": seed})
    runner, found, waited = CampaignRunner(project), {}, 0
    for count in range(1, CHECKPOINTS[-1] + 1):
        while (step := runner.choose_step()) is not None:
            runner.run_step(step)
        (item,) = runner.record.lend("ann", 1)
        runner.record.tell({item: f"c{labels[pool[item]]}"}, by="ann", seconds=2.0)
        waited += not runner.record.ledger().waiting
        if count in CHECKPOINTS:
            ledger = runner.record.ledger()
            known = np.array([one for one in ledger.labels if one not in ledger.validation])
            probe = LinearProbe(classes=classes)
            probe.fit(features[pool[known]], labels[pool[known]], seed=seed)
            chances = probe.represent(features[test], ["probabilities"])["probabilities"]
            found[count] = float(np.mean(chances.argmax(axis=1) == labels[test]))
    ledger = runner.record.ledger()
    return {
        "way": way,
        "seed": seed,
        "accuracy": {count: round(value, 4) for count, value in found.items()},
        "models": len(ledger.trainings),
        "holdout": sum(item in ledger.validation for item in ledger.labels),
        "queue_empty": waited,
    }


def print_table(lines: list[dict[str, Any]]) -> None:
    """Mean accuracy by the number of labels, and the difference of the means to fixed batches."""
    print(f"| data | way | {' | '.join(map(str, CHECKPOINTS))} | mean | difference |")
    print("|---" * (len(CHECKPOINTS) + 4) + "|")
    for data in dict.fromkeys(line["data"] for line in lines):
        own = sorted((line for line in lines if line["data"] == data), key=lambda one: one["seed"])
        rows = {
            way: np.array([list(one["accuracy"].values()) for one in own if one["way"] == way])
            for way in WAYS
        }
        base = rows["batches of 50"].mean(axis=1)
        for way, values in rows.items():
            cells = " | ".join(f"{value:.1%}" for value in values.mean(axis=0))
            mean, words = values.mean(axis=1), "–"
            if way != "batches of 50":
                p = ttest_rel(mean, base).pvalue
                words = f"{100 * np.mean(mean - base):+.2f} points (p = {p:.2f})"
            print(f"| {data} | {way} | {cells} | {mean.mean():.1%} | {words} |")


def main() -> None:
    """Run the campaigns and print means and paired differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    for entry in given.data:
        name, features, labels = load_rows(entry)
        for seed in given.seeds:
            for way in WAYS:
                line = {"data": name, **run_campaign(features, labels, way, seed)}
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print_table([json.loads(line) for line in given.out.read_text().splitlines()])


if __name__ == "__main__":
    main()
