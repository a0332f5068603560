"""The settings of a campaign in a folder, unless it is given others; they must fit its model."""

from collections.abc import Sequence
from typing import Any

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.record.events import Label
from labelwise.strategies import get

VALIDATION = 0.2
"""So large a share of every batch is drawn at random, to measure the model on."""

STRATEGIES = {False: "badge", True: "random"}
"""What chooses unless another strategy is wanted: of classes, of a regression."""

_GRADIENTS = {"gradient_norms", "gradient_products"}
_MODELLED = {
    False: {"features", "probabilities", "logits", "member_probabilities", "member_votes"},
    True: {"features", "outputs"},
}
"""What strategies can be given: of classes, of a regression, whose votes are no classes."""


def usual_settings(
    strategy: str | None, classes: Sequence[Label] | None, **settings: Any
) -> Settings:
    """The settings with which a campaign starts, checked.

    Args:
        strategy: what chooses the batches; one of `STRATEGIES` if None.
        classes: their names, or None.
        **settings: see `Settings`; ``validation`` is `VALIDATION` unless it is given, and a
            network is trained without weights (docs/decisions/defaults-from-results.md).

    Example:
        >>> usual_settings(None, None, regression=True).strategy
        'random'
    """
    settings = {"validation": VALIDATION, "weights": False, **settings}
    settings["strategy"] = strategy or STRATEGIES[bool(settings.get("regression"))]
    settings["classes"] = None if classes is None else tuple(classes)
    chosen = Settings.from_dict(settings)
    check_strategy(chosen)
    return chosen


def check_strategy(settings: Settings) -> None:
    """Refuse a strategy that the campaign's model cannot serve, before hours of labelling."""
    given = _MODELLED[settings.regression] | _GRADIENTS
    strategy = get(settings.strategy)
    sets = [strategy.needs, *strategy.or_needs]
    served = next((names for names in sets if set(names) <= given), None)
    if served is not None and served != ("outputs",):  # those are wanted of several models
        return
    wanted = ", or ".join(" and ".join(names) for names in sets)
    task = "a regression" if settings.regression else "a campaign's model"
    raise BadInput(
        f"{strategy.name} needs {wanted}, which {task} does not give; "
        f"take {STRATEGIES[settings.regression]} or another one"
    )
