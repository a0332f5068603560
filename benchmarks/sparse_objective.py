"""What hard thresholding picks, and how good its batches are: 10 picks on the digits.

For two assumed distributions of the labels: the share of the squared mean gradient that a batch
leaves with its best weights (``sparse_iht``, ``sparse_greedy`` with exact gains for the same
objective, 50 random batches), the mean confidence of the picks and of the pool, and how many picks
of ``sparse_iht`` are those of a dense version written from the definition.

Run: python benchmarks/sparse_objective.py --out docs/results/sparse_objective.jsonl
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

import labelwise
from labelwise.benchmark.frozen_run import draw_pool
from labelwise.benchmark.protocols import get
from labelwise.benchmark.studies.frozen import load_items

ALPHA, BETA, BUDGET, ITERATIONS, SEEDS = 1e-8, 1e-6, 10, 100, 3
LAWS = ({"label_law": "label_smoothing", "rho": 0.1}, {"temperature": 1.1})


def pose_dense(features, probabilities, law):
    """Columns ``Phi``, target ``v`` and squared deviations, from the definition."""
    if "rho" in law:
        assumed = (1 - law["rho"]) * probabilities + law["rho"] / probabilities.shape[1]
    else:
        assumed = probabilities ** (1 / law["temperature"])
        assumed /= assumed.sum(axis=1, keepdims=True)
    means = np.einsum("ik,id->ikd", probabilities - assumed, features).reshape(len(features), -1)
    spread = np.zeros(len(features))
    for label, chance in zip(np.eye(assumed.shape[1]), assumed.T, strict=True):
        spread += chance * np.linalg.norm(assumed - label, axis=1)
    variances = (spread * np.linalg.norm(features, axis=1)) ** 2
    return means.T / BUDGET, means.mean(axis=0), variances


def threshold(phi, target, costs):
    """Algorithm 2 with the corrected projection and dense vectors; the support of lowest value."""

    def gradient(w):
        return 2 * phi.T @ (phi @ w - target) + 2 * BETA * (w - 1)

    def search(direction, w):
        image = phi @ direction
        slope = (phi @ w - target) @ image + BETA * (w - 1) @ direction
        curvature = image @ image + BETA * direction @ direction
        return slope / curvature if curvature > 0 else 0.0

    w = z = np.zeros(phi.shape[1])
    least, best, last = np.inf, None, None
    for _ in range(ITERATIONS):
        length = search(gradient(z), z)
        moved = z - length * gradient(z)
        value = np.maximum(moved, 0) ** 2 / 2 + length * costs
        kept = np.argsort(-value, kind="stable")[:BUDGET]
        mask = np.isin(np.arange(len(w)), kept)
        before, w = w, np.where(mask, np.maximum(moved, 0), 0)
        steepest = np.where(mask, gradient(w), 0)
        w = np.maximum(w - search(steepest, w) * steepest, 0)
        f = np.sum((phi @ w - target) ** 2) + BETA * np.sum((w[kept] - 1) ** 2) - costs[kept].sum()
        if f < least - 1e-9 * (target @ target + BETA * BUDGET):
            least, best = f, set(kept.tolist())
        if last is not None and set(kept.tolist()) == last[0] and abs(f - last[1]) < 1e-9 * least:
            break
        last, z = (set(kept.tolist()), f), w - search(w - before, w) * (w - before)
    return best


def measure_left(phi, target, picks):
    """Share of the squared target that the picks leave with their best weights."""
    columns = np.vstack([phi[:, picks], np.sqrt(BETA) * np.eye(len(picks))])
    goal = np.concatenate([target, np.full(len(picks), np.sqrt(BETA))])
    left = phi[:, picks] @ nnls(columns, goal)[0] - target
    return float(left @ left / (target @ target))


def main() -> None:
    """Measure every law, number of labels and seed, and print or append one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    protocol = get("frozen-digits")
    for law, labels, seed in product(LAWS, (20, 100, 300), range(SEEDS)):
        pool = draw_pool(protocol, seed, load_items(protocol))
        generator = np.random.default_rng(seed)
        mixed = generator.permutation(len(pool.ids))
        probe = labelwise.LinearProbe(classes=10)
        probe.fit(pool.inputs[mixed[:labels]], pool.targets[mixed[:labels]])
        features = pool.inputs[mixed[labels:]].astype(np.float64)
        chances = probe.represent(features, ["probabilities"])["probabilities"].astype(np.float64)
        phi, target, variances = pose_dense(features, chances, law)
        call = {"features": features, "probabilities": chances, "alpha": ALPHA, "beta": BETA, **law}
        found = labelwise.select("sparse_iht", BUDGET, **call).ids
        greedy = labelwise.select("sparse_greedy", BUDGET, gain="exact", debias_steps=5, **call).ids
        draws = [generator.choice(len(features), BUDGET, replace=False) for _ in range(50)]
        sure = chances.max(axis=1)
        line = {
            "law": law,
            "labels": labels,
            "seed": seed,
            "left_iht": measure_left(phi, target, found),
            "left_greedy": measure_left(phi, target, greedy),
            "left_random": float(np.mean([measure_left(phi, target, draw) for draw in draws])),
            "confidence_iht": float(sure[found].mean()),
            "confidence_greedy": float(sure[greedy].mean()),
            "confidence_pool": float(sure.mean()),
            "same_as_dense": len(threshold(phi, target, ALPHA * variances) & set(found.tolist())),
        }
        print(json.dumps(line), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
