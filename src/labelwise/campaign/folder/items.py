"""The items of a campaign, with ids that never change.

``items.jsonl`` lists the items, one per line; the id is the line number. The list only grows: a
removed file keeps its id, and no other file gets it.
"""

import json
import mmap
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from labelwise.arrays import HostArray
from labelwise.campaign.folder.description import EMBEDDING, INPUTS
from labelwise.errors import BadInput, UnknownName
from labelwise.files import Json, JsonObject, load_npy, write_atomically
from labelwise.learners.embedding import Standardizer

MANIFEST = "items.jsonl"
SHOWN_COLUMNS = 20  # Number of columns of a feature file that are shown

_BLOCK = 1 << 24


class CampaignItems:
    """The items of a campaign; safe for many threads.

    Example:
        >>> import tempfile
        >>> home = Path(tempfile.mkdtemp())
        >>> write_items(home / MANIFEST, [{"text": "a rose"}, {"text": "an oak"}])
        2
        >>> items = CampaignItems(home, "texts", home)
        >>> len(items), 1 in items, items.entry(1)["text"]
        (2, True, 'an oak')
    """

    def __init__(self, home: Path, kind: str, source: Path) -> None:
        """Open the list of items."""
        self.kind, self.source, self._home = kind, source, home
        self._lines: _JsonLines | _FeatureRows
        listed = home / MANIFEST
        self._lines = _JsonLines(listed) if listed.exists() else _FeatureRows(home)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, bool) or not isinstance(item, int | np.integer):
            return False
        return 0 <= int(item) < len(self)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def key(self, item: int) -> int | str:
        """The user's id of an item: the value of the id column; its number if there is none."""
        key: int | str = self.entry(item).get("key", item)
        return key

    def find(self, key: object, *, named: bool = False) -> int:
        """The number of an item by the user's id, or of an image by its path or unique name.

        Args:
            key: of the item; a path and a name may lack the ending.
            named: whether it is a path or a name even if it is a number.

        Raises:
            UnknownName: no item has this id.
            BadInput: several images have this name.
        """
        text = str(key).strip()
        if not self.has_keys and not (named and self.kind == "images"):
            number = int(key) if isinstance(key, float) and key.is_integer() else text
            if re.fullmatch(r"[+-]?\d+", str(number)) and not isinstance(key, bool):
                return int(number)
            if self.kind != "images":
                raise BadInput(f"id must be a whole number; got {key!r}")
        found = self._numbers.get(text, [])
        if len(found) > 1:
            raise BadInput(f"{len(found)} images are called {text!r}; give the path in the folder")
        if not found:
            what = "item has the id" if self.has_keys else "image is called"
            raise UnknownName(f"no {what} {text!r}; check the ids")
        return found[0]

    @cached_property
    def has_keys(self) -> bool:
        """Whether the items have ids of the user."""
        return "key" in self._lines[0]

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        """Numbers of items by the user's id, or by the path and the name of an image."""
        found: dict[str, list[int]] = {}
        for item in self:
            if self.has_keys:
                names = {str(self.key(item))}
            else:
                path = PurePosixPath(self.entry(item)["path"])
                names = {str(path), path.name, str(path.with_suffix("")), path.stem}
            for name in names:
                found.setdefault(name, []).append(item)
        return found

    def entry(self, item: int) -> JsonObject:
        """The entry of an item in the list."""
        if item not in self and not (self._lines.reread_items() and item in self):
            raise UnknownName(f"the campaign has no item {item}; ids are 0 to {len(self) - 1}")
        return self._lines[int(item)]

    def path(self, item: int) -> Path:
        """The file of an image, inside the source folder.

        Raises:
            UnknownName: there is no such item, or its file is gone.
            BadInput: the items are not images, or the path leads out of the source folder.
        """
        if self.kind != "images":
            raise BadInput(f"the items of this campaign are {self.kind} and have no image file")
        listed = str(self.entry(item)["path"])
        folder = self.source.resolve()
        found = (folder / listed).resolve()
        if not found.is_relative_to(folder):
            raise BadInput(f"the path of item {item} leads out of {self.source}: {listed}")
        if not found.is_file():
            hint = "" if folder.is_dir() else f"; {explain_moved_source(self.source, self._home)}"
            raise UnknownName(f"the file of item {item} is gone: {listed}{hint}")
        return found

    def describe(self, item: int) -> JsonObject:
        """The data for a page: ``id``, ``kind``, and ``name``, ``text`` or ``columns``."""
        entry = self.entry(item)
        about: JsonObject = {"id": int(item), "kind": self.kind}
        if self.kind == "images":
            # File names that are not valid text cannot be sent.
            about["name"] = entry["path"].encode("utf-8", "replace").decode()
        elif self.kind == "texts":
            about["text"] = entry["text"]
        else:
            about["columns"] = entry["row"]
        return about


def explain_moved_source(source: Path, home: Path) -> str:
    """Tell the user how to set the new place of a moved source."""
    return (
        f"{source} does not exist any more; if it was moved, give its new place: "
        f"labelwise start NEW_PLACE --moved --out {shlex.quote(str(home))}"
    )


class _JsonLines:
    """The lines of a JSON lines file by number, read on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index_lines()

    def _index_lines(self) -> None:
        try:
            opened = self._path.open("rb")
        except OSError as error:
            raise BadInput(f"{self._path} cannot be read ({error.strerror})") from error
        with opened as file:
            self._size = file.seek(0, 2)
            if not self._size:
                raise BadInput(f"{self._path} is empty; was it changed by another program?")
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        starts = [np.zeros(1, dtype=np.int64)]
        for first in range(0, self._size, _BLOCK):
            block = np.frombuffer(held[first : first + _BLOCK], dtype=np.uint8)
            starts.append(np.flatnonzero(block == ord("\n")) + first + 1)
        self._held, self._starts = held, np.concatenate(starts)

    def reread_items(self) -> bool:
        """Read the list again if it has grown; return whether it has."""
        if self._path.stat().st_size == self._size:
            return False
        self._index_lines()
        return True

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> JsonObject:
        held, starts = self._held, self._starts
        try:
            line: Json = json.loads(held[int(starts[number]) : int(starts[number + 1])])
        except (ValueError, RecursionError, IndexError):  # no line break: no line
            line = None
        if not isinstance(line, dict) or line.pop("id", None) != number:
            raise BadInput(
                f"line {number + 1} of {self._path} does not describe item {number}; restore the "
                "file from a copy"
            )
        return line


class _FeatureRows:
    """Rows of a feature file, read from the campaign's copy; they need no list."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.reread_items()

    def reread_items(self) -> bool:
        self._inputs: HostArray = load_npy(self._home / INPUTS)
        self._scale = Standardizer.load(self._home / EMBEDDING)
        return True

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, number: int) -> JsonObject:
        row = self._scale.back(self._inputs[number][None])[0, :SHOWN_COLUMNS]
        return {"row": {str(column): float(f"{value:.6g}") for column, value in enumerate(row)}}


def write_items(path: Path, entries: Iterable[JsonObject], *, after: int = 0) -> int:
    """Write items to a list atomically.

    The first ``after`` items of the list are kept.

    Returns:
        The new number of items.
    """
    count = after
    with write_atomically(path, durable=True) as part, part.open("wb") as file:
        if after:
            lines = _JsonLines(path)
            file.write(lines._held[: int(lines._starts[after])])
        for entry in entries:
            file.write(json.dumps({"id": count, **entry}).encode("ascii") + b"\n")
            count += 1
    return count
