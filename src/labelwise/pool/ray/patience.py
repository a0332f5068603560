"""How long to wait for an actor that has not started: a slow cluster is no full one.

An actor starts late because there is no room for it, which is to be said soon, or because the
machines are busy, which takes time and no more. Half-way through the time that is given, a process
is asked for that needs no room. Once it has started, the cluster is known to start processes, and
how fast; an actor that still has not started finds no room. As long as it has not, the cluster is
slow, and it is given several times as long. Nothing here imports ray.
"""

import time
from collections.abc import Callable
from typing import Any

SLOW = 4
"""So many times as long is waited where no process starts at all."""
SLOWER = 3
"""How many times as long as a process that needs no room may take one that needs room."""


class Patience:
    """Waits for one actor among some; a new one for every actor that has come.

    Attributes:
        seconds: how long nothing has come.
        others_start: whether a process that needs no room has started.
    """

    def __init__(
        self, seconds: float, ask: Callable[[], Any], has_started: Callable[[Any], bool]
    ) -> None:
        """Begin to wait.

        Args:
            seconds: how long, where processes start.
            ask: asks for a process that needs no room.
            has_started: whether what was asked for has started.
        """
        self._limit, self._ask, self._has_started = seconds, ask, has_started
        self._since, self._asked, self._probe = time.monotonic(), 0.0, None
        self.seconds, self.others_start = 0.0, False

    @property
    def is_slow(self) -> bool:
        """Whether no process has started in the time that one should take."""
        return self.seconds >= self._limit and not self.others_start

    @property
    def most(self) -> float:
        """How long is waited in all, as far as is known."""
        return self._limit * (1 if self.others_start else SLOW)

    def is_over(self) -> bool:
        """Whether nothing will come any more; to be asked every now and then."""
        self.seconds = time.monotonic() - self._since
        if self._probe is None:
            if self.seconds >= self._limit / 2:
                self._asked, self._probe = self.seconds, self._ask()
        elif not self.others_start and self._has_started(self._probe):
            self.others_start = True
            self._limit = max(self._limit, SLOWER * (self.seconds - self._asked))
        return self.seconds >= self.most
