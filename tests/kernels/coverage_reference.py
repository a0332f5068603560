"""Greedy coverage from its definition, in float64, for tests."""

import numpy as np

from labelwise.arrays import comparable, row_noise


def similarities(rows, others, mean, kernel="cosine", width=1.0, power=1.0):
    """Similarity of every row with every other, ``(n, m)``."""
    rows, others = rows - mean, others - mean
    if kernel == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        others = others / np.linalg.norm(others, axis=1, keepdims=True)
        return np.maximum(rows @ others.T, 0) ** power
    squares = ((rows[:, None] - others[None]) ** 2).sum(axis=2)
    if kernel == "gaussian":
        return np.exp(-squares / width**2)
    return (squares <= width**2 * (1 + 2.0**-30)).astype(float)


def cover(features, budget, weights=None, labelled=(), targets=None, **kernel):
    """The picks and gains of the plain greedy algorithm; ids are row numbers.

    ``weights`` has one number per row; ``targets`` limits the targets to that many.
    """
    features = np.asarray(features, dtype=np.float64)
    mean = features.mean(axis=0)
    candidates = np.setdiff1d(np.arange(len(features)), labelled)
    chosen = candidates
    if targets is not None and targets < len(candidates):
        chosen = np.sort(candidates[np.argsort(row_noise(0, candidates))[:targets]])
    sampled = len(chosen) < len(candidates)
    values = similarities(features, features[chosen], mean, **kernel)
    values[chosen, np.arange(len(chosen))] = 1
    covered = np.max(values[list(labelled)], axis=0, initial=0)
    weights = np.ones(len(chosen)) if weights is None else weights[chosen]
    ids, gains, left = [], [], list(candidates)
    while len(ids) < budget:
        rest = np.maximum(values[left] - covered, 0) * weights
        if sampled:
            rest[np.array(left)[:, None] == chosen[None, :]] = 0
        scores = rest.mean(axis=1)
        best = int(np.argmax(comparable(scores)))
        if scores[best] <= 1e-9:
            if (weights == 1).all():
                break
            weights = np.ones(len(chosen))
            continue
        ids.append(int(left.pop(best)))
        gains.append(float(scores[best]))
        covered = np.maximum(covered, values[ids[-1]])
    return ids + left[: budget - len(ids)], gains + [0.0] * (budget - len(gains))
