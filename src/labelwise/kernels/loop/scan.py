"""Repeat a small step many times without waiting for the host.

On a GPU a step of twenty operations on a few thousand numbers takes microseconds, but launching
them one by one takes longer. Several steps are recorded once as a CUDA graph and replayed.
Elsewhere the steps are simply called.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, device, namespace
from labelwise.threads import pause_garbage_collection

Arrays = tuple[Array, ...]
Step = Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]
"""``step(constants, state) -> (state, out)``; every array keeps its shape and type, and the step
must not read a number back to the host."""


class Scan:
    """A step repeated ``length`` times per round.

    >>> import numpy as np
    >>> def doubled(constants, state):
    ...     return (state[0] * constants[0],), (state[0],)
    >>> state, out = Scan(doubled, 2)((np.array(2.0),), (np.array(1.0),), rounds=2)
    >>> state[0].item(), out[0]
    (16.0, array([1., 2., 4., 8.]))
    """

    def __init__(self, step: Step, length: int) -> None:
        """Record ``length`` calls of ``step`` together."""
        self._step, self._length = step, length
        self._graphs: dict[tuple[object, ...], StepGraph] = {}

    def __call__(self, constants: Arrays, state: Arrays, rounds: int = 1) -> tuple[Arrays, Arrays]:
        """The last state, and the outputs of all steps stacked: ``(length * rounds, ...)`` each."""
        if str(device(state[0])) == "cpu":
            return run_scan_steps(self._step, constants, state, self._length * rounds)
        key = tuple((tuple(array.shape), str(array.dtype)) for array in (*constants, *state))
        if key not in self._graphs:
            self._graphs[key] = StepGraph(constants, state, self._step, self._length)
        return self._graphs[key](constants, state, rounds)


def run_scan_steps(
    step: Step, constants: Arrays, state: Arrays, rounds: int = 1
) -> tuple[Arrays, Arrays]:
    """The result of ``Scan(step, rounds)``, without recording anything."""
    outs = []
    for _ in range(rounds):
        state, out = step(constants, state)
        outs.append(out)
    xp = namespace(state[0])
    return state, tuple(xp.stack(list(column)) for column in zip(*outs, strict=True))


def count_certain_picks(certain: NDArray[np.bool_]) -> int:
    """Number of certain picks before the first uncertain one."""
    return len(certain) if certain.all() else int(np.argmin(certain))


class StepGraph:
    """A recorded round of steps, which reads and writes its own copies of the arrays."""

    def __init__(self, constants: Arrays, state: Arrays, step: Step, length: int) -> None:
        """Record ``length`` steps with arrays of these shapes."""
        self._given, self._constants = constants, tuple(map(_copy_graph_array, constants))
        self._state = tuple(map(_copy_graph_array, state))
        library: Any = sys.modules[type(state[0]).__module__.partition(".")[0]]
        cuda, here = library.cuda, device(state[0])
        stream = cuda.Stream(here)
        stream.wait_stream(cuda.current_stream(here))
        with cuda.stream(stream):
            run_scan_steps(step, self._constants, self._state)  # libraries initialize themselves
            cuda.synchronize(here)
            self._graph = cuda.CUDAGraph()
            # Freeing an earlier graph, in a reference cycle, would spoil the recording.
            with pause_garbage_collection():
                self._graph.capture_begin(capture_error_mode="thread_local")
                try:
                    new, self._out = run_scan_steps(step, self._constants, self._state, length)
                    _overwrite_graph_arrays(self._state, self._copy_aliases(new))
                finally:
                    self._graph.capture_end()
        cuda.current_stream(here).wait_stream(stream)

    def _copy_aliases(self, new: Arrays) -> Arrays:
        """Copies of those arrays that share memory with the state that they overwrite."""
        held = {array.untyped_storage().data_ptr() for array in self._state}
        return tuple(
            _copy_graph_array(array) if array.untyped_storage().data_ptr() in held else array
            for array in new
        )

    def __call__(self, constants: Arrays, state: Arrays, rounds: int) -> tuple[Arrays, Arrays]:
        """Replay the steps."""
        if constants is not self._given:
            _overwrite_graph_arrays(self._constants, constants)
            self._given = constants
        _overwrite_graph_arrays(self._state, state)
        outs = []
        for _ in range(rounds):
            self._graph.replay()
            outs.append(tuple(map(_copy_graph_array, self._out)))
        xp = namespace(state[0])
        joined = (xp.concat(list(column)) for column in zip(*outs, strict=True))
        return tuple(map(_copy_graph_array, self._state)), tuple(joined)


def _copy_graph_array(array: Array) -> Array:
    return namespace(array).asarray(array, copy=True)


def _overwrite_graph_arrays(held: Arrays, new: Arrays) -> None:
    for old, array in zip(held, new, strict=True):
        old[...] = array
