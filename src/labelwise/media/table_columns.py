"""Columns of a table as numbers: categories, missing values and strings.

==========  ======================================================================================
column      becomes
==========  ======================================================================================
numbers     one column; missing ones get the median, and a second column says where they were
categories  one column of 0 and 1 per category; a missing or new category is 0 in all of them
==========  ======================================================================================

Medians and categories are those of the start of a campaign: later rows get the same columns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput
from labelwise.media.tables import (
    MOST_CATEGORIES,
    Columns,
    convert_numeric_column,
    is_blank,
    to_category,
)


@dataclass(frozen=True)
class TableColumns:
    """The conversion of table columns to numbers; all values are JSON values."""

    # By column, the most frequent categories, at most `MOST_CATEGORIES`
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # By column of numbers with missing values, their median
    fills: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def plan(
        cls, path: Path, table: Columns, names: Sequence[str], categorical: Sequence[str]
    ) -> "TableColumns":
        """Look at all rows of a table.

        ``names`` are the columns to use, ``categorical`` those of them that are categories.
        """
        categories, fills = {}, {}
        for name in names:
            if name in categorical:
                counts = Counter(to_category(value) for value in table[name] if not is_blank(value))
                if not counts:
                    raise BadInput(
                        f"column {name!r} of {path} is empty; leave it out (--without {name})"
                    )
                categories[name] = tuple(value for value, _ in counts.most_common(MOST_CATEGORIES))
            elif any(map(is_blank, table[name])):
                known = [value for value in table[name] if not is_blank(value)]
                if not known or isinstance(known[0], list):
                    continue  # reported by the conversion
                fills[name] = float(np.median(convert_numeric_column(path, name, known)))
        return cls(categories, fills)

    def convert(
        self, path: Path | str, table: Columns, names: Sequence[str]
    ) -> NDArray[np.float64]:
        """The named columns as ``(n, d)`` numbers."""
        parts: list[NDArray[Any]] = []
        for name in names:
            values = table[name]
            if name in self.categories:
                known = {text: place for place, text in enumerate(self.categories[name])}
                found = np.zeros((len(values), len(known)))
                for row, value in enumerate(values):
                    place = None if is_blank(value) else known.get(to_category(value))
                    if place is not None:
                        found[row, place] = 1.0
                parts.append(found)
            elif name in self.fills:
                gaps = np.array([is_blank(value) for value in values])
                whole = [self.fills[name] if is_blank(value) else value for value in values]
                parts += [convert_numeric_column(path, name, whole), gaps[:, None].astype(float)]
            else:
                parts.append(convert_numeric_column(path, name, values))
        return np.concatenate(parts, axis=1)

    def describe(self) -> list[str]:
        """The conversion in sentences."""
        notes = []
        for name, known in self.categories.items():
            notes.append(f"categories of {name}: {len(known)}")
        if self.fills:
            notes.append(f"missing numbers filled with the median: {', '.join(self.fills)}")
        return notes
