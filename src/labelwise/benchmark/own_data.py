"""A user's own labelled data: pictures in folders, tables of numbers or texts, feature files.

==========================  =======================================================================
what                        inputs and labels
==========================  =======================================================================
a folder                    ``DIR/class/picture.png``; the folders are the classes
.csv, .tsv, .jsonl,         one row per item; a column of labels, and text columns or numeric ones
.parquet                    (in .jsonl and .parquet a column may hold lists of numbers)
.npz                        arrays ``inputs`` or ``features``, and ``labels`` or ``targets``
.npy                        one row per item; the labels are another .npy file
==========================  =======================================================================

Nothing is repaired: a missing number or label is refused, with the column and the count.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, as_texts
from labelwise.benchmark.datasets.images import pictures
from labelwise.errors import BadInput, MissingDependency

SIDE = 32
"""Pictures are scaled to squares of this side, or of their own where all are smaller."""

MANY_VALUES = 20
"""Labels with a fraction and more different values than this are amounts, not classes."""

FEWEST = 30
"""With fewer items a simulation would say nothing."""

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
_PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
_BLANKS = {"na", "n/a", "nan", "null", "none", "?"}
_INPUTS = ("inputs", "features", "x", "X", "images", "data")
_LABELS = ("labels", "targets", "label", "target", "y", "Y")

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False)
class OwnData:
    """Labelled items, checked.

    Attributes:
        name: of the file or folder.
        kind: ``"images"``, ``"texts"`` or ``"numbers"``.
        inputs: ``(n, channels, height, width)``, ``(n,)`` texts as objects, or ``(n, d)`` float64.
        targets: ``(n,)`` int64 classes from 0, or ``(n, 1)`` float32 values.
        classes: their names in the order of their numbers; None for a regression.
        notes: what was decided in reading, in sentences.
    """

    name: str
    kind: str
    inputs: Arrays
    targets: Arrays
    classes: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)


def read_own_data(
    path: str | Path,
    *,
    labels: str | None = None,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
    side: int = SIDE,
    regression: bool | None = None,
    drop_unlabelled: bool = False,
) -> OwnData:
    r"""Read labelled data from a folder or file.

    Args:
        path: a folder with a folder of pictures per class, or a .csv, .tsv, .jsonl, .parquet, .npz
            or .npy file.
        labels: the column of the labels; the array of a .npz file; the file for a .npy file.
        text: the columns of texts, which are put together; none for a table of numbers.
        columns: the numeric columns to use; none for all.
        without: columns to leave out.
        side: of the squares that pictures are scaled to.
        regression: whether labels are amounts; None decides by the labels.
        drop_unlabelled: leave out rows without a label in place of refusing them.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "plants.csv"
        >>> rows = "".join(f"{n},{n % 7},{'rose' if n % 2 else 'oak'}\n" for n in range(40))
        >>> _ = path.write_text("height,age,plant\n" + rows)
        >>> data = read_own_data(path, labels="plant")
        >>> data.kind, data.inputs.shape, data.classes
        ('numbers', (40, 2), ('oak', 'rose'))
    """
    path = Path(path)
    if path.is_dir():
        if labels is not None:
            raise BadInput(
                f"{path} is a folder, whose folders are the labels; leave out labels {labels!r}"
            )
        inputs, names, notes = _folders(path, side)
        return own_data(inputs, names, name=path.resolve().name, regression=False, notes=notes)
    if not path.is_file():
        raise BadInput(f"there is no file or folder {path}")
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        inputs, targets, notes = (_npy if suffix == ".npy" else _npz)(path, labels)
    elif suffix in _READERS:
        table = _READERS[suffix](path)
        inputs, targets, notes = _from_table(path, table, labels, text, columns, without)
    else:
        known = ", ".join((*_READERS, ".npz", ".npy"))
        raise BadInput(f"{path} is no folder, and its kind is unknown; give one of {known}")
    if drop_unlabelled:
        inputs, targets, dropped = _labelled_only(inputs, targets)
        notes = [*notes, f"left out {dropped} rows without a label"] if dropped else notes
    return own_data(inputs, targets, name=path.name, regression=regression, notes=notes)


def own_data(
    inputs: Any,
    targets: Any,
    *,
    name: str = "data",
    regression: bool | None = None,
    notes: Sequence[str] = (),
) -> OwnData:
    """Check labelled items in memory.

    Args:
        inputs: ``(n, d)`` numbers, ``(n, height, width)`` or ``(n, channels, height, width)`` or
            ``(n, height, width, channels)`` pictures, or n texts.
        targets: ``(n,)`` labels of any kind.
        name: for reports.
        regression: whether labels are amounts; None decides by the labels.
        notes: to keep with the data.

    Example:
        >>> data = own_data(np.zeros((60, 3)), ["yes", "no"] * 30)
        >>> data.classes, data.targets[:3].tolist()
        (('no', 'yes'), [1, 0, 1])
    """
    kind, rows = _checked_inputs(name, inputs)
    values = _plain_labels(name, targets)
    if len(values) != len(rows):
        raise BadInput(f"{name} has {len(rows)} items but {len(values)} labels; give one each")
    missing = sum(map(_is_missing, values))
    if missing:
        raise BadInput(
            f"{missing} of {len(values)} rows of {name} have no label; leave them out "
            "(--drop-unlabelled)"
        )
    if len(rows) < FEWEST:
        raise BadInput(f"{name} has {len(rows)} items; a simulation needs {FEWEST} or more")
    amounts = _amounts(name, values, regression)
    if amounts is not None:
        return OwnData(name, kind, rows, amounts[:, None].astype(np.float32), None, tuple(notes))
    classes, numbers = _classes(name, values)
    return OwnData(name, kind, rows, numbers, classes, tuple(notes))


def _checked_inputs(name: str, inputs: Any) -> tuple[str, Arrays]:
    if not isinstance(inputs, np.ndarray):
        inputs = as_texts(list(inputs)) if _are_texts(inputs) else np.asarray(inputs)
    if inputs.dtype.kind in "OUS":
        if inputs.ndim != 1 or not _are_texts(inputs):
            raise BadInput(f"{name} has inputs that are neither numbers nor texts")
        return "texts", as_texts([str(text) for text in inputs])
    if inputs.dtype.kind not in "biuf":
        raise BadInput(f"{name} has inputs of type {inputs.dtype}; give numbers or texts")
    if inputs.ndim not in (2, 3, 4) or not inputs.size:
        raise BadInput(
            f"{name} has inputs of shape {inputs.shape}; give (n, d), or pictures "
            "(n, channels, height, width)"
        )
    bad = ~np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1)
    if bad.any():
        raise BadInput(
            f"{int(bad.sum())} of {len(inputs)} rows of {name} hold NaN or infinite numbers, the "
            f"first of them row {int(bad.argmax())}; fill them in or leave them out"
        )
    if inputs.ndim == 2:
        return "numbers", inputs.astype(np.float64)
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    elif inputs.shape[3] in (1, 3, 4) and inputs.shape[1] not in (1, 3, 4):
        inputs = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    return "images", inputs if inputs.dtype == np.uint8 else inputs.astype(np.float32)


def _are_texts(values: Any) -> bool:
    return len(values) > 0 and all(isinstance(value, str) for value in values)


def _plain_labels(name: str, targets: Any) -> list[Any]:
    values = np.asarray(targets) if not isinstance(targets, list) else None
    if values is not None:
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise BadInput(f"{name} has labels of shape {values.shape}; give one per item, (n,)")
        return list(values.tolist())
    return list(targets)


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return isinstance(value, float) and math.isnan(value)


def _amounts(name: str, values: list[Any], wanted: bool | None) -> Arrays | None:
    """The labels as numbers, if they are amounts; None if they are classes."""
    if wanted is False:
        return None
    numbers = [_number(value) for value in values]
    strange = [v for v, n in zip(values, numbers, strict=True) if n is None or not math.isfinite(n)]
    if strange:
        if wanted:
            raise BadInput(
                f"{name} has the label {strange[0]!r}; a regression needs finite numbers"
            )
        return None
    amounts = np.array(numbers, dtype=np.float64)
    distinct = len(np.unique(amounts))
    fractions = bool((amounts != np.round(amounts)).any())
    if not wanted and not (fractions and distinct > MANY_VALUES):
        return None
    if distinct < 2:
        raise BadInput(f"all labels of {name} are {amounts[0]:g}; there is nothing to learn")
    return amounts


def _classes(name: str, values: list[Any]) -> tuple[tuple[str, ...], Arrays]:
    numeric = all(_number(value) is not None for value in values)
    key: Any = (lambda label: (_number(label), label)) if numeric else None
    names = [str(value).strip() for value in values]
    order = sorted(set(names), key=key)
    if len(order) < 2:
        raise BadInput(f"all {len(names)} items of {name} have the label {order[0]!r}; give two")
    if 2 * len(order) > len(names):
        hint = "if they are amounts, say so (--regression)" if numeric else "are they classes?"
        raise BadInput(f"{name} has {len(order)} labels for {len(names)} items; {hint}")
    where = {label: number for number, label in enumerate(order)}
    return tuple(order), np.array([where[label] for label in names], dtype=np.int64)


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _labelled_only(inputs: Any, targets: Any) -> tuple[Any, Any, int]:
    values = _plain_labels("data", targets)
    keep = [place for place, value in enumerate(values) if not _is_missing(value)]
    if len(keep) == len(values) or len(values) != len(inputs):
        return inputs, targets, 0
    return inputs[np.array(keep, dtype=np.intp)], [values[k] for k in keep], len(values) - len(keep)


def _folders(path: Path, side: int) -> tuple[Arrays, list[str], list[str]]:
    """Pictures, and the folder that each lies in."""
    if side < 4:
        raise BadInput(f"pictures need a side of 4 or more; got {side}")
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingDependency(
            f"reading pictures needs Pillow ({error}); run pip install 'labelwise[demo]'"
        ) from error
    found: list[tuple[Path, str]] = []
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in _PICTURES)
        found += [(file, folder.name) for file in files]
    names = [name for _, name in found]
    if not found:
        raise BadInput(f"{path} has no pictures in folders; put them as {path}/class/picture.png")
    if set(map(str.lower, names)) <= _PARTS:
        parts = ", ".join(dict.fromkeys(names))
        raise BadInput(f"the folders of {path} are {parts}, not classes; give one of them")
    grey, largest = True, 1
    for file, _ in found:
        try:
            with Image.open(file) as picture:
                grey = grey and picture.mode in ("1", "L", "LA")
                largest = max(largest, *picture.size)
        except UnidentifiedImageError as error:
            raise BadInput(f"{file} is no picture; remove or mend it") from error
    side = min(side, largest)
    named = ((str(file), file.read_bytes()) for file, _ in found)
    colours = "grey" if grey else "colour"
    notes = [f"pictures scaled to {side} x {side}, {colours}"]
    return pictures(named, side, "L" if grey else "RGB"), names, notes


def _npy(path: Path, labels: str | None) -> tuple[Any, Any, list[str]]:
    if labels is None:
        raise BadInput(f"{path} holds no labels; name their file with --labels y.npy")
    if not Path(labels).is_file():
        raise BadInput(f"there is no file {labels}; the labels of a .npy file are another one")
    return _load(path), _load(Path(labels)), []


def _npz(path: Path, labels: str | None) -> tuple[Any, Any, list[str]]:
    arrays = _load(path)
    there = list(arrays)
    wanted = (labels,) if labels is not None else _LABELS
    target = next((name for name in wanted if name in there), None)
    if target is None:
        what = f"no array {labels!r}" if labels else f"none of the arrays {', '.join(_LABELS)}"
        raise BadInput(f"{path} has {what}; it has {', '.join(there)}: name one with --labels")
    others = [name for name in there if name != target]
    chosen = next((name for name in _INPUTS if name in others), None)
    if chosen is None and len(others) == 1:
        chosen = others[0]
    if chosen is None:
        raise BadInput(f"{path} has no array called inputs or features; it has {', '.join(there)}")
    return arrays[chosen], arrays[target], [f"inputs {chosen}, labels {target}"]


def _load(path: Path) -> Any:
    """An array, or the arrays of a .npz file by name."""
    try:
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held
        with held:
            return {name: held[name] for name in held.files}
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read as arrays ({error})") from error


def _csv(path: Path) -> Columns:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            by = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
            rows = list(csv.reader(file, delimiter=by))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no table in UTF-8 ({error})") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise BadInput(f"{path} has no rows below a line of column names")
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise BadInput(
                f"row {number} of {path} has {len(row)} fields but there are {len(names)} columns"
            )
    if len(set(names)) < len(names):
        raise BadInput(f"{path} has two columns of the same name: {', '.join(names)}")
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}


def _jsonl(path: Path) -> Columns:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadInput(f"line {number} of {path} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise BadInput(f"line {number} of {path} is not a JSON object")
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency(
            "reading .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise BadInput(f"{path} is no Parquet file ({error})") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}


_READERS = {".csv": _csv, ".tsv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}


def _from_table(
    path: Path,
    table: Columns,
    labels: str | None,
    text: Sequence[str],
    columns: Sequence[str],
    without: Sequence[str],
) -> tuple[Any, list[Any], list[str]]:
    """Inputs and labels from columns, and what was decided."""
    there = ", ".join(table)
    if labels is None:
        raise BadInput(f"name the column of the labels with --labels; {path} has {there}")
    if text and columns:
        raise BadInput("give columns of texts or of numbers, not both")
    for name in (labels, *text, *columns, *without):
        if name not in table:
            raise BadInput(f"{path} has no column {name!r}; it has {there}")
    if labels in (*text, *columns):
        raise BadInput(f"{labels!r} is the column of the labels; it cannot be an input too")
    others = [name for name in table if name != labels and name not in without]
    numeric = list(columns) or [name for name in others if _is_numeric(table[name])]
    if not text and not numeric:
        texts = [name for name in others if _are_texts([v for v in table[name] if v is not None])]
        if len(texts) != 1:
            raise BadInput(f"{path} has no numeric columns; name texts with --text, of {there}")
        text = texts
    values = list(table[labels])
    if text:
        parts = [["" if v is None else str(v) for v in table[name]] for name in text]
        joined = [" ".join(row).strip() for row in zip(*parts, strict=True)]
        return as_texts(joined), values, [f"texts: {', '.join(text)}"]
    left = [name for name in others if name not in numeric]
    notes = [f"numbers: {_some(numeric)}"]
    notes += [f"left out, not numeric: {_some(left)}"] if left and not columns else []
    return np.concatenate([_numeric(path, n, table[n]) for n in numeric], axis=1), values, notes


def _some(names: Sequence[str]) -> str:
    """Names of columns, the first few if they are many."""
    if len(names) <= 12:
        return ", ".join(names)
    return f"{', '.join(names[:6])}, ... and {names[-1]} ({len(names)} columns)"


def _is_blank(value: Any) -> bool:
    """Whether a numeric column has nothing here."""
    return _is_missing(value) or (isinstance(value, str) and value.strip().lower() in _BLANKS)


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if not _is_blank(value)]
    lists = all(isinstance(value, list) for value in known)
    return bool(known) and (lists or all(_number(value) is not None for value in known))


def _numeric(path: Path, name: str, values: Sequence[Any]) -> Arrays:
    """A column, or a column of lists, as ``(n, d)`` numbers."""
    missing = sum(map(_is_blank, values))
    if missing:
        raise BadInput(
            f"column {name!r} of {path} has no number in {missing} of {len(values)} rows; fill "
            f"them in, or leave the column out (--without {name})"
        )
    rows = [value if isinstance(value, list) else [value] for value in values]
    try:
        found = np.array(rows, dtype=np.float64)
    except (ValueError, TypeError):
        found = np.empty(0)
    if found.ndim != 2:
        raise BadInput(f"column {name!r} of {path} holds other things than numbers")
    return found
