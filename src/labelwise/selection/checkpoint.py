"""Checkpoints: selections that continue after an interruption.

A strategy is a function of its options, its seed and the results of the blocks. `RecordedShards`
writes the results in order, and from time to time the state of the blocks. A selection that starts
with the same folder gets the recorded results again, up to the last time that the state was
written; then the blocks get their state back, and the selection continues from there. At most the
work since then is repeated, and the picks are the same as without an interruption.

A folder belongs to one selection: other data, options or versions are rejected. At the end the
picks are written too (`load_or_select`). The folder is removed after the caller has finished the
steps that may fail, such as saving the picks.

Values are written without pickle (`write_checkpoint_value`): a line of JSON describes the
structure, its arrays follow in ``.npy`` format. Reading runs no code but the import of labelwise's
modules.
"""

import contextlib
import importlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
from numpy.lib import format as npy

from labelwise.arrays import Array, HostArray, Ids, is_array, like, to_numpy
from labelwise.errors import BadInput, StorageFailed
from labelwise.files import (
    ARRAY_ERRORS,
    Json,
    JsonObject,
    lock_file,
    to_json,
    write_atomically,
    write_json,
)
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.parts import name_function
from labelwise.pool.rows import ArrayDict
from labelwise.pool.sources.file_patterns import find_row_files
from labelwise.pool.sources.remote_files import describe_remote_files, is_remote
from labelwise.pool.sources.source import Given, Source, Sources
from labelwise.selection.result import Selection

SECONDS = 20.0  # Least seconds between two writes of the blocks' state
SHARE = 10  # Writing takes at most ``1 / SHARE`` of the time
ANSWERS, SNAPSHOT, FACTS, LOCK = "answers", "snapshot.json", "selection.json", "lock"
PICKS = "picks"
PROBE = 1 << 16  # Bytes of free space that a folder must have
SUMMED_ROWS = 1 << 14  # Rows of an array that are added to its checksum at a time
T = TypeVar("T")
Value = Any  # A value that strategies and blocks exchange
Near = Callable[[HostArray], Array]  # Moves a host array to the device of the rows


class Snapshot(NamedTuple):
    """Calls whose results are in the folder, their bytes there, and the file of block states."""

    calls: int = 0
    bytes: int = 0
    states: str | None = None


class RecordedShards:
    """Blocks whose results are recorded; a `labelwise.pool.blocks.Shards`."""

    def __init__(self, shards: LocalShards, folder: Path, seconds: float = SECONDS) -> None:
        """Continue from the folder's content, or start if it has none."""
        self._shards, self._folder, self._seconds = shards, folder, seconds
        self.progress = shards.progress
        self.replayed = self._calls = 0
        snapshot = _read_snapshot(folder)
        self._known, self._states = snapshot.calls, snapshot.states
        with _guard_resume_read(folder / ANSWERS) if self._known else _guard_resume_write(folder):
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

    def map(self, function: Callable[..., T], *arguments: object) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        answers: list[T] = self._call("map", function, *arguments)
        return answers

    def sum(self, function: Callable[..., T], *arguments: object) -> T:
        """The results of `map` added up; tuples are added field by field."""
        return cast(T, self._call("sum", function, *arguments))

    def rows(self, ids: Ids) -> ArrayDict:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        found: ArrayDict = self._call("rows", ids)
        return found

    def _call(self, kind: str, *arguments: object) -> Value:
        name = kind if kind == "rows" else f"{kind} {name_function(arguments[0])}"
        if self._calls < self._known:
            return self._replay_call(name)
        self._restore_states()
        answer = getattr(self._shards, kind)(*arguments)
        with _guard_resume_write(self._folder):
            write_checkpoint_value(self._file, [name, answer])
        self._calls += 1
        pause = max(self._seconds, SHARE * self._took) if self._seconds else 0.0
        if time.monotonic() - self._last >= pause:
            self.write_snapshot()
        return answer

    def _replay_call(self, name: str) -> Value:
        self._calls += 1
        self.replayed += 1
        with _guard_resume_read(self._folder / ANSWERS):
            written, answer = read_checkpoint_value(self._file, self._move_to_rows)
        if written != name:
            raise BadInput(
                f"{self._folder} holds another selection (it has {written} where this one has "
                f"{name}); delete the folder, or give another one"
            )
        return answer

    def _move_to_rows(self, array: HostArray) -> Array:
        """Bring a host array to the library and device of the rows."""
        rows = self._shards.rows(self._shards.ids[:1])
        first = next(iter(rows.values()))
        return like(array, first[0] if isinstance(first, list) else first)

    def _restore_states(self) -> None:
        """Give the blocks their state back, once all recorded results are replayed."""
        if self._restored:
            return
        self._restored = True
        self._file.seek(0, os.SEEK_END)
        assert self._states is not None
        path = self._folder / self._states
        with _guard_resume_read(path), path.open("rb") as file:
            self._shards.map(_load_block_state, file, self._move_to_rows)
        self._last = time.monotonic()

    def write_snapshot(self) -> None:
        """Write the state of the blocks; if this is interrupted, the previous snapshot counts."""
        begin = time.monotonic()
        states = f"states-{self._calls}"
        with _guard_resume_write(self._folder):
            with (self._folder / states).open("wb") as file:
                self._shards.map(_save_block_state, file)
                _flush_to_disk(file)
            _flush_to_disk(self._file)
            snapshot = Snapshot(self._calls, self._file.tell(), states)
            write_json(self._folder / SNAPSHOT, snapshot._asdict(), durable=True)
            for old in self._folder.glob("states-*"):
                if old.name != states:
                    old.unlink()
        self._last = time.monotonic()
        self._took = self._last - begin

    def close(self) -> None:
        """Release the folder."""
        with contextlib.suppress(OSError):  # results after the last snapshot do not count
            self._file.close()


def _save_block_state(shard: Shard, file: BinaryIO) -> None:
    write_checkpoint_value(file, shard.state)


def _load_block_state(shard: Shard, file: BinaryIO, move: Near) -> None:
    shard.state.clear()
    shard.state.update(read_checkpoint_value(file, move))


@contextmanager
def record_calls(
    shards: LocalShards, folder: Path, facts: Mapping[str, Json], seconds: float = SECONDS
) -> Iterator[RecordedShards]:
    """The blocks with their results recorded in a folder that is removed when all is done.

    The ``facts`` of a folder in use must be the same. The blocks' state is written at most every
    ``seconds``; 0 writes after every call.
    """
    check_resume_folder(folder, facts)
    with _guard_resume_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    with lock_file(folder / LOCK) as held:
        if not held:
            raise BadInput(
                f"another selection is using {folder}; wait for it, or give another folder"
            )
        if not _belongs_to_selection(folder, facts):
            with _guard_resume_write(folder):
                write_json(folder / FACTS, facts, durable=True)
        recorded = RecordedShards(shards, folder, seconds)
        try:
            yield recorded
        finally:
            recorded.close()
        _clear_checkpoint(folder)
    with contextlib.suppress(OSError):  # the folder holds other files
        folder.rmdir()


def load_or_select(folder: Path, select: Callable[[], Selection]) -> Selection:
    """The picks written when the selection finished; otherwise make and write them."""
    path = folder / PICKS
    if path.exists():
        with _guard_resume_read(path), path.open("rb") as file:
            picks: Selection = read_checkpoint_value(file)
            return picks
    picks = select()
    with contextlib.suppress(OSError), write_atomically(path, durable=True) as part:
        with part.open("wb") as file:  # the caller has the picks even if this fails
            write_checkpoint_value(file, picks)
    return picks


def check_resume_folder(folder: Path, facts: Mapping[str, Json]) -> None:
    """Reject a folder that a selection cannot use, and leave nothing in it."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"resume must be a folder; {folder} is a file")
    if folder.is_dir():
        _belongs_to_selection(folder, facts)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with _guard_resume_write(folder), tempfile.TemporaryFile(dir=nearest) as file:
        file.write(bytes(PROBE))
        file.flush()


def _belongs_to_selection(folder: Path, facts: Mapping[str, Json]) -> bool:
    """Whether the folder belongs to this selection or to none; another's is rejected."""
    before = _read_checkpoint_json(folder / FACTS)
    if before is None:
        if any(path.name != LOCK and not _is_partial_file(path) for path in folder.iterdir()):
            raise BadInput(
                f"{folder} holds other files and no selection to continue; give a new folder"
            )
        return False
    given = json.loads(json.dumps(to_json(facts)))
    if before != given:
        place, old, new = _find_difference(before, given)
        raise BadInput(
            f"{folder} holds another selection: its {place} is {old!s:.80}, now it is {new!s:.80}; "
            "delete the folder, or give another one"
        )
    return True


def _is_partial_file(path: Path) -> bool:
    """Whether a file was being written when its process ended."""
    return path.name.startswith(".") and ".part" in path.name


def _clear_checkpoint(folder: Path) -> None:
    """Delete the files of a selection: the snapshot first, the lock last."""
    written = [folder / name for name in (SNAPSHOT, ANSWERS, PICKS, FACTS)]
    parts = [path for path in folder.iterdir() if _is_partial_file(path)]
    for path in (written[0], *folder.glob("states-*"), *parts, *written[1:]):
        path.unlink(missing_ok=True)
    (folder / LOCK).unlink()


def _find_difference(before: Json, given: Json) -> tuple[str, Json, Json]:
    """The first place where two descriptions differ, and the values there.

    >>> _find_difference({"pool": {"rows": 5, "columns": 2}}, {"pool": {"rows": 5, "columns": 3}})
    ('pool, columns', 2, 3)
    """
    if isinstance(before, list) and isinstance(given, list) and len(before) == len(given) > 0:
        before, given = (dict(enumerate(value, 1)) for value in (before, given))
    if not (isinstance(before, dict) and isinstance(given, dict)):
        return "", before, given
    name = next(name for name in {**before, **given} if before.get(name) != given.get(name))
    rest, old, new = _find_difference(before.get(name), given.get(name))
    return ", ".join(filter(None, [str(name), rest])), old, new


def count_resumable_results(folder: Path) -> int:
    """Number of results in a folder that will be replayed; the picks count as one more."""
    return _read_snapshot(folder).calls + (folder / PICKS).exists()


def _read_snapshot(folder: Path) -> Snapshot:
    found = _read_checkpoint_json(folder / SNAPSHOT)
    if found is None:
        return Snapshot()
    with _guard_resume_read(folder / SNAPSHOT):
        return Snapshot(int(found["calls"]), int(found["bytes"]), str(found["states"]))


def _read_checkpoint_json(path: Path) -> JsonObject | None:
    """The JSON object in a file; None if there is no file."""
    with _guard_resume_read(path):
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise TypeError("not a JSON object")
        return found


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _guard_resume_write(folder: Path) -> Iterator[None]:
    """Name the folder if it cannot be written to."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"cannot write to {folder} ({error.strerror or error}), where resume keeps its "
            "progress; make room there, or give another folder"
        ) from error


@contextmanager
def _guard_resume_read(path: Path) -> Iterator[None]:
    """Name the folder if a file in it cannot be read as it was written."""
    try:
        yield
    except BadInput:
        raise
    except (*ARRAY_ERRORS, LookupError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{path.parent} is damaged ({path.name}: {reason}); delete the folder and start again"
        ) from error


def describe_pool(values: Mapping[str, Json], sources: Sources) -> JsonObject:
    """Describe the identity of a pool: names, shapes, and files or a checksum of the numbers."""
    facts: JsonObject = {}
    for name, opened in sources.items():
        value = values[name]
        pairs = zip(value, opened, strict=True) if isinstance(opened, list) else [(value, opened)]
        facts[name] = [_describe_representation(given, source, name) for given, source in pairs]
    return facts


def _describe_representation(value: Given, source: Source, name: str) -> JsonObject:
    facts: JsonObject = {"shape": source.shape, "precision": source.precision}
    if is_remote(value):
        return facts | {"files": describe_remote_files(value, name)}
    if isinstance(value, np.memmap) and value.mode == "r" and isinstance(value.base, mmap):
        # A whole read-only map has the content of its file.
        if value.filename is not None and Path(value.filename).exists():
            place = {"offset": value.offset, "strides": value.strides, "type": value.dtype.str}
            return facts | _describe_source_files([Path(value.filename)]) | place
    if is_array(value):
        return facts | {"sum": _checksum_rows(source)}
    path = Path(value)
    return facts | _describe_source_files([path] if path.is_file() else find_row_files(path, name))


def _checksum_rows(source: Source) -> int:
    total = 0
    for first in range(0, source.shape[0], SUMMED_ROWS):
        rows = np.ascontiguousarray(to_numpy(source.read(first, first + SUMMED_ROWS)))
        total = zlib.crc32(rows.tobytes(), total)
    return total


def _describe_source_files(paths: list[Path]) -> JsonObject:
    facts = {}
    for path in paths:
        status = path.stat()
        second, rest = divmod(status.st_mtime_ns, 10**9)
        changed = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
        facts[str(path.absolute())] = {
            "bytes": status.st_size,
            "changed": f"{changed}.{rest:09d} UTC",
        }
    return {"files": facts}


def checksum_ids(ids: Ids | None) -> str | None:
    """The number and a checksum of ids; None for none."""
    if ids is None:
        return None
    return f"{len(ids)} ids, sum {zlib.crc32(np.asarray(ids, dtype=np.int64).tobytes()):08x}"


def write_checkpoint_value(file: BinaryIO, value: Value) -> None:
    """Write a value at the end of an open file."""
    arrays: list[HostArray] = []
    tree = _to_tree(value, arrays, {})
    file.write(json.dumps([len(arrays), tree]).encode() + b"\n")
    for array in arrays:
        npy.write_array(file, array, allow_pickle=False)


def read_checkpoint_value(file: BinaryIO, near: Near | None = None) -> Value:
    """Read the next value of a file; ``near`` converts arrays that were tensors."""
    count, tree = json.loads(file.readline())
    arrays = [npy.read_array(file, allow_pickle=False) for _ in range(count)]
    return _from_tree(tree, arrays, near or (lambda array: array))


def _to_tree(value: Value, arrays: list[HostArray], known: dict[int, int]) -> Json:
    """Convert a value to JSON; append its arrays to ``arrays``, each one once."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        arrays.append(np.asarray(value))
        return ["number", len(arrays) - 1]
    if is_array(value):
        if id(value) not in known:
            known[id(value)] = len(arrays)
            arrays.append(np.asarray(to_numpy(value)))
        return ["array" if isinstance(value, np.ndarray) else "tensor", known[id(value)]]
    if isinstance(value, dict):
        pairs = [[_to_tree(k, arrays, known), _to_tree(v, arrays, known)] for k, v in value.items()]
        return ["dict", pairs]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_to_tree(entry, arrays, known) for entry in value]]
    kind = type(value)
    if not kind.__module__.startswith("labelwise.") or kind.__qualname__ != kind.__name__:
        raise BadInput(
            f"a {kind.__qualname__} cannot be written down, which resume needs; select without it"
        )
    fields = list(value) if isinstance(value, tuple) else vars(value)
    return ["object", f"{kind.__module__}:{kind.__name__}", _to_tree(fields, arrays, known)]


def _from_tree(tree: Json, arrays: list[HostArray], near: Near) -> Value:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind in ("array", "tensor"):
        array = arrays[rest[0]]
        return array if kind == "array" else near(array)
    if kind == "number":
        return arrays[rest[0]][()]
    if kind == "dict":
        return {_from_tree(k, arrays, near): _from_tree(v, arrays, near) for k, v in rest[0]}
    if kind == "object":
        return _make_checkpoint_object(rest[0], _from_tree(rest[1], arrays, near))
    entries = [_from_tree(entry, arrays, near) for entry in rest[0]]
    return tuple(entries) if kind == "tuple" else entries


def _make_checkpoint_object(name: str, fields: Value) -> Value:
    """Create an object of one of labelwise's classes from its fields."""
    module, _, kind = name.partition(":")
    own = module.split(".")[0] == "labelwise"
    found = getattr(importlib.import_module(module), kind) if own else None
    if not isinstance(found, type) or found.__module__ != module:
        raise BadInput(f"a written value is a {name}, which is not a class of labelwise")
    if issubclass(found, tuple):
        return tuple.__new__(found, fields)
    value = found.__new__(found)
    vars(value).update(fields)
    return value
