"""Why an item was chosen: one honest sentence, from what its batch recorded.

Said is only what the strategy looked at: its kind, its score where the score has a plain meaning,
and the weight. The model's guess is never told, since who reads it labels otherwise; how sure the
model is may be told.
"""

from collections.abc import Callable

from labelwise.errors import BadInput, LabelwiseError
from labelwise.record.events import Asked
from labelwise.strategies import get


def why(asked: Asked, position: int) -> str:
    """Say why the item at a position of a batch was chosen.

    Args:
        asked: the batch.
        position: in its ``ids``.

    Example:
        >>> asked = Asked(
        ...     at=0.0, batch=2, ids=(40, 7), weights=None, scores=(-0.04, -0.1),
        ...     strategy="margin", seed=0, options={}, model=1, validation=(),
        ...     guesses=(("cat", 0.5), ("dog", 0.6)), info={},
        ... )
        >>> why(asked, 0)
        'The two most likely classes are closer than elsewhere: 4 percentage points apart.'
    """
    if not 0 <= position < len(asked.ids):
        raise BadInput(f"batch {asked.batch} has {len(asked.ids)} items; got position {position}")
    if asked.ids[position] in asked.validation:
        return "Drawn at random to measure the model: it is never trained on."
    return _sentence(asked.strategy, asked, position)


def _sentence(strategy: str, asked: Asked, position: int) -> str:
    if strategy == "bandit" and isinstance(asked.info.get("arm"), str):
        arm = str(asked.info["arm"])
        return f"It was the turn of {arm}. {_sentence(arm, asked, position)}"
    says = _SAYS.get(strategy, _of_unknown)
    return says(asked, position)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _score(asked: Asked, position: int, low: float, high: float) -> float | None:
    """The score where it is in the range in which it has its plain meaning."""
    if asked.scores is None or asked.strategy == "bandit":
        return None
    score = asked.scores[position]
    return score if score is not None and low <= score <= high else None


def _confidence(asked: Asked, position: int) -> float | None:
    guess = None if asked.guesses is None else asked.guesses[position]
    return None if guess is None else guess[1]


def _random(asked: Asked, position: int) -> str:
    if asked.model is None:
        return "Drawn at random: there is no model yet that could choose."
    return "Drawn at random: every item that was left had the same chance."


def _margin(asked: Asked, position: int) -> str:
    score = _score(asked, position, -1.0, 0.0)
    if score is None:
        return "The two most likely classes are closer for the model than elsewhere."
    points = round(-100 * score)
    apart = f"{points} percentage point{'' if points == 1 else 's'}"
    if points < 1:
        apart = "less than 1 percentage point"
    return f"The two most likely classes are closer than elsewhere: {apart} apart."


def _uncertain(asked: Asked, position: int) -> str:
    confidence = _confidence(asked, position)
    if confidence is None:
        return "The model is less sure about this item than about others."
    return f"The model is less sure than elsewhere: {_percent(confidence)} for its best class."


def _unsure_and_unlike(asked: Asked, position: int) -> str:
    confidence = _confidence(asked, position)
    sure = "" if confidence is None else f" (it gives its best class {_percent(confidence)})"
    return f"The model could learn from it{sure}, and it is unlike the other picks of this batch."


def _hard(asked: Asked, position: int) -> str:
    return "It is expected to be hard to fit, and it is unlike the other picks of this batch."


def _far(asked: Asked, position: int) -> str:
    return "It was the farthest from everything labelled or picked before it."


def _typical(asked: Asked, position: int) -> str:
    return "It is typical of a group of items of its own."


def _uncovered(asked: Asked, position: int) -> str:
    return "It is typical of a group of items that has few labels or none yet."


def _like_the_pool(asked: Asked, position: int) -> str:
    return "With it, the batch looks more like the whole pool."


def _predicts(asked: Asked, position: int) -> str:
    return "Much of the pool can be predicted from it and the picks before it."


def _informs(asked: Asked, position: int) -> str:
    return "Its label is expected to lower the error over the whole pool most."


def _speeds(asked: Asked, position: int) -> str:
    return "Its label is expected to speed up training most."


def _disagree(asked: Asked, position: int) -> str:
    return "The models differ more about this item than about others."


def _waver(asked: Asked, position: int) -> str:
    return "The models changed their minds about this item late in training."


def _together(asked: Asked, position: int) -> str:
    return "The models differ about it, in another way than about the other picks."


def _direction(asked: Asked, position: int) -> str:
    return f"Drawn by how unusual its features are{_stands_for(asked, position)}."


def _represents(asked: Asked, position: int) -> str:
    return f"It represents a part of the pool in training{_stands_for(asked, position)}."


def _stands_for(asked: Asked, position: int) -> str:
    if asked.weights is None:
        return ""
    count = asked.weights[position]
    if count < 1.5:
        return "; it stands for itself"
    return f"; it stands for about {count:,.0f} items"


def _of_unknown(asked: Asked, position: int) -> str:
    """What can be said of any strategy: its name, what it is for, and the rank of the pick."""
    picks = [item for item in asked.ids if item not in asked.validation]
    rank = picks.index(asked.ids[position]) + 1
    try:
        purpose = f" ({get(asked.strategy).good_for})"
    except LabelwiseError:
        purpose = ""
    return f"Pick {rank} of {len(picks)} by {asked.strategy}{purpose}."


_SAYS: dict[str, Callable[[Asked, int], str]] = {
    "random": _random,
    "margin": _margin,
    "confidence": _uncertain,
    "entropy": _uncertain,
    "badge": _unsure_and_unlike,
    "ally": _hard,
    "k_center": _far,
    "kmeans": _typical,
    "typiclust": _uncovered,
    "herding": _like_the_pool,
    "design": _predicts,
    "bait": _informs,
    "dynamics": _speeds,
    "bald": _disagree,
    "committee": _disagree,
    "batchbald": _together,
    "disagreement": _waver,
    "lewis": _direction,
    "bss": _direction,
    "sparse_greedy": _represents,
    "sparse_iht": _represents,
    "bayesian_coreset": _represents,
}
