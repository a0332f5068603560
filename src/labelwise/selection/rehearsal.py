"""A selection up to its first look at a row: what it refuses by then, it refuses at no cost.

Strategies check the budget and their options in their own words before they read anything. So they
are run, as ever, on a pool of the right size whose rows cannot be read.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from labelwise.arrays import Ids
from labelwise.errors import LabelwiseError, LabelwiseWarning
from labelwise.pool.rows import Rows
from labelwise.selection import run
from labelwise.strategy import Strategy


class Looked(Exception):
    """The strategy has asked for the pool's rows or ids."""


def rehearse(strategy: Strategy, count: int, budget: int, labelled: Rows | None, seed: int) -> None:
    """Refuse a budget or options that the selection itself would refuse before it reads a row.

    Args:
        strategy: what decides, with its options.
        count: how many candidates there are.
        budget: how many of them to pick.
        labelled: rows of the items that are labelled already.
        seed: decides every draw.

    >>> import labelwise
    >>> lewis = labelwise.strategies()["lewis"]
    >>> rehearse(lewis, 500, 100, None, 0)
    >>> rehearse(lewis, 500, 501, None, 0)
    Traceback (most recent call last):
        ...
    labelwise.errors.BadInput: budget is 501 but only 500 unlabelled items are left; ask for 500 \
or fewer
    """
    pool: Any = Closed(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)  # the selection itself will warn
        try:
            run.select(strategy, pool, budget, labelled=labelled, seed=seed)
        except LabelwiseError:
            raise
        except Exception:  # it has looked; or the selection itself will say what is wrong
            return


class Closed(Mapping[str, Any]):
    """Of a pool nothing but the number of rows; at once its `Shards`, its only block, its rows."""

    def __init__(self, count: int) -> None:
        """Have ``count`` rows."""
        self._count = count
        self.state: dict[str, Any] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> "Closed":
        """As of a block, a mapping; as of a pool, a function."""
        return self

    @property
    def ids(self) -> Ids:
        """Cannot be had."""
        raise Looked

    def __call__(self, ids: Ids) -> NoReturn:
        """Rows of a pool cannot be had."""
        raise Looked

    def __getitem__(self, name: str) -> NoReturn:
        raise Looked

    def __iter__(self) -> Iterator[str]:
        raise Looked

    def __contains__(self, name: object) -> bool:
        raise Looked

    def __getattr__(self, name: str) -> NoReturn:
        raise Looked

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call the function until it looks."""
        return [function(self, *arguments)]

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function until it looks."""
        return function(self, *arguments)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Nothing comes this far."""
