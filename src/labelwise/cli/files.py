"""Files that commands read and write: ids, picks, representations, options, and checks of both."""

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote, urlsplit

import typer

from labelwise.errors import BadInput
from labelwise.files import ARRAY_ERRORS, JsonObject, check_output_path
from labelwise.pool.sources.parquet import import_pyarrow

if TYPE_CHECKING:
    from labelwise.arrays import HostArray
    from labelwise.pool.blocks import LocalShards, Progress
    from labelwise.pool.ids import FileKeys
    from labelwise.pool.rows import Rows
    from labelwise.selection.result import Selection
    from labelwise.strategy import Strategy

GivenFiles = Mapping[str, str | list[str]]

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: _TRUTH[text.lower()],
    str: str,
}


def check_output_file(
    path: Path, formats: Sequence[str] = (), *, make_folder: bool = False
) -> None:
    """Refuse a file that cannot be written, before any work is done.

    ``formats`` are the endings that it may have. With ``make_folder``, the command will create a
    missing folder.
    """
    if make_folder and not path.parent.exists():
        return
    check_output_path(path, formats)
    if path.suffix == ".parquet":
        import_pyarrow("writing .parquet")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInput(
            f"cannot write to the folder {path.parent} ({error.strerror}); give another --out"
        ) from None


def check_output_folder(path: Path) -> None:
    """Refuse a file where a folder is needed."""
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file; give a folder")


def collect_given_files(**files: Sequence[str] | None) -> dict[str, str | list[str]]:
    """Collect the given files by representation; several files are those of several models.

    Example:
        >>> collect_given_files(features=["f.npy"], logits=None, duals=["d.npy", "e.npy"])
        {'features': 'f.npy', 'duals': ['d.npy', 'e.npy']}
    """
    for name, paths in files.items():
        if paths and not all(paths):
            raise BadInput(f"{name}: '' is not a file; give its name")
    return {name: v[0] if len(v) == 1 else list(v) for name, v in files.items() if v}


def check_input_files(out: Path | None, given: GivenFiles, *others: Path | None) -> None:
    """Refuse missing files of a pool, and an output that would overwrite an input."""
    from labelwise.pool.sources.file_patterns import KINDS, find_row_files

    places = list(_find_local_files(given))
    read = [part for name, path in places for part in find_row_files(path, name)]
    if out is None:
        return
    for file in [*read, *(path for path in others if path is not None)]:
        if out.exists() and file.exists() and out.samefile(file):
            raise BadInput(f"--out {out} would overwrite {file}, which is read; give another name")
    for _, path in places:
        if path.is_dir() and out.suffix in KINDS and out.parent.samefile(path):
            raise BadInput(f"--out {out} would become a part of the pool; give another folder")


def _find_local_files(given: GivenFiles) -> Iterator[tuple[str, Path]]:
    for name, value in given.items():
        for text in [value] if isinstance(value, str) else value:
            if text.startswith("file://"):
                yield name, Path(unquote(urlsplit(text).path))
            elif "://" not in text:
                yield name, Path(text)


def open_pool_files(
    given: GivenFiles,
    *,
    ids: Path | None = None,
    labelled: Path | None = None,
    id_column: str | None = None,
    progress: "Progress | None" = None,
) -> "tuple[LocalShards, Rows | None, float | None, list[Any] | None]":
    """Open the candidates as blocks, the rows of labelled items, the rank tolerance, and the keys.

    The keys are None if the ids are whole numbers.

    The tolerance is None unless the features are stored in half precision, whose rounding errors
    would otherwise count as directions.
    """
    from labelwise.kernels.linear.leverage import rank_tolerance
    from labelwise.pool.blocks import open_shards
    from labelwise.pool.ids import IdIndex, encode_labelled
    from labelwise.pool.pool import Pool

    paths: JsonObject = dict(given)
    keys = None if ids is None else read_ids_file(ids, id_column)
    pool = Pool(ids=keys, id_column=id_column or "id", **paths)
    sources = pool.open_sources()
    features = sources["features"]
    parts = features if isinstance(features, list) else [features]
    coarsest = max(source.precision for source in parts)
    known, own = pool.resolve_ids(sources)
    index = IdIndex(known)
    taken = None if labelled is None else read_ids_file(labelled, id_column).match(own)
    shards, rows = open_shards(
        sources, ids=index, labelled=encode_labelled(taken, index.ids)[0], progress=progress
    )
    return shards, rows, None if coarsest < 1e-5 else rank_tolerance(coarsest, 1, 1), own


def load_array_file(path: Path | None, name: str) -> "HostArray | None":
    """Load a small .npy file, or return None without a path."""
    import numpy as np

    if path is None:
        return None
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read {name} from")
    try:
        array: HostArray = np.load(path, allow_pickle=False)
        return array
    except ARRAY_ERRORS as error:
        raise BadInput(f"{name}: {path} is not a readable .npy file ({error})") from error


def read_picks_file(path: Path) -> "Selection":
    """Read ids and weights from a file that ``labelwise select`` wrote."""
    import numpy as np

    from labelwise.pool.ids import encode_keys
    from labelwise.selection.result import FORMATS, Selection

    if not path.is_file():
        raise BadInput(f"there is no file {path} to read picks from")
    if path.suffix not in FORMATS:
        raise BadInput(f"cannot read picks from {path.name!r}; give .csv, .jsonl or .parquet")
    rows = _read_id_rows(path)
    ids, keys = encode_keys(_parse_id_keys(rows, path), "picks")
    weights = [_parse_pick_weight(row.get("weight"), path) for row in rows]
    if not weights:
        raise BadInput(f"{path} has no picks")
    given = [weight is not None for weight in weights]
    if any(given) and not all(given):
        raise BadInput(f"{path} has a weight for some picks only; give all or none")
    numbers = np.asarray(weights, dtype=np.float64) if all(given) else None
    return Selection(ids, numbers, keys=keys)


def match_picks(picks: "Selection", keys: list[Any] | None) -> "Selection":
    """Picks read from a file, with the keys of the pool that the file writes as texts."""
    from labelwise.pool.ids import FileKeys, encode_keys

    if keys is None:
        return picks
    found = FileKeys(picks.columns()["id"]).match(keys)
    return replace(picks, ids=encode_keys(found, "picks")[0], keys=found)


def read_ids_file(path: Path, column: str | None = None) -> "FileKeys":
    """Read ids from a text file with one per line, or from a table with a column ``id``.

    ``column`` names another column; a table without it may have ``id``, as files of picks do.

    They are whole numbers if the first one is and none has leading zeros; otherwise texts, or
    values of other types as a Parquet file has them.
    """
    return _parse_id_keys(_read_id_rows(path, column), path)


def _read_id_rows(path: Path, column: str | None = None) -> list[Mapping[str, Any]]:
    from labelwise.media.tables import TABLES, iterate_rows, read_table

    if not path.is_file():
        raise BadInput(f"there is no file {path} to read ids from")
    if path.suffix in TABLES:
        table = read_table(path)
        name = column if column is not None and column in table else "id"
        if name not in table:
            wanted = "id" if column is None else f"{column} or id"
            raise BadInput(f"{path} has no column called {wanted}; it has {', '.join(table)}")
        if name != "id":
            table = {"id": table[name]}
        return list(iterate_rows(table))
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # accepts a byte order mark
    except UnicodeDecodeError:
        raise BadInput(
            f"{path} is not UTF-8 text; give one id per line, or a .csv with a column id"
        ) from None
    return [{"id": line} for line in lines if line.strip()]


def _parse_id_keys(rows: Sequence[Mapping[str, Any]], path: Path) -> "FileKeys":
    from labelwise.pool.ids import FileKeys

    texts = [str(row["id"]).strip() for row in rows]
    padded = any(re.fullmatch(r"[+-]?0\d+", text) for text in texts)
    numbers = bool(texts) and not padded and re.fullmatch(r"[+-]?\d+", texts[0]) is not None
    pattern, words = (r"[+-]?\d+", "a whole number") if numbers else (r"(?s:.+)", "a text")
    keys = FileKeys()
    for number, (row, text) in enumerate(zip(rows, texts, strict=True), 1):
        value = row["id"]
        scalar = value is not None and not isinstance(value, bool | list | dict)
        if not scalar or not re.fullmatch(pattern, text):
            raise BadInput(f"id {number} in {path} must be {words}; got {text!r}")
        keys.append(int(text) if numbers else text if isinstance(value, str | int) else value)
    return keys


def _parse_pick_weight(value: Any, path: Path) -> float | None:
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a weight in {path} is not a number ({error})") from None


def split_option_texts(texts: Sequence[str]) -> dict[str, str]:
    """Split ``name=value`` texts at the first equals sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--option is written name=value; got {text!r}")
        if name in found:
            raise typer.BadParameter(f"--option {name} is given more than once; give it once")
        found[name] = value
    return found


def parse_strategy_options(strategy: "Strategy", texts: Mapping[str, str]) -> JsonObject:
    """Parse the options of a strategy by the types they are declared with."""
    known = strategy.options
    for name, text in texts.items():
        if name not in known:
            strategy.with_options(**{name: text})  # raises an error that lists the options
    return {name: _parse_strategy_option(strategy, name, text) for name, text in texts.items()}


def _parse_strategy_option(strategy: "Strategy", name: str, text: str) -> Any:
    types = _find_strategy_option_types(strategy, name)
    if type(None) in types and text.lower() == "none":
        return None
    for kind in types:
        try:
            if kind in _PARSERS:
                return _PARSERS[kind](text)
        except (ValueError, KeyError):
            continue
    wanted = " or ".join(_TYPE_NAMES[kind] for kind in types if kind in _TYPE_NAMES)
    if not wanted:
        raise BadInput(f"option {name} of {strategy.name} cannot be given as text; use Python")
    none = ", or none" if type(None) in types else ""
    raise BadInput(f"option {name} of {strategy.name} takes {wanted}{none}; got {text!r}")


def _find_strategy_option_types(strategy: "Strategy", name: str) -> list[Any]:
    """Find the declared types of an option, else the type of its default; ``str`` comes last."""
    parameter = inspect.signature(strategy.main).parameters[name]
    declared = parameter.annotation
    if declared is parameter.empty:
        return [type(parameter.default)]
    types = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return sorted(types, key=lambda kind: kind is str)
