"""Selections that go on after an interruption.

A strategy is a function of its options, its seed and what the blocks answer. `Recorded` writes the
answers down in order, and every now and then what the blocks remember. A selection that starts with
the same folder is given the answers again, up to the last time that the blocks' memory was written;
then the blocks get it back, and the selection goes on from there. At most the work since then is
done twice, and the picks are the same as without an interruption.

A folder belongs to one selection: other data, options or versions are refused. At the end the picks
are written down too (`finished`), and the folder goes once the caller has done with them what may
fail, such as saving them to a disk that is full.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from labelwise.arrays import Ids, like
from labelwise.errors import BadInput
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.part_worker import name_of
from labelwise.selection.kept_files import (
    as_json,
    intact,
    locked,
    part,
    read_json,
    to_disk,
    whole,
    write_json,
    writing,
)
from labelwise.selection.result import Selection
from labelwise.selection.serialization import read_value, write_value

SECONDS = 20.0
"""How long at least lies between two times that the blocks' memory is written."""
SHARE = 10
"""Writing takes at most one part in so many of the time."""

ANSWERS, SNAPSHOT, FACTS, LOCK = "answers", "snapshot.json", "selection.json", "lock"
PICKS = "picks"
PROBE = 1 << 16
"""How many bytes a folder must have room for."""

T = TypeVar("T")


class Snapshot(NamedTuple):
    """How far a selection had come when the blocks' memory was last written.

    Attributes:
        calls: how many of its calls are answered in the folder.
        bytes: how much of the answers' file they take.
        states: the name of the file with what the blocks remember.
    """

    calls: int = 0
    bytes: int = 0
    states: str | None = None


class Recorded:
    """Blocks whose answers are written down; a `labelwise.pool.blocks.Shards`.

    Attributes:
        replayed: how many calls were answered from the folder, without a look at the rows.
    """

    def __init__(self, shards: LocalShards, folder: Path, seconds: float = SECONDS) -> None:
        """Go on from what the folder holds, or start anew if it holds nothing yet."""
        self._shards, self._folder, self._seconds = shards, folder, seconds
        self.progress, self.positions = shards.progress, shards.positions
        self.replayed = self._calls = 0
        snapshot = _snapshot(folder)
        self._known, self._states = snapshot.calls, snapshot.states
        with intact(folder / ANSWERS) if self._known else writing(folder):
            self._file: BinaryIO = (folder / ANSWERS).open("r+b" if self._known else "w+b")
        self._file.truncate(snapshot.bytes)
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
        with writing(self._folder):
            write_value(self._file, [name, answer])
        self._calls += 1
        pause = max(self._seconds, SHARE * self._took) if self._seconds else 0.0
        if time.monotonic() - self._last >= pause:
            self.write()
        return answer

    def _recorded(self, name: str) -> Any:
        self._calls += 1
        self.replayed += 1
        with intact(self._folder / ANSWERS):
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
        path = self._folder / self._states
        with intact(path), path.open("rb") as file:
            self._shards.map(_load, file, self._near)
        self._last = time.monotonic()

    def write(self) -> None:
        """Write what the blocks remember; if that is cut short, the last time counts."""
        begin = time.monotonic()
        states = f"states-{self._calls}"
        with writing(self._folder):
            with (self._folder / states).open("wb") as file:
                self._shards.map(_save, file)
                to_disk(file)
            to_disk(self._file)
            snapshot = Snapshot(self._calls, self._file.tell(), states)
            write_json(self._folder / SNAPSHOT, snapshot._asdict())
            for old in self._folder.glob("states-*"):
                if old.name != states:
                    old.unlink()
        self._last = time.monotonic()
        self._took = self._last - begin

    def close(self) -> None:
        """Let go of the folder."""
        with contextlib.suppress(OSError):  # answers after the last snapshot do not count
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
    check_folder(folder, facts)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK):
        if not _ours(folder, facts):
            with writing(folder):
                write_json(folder / FACTS, facts)
        ours = Recorded(shards, folder, seconds)
        try:
            yield ours
        finally:
            ours.close()
        _clear(folder)
    with contextlib.suppress(OSError):  # someone keeps other things there
        folder.rmdir()


def finished(folder: Path | None, select: Callable[[], Selection]) -> Selection:
    """The picks that were written down when the selection was done; else make them, and do so.

    Args:
        folder: that of `recorded`, in which it is called; None writes nothing.
        select: makes the picks.
    """
    if folder is None:
        return select()
    path = folder / PICKS
    if path.exists():
        with intact(path), path.open("rb") as file:
            picks: Selection = read_value(file)
            return picks
    picks = select()
    with contextlib.suppress(OSError), whole(path) as file:  # the caller has them all the same
        write_value(file, picks)
    return picks


def check_folder(folder: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a folder that a selection cannot use, and leave nothing in it.

    Args:
        folder: which need not be there.
        facts: as for `recorded`.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"resume must be a folder; {folder} is a file")
    if folder.is_dir():
        _ours(folder, facts)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with writing(folder), tempfile.TemporaryFile(dir=nearest) as file:
        file.write(bytes(PROBE))
        file.flush()


def _ours(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether the folder belongs to this selection, or else to none; another's is refused."""
    before = read_json(folder / FACTS)
    if before is None:
        known = {LOCK, *(part(folder / name).name for name in (FACTS, SNAPSHOT, PICKS))}
        if any(path.name not in known for path in folder.iterdir()):
            raise BadInput(
                f"{folder} holds other files and no selection to go on with; give a new folder"
            )
        return False
    given = json.loads(as_json(facts))
    if before != given:
        place, old, new = _difference(before, given)
        raise BadInput(
            f"{folder} holds another selection: its {place} is {_brief(old)}, now it is "
            f"{_brief(new)}; delete the folder, or give another one"
        )
    return True


def _clear(folder: Path) -> None:
    """Delete what a selection has written, the lock last."""
    # Without a snapshot there is nothing to go on with, whatever else is still there.
    written = [folder / name for name in (SNAPSHOT, ANSWERS, PICKS, FACTS)]
    for path in (written[0], *folder.glob("states-*"), *map(part, written), *written[1:]):
        path.unlink(missing_ok=True)
    (folder / LOCK).unlink()


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


def kept(folder: Path) -> int:
    """How many answers a folder holds that need not be asked for again; the picks are one more."""
    return _snapshot(folder).calls + (folder / PICKS).exists()


def _snapshot(folder: Path) -> Snapshot:
    found = read_json(folder / SNAPSHOT)
    if found is None:
        return Snapshot()
    with intact(folder / SNAPSHOT):
        return Snapshot(int(found["calls"]), int(found["bytes"]), str(found["states"]))
