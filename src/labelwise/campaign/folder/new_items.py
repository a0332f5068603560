"""What a source has that a campaign does not have yet: new pictures of a folder, rows of a table.

A picture is known by its path, a row by its text or its numbers.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from labelwise.errors import BadInput
from labelwise.media.images import IMAGE_SUFFIXES
from labelwise.media.tables import (
    ChosenColumns,
    Columns,
    abbreviate_names,
    choose_columns,
    convert_numeric_column,
    iterate_rows,
    join_texts,
    read_table,
)


@dataclass(frozen=True)
class Found:
    """The pictures in a folder.

    Attributes:
        paths: relative to it, with / between folders, in alphabetical order.
        refused: links that lead out of it, with what is wrong.
        others: how many files are no pictures, by their ending.
    """

    paths: Sequence[str]
    refused: Mapping[str, str]
    others: Mapping[str, int]


def find_pictures(folder: Path) -> Found:
    """Look for pictures in a folder and all folders in it.

    Hidden files, and the folders of campaigns, are passed over; links to folders are not followed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b.png", "a.JPG", "notes.txt", ".hidden.png"):
        ...     _ = (folder / name).write_bytes(b"")
        >>> found = find_pictures(folder)
        >>> found.paths, found.others
        (['a.JPG', 'b.png'], {'.txt': 1})
    """
    real = folder.resolve()
    paths: list[str] = []
    refused: dict[str, str] = {}
    others: dict[str, int] = {}
    for place, folders, files in os.walk(real):
        here = Path(place)
        for name in sorted(folders):
            if (here / name).is_symlink() and not (here / name).resolve().is_relative_to(real):
                refused[_relative(here / name, real)] = "a link that leads out of the folder"
        folders[:] = [n for n in folders if not n.startswith(".") and not n.endswith(".labelwise")]
        for name in files:
            file = here / name
            if name.startswith("."):
                continue
            if file.suffix.lower() not in IMAGE_SUFFIXES:
                ending = file.suffix.lower() or "no ending"
                others[ending] = others.get(ending, 0) + 1
            elif file.is_symlink() and not file.resolve().is_relative_to(real):
                refused[_relative(file, real)] = "a link that leads out of the folder"
            else:
                paths.append(_relative(file, real))
    return Found(sorted(paths), refused, others)


def _relative(path: Path, folder: Path) -> str:
    return str(PurePosixPath(*path.relative_to(folder).parts))


@dataclass(frozen=True)
class Arrivals:
    """What a source has that a campaign does not have yet.

    Attributes:
        kind: ``"images"``, ``"texts"`` or ``"numbers"``.
        entries: of the new items, for the list; None where they need no list.
        values: of the new items: paths, texts, or an array ``(n, d)``.
        gone: ids of items that the source had before.
        broken: what is wrong with items that cannot be used.
        notes: what was found and decided, in sentences.
    """

    kind: str
    entries: Sequence[Mapping[str, Any]] | None
    values: Any
    gone: Sequence[int]
    broken: Mapping[str, str]
    notes: Sequence[str]


def new_pictures(folder: Path, known: Iterable[Mapping[str, Any]]) -> Arrivals:
    """Pictures that are not among the known entries, by their paths."""
    found = find_pictures(folder)
    before = {str(entry["path"]): item for item, entry in enumerate(known)}
    there = set(found.paths)
    new = [path for path in found.paths if path not in before]
    if not there and not before:
        some = f"; it has {_counts(found.others)}" if found.others else ""
        broken = f"; {len(found.refused)} links lead out of it" if found.refused else ""
        raise BadInput(f"{folder} has no pictures{some}{broken}")
    gone = [item for path, item in before.items() if path not in there]
    folders = len({path.rpartition("/")[0] for path in new})
    notes = [f"{len(new):,} pictures" + (f" in {folders:,} folders" if folders > 1 else "")]
    if found.others:
        notes.append(f"left out, no pictures: {_counts(found.others)}")
    return Arrivals("images", [{"path": path} for path in new], new, gone, found.refused, notes)


def new_rows(
    path: Path,
    known: Iterable[Mapping[str, Any]],
    *,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
) -> tuple[Arrivals, ChosenColumns]:
    """Rows of a table that are not among the known entries, and the columns that make an item.

    A row is known by its text, or by its numbers, so that other columns may change or be added;
    the same row twice is two items.
    """
    table = read_table(path)
    chosen = choose_columns(path, table, text=text, columns=columns, without=without)
    if chosen.numeric and not columns:
        _check_no_prose(path, table, chosen, without)
    values: Any
    if chosen.text:
        values = join_texts(table, chosen.text)
        entries: list[Mapping[str, Any]] = [{"text": text} for text in values]
    else:
        numbers = [convert_numeric_column(path, name, table[name]) for name in chosen.numeric]
        values = np.concatenate(numbers, axis=1)
        entries = [{"row": _plain(row)} for row in iterate_rows(table)]
    before: dict[bytes, list[int]] = {}
    for item, entry in enumerate(known):
        before.setdefault(_key(entry, chosen), []).append(item)
    for items in before.values():
        items.reverse()
    new = []
    for place, entry in enumerate(entries):
        same = before.get(_key(entry, chosen))
        if same:
            same.pop()
        else:
            new.append(place)
    gone = sorted(item for items in before.values() for item in items)
    broken = {f"row {place + 1}": _wrong(entries[place], values[place]) for place in new}
    broken = {name: reason for name, reason in broken.items() if reason}
    usable = [place for place in new if f"row {place + 1}" not in broken]
    kept = [entries[place] for place in usable]
    some = [values[place] for place in usable] if chosen.text else values[usable]
    kind = "texts" if chosen.text else "numbers"
    notes = [f"{len(new):,} {'texts' if chosen.text else 'rows'}", *chosen.notes]
    return Arrivals(kind, kept, some, gone, broken, notes), chosen


def _check_no_prose(
    path: Path, table: Columns, chosen: ChosenColumns, without: Sequence[str]
) -> None:
    """Refuse to take the numbers beside texts for the items, as an id and a date of reviews."""
    others = [name for name in table if name not in chosen.numeric and name not in without]
    prose = [name for name in others if _is_prose(table[name])]
    if prose:
        raise BadInput(
            f"{path} has texts ({abbreviate_names(prose)}) and numbers "
            f"({abbreviate_names(chosen.numeric)}); "
            f"say which are to be labelled: --text {prose[0]} or --columns "
            f"{','.join(chosen.numeric[:12])}"
        )


def _is_prose(values: Sequence[Any]) -> bool:
    """Whether a column reads like sentences: five words or more as a rule, mostly different."""
    texts = [value for value in values if isinstance(value, str)]
    words = sum(len(text.split()) for text in texts)
    return words >= 5 * len(values) and len(set(texts)) > len(values) / 2


def _wrong(entry: Mapping[str, Any], value: Any) -> str:
    """What is wrong with a row; nothing as a rule."""
    if "text" in entry:
        return _wrong_text(entry["text"])
    return "" if np.isfinite(value).all() else "an infinite number"


def _wrong_text(text: str) -> str:
    if not text:
        return "an empty text"
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can write it, and nothing else can
        return "half a character, which is no text"
    return ""


def _key(entry: Mapping[str, Any], chosen: ChosenColumns) -> bytes:
    """What an item of a table is known by."""
    known = entry["text"] if chosen.text else [entry["row"].get(name) for name in chosen.numeric]
    return hashlib.sha256(json.dumps(known).encode()).digest()


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON holds it: dates and the like become texts, NaN and infinity nothing."""
    whole = json.dumps(row, default=str).encode()
    plain: dict[str, Any] = json.loads(whole, parse_constant=lambda _: None)
    return {name: _whole_text(value) for name, value in plain.items()}


def _whole_text(value: Any) -> Any:
    """A text without half characters, which could not be sent; all else as it is."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _counts(others: Mapping[str, int]) -> str:
    most = sorted(others.items(), key=lambda entry: (-entry[1], entry[0]))
    words = [f"{count:,} {ending}" for ending, count in most[:5]]
    return ", ".join(words) + (", ..." if len(most) > 5 else "")
