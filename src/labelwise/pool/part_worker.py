"""What one process does that holds parts of pools: it opens them, and answers calls.

An answer is bytes. Large arrays stay beside them as they are, so that what carries the answer need
not copy them; when it is unpacked they become arrays that can be written to, as on one machine.
"""

import pickle
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids
from labelwise.errors import BadInput, LabelwiseError
from labelwise.pool.change_guard import FileState, find_files
from labelwise.pool.parts import PartHolder, PoolPart
from labelwise.pool.rows import Rows

LARGE = 1 << 16
"""Arrays of so many bytes stay beside the others."""

Dumps = Callable[..., bytes]
"""Functions and all else as bytes that `pickle.loads` reads; takes what `pickle.dumps` takes."""
Answer = bytes | tuple[bytes, list[NDArray[np.uint8]]]
"""Bytes, and the large arrays if there are any."""


class PartWorker:
    """One worker: it holds one part of every pool that is open."""

    def __init__(self, dumps: Dumps) -> None:
        """Hold nothing yet; answers are packed with ``dumps``."""
        self._dumps = dumps
        self._held: dict[int, PartHolder] = {}
        self._seen: dict[int, FileState] = {}

    def open(self, key: int, part: PoolPart, learner: bytes | None, *pieces: Rows) -> Answer:
        """Open a part of the pool ``key``, with a learner or pieces as in `PoolPart.open`."""
        return self._pack_result(lambda: self._open_part(key, part, learner, pieces))

    def seen(self, key: int) -> Answer:
        """The files of the part as they are now; `FileState`."""
        return self._pack_result(lambda: FileState.read(self._seen[key].files))

    def labelled(self, key: int) -> Answer:
        """The rows of the part's labelled items, or None."""
        return self._pack_result(lambda: self._held[key].labelled)

    def rows(self, key: int, ids: Ids) -> Answer:
        """The rows of some items."""
        return self._pack_result(lambda: self._held[key].shards.rows(ids), key)

    def call(self, key: int, kind: str, payload: bytes) -> Answer:
        """`Shards.map` or `Shards.sum` over the part; whether anything is remembered; CPU time."""
        return self._pack_result(lambda: self._call_part(key, kind, payload), key)

    def replay(self, key: int, kind: str, payload: bytes) -> Answer:
        """The same once more, by a worker that was made again; nobody waits for the result."""
        with suppress(Exception):  # if it fails, it did so the first time
            self._call_part(key, kind, payload)
        return self._pack_result(lambda: None)

    def run(self, payload: bytes) -> Answer:
        """A function of some arguments, without any rows."""
        return self._pack_result(lambda: _call_function(payload))

    def close(self, key: int) -> None:
        """Forget the pool."""
        self._held.pop(key, None)
        self._seen.pop(key, None)

    def _open_part(
        self, key: int, part: PoolPart, learner: bytes | None, pieces: Sequence[Rows]
    ) -> FileState:
        try:
            model = None if learner is None else _load_payload(learner)
            self._seen[key] = FileState.read(find_files(part.values))
            self._held[key] = PartHolder(part, model, pieces)
            return self._seen[key]
        except LabelwiseError as error:
            raise type(error)(f"{error} (as seen from {socket.gethostname()})") from error

    def _call_part(self, key: int, kind: str, payload: bytes) -> tuple[Any, bool, float]:
        begin = time.process_time()
        function, arguments = _load_payload(payload)
        holder = self._held[key]
        result = holder.call(kind, function, arguments)
        return result, holder.remembers, time.process_time() - begin

    def _pack_result(self, function: Callable[[], Any], key: int = -1) -> Answer:
        """What the function returns or raises; it reads rows of the pool ``key``, if given."""
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
            except Exception:  # an error that cannot travel
                return self._pack_value((False, RuntimeError(trace)))

    def _describe_change(self, key: int) -> str:
        """Whether a file of the pool has changed since it was opened, which explains much."""
        before = self._seen.get(key)
        return "" if before is None else FileState.read(before.files).describe_difference(before)

    def _pack_value(self, value: Any) -> Answer:
        large: list[NDArray[np.uint8]] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            """Put large arrays aside; whether one is small enough to be among the bytes."""
            raw = buffer.raw()
            if raw.nbytes >= LARGE:
                large.append(np.frombuffer(raw, dtype=np.uint8))
            return raw.nbytes < LARGE

        head = self._dumps(value, protocol=5, buffer_callback=keep)
        return (head, large) if large else head


def _call_function(payload: bytes) -> Any:
    function, arguments = _load_payload(payload)
    return function(*arguments)


def _load_payload(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"what was sent cannot be loaded on {socket.gethostname()} ({error}); install the "
            "module that it is from on every node, or write it in the script that selects"
        ) from error


def describe_function(function: Any) -> str:
    """What a function is called, or the kind of thing that is called like one."""
    return getattr(function, "__name__", type(function).__name__)


def pack_payload(dumps: Dumps, value: Any, what: str) -> bytes:
    """What travels to a worker; ``what`` it is, for the message where it cannot.

    Example:
        >>> pack_payload(pickle.dumps, lambda rows: rows, "the strategy")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        labelwise.errors.BadInput: the strategy cannot be sent to other processes (Can't pickle ...
    """
    try:
        return dumps(value)
    except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{what} cannot be sent to other processes ({why}); give one without open files, "
            "locks, connections and the like"
        ) from error


def unpack_answer(answer: Answer) -> Any:
    """The result of a call; an error that it raised is raised here."""
    if isinstance(answer, bytes):
        good, value = pickle.loads(answer)
    else:
        head, large = answer
        good, value = pickle.loads(head, buffers=[np.array(array) for array in large])
    if not good:
        raise value
    return value


def count_answer_bytes(answer: Answer) -> int:
    """How many bytes an answer has.

    Example:
        >>> count_answer_bytes((b"head", [np.zeros(100, dtype=np.uint8)]))
        104
    """
    if isinstance(answer, bytes):
        return len(answer)
    return len(answer[0]) + sum(array.nbytes for array in answer[1])
