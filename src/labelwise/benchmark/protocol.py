"""What an experiment is, as data: the protocol of a paper's table or figure, and its reductions."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from labelwise.errors import BadInput, UnknownName

METRICS = {"accuracy": True, "mse": False, "imbalance": False}
"""What a run of rounds can measure, and whether more is better."""

WEIGHTS = ("none", "mean", "sum")
SCALES = ("small", "medium", "full")


@dataclass(frozen=True)
class Entrant:
    """A strategy with all that is particular to it in an experiment.

    Attributes:
        strategy: its name.
        options: its options that differ from its defaults.
        learner: options of the learner that it alone reads (as ``epsilon`` of dual variables).
        weights: how training uses its weights, where that differs from the protocol's.
        one_shot: pick everything by what the networks give in round 0, as if all was bought at
            once; the rounds then only show what smaller budgets would have given.
    """

    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    learner: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    one_shot: bool = False

    def __post_init__(self) -> None:
        if self.weights is not None:
            _check_weights(self.weights)

    @property
    def facts(self) -> dict[str, Any]:
        """What a results file says under ``options``: what tells two entrants apart.

        >>> Entrant("dynamics", {"gamma": 0.0}).facts
        {'gamma': 0.0}
        >>> Entrant("lewis", weights="none", one_shot=True).facts
        {'weights': 'none', 'one_shot': True}
        """
        found: dict[str, Any] = {**self.options, **self.learner}
        if self.weights is not None:
            found["weights"] = self.weights
        if self.one_shot:
            found["one_shot"] = True
        return found

    @property
    def label(self) -> str:
        """Name and facts in a few words."""
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.strategy} ({facts})" if facts else self.strategy


@dataclass(frozen=True)
class Scale:
    """A reduction of a protocol: the fields it changes, and what that means in words."""

    reduced: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """An experiment.

    Attributes:
        name: what the command line calls it.
        paper: which paper, and which table or figure of it.
        about: what it shows, in one sentence.
        dataset: name of the data set.
        networks: names of the architectures; several are trained on the same labels.
        learner: options of `labelwise.TorchLearner`; ``members`` may be ``"variational"``.
        start: labels at the start, drawn at random.
        batch: labels bought at a time.
        rounds: how often labels are bought; one more measurement is made.
        entrants: the strategies.
        metric: what is measured on the test items.
        weights: how training uses a strategy's weights. ``"none"``: not at all. ``"mean"``: every
            batch's are scaled to mean 1, and the first labels weigh 1. ``"sum"``: as they are, how
            many items of the pool a pick stands for, and the first labels stand for themselves.
        pool: items of the training pool that take part, drawn anew for every seed; None for all.
        test: test items that are measured on; None for all.
        validation: items that are set apart for early stopping or calibration; they are counted
            as labels of those strategies that use them.
        copies: how often every item is in the pool.
        frozen: after round 0, only the last layers are fitted, on the features of round 0; every
            strategy then picks in one shot.
        study: the runner of an experiment that is no rounds of buying labels, or None.
        settings: what only that runner reads.
        seeds: runs of each strategy, unless others are asked for.
        scale: which scale this is.
        reduced: what was reduced against the paper, in words.
        scales: the reductions by name.
    """

    name: str
    paper: str
    about: str
    dataset: str
    networks: tuple[str, ...]
    learner: Mapping[str, Any]
    start: int
    batch: int
    rounds: int
    entrants: tuple[Entrant, ...]
    metric: str = "accuracy"
    weights: str = "none"
    pool: int | None = None
    test: int | None = None
    validation: int = 0
    copies: int = 1
    frozen: bool = False
    study: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    scale: str = "full"
    reduced: str = ""
    scales: Mapping[str, Scale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_weights(self.weights)
        if self.study is None and self.metric not in METRICS:
            raise UnknownName(
                f"no metric is called {self.metric!r}; choose from {', '.join(METRICS)}"
            )
        for name, least in (("start", 1), ("batch", 1), ("rounds", 0), ("copies", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be {least} or more; got {getattr(self, name)}")
        if not self.networks and self.study is None:
            raise BadInput(f"{self.name} names no network; give one or more")
        if len({entrant.label for entrant in self.entrants}) < len(self.entrants):
            raise BadInput(f"{self.name} has the same strategy with the same options twice")

    @property
    def network(self) -> str:
        """The network's name, or how many there are."""
        if len(self.networks) == 1:
            return self.networks[0]
        return f"{len(self.networks)} networks" if self.networks else "none"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value of the metric is a better one."""
        return METRICS.get(self.metric, False)

    def at(self, scale: str) -> "Protocol":
        """The protocol at a scale, with what was reduced in ``reduced``."""
        if scale not in SCALES:
            raise UnknownName(f"no scale is called {scale!r}; choose from {', '.join(SCALES)}")
        if scale not in self.scales:
            return replace(self, scale=scale)
        chosen = self.scales[scale]
        changes = {"seeds": 3 if scale == "small" else self.seeds, **chosen.changes}
        for name in ("learner", "settings"):  # these are changed in part
            if name in changes:
                changes[name] = {**getattr(self, name), **changes[name]}
        reduced = "; ".join(part for part in (self.reduced, chosen.reduced) if part)
        return replace(self, scale=scale, reduced=reduced, **changes)

    def on(self, dataset: str) -> "Protocol":
        """The protocol on another data set, as far as its pool allows."""
        if dataset == self.dataset:
            return self
        note = f"{dataset} in place of {self.dataset}"
        reduced = "; ".join(part for part in (self.reduced, note) if part)
        return replace(self, dataset=dataset, reduced=reduced)

    def choose_entrants(self, names: Sequence[str] | None) -> tuple[Entrant, ...]:
        """The entrants of these names, in their order.

        A name stands for all entrants of that strategy; a strategy that the protocol does not name
        enters with its defaults. None stands for all entrants.
        """
        if names is None:
            return self.entrants
        from labelwise.strategies import get

        found: dict[str, Entrant] = {}
        for name in names:
            own = [entrant for entrant in self.entrants if entrant.strategy == get(name).name]
            found.update({entrant.label: entrant for entrant in own or [Entrant(name)]})
        return tuple(found.values())


def change_protocol(protocol: Protocol, **changes: Any) -> Protocol:
    """The protocol with some fields changed, checked; for experiments of one's own.

    >>> from labelwise.benchmark.protocols import get
    >>> change_protocol(get("sparse-table2-mnist"), rounds=2).rounds
    2
    """
    known = [item.name for item in fields(Protocol)]
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or known
            raise UnknownName(f"a protocol has no {name!r}; did you mean {near[0]}?")
    return replace(protocol, **changes)


def _check_weights(weights: str) -> None:
    if weights not in WEIGHTS:
        raise BadInput(f"weights must be one of {', '.join(WEIGHTS)}; got {weights!r}")
