"""Settings of a campaign, stored in its record and checked when they are created."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject
from labelwise.record.events import Label
from labelwise.rounds.default_strategies import BASELINE, DEFAULT
from labelwise.strategies import get

RESOLUTIONS = ("majority", "weighted")

BATCHES, TRAININGS = 1, 2  # Seed streams: one for batches, one for trainings


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a campaign; calls can override some of them.

    Example:
        >>> Settings(classes=("cat", "dog"), batch=20).normalize_label(1)
        'dog'
    """

    strategy: str = DEFAULT[False]  # selection strategy once there is a model
    batch: int = 50  # number of items per batch
    # the classes in order, names or numbers; None if they are not known yet
    classes: tuple[Label, ...] | None = None
    regression: bool = False  # whether labels are numbers instead of classes
    seed: int = 0  # of all random choices of the campaign
    overlap: int = 1  # number of annotators who label each item
    resolution: str = "majority"  # rule that combines several labels: ``majority`` or ``weighted``
    lend_seconds: float = 600.0  # duration of a lease
    # share of each batch that is picked at random and used only for evaluation
    validation: float = 0.0
    first: str = BASELINE  # selection strategy before there is a model
    options: Mapping[str, Any] = field(default_factory=dict)  # of ``strategy``, by name
    weights: bool = True  # whether training uses the weights of the strategy
    # training for the next batch can begin when this share of the batch is unlabelled
    tail: float = 0.2
    price: float | None = None  # money per label
    hourly: float | None = None  # money per hour of labelling
    budget_labels: int | None = None  # limit on labels; None for no limit
    budget_money: float | None = None  # limit on money
    budget_hours: float | None = None  # limit on hours of labelling
    goal: float | None = None  # the accuracy to reach, a share; None for no goal
    # what a class means, by its name, for the people who label
    descriptions: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()  # names of people who may not label any more; their labels stay
    # whether items that nobody works on are selected again when a new model is ready; not done
    # where training uses the weights of the strategy
    rolling: bool = False
    # whether models of images and texts are also trained on confident predictions of other items;
    # None for three classes or more and up to 1,000 labels
    self_training: bool | None = None

    def __post_init__(self) -> None:
        for names, accepts, words in _RULES:
            for name in names.split():
                value = getattr(self, name)
                optional = value is None and self.__dataclass_fields__[name].default is None
                if not (optional or accepts(value)):
                    raise BadInput(f"{name} {words}; got {value!r}")
        object.__setattr__(self, "descriptions", _check_class_descriptions(self.descriptions))
        if isinstance(self.removed, str) or not all(isinstance(one, str) for one in self.removed):
            raise BadInput(f"removed must be a list of names; got {self.removed!r}")
        object.__setattr__(self, "removed", tuple(self.removed))
        if self.resolution not in RESOLUTIONS:
            raise UnknownName(
                f"no resolution is called {self.resolution!r}; choose from {', '.join(RESOLUTIONS)}"
            )
        object.__setattr__(self, "classes", _check_class_names(self.classes, self.regression))
        object.__setattr__(self, "options", _check_strategy_options(self.options))
        get(self.strategy).with_options(**self.options)
        get(self.first)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Settings":
        """Settings from a dict; an unknown name is an error."""
        known = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in known:
                raise UnknownName(
                    f"a campaign has no setting {name!r}; choose from {', '.join(known)}"
                )
        return cls(**values)

    def to_dict(self) -> JsonObject:
        """All settings as JSON values."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["classes"] = None if self.classes is None else list(self.classes)
        values["options"] = dict(self.options)
        values["descriptions"] = dict(self.descriptions)
        values["removed"] = list(self.removed)
        return values

    def replace_settings(self, **values: Any) -> "Settings":
        """Change some settings; a new strategy drops the options of the old one."""
        if values.get("strategy", self.strategy) != self.strategy and "options" not in values:
            values = {**values, "options": {}}
        return Settings.from_dict({**self.to_dict(), **values}).check_text()

    def check_text(self) -> "Settings":
        """Reject new class names that are not UTF-8; a record that has some still opens."""
        for name in self.classes or ():
            if any("\ud800" <= letter <= "\udfff" for letter in str(name)):  # bytes of a shell
                raise BadInput(f"the class {name!r} is not valid UTF-8; give its name in UTF-8")
        return self

    def seed_for(self, purpose: int, number: int, given: int | None = None) -> int:
        """The seed of a batch or training: the given one, or one derived from the campaign's."""
        if given is None:
            words = np.random.SeedSequence([self.seed, purpose, number]).generate_state(1)
            return int(words[0])
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 0:
            raise BadInput(f"seed must be a whole number, 0 or more; got {given!r}")
        return int(given)

    def normalize_label(self, given: object, item: object = None) -> Label:
        """Convert a label to one of the classes, or to a finite number in a regression.

        A class can be given as itself, as its text (``"3"`` for 3), or, if classes have names, as
        its index. A class whose name is a number takes precedence over that index.
        """
        value = given.item() if isinstance(given, np.generic) else given
        where = "" if item is None else f" of item {item}"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadInput(f"label{where} must be a number or a text; got {given!r}")
        if self.regression:
            return _parse_number_label(value, where)
        if self.classes is None:
            return _check_free_class(value, where)
        found = self._by_text.get(str(value).strip())
        if found is None:
            named = all(isinstance(name, str) for name in self.classes)
            if named and isinstance(value, int) and 0 <= value < len(self.classes):
                return self.classes[value]
            names = ", ".join(str(name) for name in self.classes[:12])
            more = ", ..." if len(self.classes) > 12 else ""
            raise BadInput(
                f"label{where} is {value!r}, which is not a class; choose from {names}{more}"
            )
        return found

    @cached_property
    def _by_text(self) -> dict[str, Label]:
        return {str(name): name for name in self.classes or ()}


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "batch overlap budget_labels",
        lambda value: _is_whole_number(value) and value >= 1,
        "must be a whole number, 1 or more",
    ),
    (
        "seed",
        lambda value: _is_whole_number(value) and value >= 0,
        "must be a whole number, 0 or more",
    ),
    (
        "lend_seconds price hourly budget_money budget_hours",
        lambda value: (
            (_is_whole_number(value) or isinstance(value, float)) and 0 < value < math.inf
        ),
        "must be a number above 0",
    ),
    (
        "validation tail goal",
        lambda value: (_is_whole_number(value) or isinstance(value, float)) and 0 <= value < 1,
        "is a share from 0 to below 1",
    ),
    (
        "regression weights rolling",
        lambda value: isinstance(value, bool),
        "must be True or False",
    ),
)
"""The values that settings accept, by their names, and their description."""


def _check_class_names(given: object, regression: bool) -> tuple[Label, ...] | None:
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
        raise BadInput(f"classes must be different; {twice} is given {texts.count(twice)} times")
    return classes


def _check_class_descriptions(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(
        isinstance(part, str) for pair in given.items() for part in pair
    ):
        raise BadInput(f"descriptions must map class names to texts; got {given!r}")
    return {name: text for name, text in given.items() if text}


def _check_strategy_options(given: object) -> JsonObject:
    if not isinstance(given, Mapping):
        raise BadInput(f"options must be a mapping from names to values; got {given!r}")
    try:
        plain: JsonObject = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BadInput(f"options must be JSON values: {error}") from error
    return plain


def _parse_number_label(value: Label, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise BadInput(f"label{where} must be a number; got {value!r}") from None
    if not math.isfinite(number):
        raise BadInput(f"label{where} must be finite; got {value!r}")
    return number


def _check_free_class(value: Label, where: str) -> Label:
    """Check a label of a campaign without classes: a name, or an integer from 0."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int) and value >= 0:
        return value
    raise BadInput(
        f"label{where} must be a name or a whole number from 0; got {value!r}: "
        "for numbers that are not classes, set regression=True"
    )
