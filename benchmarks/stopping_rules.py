"""When the stopping rules would end a campaign, and what that costs in accuracy.

    python benchmarks/stopping_rules.py digits NAME=features.npz --seeds 5 --out FILE.jsonl

A file holds the arrays ``features`` and ``labels``. Two thirds of the items are the pool of a
campaign with default settings (a fifth of every batch is held out); it labels batches of 25 up to
`MOST` labels or 60 % of the pool, and trains after each. After every training each rule is asked.
The accuracy of every model is measured on the last third. The rules:

- ``stable``, ``flat`` and ``spectrum`` alone, and ``together``, as `should_stop` combines them;
- ``gain``: the forecast expects less than half a point of the next batch;
- ``little``: the advice is that more labels will help little;
- ``goal``: the held-out accuracy is at least the accuracy at the end less two points;
- ``agreed``: stable predictions and a forecast of less than half a point.

A line of the results is one campaign: its curve, and per rule the labels at which it stops first,
or null. The table has the share of campaigns that a rule stopped, the labels used, and the accuracy
lost against the end of the campaign, both over the campaigns that it stopped.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_estimates import load_rows

from labelwise.campaign.campaign import Campaign
from labelwise.campaign.defaults import make_default_settings
from labelwise.campaign.stopping import advise_campaign, should_stop
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.pool import Pool
from labelwise.record.storage import MemoryStorage

MOST, BATCH = 600, 25
RULES = ("stable", "flat", "spectrum", "together", "gain", "little", "goal", "agreed")


def run_campaign(features: Any, labels: Any, seed: int) -> dict[str, Any]:
    """The curve of one campaign, and where each rule stops it."""
    rng = np.random.default_rng(seed)
    pool, test = np.split(rng.permutation(len(labels)), [len(labels) * 2 // 3])
    names = [f"c{number}" for number in range(int(labels.max()) + 1)]
    settings = make_default_settings(None, names, batch=BATCH, seed=seed)
    learner = LinearProbe(classes=len(names))
    campaign = Campaign("c", Pool(features[pool]), learner, MemoryStorage(), **settings.to_dict())
    curve, judged = [], []
    for _ in range(min(MOST, int(0.6 * len(pool))) // BATCH):
        picks = campaign.ask().ids.tolist()
        campaign.tell({item: names[labels[pool[item]]] for item in picks}, by="ann", seconds=2.0)
        trained = campaign.train()
        chances = learner.represent(features[test], ["probabilities"])["probabilities"]
        accuracy = float(np.mean(chances.argmax(axis=1) == labels[test]))
        curve.append((trained.labels, round(accuracy, 4)))
        found = advise_campaign(campaign.ledger(), settings)
        stops = {one.rule: one.stop and one.judged for one in found.rules}
        gain, held = found.forecast.gain, trained.metrics["validation_labels"]
        stops["together"] = should_stop(found.rules)
        stops["gain"] = gain is not None and gain < 0.005
        stops["little"] = found.says.startswith("More labels will help little")
        stops["agreed"] = stops["stable"] and stops["gain"]
        judged.append((stops, trained.metrics["accuracy"] if held >= 30 else 0.0))
    for stops, measured in judged:
        stops["goal"] = measured >= curve[-1][1] - 0.02
    first = {
        rule: next(
            (n for (n, _), (stops, _) in zip(curve, judged, strict=True) if stops[rule]), None
        )
        for rule in RULES
    }
    return {"seed": seed, "curve": curve, "stops": first}


def print_table(lines: list[dict[str, Any]]) -> None:
    """Per data set and rule: campaigns stopped, labels used and accuracy lost."""
    print("| data | rule | stopped | labels (smallest to largest) | points lost: mean, largest |")
    print("|---|---|---|---|---|")
    for data in dict.fromkeys(line["data"] for line in lines):
        own = [line for line in lines if line["data"] == data]
        for rule in (rule for rule in RULES if rule in own[0]["stops"]):
            used = [(line["stops"][rule], dict(line["curve"])) for line in own]
            ended = [(n, 100 * (list(c.values())[-1] - c[n])) for n, c in used if n is not None]
            words = "– | –"
            if ended:
                sizes, lost = zip(*ended, strict=True)
                words = f"{np.mean(sizes):.0f} ({min(sizes)} to {max(sizes)}) | "
                words += f"{np.mean(lost):.1f}, {max(lost):.1f}"
            print(f"| {data} | {rule} | {len(ended)} of {len(own)} | {words} |")


def main() -> None:
    """Run the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", help="digits, breast_cancer, or NAME=FILE.npz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    for entry in given.data:
        name, features, labels = load_rows(entry)
        for seed in range(given.seeds):
            line = {"data": name, **run_campaign(features, labels, seed)}
            line["curve"] = [list(point) for point in line["curve"]]
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    print_table([json.loads(line) for line in given.out.read_text().splitlines()])


if __name__ == "__main__":
    main()
