"""Accuracy of a linear probe on the features of encoders, for few random labels.

Run: PYTHONPATH=src python benchmarks/encoder_accuracy.py --out docs/results/encoder_accuracy.jsonl

Needs `labelwise data fetch cifar10 bbc_news newsgroups` and `labelwise encoders fetch minilm`. A
fixed subset of every data set is encoded once; labels are drawn at random by five seeds. One JSON
object per line: data set, encoder, number of labels, mean accuracy on test items and its standard
deviation over the seeds, and milliseconds of CPU time per item for encoding.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import labelwise
from labelwise.benchmark.datasets import load
from labelwise.encoders.encoding import encode
from labelwise.encoders.registry import open_encoder

PLAN = {
    "cifar10": ((2000, 2000), ("efficientnet_lite0",), (100, 200, 400, 1000)),
    "bbc_news": ((1200, 800), ("tfidf", "minilm"), (50, 100, 400)),
    "newsgroups": ((2000, 1000), ("tfidf", "minilm"), (100, 400, 1000)),
}
"""By data set: numbers of pool and test items, encoders, and numbers of labels."""

SEEDS = range(5)


def measure(dataset: str, spec: str) -> list[dict]:
    """Accuracy for every number of labels."""
    counts, _, budgets = PLAN[dataset]
    data, rng = load(dataset), np.random.default_rng(0)
    sizes = zip((data.inputs, data.test_inputs), counts, strict=True)
    rows = [rng.permutation(len(own))[:count] for own, count in sizes]
    pool, test = data.inputs[rows[0]], data.test_inputs[rows[1]]
    targets, answers = data.targets[rows[0]], data.test_targets[rows[1]]
    if not data.shape:
        pool, test = ([str(text) for text in texts] for texts in (pool, test))
    kind = "images" if data.shape else "texts"
    started = time.process_time()
    encoder = open_encoder(spec, kind, corpus=pool if kind == "texts" else None)
    features, others = encode(pool, encoder), encode(test, encoder)
    cost = (time.process_time() - started) / (len(pool) + len(test)) * 1e3
    found = []
    for budget in budgets:
        scores = []
        for seed in SEEDS:
            chosen = np.random.default_rng(seed).permutation(len(targets))[:budget]
            probe = labelwise.LinearProbe()
            probe.fit(features[chosen], targets[chosen], seed=seed)
            scores.append(probe.score(others, answers))
        found.append(
            {
                "dataset": dataset,
                "encoder": spec,
                "labels": budget,
                "accuracy": round(float(np.mean(scores)), 4),
                "deviation": round(float(np.std(scores)), 4),
                "cpu_ms": round(cost, 1),
            }
        )
    return found


def main() -> None:
    """Measure and print, or append to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=PLAN, action="append")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for dataset in given.dataset or PLAN:
        for spec in PLAN[dataset][1]:
            for line in map(json.dumps, measure(dataset, spec)):
                print(line, flush=True)
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
