"""What a selection will read, how often, and about how much memory it takes."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from labelwise.running.shards import BLOCK_BYTES, open_sources
from labelwise.strategy import GreedyStrategy, ScoreStrategy, Strategy


def estimate(strategy: Strategy, given: Mapping[str, Any], budget: int) -> Iterator[str]:
    """Two plain lines, from the shapes of the files alone; none without files.

    Args:
        strategy: what will run.
        given: representations by name, as `labelwise.select` takes them.
        budget: how many items to pick.
    """
    if not given:
        return
    parts, row_bytes, rows = [], 0, 0
    for name, opened in open_sources(given).items():
        several = opened if isinstance(opened, list) else [opened]
        rows = several[0].shape[0]
        columns = ["x".join(map(str, source.shape[1:])) for source in several]
        parts.append(f"{name} {' and '.join(columns)}")
        row_bytes += sum(source.bytes_per_row for source in several)
    total = rows * row_bytes
    blocks = max(math.ceil(total / BLOCK_BYTES), 1)
    cut = f"in {blocks} blocks of {size_text(BLOCK_BYTES)}" if blocks > 1 else "in one block"
    yield f"pool: {rows:,} items ({', '.join(parts)}), {size_text(total)}, read {cut}"
    if not strategy.needs:
        yield f"plan: {strategy.name} reads the rows once, to check them"
        return
    # A block and two temporaries of its size, and a few numbers per item: a guess, not a bound.
    memory = size_text(3 * min(BLOCK_BYTES, total) + 64 * rows)
    passes = _passes(strategy, budget)
    yield f"plan: {strategy.name} reads the rows {passes}; about {memory} above Python's own"


def _passes(strategy: Strategy, budget: int) -> str:
    """How often the rows are read, as far as the form of the strategy tells."""
    if isinstance(strategy, ScoreStrategy):
        return "once" if strategy.summarise is None else "twice"
    if isinstance(strategy, GreedyStrategy):
        most = f"{budget + 1:,} times"
        return f"at most {most}, far fewer as a rule" if strategy.bounded else f"about {most}"
    return "several times, depending on the data"


def size_text(count: float) -> str:
    """A number of bytes in the largest unit that keeps it above 1."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
