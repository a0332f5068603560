"""Explanations: one sentence on why an item was picked, from the event of its batch.

The model's prediction is never shown, because it would bias annotators; its confidence may be
shown.
"""

from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Asked
from labelwise.strategies import get
from labelwise.strategy import PickFacts


def explain_pick(asked: Asked, position: int) -> str:
    """Why the item at a position of a batch was picked.

    Example:
        >>> asked = Asked(
        ...     at=0.0, batch=2, ids=(40, 7), weights=None, scores=(-0.04, -0.1),
        ...     strategy="margin", seed=0, options={}, model=1, validation=(),
        ...     guesses=(("cat", 0.5), ("dog", 0.6)), info={},
        ... )
        >>> explain_pick(asked, 0)[-28:]
        ': 4 percentage points apart.'
    """
    if not 0 <= position < len(asked.ids):
        raise BadInput(f"batch {asked.batch} has {len(asked.ids)} items; got position {position}")
    item = asked.ids[position]
    if item in asked.validation:
        return "Drawn at random to measure the model; it is never trained on."
    reserved = set(asked.validation)
    drawn = [other in reserved for other in asked.ids] if reserved else []
    facts = PickFacts(
        rank=position - sum(drawn[:position]),
        batch_size=len(asked.ids) - sum(drawn),
        trained=asked.model is not None,
        score=None if asked.scores is None else asked.scores[position],
        weight=None if asked.weights is None else asked.weights[position],
        confidence=None if asked.guesses is None else asked.guesses[position][1],
        info=asked.info,
    )
    try:
        return get(asked.strategy).explain_pick(facts)
    except UnknownName:  # a strategy that is not installed here
        return f"Pick {facts.rank + 1} of {facts.batch_size} by {asked.strategy}."
