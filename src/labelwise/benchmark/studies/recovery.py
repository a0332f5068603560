r"""Recovery: how well weighted least squares on few labels does beside that on all of them.

With features :math:`A` ``(n, d)``, values :math:`y`, the best :math:`x^* = \arg\min |A x - y|`, and
:math:`\tilde x` fitted to the picks with their weights, the error is

.. math:: \frac{|A \tilde x - A x^*|^2}{|A x^* - y|^2} ,

how much more than the best is lost, as a share of the best (the residual of the best is orthogonal
to all that features can say). Chen and Price's bound says it is at most epsilon with
:math:`O(d / \epsilon)` labels that the randomized BSS procedure picks.

==============  ===================================================================================
features        what
==============  ===================================================================================
heavy_tailed    rows of Student's t with 2 degrees of freedom: a few are much longer than the rest
one_hot         groups of very different sizes: to miss a small group is to know nothing of it
a data set      the last hidden layer of a network trained on some labels, and one-hot classes
==============  ===================================================================================

Reference: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from labelwise.arrays import Floats, to_numpy
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.scenes import prepare
from labelwise.benchmark.studies.lines import line
from labelwise.selection.entry import select
from labelwise.strategies import get

GROUP_RATIO = 1.5
"""Each one-hot group is so many times smaller than the one before."""

_kept: dict[str, Any] = {}
"""The features of a trained network and what they were made for: all strategies of a seed, one
after the other, look at the same."""


def recovery(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """The error of weighted least squares on few labels beyond that on all."""
    clock = Clock(device)
    for number, (budget, value) in enumerate(recovery_values(protocol, entrant, seed, device)):
        yield line(protocol, entrant, seed, device, number, budget, value, clock.lap())


def recovery_values(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """Labels and error, budget after budget."""
    features, values, columns = _problem(protocol, seed, device)
    best = np.linalg.lstsq(features, values)[0]
    residual = float(np.square(features @ best - values).sum())
    needs = get(entrant.strategy).needs
    for times in protocol.settings["budgets"]:
        budget = int(times * columns)
        given = {"features": features} if needs else {"ids": np.arange(len(features))}
        picked = select(entrant.strategy, budget, seed=seed, **given, **entrant.options)
        weights = np.ones(budget)
        if picked.weights is not None and (entrant.weights or protocol.weights) != "none":
            weights = picked.training_weights()
        roots = np.sqrt(weights)[:, None]
        rows, known = features[picked.ids] * roots, values[picked.ids] * roots
        found = np.linalg.lstsq(rows, known)[0]
        yield budget, float(np.square(features @ (found - best)).sum()) / residual


def _problem(protocol: Protocol, seed: int, device: Device) -> tuple[Floats, Floats, int]:
    """Features ``(n, d)`` and values ``(n, k)``, in float64, and the columns that budgets count."""
    rng = np.random.default_rng([seed, 23])
    sizes = protocol.settings
    if protocol.dataset == "heavy_tailed":
        features = rng.standard_t(2, size=(sizes["items"], sizes["columns"]))
    elif protocol.dataset == "one_hot":
        features = np.eye(sizes["columns"])[_groups(sizes["items"], sizes["columns"])]
    else:
        return _trained(protocol, seed, device)
    truth = rng.normal(size=(sizes["columns"], 1))
    values = features @ truth + rng.normal(size=(len(features), 1))
    return features, values, features.shape[1]


def _groups(items: int, groups: int) -> Any:
    """Every item's group; sizes fall by `GROUP_RATIO`, and no group has fewer than two items."""
    shares = GROUP_RATIO ** -np.arange(groups)
    sizes = np.maximum(2, (items * shares / shares.sum()).astype(np.int64))
    sizes[0] += items - sizes.sum()
    return np.repeat(np.arange(groups), sizes)


def _trained(protocol: Protocol, seed: int, device: Device) -> tuple[Floats, Floats, int]:
    """What a network trained on the first labels makes of the pool, a bias beside it.

    Columns that never change are left out, yet budgets count them: how many there are differs by
    seed, and the seeds' curves are compared label by label.
    """
    made_for = protocol, seed, device
    if _kept.get("made for") != made_for:
        scene = prepare(protocol, seed)
        models = make_models(protocol, Entrant("random"), scene, device)
        places = scene.positions(scene.first)
        (task,) = models.tasks(places, scene.targets[places], None, seed)
        task.fit()
        rows = task.learner.represent(models.pool, ["features"])["features"]
        features = np.asarray(to_numpy(rows), dtype=np.float64)
        alive = features.std(axis=0) > 1e-6 * features.std()
        columns = np.concatenate([features[:, alive], np.ones((len(features), 1))], axis=1)
        values = np.eye(scene.outputs)[scene.targets]
        _kept["made for"] = made_for
        _kept["problem"] = columns, values, features.shape[1] + 1
    problem: tuple[Floats, Floats, int] = _kept["problem"]
    return problem
