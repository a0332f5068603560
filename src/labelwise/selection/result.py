"""Selection: the items to label, in order, with their weights."""

import csv
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, to_numpy
from labelwise.errors import BadInput, MissingDependency
from labelwise.files import Json, check_output_path, to_json, write_atomically
from labelwise.pool.ids import IdIndex, Key
from labelwise.pool.pool import Pool
from labelwise.pool.sources.parquet import import_pyarrow

Table = dict[str, list[Any]]  # Columns of equal length by name
SHOWN_PICKS = 10  # Picks that are printed and that notebooks show
BAR_STYLE = "background:#4a7ebb;height:8px"
FORMATS = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True, eq=False, repr=False)
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
        >>> picks
        Selection(2 picks: 7, 2; with weights)
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

    def __repr__(self) -> str:
        keys = self.ids.tolist() if self.keys is None else self.keys
        more = ["..."] if len(self) > SHOWN_PICKS else []
        shown = ", ".join([*map(str, keys[:SHOWN_PICKS]), *more])
        by = f" by {self.info['strategy']}" if "strategy" in self.info else ""
        picks = f"{len(self)} picks{by}" + (f": {shown}" if shown else "")
        return f"Selection({picks}{'' if self.weights is None else '; with weights'})"

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

    def _repr_html_(self) -> str:
        """A table of the first picks for notebooks, with a bar for each score or weight."""
        known = {"weight": self.weights, "count": self.counts, "score": self.scores, "rank": None}
        table = {k: v for k, v in self.columns().items() if known.get(k, v) is not None}
        shown = min(len(self), SHOWN_PICKS)
        lengths = self.scores if self.weights is None else self.weights
        largest = 0.0 if lengths is None else float(np.max(np.abs(lengths[:shown]), initial=0.0))
        head = "".join(f"<th>{name}</th>" for name in table)
        rows = []
        for rank in range(shown):
            values = [column[rank] for column in table.values()]
            texts = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
            cells = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
            if lengths is not None and largest:
                width = round(100 * abs(float(lengths[rank])) / largest)
                cells += f'<td><div style="{BAR_STYLE};width:{width}px"></div></td>'
            rows.append(f"<tr><td>{rank}</td>{cells}</tr>")
        title = html.escape(f"{len(self)} picks by {self.info.get('strategy', 'a strategy')}")
        more = f"<p>and {len(self) - shown} more</p>" if len(self) > shown else ""
        return f"<p>{title}</p><table><tr><th>rank</th>{head}</tr>{''.join(rows)}</table>{more}"

    def plot(self, features: Any = None, *, ids: Any = None, ax: Any = None) -> Any:
        """Plot the picks: among the pool if features are given, otherwise their scores by rank.

        Args:
            features: ``(n, d)`` of the pool, in any form that `labelwise.select` takes; the first
                two principal components are shown.
            ids: ``(n,)`` keys of the pool's items; row numbers, or the column ``id``, if None.
            ax: the matplotlib axes to draw on; new ones if None.

        Returns:
            The axes.
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise MissingDependency("plot needs matplotlib; run pip install matplotlib") from error
        values = self.scores if self.scores is not None else self.weights
        if features is None and values is None:
            raise BadInput("these picks have neither scores nor weights to plot; give features")
        ax = pyplot.subplots()[1] if ax is None else ax
        if features is None:
            ax.plot(np.arange(len(self)), values, marker=".")
            ax.set(xlabel="rank", ylabel="weight" if self.scores is None else "score")
            return ax
        pool = Pool(ids=ids, features=features)
        sources = pool.open_sources()
        source = sources["features"]
        if isinstance(source, list) or len(source.shape) != 2:
            raise BadInput(f"plot takes one array of features (n, d); got {features!r:.60}")
        known, keys = pool.resolve_ids(sources)
        if self.keys is not None and keys is None and ids is None:
            raise BadInput("the picks have keys of their own; give ids, the keys of the rows")
        picked = IdIndex(known).find_positions(self.ids)
        rows = np.asarray(to_numpy(source.read(0, source.shape[0])), dtype=np.float64)
        rows = rows - rows.mean(axis=0)
        if rows.shape[1] > 2:
            rows = rows @ np.linalg.eigh(rows.T @ rows)[1][:, :-3:-1]
        plane = np.pad(rows, ((0, 0), (0, 2 - rows.shape[1])))
        ax.scatter(*plane.T, s=6, color="0.7", label="pool")
        ax.scatter(*plane[picked].T, s=24, color="C3", label="picks")
        ax.legend()
        return ax

    def save(self, path: str | Path) -> None:
        """Write the picks as .csv, .jsonl or .parquet; the file is replaced atomically."""
        path = Path(path)
        check_output_path(path, FORMATS)
        with write_atomically(path) as part:
            _WRITERS[path.suffix](self.columns(), part)


def _save_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def _save_jsonl(table: Table, path: Path) -> None:
    with path.open("w") as file:
        for line in zip(*table.values(), strict=True):
            file.write(json.dumps(to_json(dict(zip(table, line, strict=True)))) + "\n")


def _save_parquet(table: Table, path: Path) -> None:
    pyarrow, parquet = import_pyarrow("writing .parquet")
    ids = table["id"]
    kinds = {type(key) for key in ids}
    plain = all(isinstance(key, int | float | str | bytes | date) for key in ids)
    large = kinds == {int} and any(abs(key) >= 2**63 for key in ids)
    if len(kinds) > 1 or not plain or large:
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


_WRITERS = {
    ".csv": _save_csv,
    ".jsonl": _save_jsonl,
    ".parquet": _save_parquet,
}
