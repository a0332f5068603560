"""Selection: which items to label, in order, and how much each should weigh."""

import csv
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.errors import BadInput, MissingDependency

FORMATS = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Selection:
    """The picked items, in the order in which they were picked.

    Attributes:
        ids: ``(b,)`` int64, all different.
        weights: ``(b,)``, how many pool items each pick stands for (the sum is about the pool's
            size), or None where the method gives none.
        counts: ``(b,)``, how often a sampler with replacement drew each item, or None.
        scores: ``(b,)``, the strategy's score of each pick when it was picked, or None.
        info: diagnostics of the method; plain values that JSON can hold.

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
    info: Mapping[str, Any] = field(default_factory=dict)

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
        """The weights scaled to mean 1, ``(b,)``; all ones where the method gives none."""
        if self.weights is None or not len(self.ids):
            return np.ones(len(self.ids))
        mean = self.weights.mean()
        if mean <= 0:
            raise BadInput("all weights of this selection are zero; train without weights")
        return np.asarray(self.weights / mean)

    def effective_size(self) -> float:
        """``(sum w)^2 / sum w^2``: how many equally weighted items are worth as much."""
        weights = self.training_weights()
        squares = float(weights @ weights)
        return float(weights.sum()) ** 2 / squares if squares else 0.0

    def columns(self) -> dict[str, list[Any]]:
        """The table that `save` writes: id, weight, count, score and rank, one entry per pick."""
        nothing = [None] * len(self.ids)
        given = {"weight": self.weights, "count": self.counts, "score": self.scores}
        table: dict[str, list[Any]] = {"id": self.ids.tolist()}
        for name, values in given.items():
            table[name] = nothing if values is None else values.tolist()
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
        """Write the picks as .csv, .jsonl or .parquet; the file appears whole or not at all."""
        path = Path(path)
        check_format(path)
        if not path.parent.is_dir():
            raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        part = Path(name)
        try:
            _WRITERS[path.suffix](self.columns(), part)
            part.chmod(0o666 & ~_umask())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def check_format(path: Path) -> None:
    """Refuse a file name that `Selection.save` cannot write."""
    if path.suffix not in FORMATS:
        raise BadInput(f"cannot write {path.name!r}; end the name in {', '.join(FORMATS)}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_csv(table: dict[str, list[Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def _write_jsonl(table: dict[str, list[Any]], path: Path) -> None:
    with path.open("w") as file:
        for line in zip(*table.values(), strict=True):
            file.write(json.dumps(dict(zip(table, line, strict=True))) + "\n")


def _write_parquet(table: dict[str, list[Any]], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency(
            "writing .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    schema = pyarrow.schema(
        [
            ("id", pyarrow.int64()),
            ("weight", pyarrow.float64()),
            ("count", pyarrow.int64()),
            ("score", pyarrow.float64()),
            ("rank", pyarrow.int64()),
        ]
    )
    parquet.write_table(pyarrow.table(table, schema=schema), path)


_WRITERS = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
