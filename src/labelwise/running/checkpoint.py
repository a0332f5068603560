"""Selections that go on after an interruption.

A strategy is a function of its options, its seed and what the blocks answer. `Recorded` writes the
answers down in order, and every now and then what the blocks remember. A selection that starts with
the same folder is given the answers again, up to the last time that the blocks' memory was written;
then the blocks get it back, and the selection goes on from there. At most the work since then is
done twice, and the picks are the same as without an interruption.

A folder belongs to one selection: other data, options or versions are refused. It goes when the
selection is done.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from labelwise.arrays import Ids, like
from labelwise.blocks import LocalShards, Shard
from labelwise.errors import BadInput
from labelwise.running.worker import name_of
from labelwise.running.written import read_value, write_value

SECONDS = 20.0
"""How long at least lies between two times that the blocks' memory is written."""
SHARE = 10
"""Writing takes at most one part in so many of the time."""

ANSWERS, SNAPSHOT, FACTS, LOCK = "answers", "snapshot.json", "selection.json", "lock"

T = TypeVar("T")


class Recorded:
    """Blocks whose answers are written down; a `labelwise.blocks.Shards`.

    Attributes:
        replayed: how many calls were answered from the folder, without a look at the rows.
    """

    def __init__(self, shards: LocalShards, folder: Path, seconds: float = SECONDS) -> None:
        """Go on from what the folder holds, or start anew if it holds nothing yet."""
        self._shards, self._folder, self._seconds = shards, folder, seconds
        self.progress, self.positions = shards.progress, shards.positions
        self.replayed = self._calls = 0
        snapshot = _read_json(folder / SNAPSHOT) or {"calls": 0, "bytes": 0, "states": None}
        self._known: int = snapshot["calls"]
        self._states: str | None = snapshot["states"]
        self._file: BinaryIO = (folder / ANSWERS).open("r+b" if self._known else "w+b")
        self._file.truncate(snapshot["bytes"])
        self._restored = self._states is None
        self._last, self._took = time.monotonic(), 0.0

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""
        return self._shards.ids

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        answers: list[T] = self._call("map", function, *arguments)
        return answers

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up; tuples are added field by field."""
        return self._call("sum", function, *arguments)

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        found: dict[str, Any] = self._call("rows", ids)
        return found

    def _call(self, kind: str, *arguments: Any) -> Any:
        name = kind if kind == "rows" else f"{kind} {name_of(arguments[0])}"
        if self._calls < self._known:
            return self._recorded(name)
        self._restore()
        answer = getattr(self._shards, kind)(*arguments)
        write_value(self._file, [name, answer])
        self._calls += 1
        pause = max(self._seconds, SHARE * self._took) if self._seconds else 0.0
        if time.monotonic() - self._last >= pause:
            self.write()
        return answer

    def _recorded(self, name: str) -> Any:
        self._calls += 1
        self.replayed += 1
        written, answer = read_value(self._file, self._near)
        if written != name:
            raise BadInput(
                f"{self._folder} holds another selection (it has {written} where this one has "
                f"{name}); delete the folder, or give another one"
            )
        return answer

    def _near(self, array: Any) -> Any:
        """Bring a host array to the library and device of the rows."""
        rows = self._shards.rows(self._shards.ids[:1])
        first = next(iter(rows.values()))
        return like(array, first[0] if isinstance(first, list) else first)

    def _restore(self) -> None:
        """Give the blocks back what they remembered, once the answers are through."""
        if self._restored:
            return
        self._restored = True
        self._file.seek(0, os.SEEK_END)
        assert self._states is not None
        with (self._folder / self._states).open("rb") as file:
            self._shards.map(_load, file, self._near)
        self._last = time.monotonic()

    def write(self) -> None:
        """Write what the blocks remember; if that is cut short, the last time counts."""
        begin = time.monotonic()
        states = f"states-{self._calls}"
        with (self._folder / states).open("wb") as file:
            self._shards.map(_save, file)
            _to_disk(file)
        _to_disk(self._file)
        facts = {"calls": self._calls, "bytes": self._file.tell(), "states": states}
        _write_json(self._folder / SNAPSHOT, facts)
        for old in self._folder.glob("states-*"):
            if old.name != states:
                old.unlink()
        self._last = time.monotonic()
        self._took = self._last - begin

    def close(self) -> None:
        """Let go of the folder."""
        self._file.close()


def _save(shard: Shard, file: BinaryIO) -> None:
    write_value(file, shard.state)


def _load(shard: Shard, file: BinaryIO, near: Callable[[Any], Any]) -> None:
    shard.state.clear()
    shard.state.update(read_value(file, near))


@contextmanager
def recorded(
    shards: LocalShards, folder: Path | None, facts: Mapping[str, Any], seconds: float = SECONDS
) -> Iterator[Any]:
    """The blocks, with their answers written to a folder that goes when all is done.

    Args:
        shards: the candidates.
        folder: made if it is not there; None writes nothing.
        facts: what makes this selection this one; those of a folder in use must be the same.
        seconds: how long at least lies between two times that the blocks' memory is written; 0
            writes it after every call.
    """
    if folder is None:
        yield shards
        return
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"resume must be a folder; {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _begin(folder, facts)
        ours = Recorded(shards, folder, seconds)
        try:
            yield ours
        finally:
            ours.close()
        # Without a snapshot there is nothing to go on with, whatever else is still there.
        for path in (folder / SNAPSHOT, *folder.glob("states-*"), folder / ANSWERS, folder / FACTS):
            path.unlink(missing_ok=True)
        (folder / LOCK).unlink()
    with contextlib.suppress(OSError):  # someone keeps other things there
        folder.rmdir()


def _begin(folder: Path, facts: Mapping[str, Any]) -> None:
    """Say whose folder it is, or see that it belongs to this selection."""
    given = json.loads(json.dumps(dict(facts), default=repr))
    before = _read_json(folder / FACTS)
    if before is None:
        if any(path.name not in (LOCK, f"{Path(FACTS).stem}.part") for path in folder.iterdir()):
            raise BadInput(
                f"{folder} holds other files and no selection to go on with; give a new folder"
            )
        _write_json(folder / FACTS, given)
    elif before != given:
        place, old, new = _difference(before, given)
        raise BadInput(
            f"{folder} holds another selection: its {place} is {_brief(old)}, now it is "
            f"{_brief(new)}; delete the folder, or give another one"
        )


def _difference(before: Any, given: Any) -> tuple[str, Any, Any]:
    """Where two descriptions first differ, in words, and what stands there.

    >>> _difference({"pool": {"rows": 5, "columns": 2}}, {"pool": {"rows": 5, "columns": 3}})
    ('pool, columns', 2, 3)
    """
    if isinstance(before, list) and isinstance(given, list) and len(before) == len(given) > 0:
        before, given = (dict(enumerate(value, 1)) for value in (before, given))
    if not (isinstance(before, dict) and isinstance(given, dict)):
        return "", before, given
    name = next(name for name in {**before, **given} if before.get(name) != given.get(name))
    rest, old, new = _difference(before.get(name), given.get(name))
    return ", ".join(filter(None, [str(name), rest])), old, new


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}..."


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process is using."""
    with (folder / LOCK).open("w") as file:
        try:
            system: Any = import_module("fcntl")
        except ImportError:  # not a POSIX system: nobody is kept out
            yield
            return
        try:
            system.flock(file, system.LOCK_EX | system.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"another selection is using {folder}; wait for it, or give another folder"
            ) from error
        yield


def kept(folder: Path) -> int:
    """How many answers a folder holds that an interrupted selection need not ask for again."""
    return int((_read_json(folder / SNAPSHOT) or {"calls": 0})["calls"])


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def _write_json(path: Path, value: Any) -> None:
    """The file appears whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("w") as file:
        json.dump(value, file)
        _to_disk(file)
    os.replace(part, path)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
