"""Parts of a pool in other processes: cut it, open a part, answer calls on its rows.

A part is a range of rows. Its process opens the same files by path and reads only these rows;
arrays in memory are sent once, part by part. With a learner, the rows are raw inputs, and the
process that holds them computes their representations. `PartWorker` keeps the blocks of its parts
and the state of the strategy.

An answer is pickled bytes plus the large arrays as out-of-band buffers, so that the transport need
not copy them. Unpacked arrays are writable.
"""

import mmap
import pickle
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Ids, to_numpy
from labelwise.errors import BadInput, LabelwiseError
from labelwise.learner import Learner
from labelwise.pool.blocks import BLOCK_BYTES, LocalShards, open_shards
from labelwise.pool.ids import IdIndex, RowNumbers
from labelwise.pool.representations import open_source
from labelwise.pool.rows import ArrayDict, Rows, copy_to_host, join_rows, map_models
from labelwise.pool.sources.change_guard import FileState, find_source_files
from labelwise.pool.sources.parquet import KeyedPath
from labelwise.pool.sources.remote_files import is_remote
from labelwise.pool.sources.source import Given, MappedFile, Source, SourceSlice, Values

T = TypeVar("T")
LARGE = 1 << 16  # Arrays of at least this many bytes are sent out of band
Dumps = Callable[..., bytes]
"""A serializer with the arguments of `pickle.dumps`; `pickle.loads` reads its output."""
Answer = bytes | tuple[bytes, list[NDArray[np.uint8]]]
"""Pickled bytes, with the out-of-band arrays if there are any."""


class Division:
    """Assignment of rows and items of a pool to parts; row numbers as ids are not stored."""

    def __init__(
        self,
        count: int,
        parts: int,
        *,
        ids: Ids | None = None,
        labelled: Ids | None = None,
        edges: Ids | None = None,
    ) -> None:
        """Cut ``count`` rows into ``parts`` whose sizes differ by at most one row.

        ``edges`` are the allowed cuts in increasing order, from 0 to ``count``; there may then be
        fewer parts, of about equal size.
        """
        self.count, self.ids = count, ids
        self.cuts = np.arange(parts + 1) * count // parts
        if edges is not None:
            self.cuts = np.unique(edges[np.searchsorted(edges, self.cuts)])
        self.labelled = np.empty(0, dtype=np.int64) if labelled is None else labelled
        self._index = IdIndex(RowNumbers(0, count) if ids is None else ids)
        self._labelled_rows = np.sort(self.rows_of(self.labelled))

    def __len__(self) -> int:
        return self.count - len(self.labelled)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.cuts) - 1

    @cached_property
    def sizes(self) -> Ids:
        """Number of candidates in each part."""
        taken = np.bincount(self._labelled_owners, minlength=self.parts)
        return np.asarray(np.diff(self.cuts) - taken, dtype=np.int64)

    def rows_of(self, ids: Ids) -> Ids:
        """Return the row numbers of items; an unknown id is an error."""
        return self._index.find_positions(ids).astype(np.int64)

    def owners(self, ids: Ids) -> Ids:
        """Return the part of each item."""
        rows = self.rows_of(ids)
        return np.asarray(np.searchsorted(self.cuts, rows, side="right") - 1, dtype=np.int64)

    @cached_property
    def _labelled_owners(self) -> Ids:
        return self.owners(self.labelled)

    def labelled_in(self, part: int) -> Ids:
        """Return the labelled items of a part in the given order."""
        return np.asarray(self.labelled[self._labelled_owners == part])

    @property
    def candidates(self) -> Ids:
        """``(n,)`` ids of all items that are not labelled, in the order of the rows."""
        if self.ids is None:
            return RowNumbers(0, self.count, self._labelled_rows).to_array()
        return np.delete(self.ids, self._labelled_rows)


@dataclass(frozen=True)
class PoolPart:
    """Rows ``first`` to ``last - 1`` of a pool, in a form that another process can open."""

    # Representations, or ``inputs`` for a learner; arrays hold only the rows of this part
    values: Values
    first: int
    last: int
    ids: Ids | None
    labelled: Ids
    names: tuple[str, ...] = ()  # the representations that a learner computes from the inputs
    block_bytes: int = BLOCK_BYTES

    def open(
        self, learner: Learner | None = None, pieces: Sequence[Rows] = ()
    ) -> tuple[LocalShards, Rows | None]:
        """Return blocks of the part's unlabelled items, and the rows of its labelled items.

        A learner computes the representations ``names``; consecutive ``pieces`` of rows replace
        ``values``.
        """
        values = self.values
        if pieces:  # the ids of the items are known already
            values = join_rows([copy_to_host(piece) for piece in pieces])
            values.pop("id", None)
        if learner is not None:
            values = self._represent_inputs(learner, values)
        ids = IdIndex(RowNumbers(self.first, self.last) if self.ids is None else self.ids)
        sources = {
            name: map_models(value, partial(self._part_source, name))
            for name, value in values.items()
        }
        return open_shards(sources, ids=ids, labelled=self.labelled, block_bytes=self.block_bytes)

    def _part_source(self, name: str, value: Given) -> Source:
        if isinstance(value, MappedFile):
            whole = open_source(value.open(), name)
        elif isinstance(value, str):
            whole = open_source(value, name)
        else:
            return open_source(value, name)  # arrays hold only the rows of this part
        return SourceSlice(whole, self.first, self.last)

    def _represent_inputs(self, learner: Learner, values: Values) -> ArrayDict:
        """Compute the learner's representations of the inputs block by block."""
        source = self._part_source("inputs", values["inputs"])
        step, count = max(self.block_bytes // source.bytes_per_row, 256), self.last - self.first
        blocks = [source.read(first, first + step) for first in range(0, max(count, 1), step)]
        return join_rows([copy_to_host(learner.represent(block, self.names)) for block in blocks])


def cut_part(
    division: Division,
    number: int,
    values: Values,
    *,
    names: tuple[str, ...] = (),
    block_bytes: int = BLOCK_BYTES,
) -> PoolPart:
    """Describe one part of a pool, whose values `prepare_representations` made, for its process."""
    first, last = int(division.cuts[number]), int(division.cuts[number + 1])

    def cut_rows(value: Array) -> Array:
        return value if isinstance(value, str | MappedFile) else value[first:last]

    mine = division.labelled_in(number)
    ids = None if division.ids is None else division.ids[first:last]
    return PoolPart(_map_values(values, cut_rows), first, last, ids, mine, names, block_bytes)


def _map_values(values: Values, function: Callable[[Given], Given]) -> dict[str, Given]:
    return {name: map_models(value, function) for name, value in values.items()}


def prepare_representations(values: Values) -> dict[str, Given]:
    """Prepare representations for other processes: absolute file paths and host arrays."""
    return _map_values(values, _prepare_representation)


def _prepare_representation(value: Given) -> Given:
    if is_remote(value):
        return value
    if isinstance(value, str | Path):
        path = str(Path(value).absolute())
        return KeyedPath(path, value.id_column) if isinstance(value, KeyedPath) else path
    if isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap):
        if value.filename is not None and value.flags.c_contiguous:
            path = str(Path(value.filename).absolute())
            return MappedFile(path, value.dtype, value.offset, value.shape)
    return to_numpy(value)


class OpenPart(NamedTuple):
    """Blocks of an opened part, rows of its labelled items or None, and its files when opened."""

    shards: LocalShards
    labelled: ArrayDict | None
    files: FileState


class PartWorker:
    """A worker that holds one part of every open pool."""

    def __init__(self, dumps: Dumps) -> None:
        """Start without pools; ``dumps`` serializes the answers."""
        self._dumps = dumps
        self._parts: dict[int, OpenPart] = {}

    def open(self, key: int, part: PoolPart, learner: bytes | None, *pieces: Rows) -> Answer:
        """Open a part of the pool ``key``, with a learner or pieces as in `PoolPart.open`."""
        return self._pack_result(lambda: self._open_part(key, part, learner, pieces))

    def seen(self, key: int) -> Answer:
        """Return the current `FileState` of the part's files."""
        return self._pack_result(lambda: FileState.read(self._parts[key].files.files))

    def labelled(self, key: int) -> Answer:
        """Return the rows of the part's labelled items, or None."""
        return self._pack_result(lambda: self._parts[key].labelled)

    def rows(self, key: int, ids: Ids) -> Answer:
        """Return the rows of the given items."""
        return self._pack_result(lambda: self._parts[key].shards.rows(ids), key)

    def call(self, key: int, kind: str, payload: bytes) -> Answer:
        """Return the result of `Shards.map` or `sum`, whether state is kept, and the CPU time."""
        return self._pack_result(lambda: self._call_part(key, kind, payload), key)

    def replay(self, key: int, kind: str, payload: bytes) -> Answer:
        """Repeat a call on a restarted worker to restore its state; the result is discarded."""
        with suppress(Exception):  # an original call that failed fails again
            self._call_part(key, kind, payload)
        return self._pack_result(lambda: None)

    def run(self, payload: bytes) -> Answer:
        """Call a function without rows."""

        def call() -> object:
            function, arguments = _load_worker_payload(payload)
            return function(*arguments)

        return self._pack_result(call)

    def close(self, key: int) -> None:
        """Release the pool."""
        self._parts.pop(key, None)

    def _open_part(
        self, key: int, part: PoolPart, learner: bytes | None, pieces: Sequence[Rows]
    ) -> FileState:
        try:
            model = None if learner is None else _load_worker_payload(learner)
            files = FileState.read(find_source_files(part.values))
            shards, known = part.open(model, pieces)
            if not len(shards):
                shards = LocalShards([])
            self._parts[key] = OpenPart(shards, None if known is None else dict(known), files)
            return files
        except LabelwiseError as error:
            raise type(error)(f"{error} (as seen from {socket.gethostname()})") from error

    def _call_part(self, key: int, kind: str, payload: bytes) -> tuple[object, bool, float]:
        begin = time.process_time()
        function, arguments = _load_worker_payload(payload)
        shards = self._parts[key].shards
        result = getattr(shards, kind)(function, *arguments)
        # Whether any block keeps state until the next call.
        remembers = any(shards.map(lambda shard: bool(shard.state)))
        return result, remembers, time.process_time() - begin

    def _pack_result(self, function: Callable[[], object], key: int = -1) -> Answer:
        """Pack the result or the error of a function that reads rows of the pool ``key``."""
        try:
            return self._pack_value((True, function()))
        except Exception as error:
            if changed := self._describe_change(key):
                return self._pack_value((False, BadInput(changed)))
            trace = f"on {socket.gethostname()}:\n{traceback.format_exc()}"
            if not isinstance(error, LabelwiseError):
                error.add_note(trace)
            try:
                return self._pack_value((False, error))
            except Exception:  # the error cannot be pickled
                return self._pack_value((False, RuntimeError(trace)))

    def _describe_change(self, key: int) -> str:
        """Describe a file that changed since the pool was opened; empty if none did."""
        if key not in self._parts:
            return ""
        before = self._parts[key].files
        return FileState.read(before.files).describe_difference(before)

    def _pack_value(self, value: object) -> Answer:
        large: list[NDArray[np.uint8]] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            """Collect a large array; return True for a small one, which is pickled in band."""
            raw = buffer.raw()
            if raw.nbytes >= LARGE:
                large.append(np.frombuffer(raw, dtype=np.uint8))
            return raw.nbytes < LARGE

        head = self._dumps(value, protocol=5, buffer_callback=keep)
        return (head, large) if large else head


def _load_worker_payload(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"what was sent cannot be loaded on {socket.gethostname()} ({error}); install the "
            "module that it is from on every node, or write it in the script that selects"
        ) from error


def name_function(function: object) -> str:
    """Return the name of a function, or the type name of another callable."""
    return getattr(function, "__name__", type(function).__name__)


def pack_for_worker(dumps: Dumps, value: object, what: str) -> bytes:
    """Serialize a value for a worker; ``what`` names the value in the error message."""
    try:
        return dumps(value)
    except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{what} cannot be sent to other processes ({why}); give one without open files, "
            "locks, connections and the like"
        ) from error


def unpack_from_worker(answer: Answer) -> Any:
    """Return the result of a call, or raise its error."""
    if isinstance(answer, bytes):
        good, value = pickle.loads(answer)
    else:
        head, large = answer
        good, value = pickle.loads(head, buffers=[np.array(array) for array in large])
    if not good:
        raise value
    return value


def count_answer_bytes(answer: Answer) -> int:
    """Return the size of an answer in bytes."""
    if isinstance(answer, bytes):
        return len(answer)
    return len(answer[0]) + sum(array.nbytes for array in answer[1])
