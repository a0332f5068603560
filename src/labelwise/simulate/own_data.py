"""Read a user's labelled data: images in folders, tables of numbers or texts, feature files.

==========================  =======================================================================
source                      inputs and labels
==========================  =======================================================================
a folder                    ``DIR/class/image.png``; the folders are the classes; or images and a
                            table of labels with the columns id (path or file name) and label
.csv, .tsv, .jsonl,         one row per item; a column of labels, and text columns or numeric ones
.parquet                    (in .jsonl and .parquet a column may hold lists of numbers)
.npz                        arrays ``inputs`` or ``features``, and ``labels`` or ``targets``
.npy                        one row per item; the labels are another .npy file
==========================  =======================================================================

Nothing is repaired: missing numbers or labels are rejected with their column and count.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, as_text_array
from labelwise.errors import BadInput
from labelwise.media.folders import find_images
from labelwise.media.table_columns import TableColumns
from labelwise.media.tables import (
    ARRAYS,
    TABLES,
    are_texts,
    choose_columns,
    find_input_array,
    is_missing,
    join_texts,
    load_arrays,
    parse_number,
    read_table,
)

MANY_VALUES = 20  # Fractional labels with more distinct values than this are amounts, not classes
FEWEST = 30  # Smallest number of items of a simulation
Labels = Sequence[object] | Arrays  # Labels of any kind, one per item
LabelledArrays = tuple[Arrays, Labels, list[str]]
"""Inputs, labels, and notes on how they were found."""

_PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
_LABELS = ("labels", "targets", "label", "target", "y", "Y")


@dataclass(frozen=True, eq=False)
class OwnData:
    """Labelled items, checked."""

    name: str
    kind: str  # ``"images"``, ``"texts"`` or ``"numbers"``
    # ``(n,)`` texts or paths of images as objects, images ``(n, channels, height, width)``, or
    # ``(n, d)`` float64
    inputs: Arrays
    targets: Arrays  # ``(n,)`` int64 classes from 0, or ``(n, 1)`` float32 values
    classes: tuple[str, ...] | None  # names in the order of their numbers; None for a regression
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def digest(self) -> str:
        """A checksum of inputs and labels; of images in a folder, the paths count."""
        parts = hashlib.sha256(self.targets.tobytes())
        objects = self.inputs.dtype == object
        parts.update(repr(self.inputs.tolist()).encode() if objects else self.inputs.tobytes())
        parts.update(repr((self.inputs.shape, self.classes)).encode())
        return parts.hexdigest()


def read_own_data(
    path: str | Path,
    *,
    labels: str | None = None,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
    regression: bool | None = None,
    drop_unlabelled: bool = False,
) -> OwnData:
    r"""Read labelled data from a folder or file.

    ``labels`` is the column of the labels, the array of a .npz file, or the file for a .npy file or
    a folder, whose folders are the classes if it is None. ``text`` columns are joined; ``columns``
    are the numeric ones to use, all if empty. None decides by the labels whether they are amounts.

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
        return _read_own_images(path, labels, regression, drop_unlabelled)
    if not path.is_file():
        raise BadInput(f"there is no file or folder {path}")
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        inputs, targets, notes = (_read_own_npy if suffix == ".npy" else _read_own_npz)(
            path, labels
        )
    elif suffix in TABLES:
        inputs, targets, notes = _read_own_table(path, labels, text, columns, without)
    else:
        known = ", ".join((*TABLES, *ARRAYS))
        raise BadInput(f"{path} is not a folder or a known file type; give one of {known}")
    if drop_unlabelled:
        inputs, targets, dropped = _drop_unlabelled_rows(inputs, targets)
        notes = [*notes, f"left out {dropped} rows without a label"] if dropped else notes
    return check_own_data(inputs, targets, name=path.name, regression=regression, notes=notes)


def check_own_data(
    inputs: Any,
    targets: Any,
    *,
    name: str = "data",
    regression: bool | None = None,
    notes: Sequence[str] = (),
) -> OwnData:
    """Check labelled items in memory.

    ``inputs`` are ``(n, d)`` numbers, images ``(n, height, width)``, ``(n, channels, height,
    width)`` or ``(n, height, width, channels)``, or n texts; ``targets`` ``(n,)`` are any labels,
    amounts if ``regression``.
    """
    kind, rows = _check_own_inputs(name, inputs)
    return _check_own_labels(name, kind, rows, targets, regression, notes)


def _check_own_labels(
    name: str,
    kind: str,
    rows: Arrays,
    targets: Any,
    regression: bool | None,
    notes: Sequence[str] = (),
) -> OwnData:
    values = _list_own_labels(name, targets)
    if len(values) != len(rows):
        raise BadInput(f"{name} has {len(rows)} items but {len(values)} labels; give one each")
    missing = sum(map(is_missing, values))
    if missing:
        raise BadInput(
            f"{missing} of {len(values)} rows of {name} have no label; leave them out "
            "(--drop-unlabelled)"
        )
    if len(rows) < FEWEST:
        raise BadInput(f"{name} has {len(rows)} items; a simulation needs {FEWEST} or more")
    amounts = _parse_own_amounts(name, values, regression)
    if amounts is not None:
        return OwnData(name, kind, rows, amounts[:, None].astype(np.float32), None, tuple(notes))
    classes, numbers = _number_own_classes(name, values)
    return OwnData(name, kind, rows, numbers, classes, tuple(notes))


def _check_own_inputs(name: str, inputs: Any) -> tuple[str, Arrays]:
    if not isinstance(inputs, np.ndarray):
        inputs = as_text_array(list(inputs)) if are_texts(inputs) else np.asarray(inputs)
    if inputs.dtype.kind in "OUS":
        if inputs.ndim != 1 or not are_texts(inputs):
            raise BadInput(f"{name} has inputs that are neither numbers nor texts")
        return "texts", as_text_array([str(text) for text in inputs])
    if inputs.dtype.kind not in "biuf":
        raise BadInput(f"{name} has inputs of type {inputs.dtype}; give numbers or texts")
    if inputs.ndim not in (2, 3, 4) or not inputs.size:
        raise BadInput(
            f"{name} has inputs of shape {inputs.shape}; give (n, d), or images "
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


def _list_own_labels(name: str, targets: Any) -> list[object]:
    if isinstance(targets, list):
        return list(targets)
    values = np.asarray(targets)
    if values.ndim != 1 and values.shape[1:] != (1,):
        raise BadInput(f"{name} has labels of shape {values.shape}; give one per item, (n,)")
    return list(values.reshape(len(values)).tolist())


def _parse_own_amounts(name: str, values: Sequence[object], wanted: bool | None) -> Arrays | None:
    """The labels as numbers if they are amounts; None if they are classes."""
    if wanted is False:
        return None
    numbers = [parse_number(value) for value in values]
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


def _number_own_classes(name: str, values: Sequence[object]) -> tuple[tuple[str, ...], Arrays]:
    numeric = all(parse_number(value) is not None for value in values)
    key: Any = (lambda label: (parse_number(label), label)) if numeric else None
    names = [str(value).strip() for value in values]
    order = sorted(set(names), key=key)
    if len(order) < 2:
        raise BadInput(f"all {len(names)} items of {name} have the label {order[0]!r}; give two")
    if 2 * len(order) > len(names):
        hint = "if they are amounts, say so (--regression)" if numeric else "are they classes?"
        raise BadInput(f"{name} has {len(order)} labels for {len(names)} items; {hint}")
    where = {label: number for number, label in enumerate(order)}
    return tuple(order), np.array([where[label] for label in names], dtype=np.int64)


def _drop_unlabelled_rows(inputs: Arrays, targets: Labels) -> tuple[Arrays, Labels, int]:
    values = _list_own_labels("data", targets)
    keep = [place for place, value in enumerate(values) if not is_missing(value)]
    if len(keep) == len(values) or len(values) != len(inputs):
        return inputs, targets, 0
    return inputs[np.array(keep, dtype=np.intp)], [values[k] for k in keep], len(values) - len(keep)


def _read_own_images(
    path: Path, labels: str | None, regression: bool | None, drop_unlabelled: bool
) -> OwnData:
    """Images with the labels in a table, or with their folders as classes."""
    name, notes = path.resolve().name, []
    if labels is None:
        files, found = _find_class_folders(path)
        regression = False
    else:
        images = find_images(path)
        found = _match_labels_to_images(path, images.paths, Path(labels))
        kept = [place for place, label in enumerate(found) if not drop_unlabelled or label != ""]
        if len(kept) < len(found):
            notes = [f"left out {len(found) - len(kept)} images without a label"]
        files = [str(path / images.paths[place]) for place in kept]
        found = [found[place] for place in kept]
    return _check_own_labels(name, "images", as_text_array(files), found, regression, notes)


def _match_labels_to_images(folder: Path, paths: Sequence[str], file: Path) -> list[str]:
    """The label of each image, empty if it has none, from a table that names paths or files."""
    if not file.is_file():
        raise BadInput(f"{folder} is a folder; --labels is then a table, but there is no {file}")
    table = read_table(file)
    key = "id" if "id" in table else "file"
    if key not in table or "label" not in table:
        raise BadInput(
            f"{file} needs the columns id (or file) and label; it has {', '.join(table)}"
        )
    by_name: dict[str, list[int]] = {}
    for place, image in enumerate(paths):
        for known in {image, PurePosixPath(image).name}:
            by_name.setdefault(known, []).append(place)
    found = [""] * len(paths)
    for item, label in zip(table[key], table["label"], strict=True):
        if is_missing(label):
            continue
        places = by_name.get(str(item), [])
        exact = [place for place in places if paths[place] == str(item)] or places
        if len(exact) != 1:
            count = "several images" if exact else "no image"
            raise BadInput(f"{file} names {item!r}, and {folder} has {count} of that name")
        (place,) = exact
        if found[place] not in ("", str(label)):
            raise BadInput(f"{file} has two labels for {item!r}: {found[place]!r} and {label!r}")
        found[place] = str(label)
    return found


def _find_class_folders(path: Path) -> tuple[list[str], list[str]]:
    """Paths of images, and the folder of each."""
    found = [image for image in find_images(path).paths if "/" in image]
    names = [image.partition("/")[0] for image in found]
    if not found:
        raise BadInput(f"{path} has no images in folders; put them as {path}/class/image.png")
    if set(map(str.lower, names)) <= _PARTS:
        parts = ", ".join(dict.fromkeys(names))
        raise BadInput(f"the folders of {path} are {parts}, not classes; give one of them")
    return [str(path / image) for image in found], names


def _read_own_npy(path: Path, labels: str | None) -> LabelledArrays:
    if labels is None:
        raise BadInput(f"{path} holds no labels; name their file with --labels y.npy")
    if not Path(labels).is_file():
        raise BadInput(f"there is no file {labels}; the labels of a .npy file are another one")
    inputs, targets = load_arrays(path), load_arrays(Path(labels))
    assert not isinstance(inputs, dict) and not isinstance(targets, dict)  # one array per file
    return inputs, targets, []


def _read_own_npz(path: Path, labels: str | None) -> LabelledArrays:
    arrays = load_arrays(path)
    assert isinstance(arrays, dict)
    wanted = (labels,) if labels is not None else _LABELS
    target = next((name for name in wanted if name in arrays), None)
    if target is None:
        what = f"no array {labels!r}" if labels else f"none of the arrays {', '.join(_LABELS)}"
        raise BadInput(f"{path} has {what}; it has {', '.join(arrays)}: name one with --labels")
    chosen = find_input_array(path, arrays, but=target)
    return arrays[chosen], arrays[target], [f"inputs {chosen}, labels {target}"]


def _read_own_table(
    path: Path,
    labels: str | None,
    text: Sequence[str],
    columns: Sequence[str],
    without: Sequence[str],
) -> LabelledArrays:
    """Inputs and labels from columns, and notes."""
    table = read_table(path)
    if labels is None:
        raise BadInput(
            f"name the column of the labels with --labels; {path} has {', '.join(table)}"
        )
    if labels in (*text, *columns):
        raise BadInput(f"{labels!r} is the column of the labels; it cannot be an input too")
    chosen = choose_columns(path, table, text=text, columns=columns, without=[*without, labels])
    values, notes = list(table[labels]), list(chosen.notes)
    if chosen.text:
        return as_text_array(join_texts(table, chosen.text)), values, notes
    plan = TableColumns.plan(path, table, chosen.columns, chosen.categorical)
    return plan.convert(path, table, chosen.columns), values, [*notes, *plan.describe()]
