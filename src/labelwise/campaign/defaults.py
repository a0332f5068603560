"""Default settings of a campaign in a folder, and the check that its model can serve them."""

from collections.abc import Sequence
from typing import Any

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.learner import Label
from labelwise.rounds.default_strategies import DEFAULT
from labelwise.strategies import get
from labelwise.strategy import Job

HOLDOUT_SHARE = 0.2  # Share of every batch that is drawn at random to measure the model
_GRADIENTS = {"gradient_norms", "gradient_products"}  # Representations that only a network gives
_OFFERED = {
    False: {"features", "probabilities", "logits", "member_probabilities", "member_votes"},
    True: {"features", "outputs"},
}
"""Representations that the default models give, for classes and for a regression."""

_SHAPES: dict[str, tuple[int, ...]] = {
    "features": (64,),
    "probabilities": (10,),
    "logits": (10,),
    "member_probabilities": (50, 10),
    "member_votes": (50,),
    "outputs": (1,),
}
"""Typical shapes of one row."""


def make_default_settings(
    strategy: str | None,
    classes: Sequence[Label] | None,
    *,
    network: bool = False,
    several: bool = False,
    **settings: Any,
) -> Settings:
    """The settings of a new campaign, checked.

    Args:
        strategy: one of `labelwise.rounds.default_strategies` if None.
        classes: their names, or None.
        network: whether the model is a torch network instead of a default model.
        several: whether the items have several representations, each with its own model.
        **settings: see `Settings`; ``validation`` defaults to `HOLDOUT_SHARE`, and ``weights`` to
            False (docs/decisions/defaults-from-results.md).

    Example:
        >>> make_default_settings(None, None, regression=True).strategy
        'mixed_lcmd'
    """
    settings = {"validation": HOLDOUT_SHARE, "weights": False, **settings}
    settings["strategy"] = strategy or DEFAULT[bool(settings.get("regression"))]
    settings["classes"] = None if classes is None else tuple(classes)
    if not network and ("features",) in get(settings["strategy"]).input_sets:
        settings = {"first": settings["strategy"], **settings}  # it needs no model
    chosen = Settings.from_dict(settings).check_text()
    check_campaign_strategy(chosen, network=network, several=several)
    return chosen


def check_campaign_strategy(
    settings: Settings, *, network: bool = False, several: bool = False
) -> None:
    """Reject a strategy that the campaign's model cannot serve, before hours of labelling."""
    offered = _OFFERED[settings.regression] | (_GRADIENTS if network else set())
    strategy = get(settings.strategy)
    sets = strategy.input_sets
    served = next((names for names in sets if set(names) <= offered), None)
    if served is not None and (several or served != ("outputs",)):  # outputs: several models
        chosen, batch = strategy.with_options(**settings.options), settings.batch
        if chosen.check is not None:  # reject one that a typical batch would fail
            shapes = {name: (_SHAPES.get(name, ()),) * (2 if several else 1) for name in served}
            chosen.check(Job(100 * batch, batch, shapes, chosen.options, labelled=10))
        return
    wanted = ", or ".join(" and ".join(names) for names in sets)
    task = "a regression" if settings.regression else "a campaign's model"
    other = ", or train a network with --module"
    helps = not network and any(set(names) & _GRADIENTS for names in sets)
    raise BadInput(
        f"{strategy.name} needs {wanted}, which {task} does not give; "
        f"take {DEFAULT[settings.regression]} or another one{other if helps else ''}"
    )
