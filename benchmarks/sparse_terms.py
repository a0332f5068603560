"""How much the two terms of sparse approximation weigh in the batches of an ablation.

For both solvers of `sparse-fig4-ablation-digits`: the reward for uncertain items over what the
batch gains in approximating the mean gradient, and how many of 10 picks are those of approximation
alone and of uncertainty alone. Heads are trained on random labels.

Run: python benchmarks/sparse_terms.py --out docs/results/sparse_terms.jsonl
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

import labelwise
from labelwise.benchmark.frozen_run import draw_pool
from labelwise.benchmark.protocols import get
from labelwise.benchmark.studies.frozen import load_items

LABELS, SEEDS = (20, 60, 120), 3
APPROXIMATION, UNCERTAINTY = {"alpha": 0.0}, {"alpha": 1e8}


def main() -> None:
    """Measure every entrant, number of labels and seed, and print or append one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    protocol = get("sparse-fig4-ablation-digits")
    both = [entrant for entrant in protocol.entrants if "relative_alpha" in entrant.options]
    for entrant, labels, seed in product(both, LABELS, range(SEEDS)):
        pool = draw_pool(protocol, seed, load_items(protocol))
        mixed = np.random.default_rng(seed).permutation(len(pool.ids))
        known, open_ = mixed[:labels], mixed[labels:]
        probe = labelwise.LinearProbe(classes=pool.classes)
        probe.fit(pool.inputs[known], pool.targets[known])
        rows = probe.represent(pool.inputs[open_], ["probabilities"])
        rows["features"] = pool.inputs[open_]
        shared = {name: entrant.options[name] for name in ("temperature", "beta")}
        found, alone, unsure = (
            labelwise.select(entrant.strategy, protocol.batch, **rows, **options, seed=seed)
            for options in (entrant.options, {**shared, **APPROXIMATION}, {**shared, **UNCERTAINTY})
        )
        gained = found.info["bias_without_picks"] - found.info["bias"]
        line = {
            "strategy": entrant.strategy,
            "options": dict(entrant.options),
            "labels": labels,
            "seed": seed,
            "ratio": -found.info["f2"] / gained,
            "as_approximation": len(set(found.ids.tolist()) & set(alone.ids.tolist())),
            "as_uncertainty": len(set(found.ids.tolist()) & set(unsure.ids.tolist())),
        }
        print(json.dumps(line), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
