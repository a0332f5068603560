r"""Study of recovery: weighted least squares on few labels compared with all labels.

With features :math:`A` ``(n, d)``, values :math:`y`, the best :math:`x^* = \arg\min |A x - y|`, and
:math:`\tilde x` fitted to the picks with their weights, the error is

.. math:: \frac{|A \tilde x - A x^*|^2}{|A x^* - y|^2} ,

the excess error as a share of the best (the residual of the best is orthogonal to the features).
By Chen and Price's bound it is at most epsilon with :math:`O(d / \epsilon)` labels picked by
randomized BSS.

==============  ===================================================================================
features        content
==============  ===================================================================================
heavy_tailed    rows of Student's t with 2 degrees of freedom: a few are very long
one_hot         groups of very different sizes: a missed group is unknown
a data set      the last hidden layer of a network trained on some labels, and one-hot classes
==============  ===================================================================================

Reference: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

from collections.abc import Iterator

import numpy as np

from labelwise.arrays import Floats, Ids, to_numpy
from labelwise.benchmark.devices import Device
from labelwise.benchmark.models import train_on_first_labels
from labelwise.benchmark.processes import keep_last_result
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.splits import split_dataset
from labelwise.selection.request import select
from labelwise.strategies import get

GROUP_RATIO = 1.5
"""Ratio of the sizes of successive one-hot groups."""


def study_recovery(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """Excess error of weighted least squares on few labels."""
    features, values, columns = make_recovery_problem(protocol, seed, device)
    best = np.linalg.lstsq(features, values)[0]
    residual = float(np.square(features @ best - values).sum())
    for ids, weights in iterate_recovery_picks(protocol, entrant, features, columns, seed):
        roots = np.sqrt(weights)[:, None]
        found = np.linalg.lstsq(features[ids] * roots, values[ids] * roots)[0]
        yield len(ids), float(np.square(features @ (found - best)).sum()) / residual


def iterate_recovery_picks(
    protocol: Protocol, entrant: Entrant, features: Floats, columns: int, seed: int
) -> Iterator[tuple[Ids, Floats]]:
    """Picks and their weights by budget, in multiples of a number of columns."""
    needs = get(entrant.strategy).needs
    given = {"features": features} if needs else {"ids": np.arange(len(features))}
    for times in protocol.settings["budgets"]:
        budget = int(times * columns)
        picked = select(entrant.strategy, budget, seed=seed, **given, **entrant.options)
        weighted = picked.weights is not None and (entrant.weights or protocol.weights) != "none"
        yield picked.ids, picked.training_weights() if weighted else np.ones(budget)


def make_recovery_problem(
    protocol: Protocol, seed: int, device: Device
) -> tuple[Floats, Floats, int]:
    """Features ``(n, d)``, values ``(n, k)``, and the number of columns that budgets count."""
    rng = np.random.default_rng([seed, 23])
    sizes = protocol.settings
    if protocol.dataset == "heavy_tailed":
        features = rng.standard_t(2, size=(sizes["items"], sizes["columns"]))
    elif protocol.dataset == "one_hot":
        # Group sizes decrease by `GROUP_RATIO`; every group has at least two items.
        shares = GROUP_RATIO ** -np.arange(sizes["columns"])
        counts = np.maximum(2, (sizes["items"] * shares / shares.sum()).astype(np.int64))
        counts[0] += sizes["items"] - counts.sum()
        features = np.repeat(np.eye(sizes["columns"]), counts, axis=0)
    else:
        return _make_trained_recovery_problem(protocol, seed, device)
    truth = rng.normal(size=(sizes["columns"], 1))
    values = features @ truth + rng.normal(size=(len(features), 1))
    return features, values, features.shape[1]


@keep_last_result
def _make_trained_recovery_problem(
    protocol: Protocol, seed: int, device: Device
) -> tuple[Floats, Floats, int]:
    """Features of a network trained on the first labels, and a bias, for all strategies of a seed.

    Constant columns are left out, but budgets count them: their number differs by seed, and the
    curves of the seeds are compared at the same numbers of labels.
    """
    split = split_dataset(protocol, seed)
    models = train_on_first_labels(protocol, split, device, seed)
    rows = models.reader.represent(models.pool, ["features"])["features"]
    features = np.asarray(to_numpy(rows), dtype=np.float64)
    alive = features.std(axis=0) > 1e-6 * features.std()
    columns = np.concatenate([features[:, alive], np.ones((len(features), 1))], axis=1)
    return columns, np.eye(split.outputs)[split.targets], features.shape[1] + 1
