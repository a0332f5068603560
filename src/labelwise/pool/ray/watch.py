"""Look after the head of a Ray cluster while others wait for its answers.

Without its head a cluster answers for a while, or never again: a process that waits would notice
late, if at all. Here one thread asks the head every few seconds, and another one waits no longer
for the answer than that. Silence is counted look by look, so that a process that was itself stopped
for a while (a laptop that slept, a machine that is too busy) does not take that for the head's.
Nothing here imports ray.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

EVERY_SECONDS = 5.0
"""How often the head is asked, and how long one answer may take."""


class Watch:
    """Asks whether a head is there, until it is stopped.

    Attributes:
        is_lost: whether the head has been silent for too long.
        silence: for how many seconds the head has not answered.
    """

    def __init__(
        self,
        look: Callable[[], Any],
        *,
        patience: float,
        lost: Callable[[], None] | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        """Start.

        Args:
            look: asks the head. It may raise, or never return; what is False is no answer.
            patience: how many seconds the head may be silent.
            lost: called if it is for longer, to wake up those who wait for it; after that the head
                is asked no more.
            every: how many seconds there are between two looks.
        """
        self._look, self._patience, self._lost, self._every = look, patience, lost, every
        self._ended, self._answer = threading.Event(), threading.Event()
        self.is_lost, self.silence = False, 0.0
        self._thread = threading.Thread(target=self._run, name="labelwise-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, and wait for no answer."""
        self._ended.set()
        self._answer.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            begin = time.monotonic()
            if self._answered():
                self.silence, self.is_lost = 0.0, False
                continue
            self.silence += self._every + min(time.monotonic() - begin, self._every)
            if self.silence >= self._patience and not self._ended.is_set():
                self.is_lost = True
                if self._lost is not None:
                    self._lost()
                    return

    def _answered(self) -> bool:
        """Whether the head answers in time; the thread of a look that never returns is left."""
        answers: list[Any] = []
        came = self._answer = threading.Event()  # of this look: an older one may still come

        def ask() -> None:
            with suppress(Exception):
                answers.append(self._look())
            came.set()

        if not self._ended.is_set():
            threading.Thread(target=ask, name="labelwise-look", daemon=True).start()
            came.wait(self._every)
        return answers[:1] == [True]
