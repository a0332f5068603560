r"""Exp4.P bandit: probabilities of arms when only the drawn arm is rewarded.

Every one of :math:`N` arms has a weight, initially 1. The probability of an arm is

.. math:: p_a = (1 - N p_{\min}) \frac{w_a}{\sum_{a'} w_{a'}} + p_{\min} ,

and the arm that was drawn, with probability :math:`p` and reward :math:`r`, has its weight
multiplied by

.. math:: \exp\Bigl( \frac{p_{\min}}{2} \Bigl( r + \frac{1}{p} \sqrt{\ln(N / \delta) / N}
    \Bigr) \Bigr) .

The second term is an upper confidence bound: an arm that is rarely drawn gains more when it is. The
reward is the accuracy on all labelled items, each divided by the probability of the arm that chose
it (`importance_weighted_accuracy`), so that an arm is not rewarded for easy items.

Cost: one step per past round.

References: W.-N. Hsu, H.-T. Lin, "Active Learning by Learning", AAAI 2015. A. Beygelzimer,
J. Langford, L. Li, L. Reyzin, R. Schapire, "Contextual Bandit Algorithms with Supervised Learning
Guarantees", AISTATS 2011 (Exp4.P).
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from labelwise.arrays import Floats, to_numpy
from labelwise.errors import BadInput
from labelwise.files import Json

FIELDS = ("arm", "probability", "reward")


def arm_probabilities(
    rounds: Sequence[Mapping[str, Json]],
    arms: Sequence[str],
    *,
    p_min: float | None = None,
    delta: float = 0.1,
) -> Floats:
    """The probability of every arm after some rounds, ``(N,)``, in the order of ``arms``.

    Args:
        rounds: past rounds, oldest first: the drawn ``arm``, its ``probability`` and ``reward``.
        arms: names of the arms.
        p_min: smallest probability of an arm, from 0 to 1/N; 1/(10 N) if None. It is also the
            learning rate: with 0 no probability changes.
        delta: of the confidence bound; above 0 and below 1.

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
    logs = np.zeros(count)  # weights would overflow after many rounds
    for number, past in enumerate(rounds):
        arm, probability, reward = _check_bandit_round(past, number, arms)
        logs[arm] += least / 2 * (reward + bound / probability)
    weights = np.exp(logs - logs.max())
    return np.asarray((1 - count * least) * weights / weights.sum() + least)


def _check_bandit_round(
    past: Mapping[str, Json], number: int, arms: Sequence[str]
) -> tuple[int, float, float]:
    """Position, probability and reward of the arm of a past round."""
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


def importance_weighted_accuracy(correct: ArrayLike, probabilities: ArrayLike) -> float:
    """The reward of a round: ``mean(correct / probability)`` over all labelled items.

    ``correct`` ``(m,)``: whether the model that was trained on them predicts each label.
    ``probabilities`` ``(m,)``: that at which the arm that chose the item was drawn; 1 for items
    labelled before the first round.

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
