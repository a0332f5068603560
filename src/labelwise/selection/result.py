"""Selection: the items to label, in order, with their weights."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.errors import BadInput, MissingDependency
from labelwise.files import Json, to_json, write_atomically
from labelwise.pool.ids import Key

Table = dict[str, list[Any]]
"""Columns of equal length by name."""
FORMATS = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Selection:
    """The picked items, in the order in which they were picked.

    Attributes:
        ids: ``(b,)`` int64, all different.
        weights: ``(b,)``, the number of pool items that each pick represents (the sum is about the
            pool's size), or None if the method has none.
        counts: ``(b,)``, how often a sampler with replacement drew each item, or None.
        scores: ``(b,)``, the strategy's score of each pick when it was picked, or None.
        info: diagnostics of the method; plain values that JSON can hold.
        keys: the items' original keys if they are not integers; ``ids`` are then their hashes.

    Example:
        >>> import numpy as np
        >>> picks = Selection(np.array([7, 2]), weights=np.array([30.0, 10.0]))
        >>> picks.training_weights()
        array([1.5, 0.5])
        >>> picks.effective_size()
        1.6
    """

    ids: Ids
    weights: Floats | None = None
    counts: Ids | None = None
    scores: Floats | None = None
    info: Mapping[str, Json] = field(default_factory=dict)
    keys: list[Key] | None = None

    def __post_init__(self) -> None:
        if len(np.unique(self.ids)) != len(self.ids):
            raise BadInput("a selection's ids must all be different")
        for name in ("weights", "counts", "scores"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.ids):
                raise BadInput(f"a selection of {len(self.ids)} ids has {len(values)} {name}")

    def __len__(self) -> int:
        return len(self.ids)

    def training_weights(self) -> Floats:
        """The weights scaled to mean 1, ``(b,)``; all ones if the method has none."""
        if self.weights is None or not len(self.ids):
            return np.ones(len(self.ids))
        mean = self.weights.mean()
        if mean <= 0:
            raise BadInput("all weights of this selection are zero; train without weights")
        return np.asarray(self.weights / mean)

    def effective_size(self) -> float:
        """``(sum w)^2 / sum w^2``: the number of equally weighted items with the same variance."""
        weights = self.training_weights()
        squares = float(weights @ weights)
        return float(weights.sum()) ** 2 / squares if squares else 0.0

    def columns(self) -> Table:
        """The table that `save` writes: id, weight, count, score and rank, one entry per pick."""
        table: Table = {"id": self.ids.tolist() if self.keys is None else self.keys}
        given = {"weight": self.weights, "count": self.counts, "score": self.scores}
        for name, values in given.items():
            table[name] = [None] * len(self.ids) if values is None else values.tolist()
        table["rank"] = list(range(len(self.ids)))
        return table

    def to_frame(self) -> Any:
        """A pandas DataFrame with the columns id, weight, count, score and rank."""
        try:
            import pandas
        except ImportError as error:
            raise MissingDependency("to_frame needs pandas; run pip install pandas") from error
        return pandas.DataFrame(self.columns())

    def save(self, path: str | Path) -> None:
        """Write the picks as .csv, .jsonl or .parquet; the file is replaced atomically."""
        path = Path(path)
        check_format(path)
        if not path.parent.is_dir():
            raise BadInput(f"there is no folder {path.parent} to write {path.name} to; create it")
        with write_atomically(path) as part:
            _WRITERS[path.suffix](self.columns(), part)


def check_format(path: Path) -> None:
    """Reject a file name that `Selection.save` cannot write."""
    if path.suffix not in FORMATS:
        raise BadInput(f"cannot write {path.name!r}; end the name in {', '.join(FORMATS)}")


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def _write_jsonl(table: Table, path: Path) -> None:
    with path.open("w") as file:
        for line in zip(*table.values(), strict=True):
            file.write(json.dumps(to_json(dict(zip(table, line, strict=True)))) + "\n")


def _write_parquet(table: Table, path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency(
            "writing .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    ids = table["id"]
    kinds = {type(key) for key in ids}
    if len(kinds) > 1 or not all(isinstance(key, int | float | str | bytes | date) for key in ids):
        table = {**table, "id": [str(key) for key in ids]}
    schema = pyarrow.schema(
        [
            ("id", pyarrow.array(table["id"]).type if ids else pyarrow.int64()),
            ("weight", pyarrow.float64()),
            ("count", pyarrow.int64()),
            ("score", pyarrow.float64()),
            ("rank", pyarrow.int64()),
        ]
    )
    parquet.write_table(pyarrow.table(table, schema=schema), path)


_WRITERS = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
