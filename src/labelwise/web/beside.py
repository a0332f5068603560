"""A process at work beside a server: orders come in as lines, what it says goes out as lines.

It lives no longer than the server: the end of its input is its own end, in the middle of a step
too. The record holds every label, and whoever comes next sees that this process is gone.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from labelwise.errors import LabelwiseWarning

Order = tuple[str, float]
"""A line and when it came, by the monotonic clock."""


def begin() -> tuple[Callable[..., None], "queue.Queue[Order]"]:
    """Make this process one that works beside a server.

    Returns:
        ``say(**said)``, which sends one line, and the orders that come.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    speaker = _take_output()
    orders: queue.Queue[Order] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()
    warnings.simplefilter("always", LabelwiseWarning)
    if hasattr(os, "nice"):
        os.nice(10)  # people who label come first

    def say(**said: Any) -> None:
        speaker.write(json.dumps(said) + "\n")
        speaker.flush()

    return say, orders


def _take_output() -> TextIO:
    """Keep the output for what is said; what libraries print goes to the terminal."""
    speaker = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return speaker


def _listen(lines: TextIO, orders: "queue.Queue[Order]") -> None:
    """Pass on orders; the end of the input is the end of the server, and of this process."""
    for line in lines:
        orders.put((line.strip(), time.monotonic()))
    os._exit(0)
