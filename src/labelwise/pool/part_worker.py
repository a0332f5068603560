"""Worker process that opens parts of pools and answers calls on their rows.

An answer is pickled bytes plus the large arrays as out-of-band buffers, so that the transport need
not copy them. Unpacked arrays are writable.
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
"""Arrays of at least this many bytes are sent out of band."""

Dumps = Callable[..., bytes]
"""A serializer with the arguments of `pickle.dumps`; `pickle.loads` reads its output."""
Answer = bytes | tuple[bytes, list[NDArray[np.uint8]]]
"""Pickled bytes, with the out-of-band arrays if there are any."""


class PartWorker:
    """A worker that holds one part of every open pool."""

    def __init__(self, dumps: Dumps) -> None:
        """Start without pools; ``dumps`` serializes the answers."""
        self._dumps = dumps
        self._held: dict[int, PartHolder] = {}
        self._seen: dict[int, FileState] = {}

    def open(self, key: int, part: PoolPart, learner: bytes | None, *pieces: Rows) -> Answer:
        """Open a part of the pool ``key``, with a learner or pieces as in `PoolPart.open`."""
        return self._pack_result(lambda: self._open_part(key, part, learner, pieces))

    def seen(self, key: int) -> Answer:
        """Return the current `FileState` of the part's files."""
        return self._pack_result(lambda: FileState.read(self._seen[key].files))

    def labelled(self, key: int) -> Answer:
        """Return the rows of the part's labelled items, or None."""
        return self._pack_result(lambda: self._held[key].labelled)

    def rows(self, key: int, ids: Ids) -> Answer:
        """Return the rows of the given items."""
        return self._pack_result(lambda: self._held[key].shards.rows(ids), key)

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
        return self._pack_result(lambda: _call_function(payload))

    def close(self, key: int) -> None:
        """Release the pool."""
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
        before = self._seen.get(key)
        return "" if before is None else FileState.read(before.files).describe_difference(before)

    def _pack_value(self, value: Any) -> Answer:
        large: list[NDArray[np.uint8]] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            """Collect a large array; return True for a small one, which is pickled in band."""
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
    """Return the name of a function, or the type name of another callable."""
    return getattr(function, "__name__", type(function).__name__)


def pack_payload(dumps: Dumps, value: Any, what: str) -> bytes:
    """Serialize a value for a worker; ``what`` names the value in the error message.

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
    """Return the size of an answer in bytes.

    Example:
        >>> count_answer_bytes((b"head", [np.zeros(100, dtype=np.uint8)]))
        104
    """
    if isinstance(answer, bytes):
        return len(answer)
    return len(answer[0]) + sum(array.nbytes for array in answer[1])
