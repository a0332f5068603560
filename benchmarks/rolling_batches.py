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
from labelwise.campaign.defaults import make_settings
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
        chosen = make_settings(None, [f"c{number}" for number in range(classes)], **settings)
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


def main() -> None:
    """Run the campaigns and print means and paired differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    with given.out.open("w") as file:
        for entry in given.data:
            name, features, labels = load_rows(entry)
            means: dict[str, list[float]] = {}
            for seed in range(given.seeds):
                for way in WAYS:
                    line = {"data": name, **run_campaign(features, labels, way, seed)}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    means.setdefault(way, []).append(
                        float(np.mean(list(line["accuracy"].values())))
                    )
            for way, own in means.items():
                base = means["batches of 50"]
                test = ttest_rel(own, base) if way != "batches of 50" else None
                difference = 100 * np.mean(np.subtract(own, base))
                chance = (
                    "" if test is None else f", {difference:+.2f} points (p = {test.pvalue:.2f})"
                )
                print(f"{name}, {way}: {np.mean(own):.1%}{chance}", flush=True)


if __name__ == "__main__":
    main()
