"""What ``plan`` and ``explain`` read: pools from files, picks from what ``select`` wrote."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.blocks import LocalShards, Progress
from labelwise.errors import BadInput
from labelwise.kernels.leverage import rank_tolerance
from labelwise.rows import Rows
from labelwise.running.shards import open_shards, open_sources
from labelwise.running.sources import ParquetSource
from labelwise.running.texts import read_ids
from labelwise.selection import Selection


def open_pool(
    files: dict[str, list[Path] | None],
    *,
    ids: Path | None = None,
    labelled: Path | None = None,
    progress: Progress | None = None,
) -> tuple[LocalShards, Rows | None, float | None]:
    """Blocks of the candidates, rows of the labelled items, and the rank tolerance.

    Several files of one name are several models'. The tolerance is None unless the features are
    stored in half precision, whose rounding would otherwise count as directions.
    """
    given = {name: v[0] if len(v) == 1 else v for name, v in files.items() if v}
    sources = open_sources(given)
    features = sources["features"]
    parts = features if isinstance(features, list) else [features]
    coarsest = max(source.precision for source in parts)
    shards, rows = open_shards(
        sources,
        ids=ids and read_ids(ids),
        labelled=labelled and read_ids(labelled),
        progress=progress,
    )
    return shards, rows, None if coarsest < 1e-5 else rank_tolerance(coarsest, 1, 1)


def named(texts: Sequence[str], name: str = "features") -> list[Path]:
    """Files by their names; the empty one, which would be this folder, is refused."""
    if not all(texts):
        raise BadInput(f"{name}: '' is no file; give its name")
    return [Path(text) for text in texts]


def read_picks(path: Path) -> Selection:
    """The ids and weights of a .csv, .jsonl or .parquet file that ``select`` wrote."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read picks from")
    readers = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
    if path.suffix not in readers:
        raise BadInput(f"cannot read picks from {path.name!r}; give .csv, .jsonl or .parquet")
    ids, weights = readers[path.suffix](path)
    if not ids:
        raise BadInput(f"{path} holds no picks")
    given = [weight is not None for weight in weights]
    if any(given) and not all(given):
        raise BadInput(f"{path} has a weight for some picks only; give all or none")
    numbers = np.asarray(weights, dtype=np.float64) if all(given) else None
    return Selection(np.asarray(ids, dtype=np.int64), numbers)


Columns = tuple[list[int], list[float | None]]


def _csv(path: Path) -> Columns:
    ids = read_ids(path)
    with path.open(newline="", encoding="utf-8") as file:
        texts = [row.get("weight") for row in csv.DictReader(file)]
    try:
        return ids, [float(text) if text else None for text in texts]
    except ValueError as error:
        raise BadInput(f"a weight in {path} is no number ({error})") from None


def _jsonl(path: Path) -> Columns:
    ids: list[int] = []
    weights: list[float | None] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text in UTF-8; give what labelwise select wrote") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            ids.append(int(entry["id"]))
            weight = entry.get("weight")
            weights.append(None if weight is None else float(weight))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"line {number} of {path} is no pick ({error})") from None
    return ids, weights


def _parquet(path: Path) -> Columns:
    source = ParquetSource(path)
    if source.ids is None:
        raise BadInput(f"{path} has no column called id")
    ids = [int(value) for value in source.ids]
    if "weight" not in source.columns or not ids:
        return ids, [None] * len(ids)
    values = source.read(0, len(ids))[:, source.columns.index("weight")].astype(np.float64)
    return ids, [None if np.isnan(value) else float(value) for value in values]


def load_array(path: Path | None, name: str) -> Any:
    """A small .npy file as a whole, or None."""
    if path is None:
        return None
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read {name} from")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadInput(f"{name}: {path} is not a readable .npy file ({error})") from error
