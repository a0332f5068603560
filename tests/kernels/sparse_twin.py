"""Sparse approximation written from its definition, with every vector multiplied out."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from labelwise.pool.blocks import LocalShards, Shard
from tests.conftest import make_features


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def make_rows(n, d, k, seed=0):
    generator = np.random.default_rng([seed, 7])
    return {"features": make_features(n, d, seed), "logits": 2 * generator.normal(size=(n, k))}


def make_members(n, m, k, seed=0):
    generator = np.random.default_rng([seed, 8])
    centres = 2 * generator.normal(size=(n, 1, k))
    logits = centres + generator.normal(size=(n, m, k))
    return {"member_probabilities": softmax(logits.reshape(n * m, k)).reshape(n, m, k)}


def shards_of(rows, blocks=1, order=None):
    """The rows in some blocks, in some order; ids are the row numbers of ``rows``."""
    n = len(next(iter(rows.values())))
    parts = np.array_split(np.arange(n) if order is None else order, blocks)
    return LocalShards(
        [Shard(part, {name: array[part] for name, array in rows.items()}) for part in parts]
    )


def last_layer_vectors(rows, temperature):
    """Means and deviations of the last-layer gradients, by going through all labels."""
    predicted, assumed = softmax(rows["logits"]), softmax(rows["logits"] / temperature)
    n, classes = predicted.shape
    gradients = [
        np.einsum("ik,id->ikd", predicted - label, rows["features"]).reshape(n, -1)
        for label in np.eye(classes)
    ]
    mean = sum(assumed[:, [y]] * gradients[y] for y in range(classes))
    spread = sum(
        assumed[:, y] * np.linalg.norm(gradients[y] - mean, axis=1) for y in range(classes)
    )
    return mean, spread


def member_vectors(rows):
    """Means and deviations of the members' centred losses, by going through all labels."""
    means, deviations = [], []
    for members in rows["member_probabilities"]:
        law = members.mean(axis=0)
        losses = -np.log(members)
        gradients = (losses - losses.mean(axis=0)).T / np.sqrt(len(members))
        mean = law @ gradients
        means.append(mean)
        deviations.append(law @ np.linalg.norm(gradients - mean, axis=1))
    return np.array(means), np.array(deviations)


@dataclass
class Twin:
    """The dense problem: ``phi`` is ``(D, n)``."""

    phi: np.ndarray
    v: np.ndarray
    c: np.ndarray
    beta: float
    budget: int

    def f1(self, w, support):
        return ((self.v - self.phi @ w) ** 2).sum() + self.beta * ((w[support] - 1) ** 2).sum()

    def f(self, w, support):
        return self.f1(w, support) - self.c[support].sum()

    def gradient(self, w):
        return 2 * self.phi.T @ (self.phi @ w - self.v) + 2 * self.beta * (w - 1)

    def line_search(self, u, w):
        image = self.phi @ u
        curvature = image @ image + self.beta * u @ u
        slope = (self.phi @ w - self.v) @ image + self.beta * (w - 1) @ u
        return slope / curvature if curvature > 1e-300 else 0.0

    def debias(self, w, support):
        u = np.zeros_like(w)
        u[support] = self.gradient(w)[support]
        return w - self.line_search(u, w) * u

    def refit(self, support):
        """The best non-negative weights on a support, and the objective there."""
        stacked = np.vstack([self.phi[:, support], np.sqrt(self.beta) * np.eye(len(support))])
        right = np.concatenate([self.v, np.full(len(support), np.sqrt(self.beta))])
        w = np.zeros(self.phi.shape[1])
        w[support] = nnls(stacked, right)[0]
        return w, self.f(w, support)

    def best_of_random(self, tries=50, seed=0):
        generator = np.random.default_rng([seed, 9])
        n = self.phi.shape[1]
        draws = [generator.choice(n, self.budget, replace=False) for _ in range(tries)]
        return min(self.refit(draw)[1] for draw in draws)

    def greedy(self, gain="linear", tau=1.0, steps=1):
        """Algorithm 1, everything computed anew at every pick."""
        n = self.phi.shape[1]
        w, support = np.zeros(n), []
        norms = (self.phi**2).sum(axis=0)
        for _ in range(self.budget):
            gradient = self.gradient(w)
            if gain == "linear":
                change = tau * gradient - self.c
            else:
                curvature = norms + self.beta
                fall = np.where(curvature > 1e-300, np.minimum(gradient, 0) ** 2 / 4, 0)
                change = -fall / np.where(curvature > 1e-300, curvature, 1) - self.c
            change = np.round(change / max(np.abs(change).max(), 1e-300), 12)
            change[support] = np.inf
            support.append(int(np.argmin(change)))
            single = np.eye(n)[support[-1]]
            w = w - self.line_search(single, w) * single
            for _ in range(steps):
                w = np.maximum(self.debias(w, support), 0)
            w = np.maximum(w, 0)
        return support, w

    def threshold(self, iterations, printed=False):
        """Algorithm 2, with dense vectors; returns the best support, weights and objective."""
        n, b = self.phi.shape[1], self.budget
        w, z, best = np.zeros(n), np.zeros(n), None
        for _ in range(iterations):
            before, gradient = w, self.gradient(z)
            length = self.line_search(gradient, z)
            s = z - length * gradient
            lost = np.zeros(n) if printed else s**2 / 2
            worth = lost - np.minimum(s, 0) ** 2 / 2 + length * self.c
            support = np.argsort(-worth, kind="stable")[:b]
            w = np.zeros(n)
            w[support] = np.maximum(s[support], 0)
            w = np.maximum(self.debias(w, support), 0)
            change = w - before
            z = w - self.line_search(change, w) * change
            if best is None or self.f(w, support) < best[2]:
                best = (support, w, self.f(w, support))
        return best


def twin_of(rows, budget, alpha, beta, temperature=2.0):
    """The dense problem of some rows."""
    if "logits" in rows:
        means, deviations = last_layer_vectors(rows, temperature)
    else:
        means, deviations = member_vectors(rows)
    return Twin(means.T / budget, means.mean(axis=0), alpha * deviations**2, beta, budget)
