"""The same small step again and again, without a word from the host in between.

On a GPU a step of twenty operations on a few thousand numbers takes microseconds, but to launch
them one by one takes longer. The launches of several steps are therefore recorded once (a CUDA
graph) and replayed. Elsewhere the steps are simply called.
"""

import sys
from collections.abc import Callable
from typing import Any

from labelwise.arrays import Array, device, namespace

Arrays = tuple[Array, ...]
Step = Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]
"""``step(constants, state) -> (state, out)``; every array keeps its shape and type, and nothing in
it may wait for a number."""


class Scan:
    """Some steps in a row, as often as wanted.

    Example:
        >>> import numpy as np
        >>> def doubled(constants, state):
        ...     return (state[0] * constants[0],), (state[0],)
        >>> state, out = Scan(doubled, 2)((np.array(2.0),), (np.array(1.0),), rounds=2)
        >>> state[0].item(), out[0]
        (16.0, array([1., 2., 4., 8.]))
    """

    def __init__(self, step: Step, length: int) -> None:
        """Make ``length`` calls of ``step`` in a round; so many are recorded."""
        self._step, self._length = step, length
        self._recorded: dict[Any, _Recorded] = {}

    def __call__(self, constants: Arrays, state: Arrays, rounds: int = 1) -> tuple[Arrays, Arrays]:
        """The last state, and what all steps put out, stacked: ``(length * rounds, ...)`` each."""
        if str(device(state[0])) == "cpu":
            return called(self._step, constants, state, self._length * rounds)
        key = tuple((tuple(array.shape), str(array.dtype)) for array in (*constants, *state))
        if key not in self._recorded:
            self._recorded[key] = _Recorded(constants, state, self._step, self._length)
        return self._recorded[key](constants, state, rounds)


def called(step: Step, constants: Arrays, state: Arrays, rounds: int = 1) -> tuple[Arrays, Arrays]:
    """What `Scan` of one step gives, without recording anything."""
    outs = []
    for _ in range(rounds):
        state, out = step(constants, state)
        outs.append(out)
    xp = namespace(state[0])
    return state, tuple(xp.stack(list(column)) for column in zip(*outs, strict=True))


class _Recorded:
    """The launches of a round, which reads and writes the arrays that it was recorded with."""

    def __init__(self, constants: Arrays, state: Arrays, step: Step, length: int) -> None:
        self._given, self._constants = constants, tuple(map(_copy, constants))
        self._get_state = tuple(map(_copy, state))
        library: Any = sys.modules[type(state[0]).__module__.partition(".")[0]]
        cuda, here = library.cuda, device(state[0])
        aside = cuda.Stream(here)
        aside.wait_stream(cuda.current_stream(here))
        with cuda.stream(aside):
            called(step, self._constants, self._get_state)  # libraries set themselves up
            cuda.synchronize(here)
            self._graph = cuda.CUDAGraph()
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                new, self._out = called(step, self._constants, self._get_state, length)
                _overwrite(self._get_state, self._apart(new))
            finally:
                self._graph.capture_end()
        cuda.current_stream(here).wait_stream(aside)

    def _apart(self, new: Arrays) -> Arrays:
        """The arrays, copied where they lie in the memory of the state that they overwrite."""
        held = {array.untyped_storage().data_ptr() for array in self._get_state}
        return tuple(
            _copy(array) if array.untyped_storage().data_ptr() in held else array for array in new
        )

    def __call__(self, constants: Arrays, state: Arrays, rounds: int) -> tuple[Arrays, Arrays]:
        if constants is not self._given:
            _overwrite(self._constants, constants)
            self._given = constants
        _overwrite(self._get_state, state)
        outs = []
        for _ in range(rounds):
            self._graph.replay()
            outs.append(tuple(map(_copy, self._out)))
        xp = namespace(state[0])
        joined = (xp.concat(list(column)) for column in zip(*outs, strict=True))
        return tuple(map(_copy, self._get_state)), tuple(joined)


def _copy(array: Array) -> Array:
    return namespace(array).asarray(array, copy=True)


def _overwrite(held: Arrays, new: Arrays) -> None:
    for old, array in zip(held, new, strict=True):
        old[...] = array
