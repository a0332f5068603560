"""The three forms of a strategy. A strategy is a few pure functions over blocks of rows.

=================  ===========================================================================
`ScoreStrategy`    every item has a score of its own; the highest win
`GreedyStrategy`   one pick after the other; each pick changes the scores of the rest
`PassStrategy`     anything else: speaks to the rows through passes (`Shards.sum`, `map`, `rows`)
=================  ===========================================================================

A strategy knows no model, device, file or campaign. Its options are the keyword-only parameters
of its main function (`score`, `begin` or `choose`), with their defaults; nothing else is declared.
Rows that are labelled already never reach it as candidates: they come apart, as ``labelled``.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from labelwise.arrays import Array, Floats, Ids
from labelwise.blocks import Rows, Shards
from labelwise.errors import UnknownName

S = TypeVar("S", bound="Strategy")


class Choice(NamedTuple):
    """What a `PassStrategy` answers; the fields are those of `labelwise.Selection`."""

    ids: Ids
    weights: Floats | None = None
    counts: Ids | None = None
    scores: Floats | None = None
    info: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """What all forms share.

    Attributes:
        name: how users call it.
        needs: the representations it reads, by name.
        or_needs: other sets of representations it can read instead.
        several: whether ``features`` (or ``probabilities``) may be a list, one array per model.
        weighted: whether its picks carry weights.
        draws: whether it draws, so that another seed gives other picks.
        good_for: one phrase for the table of strategies.
        reference: authors, title, venue, year.
    """

    name: str
    needs: tuple[str, ...]
    or_needs: tuple[tuple[str, ...], ...] = ()
    several: bool = False
    weighted: bool = False
    draws: bool = False
    good_for: str
    reference: str

    @property
    @abstractmethod
    def main(self) -> Callable[..., Any]:
        """The function whose keyword-only parameters are the options."""

    @property
    def options(self) -> dict[str, Any]:
        """The options with their present values."""
        parameters = inspect.signature(self.main).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def with_options(self: S, **options: Any) -> S:
        """The same strategy with some options set; an unknown one is an error."""
        known = self.options
        for name in options:
            if name not in known:
                choices = f"choose from {', '.join(known)}" if known else "it has none"
                raise UnknownName(f"{self.name} has no option {name!r}; {choices}")
        return self._with_main(partial(self.main, **options)) if options else self

    @abstractmethod
    def _with_main(self: S, main: Callable[..., Any]) -> S:
        """The same strategy with another main function."""


@dataclass(frozen=True, kw_only=True)
class ScoreStrategy(Strategy):
    """``score(rows, labelled, *, options...) -> (n,)``; the highest scores win.

    ``summarise(shard)`` is optional: what must be known of the whole pool beforehand. The answers
    of all blocks then reach ``score`` as a list, its third argument.

    Example:
        >>> strategy = ScoreStrategy(
        ...     name="largest_first",
        ...     needs=("outputs",),
        ...     score=lambda rows, labelled: rows["outputs"][:, 0],
        ...     good_for="an example",
        ...     reference="this page",
        ... )
        >>> import labelwise, numpy as np
        >>> labelwise.select(strategy, 2, outputs=np.array([[1.0], [5.0], [3.0]])).ids
        array([1, 2])
    """

    score: Callable[..., Array]
    summarise: Callable[..., Any] | None = None

    @property
    def main(self) -> Callable[..., Any]:
        """`score`."""
        return self.score

    def _with_main(self, main: Callable[..., Any]) -> "ScoreStrategy":
        return replace(self, score=main)


@dataclass(frozen=True, kw_only=True)
class GreedyStrategy(Strategy):
    """One pick at a time; the state of the scores lives with the rows.

    ``begin(shards, labelled, budget, seed, *, options...) -> plan``: what is global (sums over the
    pool, the options); small, and sent to every block.
    ``start(rows, labelled, plan) -> state``: per block; a NamedTuple of arrays with first axis n.
    ``score(state, plan) -> (n,)``: the item with the highest score is picked next.
    ``advance(plan, picked) -> plan``: count new picks globally, before the blocks do.
    ``add(state, rows, picked, plan) -> state``: count new picks in a block. ``picked`` holds the
    representations of one or more picked items.
    ``finish(plan, shards, ids) -> Choice``: weights and diagnostics at the end (optional).

    With ``bounded`` set, a pick never raises another item's score. Old scores are then upper
    bounds, and many picks are settled between two passes over the rows, exactly. ``add`` must then
    take several picks at once, and counting a pick twice must change nothing.

    Two optional functions make ties exact: ``slack(state) -> (n,)``, how far rounding may have
    moved each score (default: a billionth of it), and ``exact(rows, labelled, picked, plan) ->
    (n,)``, the score in float64 straight from its definition, for rows closer than their slack.
    Where the scores of two items cannot be told apart, the smaller id wins.
    """

    begin: Callable[..., Any]
    start: Callable[..., Any]
    score: Callable[..., Array]
    add: Callable[..., Any]
    advance: Callable[..., Any] = field(default=lambda plan, picked: plan)
    finish: Callable[..., Choice] | None = None
    bounded: bool = False
    slack: Callable[..., Array] | None = None
    exact: Callable[..., Floats] | None = None

    @property
    def main(self) -> Callable[..., Any]:
        """`begin`."""
        return self.begin

    def _with_main(self, main: Callable[..., Any]) -> "GreedyStrategy":
        return replace(self, begin=main)


@dataclass(frozen=True, kw_only=True)
class PassStrategy(Strategy):
    """``choose(shards, labelled, budget, seed, *, options...) -> Choice``."""

    choose: Callable[[Shards, Rows | None, int, int], Choice]

    @property
    def main(self) -> Callable[..., Any]:
        """`choose`."""
        return self.choose

    def _with_main(self, main: Callable[..., Any]) -> "PassStrategy":
        return replace(self, choose=main)
