r"""Which of several arms to try next, when only the arm that was tried is rewarded.

Every one of :math:`N` arms has a weight, 1 at first. The chance of an arm is

.. math:: p_a = (1 - N p_{\min}) \frac{w_a}{\sum_{a'} w_{a'}} + p_{\min} ,

and the arm that was drawn, with probability :math:`p` and reward :math:`r`, has its weight
multiplied by

.. math:: \exp\Bigl( \frac{p_{\min}}{2} \Bigl( r + \frac{1}{p} \sqrt{\ln(N / \delta) / N}
    \Bigr) \Bigr) .

The second term is an upper confidence bound: an arm that is seldom drawn gains more when it is.
The reward of an arm is the accuracy on all labelled items, each divided by the probability of the
arm that chose it (`importance_weighted_accuracy`), since an arm must not be praised for easy items.

Cost: one step per past round.

References: W.-N. Hsu, H.-T. Lin, "Active Learning by Learning", AAAI 2015. A. Beygelzimer,
J. Langford, L. Li, L. Reyzin, R. Schapire, "Contextual Bandit Algorithms with Supervised Learning
Guarantees", AISTATS 2011 (Exp4.P).
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from labelwise.arrays import Floats, to_numpy
from labelwise.errors import BadInput

FIELDS = ("arm", "probability", "reward")


def arm_probabilities(
    rounds: Sequence[Mapping[str, Any]],
    arms: Sequence[str],
    *,
    p_min: float | None = None,
    delta: float = 0.1,
) -> Floats:
    """The chance of every arm after some rounds, ``(N,)``, in the order of ``arms``.

    Args:
        rounds: past rounds, oldest first: the ``arm`` that was drawn, its ``probability`` at the
            time, and the ``reward`` it then got.
        arms: the names of the arms.
        p_min: the least chance of an arm, from 0 to 1/N; 1/(10 N) if None. It is the learning rate
            too: at 0 no chance ever changes.
        delta: how sure the confidence bound is; above 0 and below 1.

    >>> won = {"arm": "badge", "probability": 0.5, "reward": 0.9}
    >>> arm_probabilities([won], ["badge", "random"]).round(4).tolist()
    [0.5188, 0.4812]
    """
    count = len(arms)
    least = 1 / (10 * count) if p_min is None else p_min
    if not (isinstance(least, Real) and 0 <= least <= 1 / count):
        raise BadInput(f"p_min must be from 0 to 1/{count} for {count} arms; got {p_min!r}")
    if not (isinstance(delta, Real) and 0 < delta < 1):
        raise BadInput(f"delta must be above 0 and below 1; got {delta!r}")
    bound = math.sqrt(math.log(count / delta) / count)
    logs = np.zeros(count)  # of the weights, which would overflow after many rounds
    for number, past in enumerate(rounds):
        arm, probability, reward = _checked(past, number, arms)
        logs[arm] += least / 2 * (reward + bound / probability)
    weights = np.exp(logs - logs.max())
    return np.asarray((1 - count * least) * weights / weights.sum() + least)


def _checked(past: Mapping[str, Any], number: int, arms: Sequence[str]) -> tuple[int, float, float]:
    """The arm's place, probability and reward of a past round."""
    if not isinstance(past, Mapping) or set(past) != set(FIELDS):
        raise BadInput(f"round {number} must hold {', '.join(FIELDS)} and no more; got {past!r}")
    if past["arm"] not in arms:
        raise BadInput(f"round {number} drew {past['arm']!r}, no arm of {', '.join(arms)}")
    for name in FIELDS[1:]:
        if isinstance(past[name], bool) or not isinstance(past[name], Real):
            raise BadInput(f"the {name} of round {number} must be a number; got {past[name]!r}")
    probability, reward = float(past["probability"]), float(past["reward"])
    if not 0 < probability <= 1:
        raise BadInput(
            f"the probability of round {number} must be above 0 and at most 1; got {probability}"
        )
    if not 0 <= reward < math.inf:
        raise BadInput(f"the reward of round {number} must be 0 or more; got {reward}")
    return list(arms).index(past["arm"]), probability, reward


def importance_weighted_accuracy(correct: Any, probabilities: Any) -> float:
    """The reward of a round: ``mean(correct / probability)`` over all labelled items.

    Args:
        correct: ``(m,)``, whether the model that was trained on them predicts each label.
        probabilities: ``(m,)``, the probability at which the arm that chose the item was drawn;
            1 for items labelled before the first round.

    >>> importance_weighted_accuracy([True, True, False, True], [1, 1, 0.5, 0.5])
    1.0
    """
    hits = np.asarray(to_numpy(correct), dtype=np.float64)
    chances = np.asarray(to_numpy(probabilities), dtype=np.float64)
    if hits.ndim != 1 or hits.shape != chances.shape or not len(hits):
        raise BadInput(
            f"give one probability per labelled item; got {chances.shape} for {hits.shape}"
        )
    if not np.isin(hits, (0, 1)).all():
        raise BadInput("correct must say true or false for every labelled item")
    wrong = ~((chances > 0) & (chances <= 1))
    if wrong.any():
        raise BadInput(f"probabilities must be above 0 and at most 1; got {chances[wrong][0]}")
    return float(np.mean(hits / chances))
