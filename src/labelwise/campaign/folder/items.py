"""The items of a campaign under ids that never change, and what people see of them.

Items are listed in ``items.jsonl``, one line each, in the order of their ids: the id is the number
of the line. The list only ever grows. A file that was taken out of the folder keeps its id, and no
other file gets it.
"""

import json
import mmap
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.embedding import Standardizer

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
        self.kind, self.source, self._home = kind, source, home
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
            hint = "" if folder.is_dir() else f"; {moved(self.source, self._home)}"
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


def moved(source: Path, home: Path) -> str:
    """What to do about a source that is not where it was, in words."""
    return (
        f"{source} is not there any more; if it was moved, say where to: "
        f"labelwise start NEW_PLACE --moved --out {shlex.quote(str(home))}"
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
        self._scale = Standardizer.load(self._home / "embedding.npz")
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
