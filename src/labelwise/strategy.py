"""The three forms of a strategy: a few pure functions over blocks of rows.

=================  ==========================================================================
`ScoreStrategy`    scores each item by itself; the highest scores are picked
`GreedyStrategy`   picks one item after the other; each pick changes the scores of the rest
`PassStrategy`     anything else: reads the rows in passes (`Shards.sum`, `map`, `rows`)
=================  ==========================================================================

A strategy does not know models, devices, files or campaigns. Its options are the keyword-only
parameters of its main function (`score`, `begin` or `choose`). Labelled rows are never candidates:
they are a separate argument, ``labelled``.

Three optional hooks keep the strategy's name out of all other code: ``check`` rejects bad options
before rows are read, ``adapt`` sets options from the history, ``explain`` gives the reason for a
pick.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from labelwise.arrays import Array, Floats, Ids
from labelwise.errors import BadInput, UnknownName
from labelwise.files import Json
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.pool.sources.source import Values

S = TypeVar("S", bound="Strategy")
Options = Mapping[str, Any]
"""Options of a strategy by name."""
Plan = Any
"""Global facts of a greedy strategy; only the strategy knows their type."""
BlockState = Any
"""State of a greedy strategy for some rows: its own NamedTuple of arrays with first axis n."""


class Choice(NamedTuple):
    """The result of a strategy; the fields are those of `labelwise.Selection`."""

    ids: Ids
    weights: Floats | None = None
    counts: Ids | None = None
    scores: Floats | None = None
    info: Mapping[str, Json] = {}


class Job(NamedTuple):
    """Size and options of a selection; the argument of `Strategy.check` and `Strategy.cost`.

    Attributes:
        items: number of candidates, ``n``.
        budget: number of items to pick, ``b``.
        shapes: by representation, the shape of one row for every model.
        options: of the strategy.
        block_bytes: approximate size of one block of rows.
        labelled: number of labelled items, ``m``.
    """

    items: int
    budget: int
    shapes: Mapping[str, tuple[tuple[int, ...], ...]]
    options: Options
    block_bytes: int = 64 << 20
    labelled: int = 0

    @property
    def models(self) -> int:
        """Number of models that the representations come from."""
        return max((len(shapes) for shapes in self.shapes.values()), default=1)

    def width(self, name: str = "features") -> int:
        """Numbers per row of a representation, over all models; 0 without it."""
        return sum(math.prod(shape) for shape in self.shapes.get(name, ()))

    @property
    def gram_bytes(self) -> float:
        """Memory of the Gram matrix of the widest model's features, and of two factors of it."""
        shapes = self.shapes.get("features", ())
        return 24.0 * max((math.prod(shape) for shape in shapes), default=0) ** 2

    @property
    def picked_bytes(self) -> float:
        """Memory per item if every block keeps the rows of all picks."""
        row = 4.0 * sum(map(self.width, self.shapes))
        blocks = math.ceil(self.items * row / self.block_bytes)
        return 2 * self.budget * row * blocks / max(self.items, 1)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Passes, arithmetic and memory of a selection.

    Attributes:
        passes: fewest and most passes over all rows; the number depends on the data.
        usual: typical number of passes; None for the mean of the fewest and the most.
        columns: columns that every row is multiplied with, in all passes together.
        item_bytes: memory per item at most.
        state_bytes: part of that which is block state and can be moved to disk.
        held_bytes: other memory, independent of the block size.
        holds: what is kept per item, in words, if it is more than a few numbers.
    """

    passes: tuple[float, float]
    usual: float | None = None
    columns: float = 0.0
    item_bytes: float = 32.0
    state_bytes: float = 0.0
    held_bytes: float = 0.0
    holds: str = ""

    @property
    def expected(self) -> float:
        """Expected number of passes."""
        return sum(self.passes) / 2 if self.usual is None else self.usual


class PastBatch(NamedTuple):
    """An earlier batch, as the record or the benchmark holds it."""

    strategy: str
    options: Options
    ids: tuple[int, ...]
    info: Mapping[str, Json]


@dataclass(frozen=True)
class History:
    """The state of a round when it selects a batch; the argument of `Strategy.adapt`.

    Attributes:
        options: options that the user set; `adapt` leaves them alone.
        trained: whether there is a trained model.
        batches: earlier batches, oldest first.
        labelled: ids of the labelled training items, ``(m,)``.
        evaluate_labelled: whether the model predicts each of their labels, ``(m,)`` booleans;
            None if the learner cannot predict.
        evaluate_holdout: logits ``(h, K)`` and targets ``(h,)`` of held-out items; None if there
            are none or the learner has no logits.
        evaluate_out_of_fold: logits ``(m, K)`` and target columns ``(m,)`` of labelled items, by
            models that were not trained on them; None if the learner does not cross-validate.
    """

    options: Options = field(default_factory=dict)
    trained: bool = False
    batches: tuple[PastBatch, ...] = ()
    labelled: tuple[int, ...] = ()
    evaluate_labelled: Callable[[], Sequence[bool] | None] = lambda: None
    evaluate_holdout: Callable[[], tuple[Floats, Ids] | None] = lambda: None
    evaluate_out_of_fold: Callable[[], tuple[Floats, Ids] | None] = lambda: None


@dataclass(frozen=True)
class PickFacts:
    """The part of a batch event about one pick; the argument of `Strategy.explain`.

    Attributes:
        rank: position among the strategy's picks, from 0.
        batch_size: number of the strategy's picks in the batch.
        trained: whether a model existed when the batch was selected.
        score: of the pick, or None.
        weight: of the pick, or None.
        confidence: probability that the model gave its predicted class, or None.
        info: diagnostics of the batch.
    """

    rank: int
    batch_size: int
    trained: bool
    score: float | None = None
    weight: float | None = None
    confidence: float | None = None
    info: Mapping[str, Json] = field(default_factory=dict)

    def describe_doubt(self) -> str:
        """The model's confidence in parentheses, or nothing where the model is sure."""
        if self.confidence is None or self.confidence >= 0.9:
            return ""
        share = f"{100 * self.confidence:.0f} %" if self.confidence >= 0.01 else "less than 1 %"
        return f" ({share} for its most likely class)"

    def describe_weight(self) -> str:
        """The number of pool items that the pick represents; empty without weights."""
        if self.weight is None:
            return ""
        if self.weight < 1.5:
            return "; it represents only itself"
        return f"; it represents about {self.weight:,.0f} items"


def read_reference(doc: str | None) -> str:
    """The last paragraph of a module's docstring, ``Reference: ...``, in one line."""
    _, _, found = (doc or "").rpartition("\n\nReference")
    return " ".join(found.partition(": ")[2].split()).rstrip(".")


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """Common part of all forms.

    Attributes:
        name: of the strategy and of its module.
        needs: names of the representations it reads.
        or_needs: other sets of representations it can read.
        several: whether a representation may be a list, one array per model.
        weighted: whether its picks carry weights.
        draws: whether it is random, so that another seed gives other picks.
        good_for: one phrase for the table of strategies.
        reference: authors, title, venue, year; `read_reference` takes it from the docstring.
        cost: passes and memory of a job, where the form alone does not tell.
        check: rejects options, budgets and shapes before any row is read.
        adapt: options that follow from the history of a campaign or benchmark run.
        repeats_batches: whether `adapt` reads diagnostics of earlier batches, so that a benchmark
            run can only be continued by selecting them again.
        explain: one sentence on why an item was picked, or a function of `PickFacts`. In a
            sentence, ``{doubt}`` and ``{weight}`` stand for `PickFacts.describe_doubt` and
            `PickFacts.describe_weight`.
    """

    name: str
    needs: tuple[str, ...]
    or_needs: tuple[tuple[str, ...], ...] = ()
    several: bool = False
    weighted: bool = False
    draws: bool = False
    good_for: str
    reference: str
    cost: Callable[[Job], Cost] | None = None
    check: Callable[[Job], None] | None = None
    adapt: Callable[[History], Options] = field(default=lambda history: {})
    repeats_batches: bool = False
    explain: str | Callable[[PickFacts], str] = ""

    main_name: ClassVar[str]

    @property
    def main(self) -> Callable[..., Any]:
        """The function whose keyword-only parameters are the options."""
        return getattr(self, self.main_name)  # type: ignore[no-any-return]

    @property
    def options(self) -> dict[str, Any]:
        """The options with their current values."""
        parameters = inspect.signature(getattr(self, self.main_name)).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def input_sets(self) -> tuple[tuple[str, ...], ...]:
        """The sets of representations it can read, the preferred one first."""
        return (self.needs, *self.or_needs)

    def match_needs(self, given: Values) -> tuple[str, ...]:
        """The first set of representations it can read that is given.

        Raises:
            BadInput: none is, or one is a list that it cannot read.
        """
        for names in (self.needs, *self.or_needs):
            if all(name in given for name in names):
                break
        else:
            needed = ", or ".join(" and ".join(names) for names in self.input_sets)
            raise BadInput(f"{self.name} needs {needed}; got {' and '.join(given) or 'none'}")
        for name in () if self.several else names:
            if isinstance(given[name], list | tuple):
                raise BadInput(
                    f"{self.name} takes one array of {name}; got a list of {len(given[name])}: "
                    "concatenate their columns, or use a strategy for several models; if they are "
                    "parts of one pool, give their folder, or a pattern in quotes"
                )
        return names

    def with_options(self: S, **options: Any) -> S:
        """The same strategy with some options set; an unknown option is an error."""
        known = self.options
        for name in options:
            if name not in known:
                choices = f"choose from {', '.join(known)}" if known else "it has none"
                raise UnknownName(f"{self.name} has no option {name!r}; {choices}")
        if not options:
            return self
        changes: dict[str, Any] = {self.main_name: partial(self.main, **options)}
        return replace(self, **changes)

    def explain_pick(self, facts: PickFacts) -> str:
        """One sentence on why an item was picked, from what its batch recorded."""
        if callable(self.explain):
            return self.explain(facts)
        if self.explain:
            return self.explain.format(doubt=facts.describe_doubt(), weight=facts.describe_weight())
        return f"Pick {facts.rank + 1} of {facts.batch_size} by {self.name} ({self.good_for})."

    def costs(self, job: Job) -> Cost:
        """Passes and memory of a job: as declared, or typical for the form."""
        return self._estimate_form_cost(job) if self.cost is None else self.cost(job)

    @abstractmethod
    def _estimate_form_cost(self, job: Job) -> Cost:
        """Typical for strategies of this form."""


@dataclass(frozen=True, kw_only=True)
class ScoreStrategy(Strategy):
    """``score(rows, labelled, *, options...) -> (n,)``; the highest scores are picked.

    The optional ``summarise(shard)`` collects facts on the whole pool beforehand: the results of
    all blocks are a third argument of ``score``, a list.

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

    main_name = "score"

    def _estimate_form_cost(self, job: Job) -> Cost:
        """One pass, after one for the summary; only items that could be picked are kept."""
        most = 1 if self.summarise is None else 2
        return Cost(passes=(1, most), usual=most, item_bytes=0.0, held_bytes=128.0 * job.budget)


class CertainPicks(NamedTuple):
    """Picks that no other row could have beaten, in order, and their scores: ``(k,)`` each."""

    ids: Ids
    scores: Floats


class AheadPicker(Protocol):
    """Makes many greedy picks on the device of the rows; see `GreedyStrategy`."""

    def pick_ahead(self, plan: Plan, new: Rows, new_ids: Ids, most: int) -> CertainPicks:
        """The next picks, at most ``most``; the plan counts them.

        ``new`` are rows of the picks that the blocks have not counted yet.
        """


@dataclass(frozen=True, kw_only=True)
class GreedyStrategy(Strategy):
    """Picks one item at a time; every block keeps the state of its scores.

    ``begin(shards, labelled, budget, seed, *, options...) -> plan``: global facts (sums over the
    pool, options); small, and sent to every block.
    ``start(rows, labelled, plan) -> state``: per block; a NamedTuple of arrays with first axis n.
    ``score(state, plan) -> (n,)``: the item with the highest score is picked next.
    ``advance(plan, picked) -> plan``: count new picks in the plan, before the blocks do.
    ``add(state, rows, picked, plan) -> state``: count new picks in a block. ``picked`` holds the
    representations of one or more picked items.
    ``finish(plan, shards, ids) -> Choice``: weights and diagnostics at the end (optional).

    With ``bounded``, a pick never raises another item's score. Old scores are then upper bounds,
    and many picks are made between two passes, with the same result. ``add`` must then accept
    several picks at once, and counting a pick twice must change nothing.

    Two optional functions make ties exact: ``slack(state) -> (n,)`` bounds how far rounding may
    have moved each score (default: a billionth of it), and ``exact(rows, labelled, picked, plan) ->
    (n,)`` is the score in float64 from its definition, for rows closer than their slack. Equal
    scores go to the smaller id.

    On a GPU, a pick that the host waits for costs more than its arithmetic. ``ahead(strategy,
    shards, labelled)`` gives an `AheadPicker` that makes many picks on the device and returns those
    that are certain whatever rounding did. ``rescale(plan, scores)`` converts scores to the units
    of the rows where the plan uses others.
    """

    begin: Callable[..., Plan]
    start: Callable[..., BlockState]
    score: Callable[..., Array]
    add: Callable[..., BlockState]
    advance: Callable[..., Plan] = field(default=lambda plan, picked: plan)
    finish: Callable[..., Choice] | None = None
    bounded: bool = False
    slack: Callable[..., Array] | None = None
    exact: Callable[..., Floats] | None = None
    ahead: Callable[["GreedyStrategy", Shards, Rows | None], AheadPicker] | None = None
    rescale: Callable[[Plan, Floats], Floats] | None = None

    main_name = "begin"

    def _estimate_form_cost(self, job: Job) -> Cost:
        """A pass for the first scores and one per pick, or a few passes if bounded."""
        fewest = min(2, job.budget) if self.bounded else job.budget
        return Cost(
            passes=(fewest, job.budget + 2),
            usual=min(4 + job.budget // 300, 7, job.budget + 2) if self.bounded else None,
            columns=job.budget / (6 if self.bounded else 1),
            item_bytes=64.0 + job.picked_bytes,
            state_bytes=32.0 + job.picked_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class PassStrategy(Strategy):
    """``choose(shards, labelled, budget, seed, *, options...) -> Choice``."""

    choose: Callable[[Shards, Rows | None, int, int], Choice]

    main_name = "choose"

    def _estimate_form_cost(self, job: Job) -> Cost:
        return Cost(passes=(1, math.inf), columns=job.budget)
