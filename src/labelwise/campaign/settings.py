"""Settings: what a campaign is told once and keeps in its record.

They are checked when they are made, so that a campaign never runs with settings that fail later.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Label
from labelwise.strategies import get

RESOLUTIONS = ("majority", "weighted")

BATCHES, TRAININGS = 1, 2
"""What seeds are for."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a campaign does unless a call says otherwise.

    Attributes:
        strategy: what chooses the batches once there is a model.
        batch: how many items a batch has.
        classes: the classes in order, names or numbers; None where they are not known beforehand.
        regression: whether labels are values rather than classes.
        seed: decides every draw of the campaign.
        overlap: by how many people each item is to be labelled.
        resolution: how several people's labels become one: ``majority`` or ``weighted``.
        lend_seconds: how long an item is kept for the person it was given to.
        validation: the share of each batch that is picked at random and only measured on.
        first: what chooses before there is a model.
        options: of ``strategy``, by name.
        weights: whether a training weighs the picks as their strategy says, where it does.
        tail: training for the next batch may begin when so small a share of the batch is left.
        price: money per label.
        hourly: money per hour of labelling.
        budget_labels: how many labels may be bought; None for no limit.
        budget_money: how much money may be spent.
        budget_hours: how many hours of labelling may be spent.

    Example:
        >>> Settings(classes=("cat", "dog"), batch=20).label(1)
        'dog'
    """

    strategy: str = "badge"
    batch: int = 50
    classes: tuple[Label, ...] | None = None
    regression: bool = False
    seed: int = 0
    overlap: int = 1
    resolution: str = "majority"
    lend_seconds: float = 600.0
    validation: float = 0.0
    first: str = "random"
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: bool = True
    tail: float = 0.2
    price: float | None = None
    hourly: float | None = None
    budget_labels: int | None = None
    budget_money: float | None = None
    budget_hours: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "overlap"):
            _whole(name, getattr(self, name), 1)
        _whole("seed", self.seed, 0)
        if self.budget_labels is not None:
            _whole("budget_labels", self.budget_labels, 1)
        _number("lend_seconds", self.lend_seconds, above=0)
        for name in ("validation", "tail"):
            _share(name, getattr(self, name))
        for name in ("price", "hourly", "budget_money", "budget_hours"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), above=0)
        for name in ("regression", "weights"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"{name} must be True or False; got {getattr(self, name)!r}")
        if self.resolution not in RESOLUTIONS:
            raise UnknownName(
                f"no resolution is called {self.resolution!r}; choose from {', '.join(RESOLUTIONS)}"
            )
        object.__setattr__(self, "classes", _classes(self.classes, self.regression))
        object.__setattr__(self, "options", _options(self.options))
        get(self.strategy).with_options(**self.options)
        get(self.first)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Settings":
        """Settings from what `to_dict` or a user gave; an unknown name is an error."""
        known = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in known:
                raise UnknownName(
                    f"a campaign has no setting {name!r}; choose from {', '.join(known)}"
                )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All settings as values that JSON can hold."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["classes"] = None if self.classes is None else list(self.classes)
        values["options"] = dict(self.options)
        return values

    def changed(self, **values: Any) -> "Settings":
        """The same settings but for some; a new strategy begins without the old one's options."""
        if values.get("strategy", self.strategy) != self.strategy and "options" not in values:
            values = {**values, "options": {}}
        return Settings.from_dict({**self.to_dict(), **values})

    def seed_for(self, purpose: int, number: int, given: int | None = None) -> int:
        """The seed of a batch or a training: the given one, or what follows from the campaign's."""
        if given is None:
            words = np.random.SeedSequence([self.seed, purpose, number]).generate_state(1)
            return int(words[0])
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 0:
            raise BadInput(f"seed must be a whole number, 0 or more; got {given!r}")
        return int(given)

    def label(self, given: Any, item: int | None = None) -> Label:
        """A label as the record keeps it: one of the classes, or a finite value.

        A class may be given as itself, as its text (``"3"`` for 3), or, where classes have names,
        as its number in their order. A class that is called like a number comes before that number.

        Args:
            given: what someone said.
            item: whose label it is, for the error.
        """
        value = given.item() if isinstance(given, np.generic) else given
        where = "" if item is None else f" of item {item}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadInput(f"label{where} must be a number or a text; got {given!r}")
        if self.regression:
            return _value(value, where)
        if self.classes is None:
            return _free_class(value, where)
        found = self._class(value)
        if found is None:
            names = ", ".join(str(name) for name in self.classes[:12])
            more = ", ..." if len(self.classes) > 12 else ""
            raise BadInput(
                f"label{where} is {value!r}, which is no class; choose from {names}{more}"
            )
        return found

    def _class(self, value: Label) -> Label | None:
        assert self.classes is not None
        found = self._by_text.get(str(value).strip())
        if found is not None:
            return found
        named = all(isinstance(name, str) for name in self.classes)
        if named and isinstance(value, int) and 0 <= value < len(self.classes):
            return self.classes[value]
        return None

    @cached_property
    def _by_text(self) -> dict[str, Label]:
        return {str(name): name for name in self.classes or ()}


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{name} must be a whole number, {least} or more; got {value!r}")


def _number(name: str, value: Any, *, above: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= above:
        raise BadInput(f"{name} must be a number above {above}; got {value!r}")


def _share(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < 1:
        raise BadInput(f"{name} is a share from 0 to below 1; got {value!r}")


def _classes(given: Any, regression: bool) -> tuple[Label, ...] | None:
    if given is None:
        return None
    if regression:
        raise BadInput("a regression has no classes; leave them out")
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise BadInput(f"classes must be a list of names or numbers; got {given!r}")
    classes = tuple(name.item() if isinstance(name, np.generic) else name for name in given)
    for name in classes:
        if isinstance(name, bool) or not isinstance(name, int | str) or name == "":
            raise BadInput(f"a class is a name or a whole number; got {name!r}")
    if len(classes) < 2:
        raise BadInput(f"there must be two classes or more; got {len(classes)}")
    texts = [str(name) for name in classes]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise BadInput(
            f"every class can be given once; {twice} is given {texts.count(twice)} times"
        )
    return classes


def _options(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise BadInput(f"options must be a mapping from names to values; got {given!r}")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BadInput(f"options must be plain values that the record can hold: {error}") from error
    return plain


def _value(value: Label, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise BadInput(f"label{where} must be a number; got {value!r}") from None
    if not math.isfinite(number):
        raise BadInput(f"label{where} must be finite; got {value!r}")
    return number


def _free_class(value: Label, where: str) -> Label:
    """A class of a campaign that was not told its classes: a name, or a number from 0."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int) and value >= 0:
        return value
    raise BadInput(
        f"label{where} must be a name or a whole number from 0; got {value!r}: "
        "for values that are no classes, set regression=True"
    )
