"""Look after the head of a Ray cluster while others wait for its answers.

Without its head a cluster answers for a while, or never again: a process that waits would notice
late, if at all. Here one thread asks the head every few seconds, and another one waits no longer
for the answer than that. Nothing here imports ray.
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
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self.is_lost = False
        self._thread = threading.Thread(target=self._run, name="labelwise-watch", daemon=True)
        self._thread.start()

    @property
    def silence(self) -> float:
        """For how many seconds the head has not answered."""
        return time.monotonic() - self._heard

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._every)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            if self._answered():
                self._heard, self.is_lost = time.monotonic(), False
            elif self.silence > self._patience:
                self.is_lost = True
                if self._lost is not None:
                    self._lost()
                    return

    def _answered(self) -> bool:
        """Whether the head answers in time; the thread of a look that never returns is left."""
        answers: list[Any] = []

        def ask() -> None:
            with suppress(Exception):
                answers.append(self._look())

        thread = threading.Thread(target=ask, name="labelwise-look", daemon=True)
        thread.start()
        thread.join(self._every)
        return answers[:1] == [True]
