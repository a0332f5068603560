"""Time of `labelwise.LinearProbe`: with an earlier tuning, and with cross-validation.

Features are random, with classes about as hard to tell apart as CIFAR-10 for an image encoder.
Every case is trained with the tuning of the model before (what people wait for after the last label
of a batch) and with cross-validation (in the background), and predicts the pool. CPU seconds of one
thread; set OPENBLAS_NUM_THREADS=1.

Run: python benchmarks/linear_probe_speed.py --out docs/results/linear_probe_speed.jsonl
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from labelwise.learners.linear_probe import LinearProbe

CASES = (
    # labels, features, classes, items of the pool
    (50, 1280, 10, 4000),
    (500, 1280, 10, 4000),
    (2000, 1280, 10, 4000),
    (2000, 384, 20, 4000),
    (2760, 1280, 345, 27600),
    (5000, 1280, 10, 50000),
)


def make_features(labels: int, width: int, classes: int, items: int) -> tuple:
    """Correlated features of items, classes with some overlap: ``(items, width)``, ``(items,)``."""
    rng = np.random.default_rng(0)
    targets = rng.integers(classes, size=items)
    decay = np.arange(1, width + 1) ** -0.5  # spectra of embeddings fall like a power
    mixing = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    centres = rng.standard_normal((classes, width)) * 0.12
    rows = (centres[targets] + rng.standard_normal((items, width))) * decay
    return rows.astype(np.float32) @ mixing, targets


def measure(case: tuple[int, int, int, int], *, tune: bool) -> dict:
    """Times of one case."""
    labels, width, classes, items = case
    rows, targets = make_features(*case)
    first = LinearProbe(classes=classes)
    some = slice(0, int(labels / 1.2))
    first.fit(rows[some][: 50 * classes], targets[some][: 50 * classes])
    probe = LinearProbe(classes=classes)
    line = {"labels": labels, "features": width, "classes": classes, "items": items}
    begin = time.process_time()
    report = probe.fit(rows[:labels], targets[:labels], tuning=first.tuning)
    line["fit_seconds"] = round(time.process_time() - begin, 3)
    line["iterations"] = report.steps
    begin = time.process_time()
    chances = probe.predict_proba(rows)
    line["predict_seconds"] = round(time.process_time() - begin, 3)
    hits = chances[labels:].argmax(axis=1) == targets[labels:]
    line["accuracy"] = round(float(np.mean(hits)), 3)
    if tune:
        begin = time.process_time()
        probe.fit(rows[:labels], targets[:labels])
        line["cross_validation_seconds"] = round(time.process_time() - begin, 3)
        line["penalty"] = probe.tuning.penalty
    return line


def main() -> None:
    """Measure all cases and write a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="without cross-validation")
    given = parser.parse_args()
    lines = []
    for case in CASES:
        line = measure(case, tune=not given.quick and case[2] < 100)
        print(json.dumps(line), flush=True)
        lines.append(json.dumps(line) + "\n")
    if given.out is not None:
        given.out.write_text("".join(lines))


if __name__ == "__main__":
    main()
