"""The protocol of an experiment as data: a paper's table or figure, and its reduced scales."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject
from labelwise.strategies import get

Options = Mapping[str, Any]  # Options by name, as TOML gives them
METRICS = {"accuracy": True, "mse": False, "rmse": False, "imbalance": False}
"""Metrics of benchmark runs, and whether higher is better."""

WEIGHTS = ("none", "mean", "sum")
SCALES = ("small", "medium", "full")


@dataclass(frozen=True)
class Entrant:
    """A strategy with its settings in an experiment."""

    strategy: str
    options: Options = field(default_factory=dict)  # options that differ from the defaults
    # Options of a learner that only this strategy reads, such as ``epsilon`` of duals; on frozen
    # features, options of its head
    learner: Options = field(default_factory=dict)
    weights: str | None = None  # how training uses its weights, if not as in the protocol
    # Select everything with the representations of round 0, as if all labels were bought at once;
    # the rounds then show smaller budgets
    one_shot: bool = False
    # Measure the network that only this strategy reads (for duals the primal-dual network, as the
    # paper does) instead of one trained like those of all strategies
    own_network: bool = False

    def __post_init__(self) -> None:
        if self.weights is not None:
            _check_weight_mode(self.weights)

    @property
    def facts(self) -> Options:
        """The ``options`` in a results file, which identify the entrant.

        >>> Entrant("dynamics", {"gamma": 0.0}).facts
        {'gamma': 0.0}
        >>> Entrant("lewis", weights="none", one_shot=True).facts
        {'weights': 'none', 'one_shot': True}
        """
        found = {**self.options, **self.learner}
        if self.weights is not None:
            found["weights"] = self.weights
        if self.one_shot:
            found["one_shot"] = True
        if self.own_network:
            found["own_network"] = True
        return found

    @property
    def label(self) -> str:
        """Name and facts."""
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.strategy} ({facts})" if facts else self.strategy


@dataclass(frozen=True)
class ProtocolScale:
    """A reduction of a protocol: its description, and the fields it changes."""

    reduced: str
    changes: Options


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """An experiment."""

    name: str
    paper: str
    about: str
    dataset: str
    networks: tuple[str, ...]
    learner: Options  # options of `labelwise.TorchLearner`; ``members`` may be ``"variational"``
    start: int
    batch: int  # labels bought at a time
    rounds: int
    entrants: tuple[Entrant, ...]
    metric: str = "accuracy"
    # How training uses a strategy's weights. ``"none"``: not at all. ``"mean"``: scaled to mean 1
    # per batch, and 1 for the first labels. ``"sum"``: unchanged (the number of items of the pool
    # that a pick represents), and 1 for the first labels
    weights: str = "none"
    # Size of the pool, drawn for every seed; None for the whole training set
    pool: int | None = None
    test: int | None = None  # number of test items; None for all
    # Number of items for early stopping or calibration; counted as labels of the strategies that
    # use them
    validation: int = 0
    copies: int = 1  # number of copies of every item in the pool
    # Fit only the last layers after round 0, on the features of round 0; every strategy then
    # selects in one shot
    frozen: bool = False
    # Name of a study, for an experiment other than rounds of buying labels, or None
    study: str | None = None
    settings: Options = field(default_factory=dict)  # settings of the study
    seeds: int = 5  # default number of runs of each strategy
    scale: str = "full"
    reduced: str = ""
    scales: Mapping[str, ProtocolScale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_weight_mode(self.weights)
        if self.study is None and self.metric not in METRICS:
            raise UnknownName(
                f"there is no metric {self.metric!r}; choose from {', '.join(METRICS)}"
            )
        for name, least in (("start", 1), ("batch", 1), ("rounds", 0), ("copies", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be {least} or more; got {getattr(self, name)}")
        if not self.networks and self.study is None:
            raise BadInput(f"{self.name} has no network; give one or more")
        if len({entrant.label for entrant in self.entrants}) < len(self.entrants):
            raise BadInput(f"{self.name} has the same strategy with the same options twice")

    @property
    def network(self) -> str:
        """The name of the network, the number of networks or encoders, or head and encoder."""
        if "encoder" in self.settings:
            return f"{self.learner['head']} on {self.settings['encoder'] or 'columns'}"
        if "encoders" in self.settings:
            return f"{len(self.settings['encoders'])} encoders"
        if len(self.networks) == 1:
            return self.networks[0]
        return f"{len(self.networks)} networks" if self.networks else "none"

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return METRICS.get(self.metric, False)

    def at(self, scale: str) -> "Protocol":
        """The protocol at a scale, described in ``reduced``."""
        if scale not in SCALES:
            raise UnknownName(f"there is no scale {scale!r}; choose from {', '.join(SCALES)}")
        if scale not in self.scales:
            return replace(self, scale=scale)
        chosen = self.scales[scale]
        changes = {"seeds": 3 if scale == "small" else self.seeds, **chosen.changes}
        changes = merge_protocol_changes(self, changes)
        reduced = "; ".join(part for part in (self.reduced, chosen.reduced) if part)
        return replace(self, scale=scale, reduced=reduced, **changes)

    def on(self, dataset: str) -> "Protocol":
        """The protocol on another data set."""
        if dataset == self.dataset:
            return self
        note = f"{dataset} in place of {self.dataset}"
        reduced = "; ".join(part for part in (self.reduced, note) if part)
        return replace(self, dataset=dataset, reduced=reduced)

    def choose_entrants(self, names: Sequence[str] | None) -> tuple[Entrant, ...]:
        """The entrants of these strategies, all if None; others enter with their defaults."""
        if names is None:
            return self.entrants
        found: dict[str, Entrant] = {}
        for name in names:
            own = [entrant for entrant in self.entrants if entrant.strategy == name]
            chosen = own or [Entrant(get(name).name)]
            found.update({entrant.label: entrant for entrant in chosen})
        return tuple(found.values())


def change_protocol(protocol: Protocol, **changes: Any) -> Protocol:
    """The protocol with some fields changed, for experiments of your own."""
    known = [item.name for item in fields(Protocol)]
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or known
            raise UnknownName(f"a protocol has no {name!r}; did you mean {near[0]}?")
    return replace(protocol, **changes)


def merge_protocol_changes(protocol: Protocol, changes: Options) -> JsonObject:
    """Changes of fields in which ``learner`` and ``settings`` keep the keys that stay the same."""
    merged = dict(changes)
    for name in ("learner", "settings"):
        if name in merged:
            merged[name] = {**getattr(protocol, name), **merged[name]}
    return merged


def _check_weight_mode(weights: str) -> None:
    if weights not in WEIGHTS:
        raise BadInput(f"weights must be one of {', '.join(WEIGHTS)}; got {weights!r}")
