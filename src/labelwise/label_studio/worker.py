"""The background process of the ML backend: syncs with Label Studio whenever there is news.

``python -m labelwise.label_studio.worker HOME VARIABLE`` reads orders from its input and says
on its output how far it is (a line of JSON each), as `labelwise.web.supervisor` expects; it ends
when its input does. Orders are ``look`` (at everything) and ``tasks 4 7 9`` (at the annotations of
these alone). The token of Label Studio is in the environment, under the name VARIABLE.

Orders that come in quick succession are one: after each the process waits for a moment of quiet.
After a sync it rests for several times as long as Label Studio worked for it, since that lists
annotations slowly, and should have most of its time for the people who label.
"""

import queue
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from labelwise.errors import LabelwiseError
from labelwise.label_studio.bridge import Bridge
from labelwise.label_studio.client import Client
from labelwise.label_studio.http import token_from
from labelwise.label_studio.tasks import Tasks
from labelwise.label_studio.visit import Wishes, tasks_folder
from labelwise.pool.blocks import Progress
from labelwise.web.beside import Order, begin

QUIET = 1.0
"""Seconds without a new order before a sync begins."""
LONGEST = 10.0
"""Seconds after which it begins all the same."""
SHARE = 4.0
"""So many times as long as Label Studio was at work, the process rests after a sync."""
EVERY = 600.0
"""Seconds after which everything is looked at, whether there was an order or not."""
PATIENCE = 15.0
"""Seconds before a sync that failed is tried again."""
SAID_EVERY = 0.3
"""Seconds between two words on how far a step is."""

Say = Callable[..., None]


class Orders:
    """What is to be looked at, gathered from lines.

    Example:
        >>> orders = Orders()
        >>> orders.take("tasks 4 7"), orders.take("tasks 7 9"), orders.tasks
        (None, None, [4, 7, 9])
        >>> orders.take("look"), orders.tasks
        (None, None)
    """

    def __init__(self) -> None:
        self._all = False
        self._some: dict[int, None] = {}

    def take(self, line: str) -> None:
        """Add an order; one that is not understood means everything."""
        word, *numbers = line.split() or ["look"]
        if word == "tasks" and all(number.isdecimal() for number in numbers):
            self._some |= dict.fromkeys(map(int, numbers))
        else:
            self._all = True

    @property
    def tasks(self) -> list[int] | None:
        """The tasks to look at; None for all."""
        return None if self._all else list(self._some)


def run(home: Path, variable: str, wishes: Wishes, lines: "queue.Queue[Order]", say: Say) -> None:
    """Sync at once, and then whenever there is news; until the process ends."""
    facts = Tasks.open(tasks_folder(home)).facts
    client = Client(facts.url, token_from(variable), source=variable)

    bridge = Bridge(client, facts.project, home, wishes=wishes, progress=_now_and_then(say))
    orders = everything()
    while True:
        before = client.seconds
        say(stage="syncing with Label Studio")
        try:
            done = bridge.sync(orders.tasks)
        except LabelwiseError as error:  # what was to be looked at is looked at again
            say(error=str(error))
            time.sleep(PATIENCE)
            orders = everything()
            continue
        say(error=None if done.failure is None else str(done.failure)[:2000])
        time.sleep(SHARE * (client.seconds - before))
        orders = gathered(lines)


def _now_and_then(say: Say) -> Progress:
    """Passes on how far a step is, a few times a second at most."""
    said = [0.0]

    def progress(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - said[0] > SAID_EVERY:
            said[0] = now
            say(stage=stage, done=done, total=total)

    return progress


def everything() -> Orders:
    """The order to look at all there is."""
    orders = Orders()
    orders.take("look")
    return orders


def gathered(lines: "queue.Queue[Order]") -> Orders:
    """Wait for news and for a moment of quiet; everything, if nothing comes for long."""
    orders = Orders()
    try:
        orders.take(lines.get(timeout=EVERY)[0])
    except queue.Empty:
        return everything()
    end = time.monotonic() + LONGEST
    while (left := end - time.monotonic()) > 0:
        try:
            orders.take(lines.get(timeout=min(QUIET, left))[0])
        except queue.Empty:
            break
    while not lines.empty():
        orders.take(lines.get_nowait()[0])
    return orders


def main(arguments: Sequence[str]) -> None:
    """Sync until the input ends."""
    say, lines = begin()
    home, variable, *flags = arguments
    try:
        run(Path(home), variable, Wishes(guesses="--guesses" in flags), lines, say)
    except LabelwiseError as error:
        print(f"labelwise: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
