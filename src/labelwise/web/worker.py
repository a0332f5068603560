"""The background process: trains, and asks for the next batch, while people label.

``python -m labelwise.web.worker HOME`` is started by the server, reads orders from its input
(``train``: now, whatever the state of the batch), says on its output how far it is (a line of JSON
each), and ends when its input does. It decides everything from the record: any number of servers
may run on one campaign, and at most one of them trains at a time.
"""

import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labelwise.errors import Conflict, LabelwiseError
from labelwise.record.events import Event, Training, TrainingFailed
from labelwise.record.ledger import Ledger
from labelwise.web.beside import Order, begin
from labelwise.web.steps import Step, is_lost, left_to_ask, next_step, signature
from labelwise.web.supervisor import READY

INTERVAL = 0.5
"""Seconds between two looks at the record."""
EVERY = 0.3
"""Seconds between two words on how far a step is."""
PATIENCE = 5.0
"""Seconds to wait before a record that could not be read is tried again."""

Say = Callable[..., None]


class Worker:
    """Looks at a campaign's record and does what is to be done.

    Args:
        home: The campaign's folder.
        say: Called with ``stage``, ``done``, ``total`` and ``error``, where there is something.
    """

    def __init__(self, home: Path, say: Say) -> None:
        from labelwise.campaign.project import Project

        self._home, self._say = home, say
        self._desk = Project.open(home).desk()
        self._campaign: Any = None
        self._seen = -1
        self._failed_at: int | None = None
        self._stuck: int | None = None
        self._by = signature(os.getpid())
        self._awaited: Training | None = None  # by someone else, at the last look
        self._error: tuple[str, tuple[int, int]] | None = None  # and how far all was then
        self._stage = ""
        self._said = 0.0
        self.ended = 0.0  # when the last training was over, by the monotonic clock

    def look(self, *, ordered: bool = False) -> bool:
        """Do one step if there is one to do; False if not.

        Args:
            ordered: Whether someone wants a training, whatever the state of the batch.
        """
        length = self._desk.storage.length(self._desk.name)
        # Whether a training was lost depends on its process, of which the record learns nothing.
        if length == self._seen and not ordered and not self._is_over(self._awaited):
            return False
        self._seen = -1  # what cannot be read now is looked at again
        if ordered:
            self._failed_at = self._stuck = None
        self._forget_lost()
        step = self._desk.look(self._decide)
        if ordered and (step is None or self._desk.look(lambda ledger: bool(ledger.labels))):
            step = "train"
        if step is None:
            self._forget_error()
            self._seen = length
            return False
        return self._do(step)

    def _decide(self, ledger: Ledger) -> Step | None:
        settings = self._desk.settings_of(ledger)
        left = 0 if self._stuck == len(ledger.batches) else left_to_ask(ledger, settings)
        self._awaited = ledger.training
        busy = ledger.training is not None and not self._is_over(ledger.training)
        return next_step(ledger, settings, left=left, busy=busy, failed_at=self._failed_at)

    def _do(self, step: Step) -> bool:
        try:
            done = self._train() if step == "train" else self._ask()
        except Conflict:  # another process was quicker; it will do what is left to do
            done = False
        except Exception as error:
            self._note(step, error)
            return False
        self._error = None
        self._say()
        return done

    def _train(self) -> bool:
        labels = self._desk.look(lambda ledger: len(ledger.labels))
        self._begin(f"training on {labels:,} labels")
        try:
            self._ready().train(by=self._by, lost=self._is_lost)
        finally:  # before it is said: who answers to that, as with another order, comes later
            self.ended = time.monotonic()
        self._failed_at = None
        return True

    def _ask(self) -> bool:
        number, wanted = self._desk.look(
            lambda ledger: (
                len(ledger.batches) + 1,
                left_to_ask(ledger, self._desk.settings_of(ledger)),
            )
        )
        self._begin(f"choosing batch {number:,}")
        modelled = self._desk.look(lambda ledger: bool(ledger.trainings))
        campaign = self._ready() if modelled else self._without_model()
        count = min(wanted, campaign.settings.batch, campaign.left())
        if not count:  # labels of items that nobody asked for have used up the pool
            self._stuck = number - 1
            return False
        campaign.ask(None, count, ahead=True)
        return True

    def _begin(self, stage: str) -> None:
        self._stage = stage
        self._say(stage=stage)

    def _note(self, step: Step, error: Exception) -> None:
        """Remember what failed, so that it is not tried again and again."""
        words = str(error) if isinstance(error, LabelwiseError) else ""
        words = words or f"{type(error).__name__}: {error}"
        ledger = self._desk.ledger()
        if step == "train":
            self._failed_at = len(ledger.labels)
        else:
            self._stuck = len(ledger.batches)
        words = f"the {'training' if step == 'train' else 'choice'} failed: {words}"[:2000]
        self._error = words, _progress_of(ledger)
        self._say(error=words)
        if not isinstance(error, LabelwiseError):
            import traceback

            traceback.print_exc()

    def _forget_error(self) -> None:
        """Say no more of an error that another process has overcome."""
        if self._error is not None and self._desk.look(_progress_of) != self._error[1]:
            self._error = None
            self._say()

    def settle(self) -> None:
        """Say what holds while nothing is done: that all is well, or what went wrong last."""
        self._say(**({} if self._error is None else {"error": self._error[0]}))

    def _forget_lost(self) -> None:
        """Note that a training which will never end has failed."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            lost = ledger.training
            if lost is None or not self._is_lost(lost, now):
                return [], None
            mine = lost.by == self._by
            words = (
                "its end could not be recorded" if mine else "the process that trained was ended"
            )
            return [TrainingFailed(now, lost.number, words)], None

        if self._desk.look(lambda ledger: self._is_over(ledger.training)):
            self._desk.commit(decide)

    def _is_lost(self, training: Training, now: float) -> bool:
        """Whether a training will never end: this process asks only while it does not train."""
        return training.by == self._by or is_lost(training, now)

    def _is_over(self, training: Training | None) -> bool:
        return training is not None and self._is_lost(training, time.time())

    def _without_model(self) -> Any:
        """The campaign for its first batch, seconds before torch would be imported."""
        from labelwise.campaign.campaign import Campaign
        from labelwise.campaign.project import Project
        from labelwise.pool.pool import Pool

        project = Project.open(self._home)
        inputs: Any = project.inputs
        no_learner: Any = None
        return Campaign(project.name, Pool(inputs), no_learner, project.storage())

    def _ready(self) -> Any:
        """The campaign with its model; opened again when the pool has grown."""
        items = self._desk.look(lambda ledger: ledger.items)
        if self._campaign is None or len(self._campaign.pool) != items:
            from labelwise.campaign.project import Project

            project = Project.open(self._home)
            self._campaign = project.campaign(progress=self._progress)
        return self._campaign

    def _progress(self, stage: str, done: int, total: int) -> None:
        """Pass on how far a step is, a few times a second at most."""
        now = time.monotonic()
        if done == total or now - self._said > EVERY:
            self._said = now
            words = self._stage if stage == "training" else f"{self._stage}: {stage}"
            self._say(stage=words, done=done, total=total)

    def warm_up(self) -> None:
        """Import and open what a training will need, while nothing else is to be done."""
        if self._campaign is None:
            self._say(stage=READY)
            self._ready()
            self.settle()


def _progress_of(ledger: Ledger) -> tuple[int, int]:
    return len(ledger.trainings), len(ledger.batches)


def main(arguments: Sequence[str]) -> None:
    """Look and work until the input ends."""
    say, orders = begin()
    try:
        worker = Worker(Path(arguments[0]), say)
    except LabelwiseError as error:
        print(f"labelwise: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    ordered = away = False
    while True:
        try:
            while worker.look(ordered=ordered):
                ordered = False
            ordered = False
            worker.warm_up()
            if away:
                away = False
                worker.settle()
        except LabelwiseError as error:  # the record is away: labels are refused too, not lost
            away = True
            say(error=str(error))
            time.sleep(PATIENCE)
        ordered = _is_ordered(orders, worker.ended) or ordered


def _is_ordered(orders: "queue.Queue[Order]", ended: float) -> bool:
    """Whether someone wants a training, after a moment's wait.

    Several orders mean no more than one, and one that came while a training was at work is done.
    """
    try:
        given = [orders.get(timeout=INTERVAL)]
    except queue.Empty:
        return False
    while not orders.empty():
        given.append(orders.get())
    return any(order == "train" and at > ended for order, at in given)


if __name__ == "__main__":
    main(sys.argv[1:])
