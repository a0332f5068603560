"""What ``plan`` and ``explain`` read: pools from files, picks from what ``select`` wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.cli.option_values import item_id, read_entries, read_ids
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import rank_tolerance
from labelwise.pool.blocks import LocalShards, Progress
from labelwise.pool.representations import open_sources
from labelwise.pool.rows import Rows
from labelwise.pool.shards import open_shards
from labelwise.selection.result import FORMATS, Selection


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
    if path.suffix not in FORMATS:
        raise BadInput(f"cannot read picks from {path.name!r}; give .csv, .jsonl or .parquet")
    ids, weights = [], []
    for number, entry in read_entries(path):
        ids.append(item_id(entry["id"], number, path))
        weights.append(_weight(entry.get("weight"), path))
    if not ids:
        raise BadInput(f"{path} holds no picks")
    given = [weight is not None for weight in weights]
    if any(given) and not all(given):
        raise BadInput(f"{path} has a weight for some picks only; give all or none")
    numbers = np.asarray(weights, dtype=np.float64) if all(given) else None
    return Selection(np.asarray(ids, dtype=np.int64), numbers)


def _weight(value: Any, path: Path) -> float | None:
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a weight in {path} is no number ({error})") from None


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
