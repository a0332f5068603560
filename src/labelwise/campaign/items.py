"""The items of a campaign under ids that never change, and what people see of them.

Items are listed in ``items.jsonl``, one line each, in the order of their ids: the id is the number
of the line. The list only ever grows. A file that was taken out of the folder keeps its id, and no
other file gets it.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.embedding import Scale
from labelwise.learners.pictures import PICTURES
from labelwise.running.tables import (
    Chosen,
    Columns,
    choose_columns,
    joined_texts,
    numeric_column,
    read_table,
    some_names,
    table_rows,
)

MANIFEST = "items.jsonl"
SHOWN = 20
"""So many columns of a feature file are shown to people."""

_BLOCK = 1 << 24


class Items:
    """What a campaign is about; safe for many threads.

    Example:
        >>> import tempfile
        >>> home = Path(tempfile.mkdtemp())
        >>> write_items(home / MANIFEST, [{"text": "a rose"}, {"text": "an oak"}])
        2
        >>> items = Items(home, "texts", home)
        >>> len(items), 1 in items, items.text(1)
        (2, True, 'an oak')
    """

    def __init__(self, home: Path, kind: str, source: Path) -> None:
        """Open the list of items.

        Args:
            home: the campaign's folder.
            kind: ``"images"``, ``"texts"`` or ``"numbers"``.
            source: the folder of the pictures; paths are inside it.
        """
        self.kind, self.source = kind, source
        self._lines: _Lines | _Rows
        listed = home / MANIFEST
        self._lines = _Lines(listed) if listed.exists() else _Rows(home)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, item: object) -> bool:
        whole = isinstance(item, int | np.integer) and not isinstance(item, bool)
        return whole and 0 <= int(item) < len(self)  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    @property
    def ids(self) -> Ids:
        """All ids, ``(n,)``; those of items that are gone too."""
        return np.arange(len(self), dtype=np.int64)

    def entry(self, item: int) -> dict[str, Any]:
        """All that is listed of an item."""
        if item not in self and not (self._lines.reread() and item in self):
            raise UnknownName(f"the campaign has no item {item}; ids are 0 to {len(self) - 1}")
        return self._lines[int(item)]

    def path(self, item: int) -> Path:
        """The file of a picture: a real one, inside the source folder.

        Raises:
            UnknownName: there is no such item, or its file is gone.
            BadInput: the items are no pictures, or the path leads out of the source folder.
        """
        self._check_kind("images", "picture")
        listed = str(self.entry(item)["path"])
        folder = self.source.resolve()
        found = (folder / listed).resolve()
        if not found.is_relative_to(folder):
            raise BadInput(f"the path of item {item} leads out of {self.source}: {listed}")
        if not found.is_file():
            hint = "" if folder.is_dir() else f"; {moved(self.source)}"
            raise UnknownName(f"the file of item {item} is gone: {listed}{hint}")
        return found

    def text(self, item: int) -> str:
        """The text of an item."""
        self._check_kind("texts", "text")
        return str(self.entry(item)["text"])

    def row(self, item: int) -> dict[str, Any]:
        """The columns of an item by name; of a feature file, the first ones."""
        self._check_kind("numbers", "row of numbers")
        return dict(self.entry(item)["row"])

    def describe(self, item: int) -> dict[str, Any]:
        """What a page shows: ``id``, ``kind``, and ``name``, ``text`` or ``columns``."""
        entry = self.entry(item)
        about: dict[str, Any] = {"id": int(item), "kind": self.kind}
        if self.kind == "images":
            # A name that is no valid text, as some disks hold, could not be sent.
            about["name"] = entry["path"].encode("utf-8", "replace").decode()
        elif self.kind == "texts":
            about["text"] = entry["text"]
        else:
            about["columns"] = entry["row"]
        return about

    def _check_kind(self, kind: str, what: str) -> None:
        if self.kind != kind:
            raise BadInput(f"the items of this campaign are {self.kind}; none has a {what}")


def moved(source: Path) -> str:
    """What to do about a source that is not where it was, in words."""
    return (
        f"{source} is not there any more; if it was moved, say where to: "
        "labelwise start NEW_PLACE --moved --out CAMPAIGN_FOLDER"
    )


class _Lines:
    """The lines of a file by number; only those that are asked for are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read()

    def _read(self) -> None:
        with self._path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if not self._size:
                raise BadInput(f"{self._path} is empty; was it written to by something else?")
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        starts = [np.zeros(1, dtype=np.int64)]
        for first in range(0, self._size, _BLOCK):
            block = np.frombuffer(held[first : first + _BLOCK], dtype=np.uint8)
            starts.append(np.flatnonzero(block == ord("\n")) + first + 1)
        self._held, self._starts = held, np.concatenate(starts)

    def reread(self) -> bool:
        """Look whether the list has grown since."""
        if self._path.stat().st_size == self._size:
            return False
        self._read()
        return True

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> dict[str, Any]:
        held, starts = self._held, self._starts
        line: dict[str, Any] = json.loads(held[int(starts[number]) : int(starts[number + 1])])
        if line.pop("id", None) != number:
            raise BadInput(f"line {number + 1} of {self._path} is of another item; was it edited?")
        return line


class _Rows:
    """Rows of a feature file, which needs no list: from the campaign's own copy of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.reread()

    def reread(self) -> bool:
        self._inputs: NDArray[Any] = np.load(self._home / "inputs.npy", mmap_mode="r")
        self._scale = Scale.load(self._home / "embedding.npz")
        return True

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self._scale.back(self._inputs[number][None])[0, :SHOWN]
        return {"row": {str(column): float(f"{value:.6g}") for column, value in enumerate(row)}}


def write_items(path: Path, entries: Iterable[Mapping[str, Any]], *, after: int = 0) -> int:
    """Write items to a list, which appears whole or not at all.

    Args:
        path: of the list.
        entries: what is known of each.
        after: how many items the list has and keeps.

    Returns:
        How many items it has now.
    """
    partial, count = path.with_name(f"{path.name}.partial"), after
    with partial.open("wb") as file:
        if after:
            lines = _Lines(path)
            file.write(lines._held[: int(lines._starts[after])])
        for entry in entries:
            line = json.dumps({"id": count, **entry})
            file.write(line.encode("ascii") + b"\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return count


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
            if file.suffix.lower() not in PICTURES:
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
) -> tuple[Arrivals, Chosen]:
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
        values = joined_texts(table, chosen.text)
        entries: list[Mapping[str, Any]] = [{"text": text} for text in values]
    else:
        numbers = [numeric_column(path, name, table[name]) for name in chosen.numeric]
        values = np.concatenate(numbers, axis=1)
        entries = [{"row": _plain(row)} for row in table_rows(table)]
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


def _check_no_prose(path: Path, table: Columns, chosen: Chosen, without: Sequence[str]) -> None:
    """Refuse to take the numbers beside texts for the items, as an id and a date of reviews."""
    others = [name for name in table if name not in chosen.numeric and name not in without]
    prose = [name for name in others if _is_prose(table[name])]
    if prose:
        raise BadInput(
            f"{path} has texts ({some_names(prose)}) and numbers ({some_names(chosen.numeric)}); "
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


def _key(entry: Mapping[str, Any], chosen: Chosen) -> bytes:
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
