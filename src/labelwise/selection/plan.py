"""The cost of a selection before it starts: passes, bytes read, memory and time.

A strategy declares its cost (`labelwise.strategy.Cost`), or its type implies it. Memory is a few
blocks, the bytes kept per item, and what the strategy holds besides. Time is measured by reading a
few of the pool's own blocks and multiplying them once, times the passes.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labelwise.arrays import Array, float64, namespace, to_numpy
from labelwise.display import format_duration
from labelwise.errors import BadInput
from labelwise.pool.blocks import BLOCK_BYTES, LEAST_ROW, BlockRows, rows_per_block
from labelwise.pool.ids import RowNumbers
from labelwise.pool.representations import flatten_sources, open_sources
from labelwise.pool.sources.source import Sources, Values
from labelwise.strategies import strategies
from labelwise.strategy import Cost, Job, Strategy

BLOCKS_AT_ONCE = 6
"""A visit needs this many times the memory of a block, for the block and its results."""
WORK_BYTES = 32 << 20  # Memory of any selection for pieces of a block and small matrices
TIMED_BLOCKS, TIMED_COLUMNS, TIMED_ROWS, TIMED_SECONDS = 3, 32, 1 << 14, 0.5
"""A measurement reads at most this many blocks and multiplies them with this many columns, this
many rows at a time; it starts no further block after this many seconds."""
MEMORY_INFO, CGROUP_LIST, CGROUP_MOUNT = map(
    Path, ("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup")
)


@dataclass(frozen=True)
class ReadSpeed:
    """Seconds per pass over a pool, measured on ``blocks`` of it.

    ``read`` for the first time, ``again`` once more (0 if rows stay in memory), and ``column`` to
    multiply all rows with one column in float64.
    """

    read: float
    again: float
    column: float
    blocks: int


@dataclass(frozen=True)
class SelectionPlan:
    """The cost of a selection."""

    strategy: str
    budget: int
    items: int
    # By representation, the shape of one row for every model
    shapes: Mapping[str, tuple[tuple[int, ...], ...]]
    row_bytes: int
    block_rows: int
    cost: Cost
    speed: ReadSpeed | None = None
    reader_bytes: int = 0  # memory of file readers besides the block

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return max(math.ceil(self.items / self.block_rows), 1)

    @property
    def bytes_read(self) -> tuple[float, float]:
        """The fewest and the most bytes read in all passes."""
        size = self.items * self.row_bytes
        return size * self.cost.passes[0], size * self.cost.passes[1]

    @property
    def memory(self) -> float:
        """Upper estimate of the bytes above Python's own."""
        block = self.block_rows * max(self.row_bytes, LEAST_ROW)
        kept = self.items * self.cost.item_bytes
        held = self.cost.held_bytes + self.reader_bytes
        return WORK_BYTES + BLOCKS_AT_ONCE * block + kept + held

    @property
    def least_memory(self) -> float:
        """The same if the state of the blocks goes to disk."""
        return self.memory - self.items * self.cost.state_bytes

    @property
    def seconds(self) -> float | None:
        """Estimated time; None if nothing was measured or the passes are unknown."""
        if self.speed is None or not math.isfinite(self.cost.expected):
            return None
        first, later = min(self.cost.expected, 1), max(self.cost.expected - 1, 0)
        reading = first * self.speed.read + later * self.speed.again
        return reading + self.cost.columns * self.speed.column

    def describe_briefly(self) -> Iterator[str]:
        """Two lines: the pool, and how often it is read in how much memory."""
        cut = f"{self.blocks:,} blocks of {format_size(self.block_rows * self.row_bytes)}"
        cut = f"in {cut}" if self.blocks > 1 else "in one block"
        total = format_size(self.items * self.row_bytes)
        columns = ", ".join(
            f"{name} {' and '.join('x'.join(map(str, shape)) or '1' for shape in several)}"
            for name, several in self.shapes.items()
        )
        yield f"pool: {self.items:,} items ({columns}), {total}, read {cut}"
        memory = f"about {format_size(self.memory)} above Python's own"
        yield f"plan: {self.strategy} reads the rows {describe_passes(self.cost)}; {memory}"

    def describe_fully(self) -> Iterator[str]:
        """Everything known, one line each."""
        yield from self.describe_briefly()
        yield f"bytes read: {self._describe_bytes()}"
        kept = f"{self.cost.item_bytes:,.0f} bytes per item"
        kept += f" ({format_size(self.items * self.cost.item_bytes)})"
        if self.cost.held_bytes:
            kept += f", and {format_size(self.cost.held_bytes)}"
        if self.cost.state_bytes:
            kept += f"; {format_size(self.items * self.cost.state_bytes)} may go to disk"
        yield f"kept in memory: {kept}{': ' if self.cost.holds else ''}{self.cost.holds}"
        if self.speed is not None:
            speed = f"all rows are read in {format_duration(self.speed.read)}"
            speed += f" and multiplied with {TIMED_COLUMNS} columns in "
            speed += format_duration(TIMED_COLUMNS * self.speed.column)
            total = "unknown" if self.seconds is None else f"about {format_duration(self.seconds)}"
            yield f"time: {total} ({speed}, measured on {self.speed.blocks} of the blocks)"

    def _describe_bytes(self) -> str:
        low, high = self.bytes_read
        if low == high:
            return format_size(low)
        if not math.isfinite(high):
            return f"{format_size(low)}, more if needed"
        usual = format_size(self.items * self.row_bytes * self.cost.expected)
        usual = f", usually about {usual}" if self.cost.usual is not None else ""
        return f"at most {format_size(high)}{usual}"


def plan_selection(strategy: Strategy, given: Values, budget: int) -> SelectionPlan | None:
    """Plan a selection from the shapes of arrays and files; None without any."""
    names = strategy.match_needs(given) or tuple(given)[:1]
    if not names:
        return None
    return plan_sources(strategy, open_sources({name: given[name] for name in names}), budget)


def plan_sources(
    strategy: Strategy,
    sources: Sources,
    budget: int,
    *,
    timed: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> SelectionPlan:
    """Plan a selection from opened sources; ``timed`` measures their speed, up to a second."""
    shapes = {
        name: tuple(source.shape[1:] for source in (v if isinstance(v, list) else [v]))
        for name, v in sources.items()
    }
    every = [source for _, source in flatten_sources(sources)]
    items, row_bytes = every[0].shape[0], sum(source.bytes_per_row for source in every)
    job = Job(items, budget, shapes, strategy.options, block_bytes)
    try:
        cost = strategy.costs(job)
    except (TypeError, ValueError, LookupError, ArithmeticError):
        # Invalid options are rejected by the strategy's own check.
        cost = replace(strategy, cost=None).costs(job)
    return SelectionPlan(
        strategy.name,
        budget,
        items,
        shapes,
        row_bytes,
        min(rows_per_block(row_bytes, block_bytes), max(items, 1)),
        cost,
        measure_read_speed(sources, items, row_bytes, block_bytes) if timed else None,
        sum(source.held_bytes for source in every),
    )


def measure_read_speed(
    sources: Sources, items: int, row_bytes: int, block_bytes: int = BLOCK_BYTES
) -> ReadSpeed:
    """Read a few blocks and multiply them in float64, as most strategies do."""
    step = min(rows_per_block(row_bytes, block_bytes), max(items, 1))
    starts = sorted({0, max(items - step, 0), max(items // 2 - step, 0)})[:TIMED_BLOCKS]
    if any(getattr(source, "sequential", False) for _, source in flatten_sources(sources)):
        # A block inside a row group costs the rows before it, which a whole pass reads once.
        starts = [start for start in range(0, TIMED_BLOCKS * step, step) if start < max(items, 1)]
    read = column = 0.0
    rows = blocks = 0
    for start in starts:
        ids = RowNumbers(start, min(start + step, items))
        begin = time.perf_counter()
        block = BlockRows(sources, start, ids)
        values = [block[name] for name in block]
        read += time.perf_counter() - begin
        for value in values:
            column += sum(map(_time_column_product, value if isinstance(value, list) else [value]))
        rows, blocks = rows + len(ids), blocks + 1
        if read + TIMED_COLUMNS * column > TIMED_SECONDS:
            break
    share = items / max(rows, 1)
    kept = all(getattr(source, "keeps_rows", False) for _, source in flatten_sources(sources))
    return ReadSpeed(read * share, 0.0 if kept else read * share, column * share, blocks)


def _time_column_product(array: Array) -> float:
    """Seconds to multiply the rows of an array with one column of several."""
    xp = namespace(array)
    rows = xp.reshape(array, (len(array), -1))
    width = rows.shape[1]
    count = min(TIMED_COLUMNS, max(width, 1))
    columns = xp.astype(xp.ones_like(rows[:1]), xp.float64)
    columns = xp.matrix_transpose(xp.broadcast_to(columns, (count, width)))
    begin = time.perf_counter()
    for first in range(0, max(len(rows), 1), TIMED_ROWS):
        product = xp.matmul(float64(rows[first : first + TIMED_ROWS]), columns)
    to_numpy(product[:1])  # waits for a GPU
    return (time.perf_counter() - begin) / float(count)


def check_plan_memory(plan: SelectionPlan, limit: float, given: Values) -> None:
    """Reject a selection that does not fit in memory, and name ways that do."""
    if plan.least_memory <= limit:
        return
    what = f": it keeps {plan.cost.holds}" if plan.cost.holds else ""
    others = _find_smaller_strategies(plan, limit, given)
    way = f"use {' or '.join(others)}, which does not, or " if others else ""
    raise BadInput(
        f"{plan.strategy} would take about {format_size(plan.least_memory)} of memory for "
        f"{plan.items:,} items but {format_size(limit)} may be used{what}; {way}give it fewer "
        "items, or raise memory"
    )


def _find_smaller_strategies(plan: SelectionPlan, limit: float, given: Values) -> list[str]:
    """At most two strategies that read nothing else, keep less per item and fit.

    Those that read most of the same representations come first, then those with few passes.
    """
    if not plan.cost.holds:
        return []
    used, found = set(plan.shapes), []
    for name, strategy in strategies().items():
        shared = used & set(strategy.needs)
        if name != plan.strategy and shared and shared == set(strategy.needs):
            other = plan_selection(strategy, given, plan.budget)
            if other and not other.cost.holds and other.least_memory <= limit:
                found.append((-len(shared), other.cost.expected, name))
    return [name for *_, name in sorted(found)[:2]]


def find_free_memory() -> int:
    """Bytes that this process can use without swapping; limits of its container count.

    >>> find_free_memory() > 0
    True
    """
    return max(min([_find_machine_memory(), *_find_container_memory()]), 1)


def _find_machine_memory() -> int:
    """Free memory including the file cache; all memory if that is unknown."""
    try:
        for line in MEMORY_INFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30  # unknown: assume a small machine


def _find_container_memory() -> list[int]:
    """Memory left in the control groups (versions 1 and 2) that limit this process."""
    try:
        lines = [line.split(":", 2) for line in CGROUP_LIST.read_text().splitlines()]
    except OSError:
        return []
    left = []
    for _, controllers, path in lines:
        if controllers not in ("", "memory"):
            continue
        top = CGROUP_MOUNT / controllers
        group = top / path.strip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
            left += _read_group_memory(folder)
    return left


def _read_group_memory(folder: Path) -> list[int]:
    """Memory left in one control group; empty if it has no limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = int((folder / limit).read_text())
            now = int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
        cached = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
        return [most - now + int(cached)]
    return []


def describe_passes(cost: Cost) -> str:
    """The number of passes over the rows, in words.

    >>> describe_passes(Cost(passes=(2, 2))), describe_passes(Cost(passes=(2, 11), usual=3))
    ('twice', 'at most 11 times, usually about 3')
    """
    low, high = cost.passes
    if low == high:
        return {1: "once", 2: "twice"}.get(int(low), f"{low:,.0f} times")
    if not math.isfinite(high):
        return "several times, depending on the data"
    usual = f", usually about {cost.expected:,.0f}" if cost.usual is not None else ""
    return f"at most {high:,.0f} times{usual}"


def format_size(count: float) -> str:
    """A number of bytes in the largest unit that keeps it above 1."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
