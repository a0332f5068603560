"""What a selection will take before it starts: passes, bytes read, memory and time.

A strategy declares its cost (`labelwise.strategy.Cost`), or its form tells. Memory is some blocks,
what is kept per item, and what the strategy holds besides. Time is that of reading a few of the
pool's own blocks and multiplying them once, times the passes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from labelwise.errors import BadInput, LabelwiseError
from labelwise.pool.representations import flatten_sources, open_sources
from labelwise.pool.shards import BLOCK_BYTES, LEAST_ROW, rows_per_block
from labelwise.pool.sources import Sources
from labelwise.selection.pace import TIMED_COLUMNS, Pace, pace
from labelwise.strategies import get
from labelwise.strategy import Cost, Job, Strategy

BLOCKS_AT_ONCE = 6
"""A block, and what is computed from it while it is visited: so many blocks of memory."""
WORK_BYTES = 32 << 20
"""What any selection takes besides, for pieces of a block and small matrices."""
PRESELECT = ("margin", "entropy", "random")
"""Strategies of hardly any memory, to make a pool smaller for one that needs more."""


@dataclass(frozen=True)
class Plan:
    """What a selection will take.

    Attributes:
        strategy: its name.
        budget: how many items are to be picked.
        items: how many rows the pool has.
        columns: by representation, what one row is: ``features 64``.
        row_bytes: how much one row of all representations takes.
        block_bytes: how much one block takes, about.
        cost: what the strategy says.
        pace: measured, or None.
        reader_bytes: what is kept of files that are decoded, besides the block.
    """

    strategy: str
    budget: int
    items: int
    columns: str
    row_bytes: int
    block_bytes: int
    cost: Cost
    pace: Pace | None = None
    reader_bytes: int = 0

    @property
    def block_rows(self) -> int:
        """How many rows a block has."""
        return min(rows_per_block(self.row_bytes, self.block_bytes), max(self.items, 1))

    @property
    def blocks(self) -> int:
        """In how many blocks the rows are read."""
        return max(math.ceil(self.items / self.block_rows), 1)

    @property
    def bytes_read(self) -> tuple[float, float]:
        """The fewest and the most bytes that are read, in all passes."""
        size = self.items * self.row_bytes
        return size * self.cost.passes[0], size * self.cost.passes[1]

    @property
    def memory(self) -> float:
        """Bytes above Python's own, at the most."""
        block = self.block_rows * max(self.row_bytes, LEAST_ROW)
        kept = self.items * self.cost.item_bytes
        held = self.cost.held_bytes + self.reader_bytes
        return WORK_BYTES + BLOCKS_AT_ONCE * block + kept + held

    @property
    def least_memory(self) -> float:
        """The same if what lies beside the rows goes to disk."""
        return self.memory - self.items * self.cost.state_bytes

    @property
    def seconds(self) -> float | None:
        """How long it takes, about; None where nothing was measured or told."""
        if self.pace is None or not math.isfinite(self.cost.expected):
            return None
        return self.cost.expected * self.pace.read + self.cost.columns * self.pace.column

    def short(self) -> Iterator[str]:
        """Two lines: the pool, and how often it is read in how much memory."""
        cut = f"{self.blocks:,} blocks of {size_text(self.block_rows * self.row_bytes)}"
        cut = f"in {cut}" if self.blocks > 1 else "in one block"
        total = size_text(self.items * self.row_bytes)
        yield f"pool: {self.items:,} items ({self.columns}), {total}, read {cut}"
        memory = f"about {size_text(self.memory)} above Python's own"
        yield f"plan: {self.strategy} reads the rows {times_text(self.cost)}; {memory}"

    def lines(self) -> Iterator[str]:
        """All that is known, a line each."""
        yield from self.short()
        yield f"bytes read: {self._bytes_text()}"
        kept = f"{self.cost.item_bytes:,.0f} bytes per item"
        kept += f" ({size_text(self.items * self.cost.item_bytes)})"
        if self.cost.held_bytes:
            kept += f", and {size_text(self.cost.held_bytes)}"
        if self.cost.state_bytes:
            kept += f"; {size_text(self.items * self.cost.state_bytes)} may go to disk"
        yield f"kept in memory: {kept}{': ' if self.cost.holds else ''}{self.cost.holds}"
        if self.pace is not None:
            pace = f"all rows are read in {seconds_text(self.pace.read)}"
            pace += f" and multiplied with {TIMED_COLUMNS} columns in "
            pace += seconds_text(TIMED_COLUMNS * self.pace.column)
            said = (
                "cannot be told" if self.seconds is None else f"about {seconds_text(self.seconds)}"
            )
            yield f"time: {said} ({pace}, by {self.pace.blocks} of the blocks)"

    def _bytes_text(self) -> str:
        """In the same words as the passes."""
        low, high = self.bytes_read
        if low == high:
            return size_text(low)
        if not math.isfinite(high):
            return f"{size_text(low)}, more if it needs to"
        usual = size_text(self.items * self.row_bytes * self.cost.expected)
        usual = f", as a rule about {usual}" if self.cost.usual is not None else ""
        return f"at most {size_text(high)}{usual}"


def plan(
    strategy: Strategy,
    given: Mapping[str, Any],
    budget: int,
    *,
    timed: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Plan | None:
    """What a selection will take, from the shapes of the files; None without any.

    Args:
        strategy: what will run, with its options.
        given: representations by name, as `labelwise.select` takes them.
        budget: how many items to pick.
        timed: whether to read and multiply a few blocks, which takes about a second.
        block_bytes: how much memory one block takes, about.

    >>> import labelwise
    >>> import numpy as np
    >>> features = np.zeros((1000, 16), dtype=np.float32)
    >>> found = plan(labelwise.strategies()["k_center"], {"features": features}, 10)
    >>> found.cost.passes, found.bytes_read
    ((2, 12), (128000, 768000))
    """
    names = needed(strategy, given) or tuple(given)[:1]
    if not names:
        return None
    return plan_sources(
        strategy,
        open_sources({name: given[name] for name in names}),
        budget,
        timed=timed,
        block_bytes=block_bytes,
    )


def plan_sources(
    strategy: Strategy,
    sources: Sources,
    budget: int,
    *,
    timed: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Plan:
    """What a selection from opened sources will take; the arguments are those of `plan`."""
    shapes = row_shapes(sources)
    every = [source for _, source in flatten_sources(sources)]
    items, row_bytes = every[0].shape[0], sum(source.bytes_per_row for source in every)
    columns = [
        f"{name} {' and '.join('x'.join(map(str, shape)) or '1' for shape in several)}"
        for name, several in shapes.items()
    ]
    cost = _cost(strategy, Job(items, budget, shapes, strategy.options, block_bytes))
    if not strategy.needs:  # its rows are read all the same, to check them
        cost = replace(cost, passes=(1, 1))
    return Plan(
        strategy.name,
        budget,
        items,
        ", ".join(columns),
        row_bytes,
        block_bytes,
        cost,
        pace(sources, items, row_bytes, block_bytes) if timed else None,
        sum(source.held_bytes for source in every),
    )


def row_shapes(sources: Sources) -> dict[str, tuple[tuple[int, ...], ...]]:
    """By representation, the shape of one row for every model."""
    return {
        name: tuple(source.shape[1:] for source in (v if isinstance(v, list) else [v]))
        for name, v in sources.items()
    }


def _cost(strategy: Strategy, job: Job) -> Cost:
    """What the strategy says; what its form says if it makes nothing of the options.

    Options that are no good are refused by the strategy itself, in its own words.
    """
    try:
        return strategy.costs(job)
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return replace(strategy, cost=None).costs(job)


def needed(strategy: Strategy, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The first set of representations that the strategy can work with and that is given."""
    names = strategy.match_needs(given)
    for name in names:
        if isinstance(given[name], list | tuple) and not strategy.several:
            raise BadInput(
                f"{strategy.name} takes one array of {name}; got a list of {len(given[name])}: "
                "concatenate their columns, or use a strategy for several models (lewis); if they "
                "are parts of one pool, give their folder, or a pattern in quotes"
            )
    return names


def check_memory(found: Plan, limit: float, given: Mapping[str, Any]) -> None:
    """Refuse a selection that would not fit in memory, and say what would.

    Args:
        found: the plan.
        limit: how many bytes it may take.
        given: representations by name; what is proposed can work with them.
    """
    if found.least_memory <= limit:
        return
    what = f": it keeps {found.cost.holds}" if found.cost.holds else ""
    ways = [*_instead(found, limit, given), *_preselect(found, limit, given), "raise memory"]
    raise BadInput(
        f"{found.strategy} would take about {size_text(found.least_memory)} of memory for "
        f"{found.items:,} items but {size_text(limit)} may be taken{what}; {', or '.join(ways)}"
    )


def _instead(found: Plan, limit: float, given: Mapping[str, Any]) -> Iterator[str]:
    """To use a strategy for the same purpose that fits."""
    others = [name for name in found.cost.instead if _fits(name, found.budget, limit, given)]
    if others:
        yield f"use {' or '.join(others)}, which need not"


def _preselect(found: Plan, limit: float, given: Mapping[str, Any]) -> Iterator[str]:
    """To give it the best items of a strategy that fits."""
    per_item = found.cost.item_bytes - found.cost.state_bytes
    few = int((limit - found.least_memory) / max(per_item, 1)) + found.items
    if few < max(found.budget, 1):
        return
    count = max(_rounded(few), found.budget)
    by = [name for name in PRESELECT if _fits(name, count, limit, given)]
    if by:
        yield f"preselect {count:,} items with {' or '.join(by)} and give it those rows"


def _fits(name: str, budget: int, limit: float, given: Mapping[str, Any]) -> bool:
    """Whether a strategy can work with what is given, within the limit."""
    try:
        other = plan(get(name), given, budget)
    except LabelwiseError:  # it needs something else
        return False
    return other is not None and other.least_memory <= limit


def _rounded(count: int) -> int:
    """The number with its first digit alone."""
    digits = len(str(count)) - 1
    return int(str(count)[0]) * int("1" + "0" * digits)


def times_text(cost: Cost) -> str:
    """How often the rows are read, in words.

    >>> times_text(Cost(passes=(2, 2))), times_text(Cost(passes=(2, 11), usual=3))
    ('twice', 'at most 11 times, as a rule about 3')
    """
    low, high = cost.passes
    if low == high:
        return {1: "once", 2: "twice"}.get(int(low), f"{low:,.0f} times")
    if not math.isfinite(high):
        return "several times, depending on the data"
    usual = f", as a rule about {cost.expected:,.0f}" if cost.usual is not None else ""
    return f"at most {high:,.0f} times{usual}"


def size_text(count: float) -> str:
    """A number of bytes in the largest unit that keeps it above 1."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def seconds_text(seconds: float) -> str:
    """A time in the unit that people would use.

    >>> [seconds_text(value) for value in (0.0123, 4.5, 250, 9000)]
    ['0.01 seconds', '4.5 seconds', '4 minutes', '2.5 hours']
    """
    if seconds < 120:
        return f"{seconds:.{2 if seconds < 1 else 1}f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
