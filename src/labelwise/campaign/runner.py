"""Runner: asks for batches and trains while people label; for the labelling page and Label Studio.

Every decision follows from the record, so several processes may run on one campaign: at most one
of them trains at a time.
"""

import math
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

from labelwise.campaign.batches import list_rolling_items
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.costs import campaign_cost
from labelwise.campaign.labels import explain_missing_classes
from labelwise.campaign.project import Project
from labelwise.campaign.settings import Settings
from labelwise.campaign.training import is_tuning_due
from labelwise.errors import Conflict
from labelwise.pool.blocks import Progress
from labelwise.record.events import Event, Trained, Training, TrainingFailed
from labelwise.record.ledger import Ledger
from labelwise.rounds.schedule import ScheduleState, Step, advance
from labelwise.selection.result import Selection

LOST_AFTER = 24 * 3600.0  # Seconds after which a training by an unknown process counts as lost


class CampaignRunner:
    """Runs the steps of a campaign in a folder."""

    def __init__(
        self, project: Project, *, progress: Progress | None = None, train_first: bool = False
    ) -> None:
        """Open the record; the model is opened when it is needed.

        With ``train_first``, labels that exist before the first batch are trained on.
        """
        self.project = project  # replaced when its items change
        self.record = project.open_record()
        # number of labels when a training last failed here, or None
        self.failed_labels: int | None = None
        # number of batches when a selection last failed or found nothing, or None
        self.stuck_batches: int | None = None
        self._progress, self._train_first = progress, train_first
        self._campaign: tuple[object, Campaign] | None = None
        self._by, self._selects_fast = sign_process(os.getpid()), True

    def choose_step(self) -> Step | None:
        """The next step, or None to wait."""
        state, batches, training = self.record.look(
            lambda ledger: (
                read_schedule_state(ledger, self.record.settings_of(ledger)),
                len(ledger.batches),
                ledger.training,
            )
        )
        return advance(
            replace(
                state,
                left=0 if self.stuck_batches == batches else state.left,
                training=training is not None and not self.is_lost(training),
                failed_labels=self.failed_labels,
                train_first=self._train_first,
                rolling=state.rolling if self._selects_fast else 0,
            )
        )

    def run_step(self, step: Step) -> Trained | Selection | None:
        """Train, or open the next batch; None if no item is left to ask for.

        Raises:
            Conflict: another process does this step.
            Exception: the step failed; it is not repeated until there are new labels.
        """
        try:
            if step != "ask":
                result = self.open_campaign().train(
                    by=self._by, lost=self.is_lost, postpone_tuning=step == "train"
                )
                self.failed_labels = None
                return result
            campaign = self.open_campaign()
            left, open_items, roll = self.record.look(
                lambda ledger: (
                    count_items_to_ask(ledger, campaign.settings_of(ledger)),
                    len(ledger.waiting),
                    bool(count_rolling_items(ledger, campaign.settings_of(ledger))),
                )
            )
            # A rolled batch is filled up; items that people work on are part of it.
            count = min(left, campaign.settings.batch - roll * open_items, campaign.count_left())
            count = max(count, 0)
            if count or roll:
                begin = time.monotonic()
                picks = campaign.ask(None, count, ahead=True, roll=roll)
                self._selects_fast = time.monotonic() - begin < LONGEST_ROLLING
                return picks
            # The remaining items were labelled without being asked for.
            self.stuck_batches = self.record.look(lambda ledger: len(ledger.batches))
            return None
        except Conflict:
            raise
        except Exception:
            ledger = self.record.ledger()
            if step != "ask":
                self.failed_labels = len(ledger.labels)
            else:
                self.stuck_batches = len(ledger.batches)
            raise

    def open_campaign(self) -> Campaign:
        """The campaign with its model; opened again with new items, classes or another model."""
        names = ("classes", "self_training")
        key = self.record.look(lambda ledger: (ledger.items, *map(ledger.settings.get, names)))
        if self._campaign is None or self._campaign[0] != key:
            if len(self.project.items) != key[0]:
                self.project = Project.open(self.project.home)
            self._campaign = key, self.project.campaign(progress=self._progress)
        return self._campaign[1]

    def record_lost_training(self) -> None:
        """Record that a training which will never end has failed."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            lost = ledger.training
            if lost is None or not self.is_lost(lost, now):
                return [], None
            reason = (
                "its end could not be recorded"
                if lost.by == self._by
                else "the process that trained was ended"
            )
            return [TrainingFailed(now, lost.number, reason)], None

        if self.record.look(lambda ledger: self.is_lost(ledger.training)):
            self.record.commit(decide)

    def is_lost(self, training: Training | None, now: float | None = None) -> bool:
        """Whether a training will never end; this process asks only while it does not train."""
        if training is None:
            return False
        now = time.time() if now is None else now
        return training.by == self._by or is_training_lost(training, now)


def read_schedule_state(ledger: Ledger, settings: Settings) -> ScheduleState:
    """The state of a campaign on which its next step depends."""
    last = ledger.batches[-1] if ledger.batches else None
    trained = ledger.trainings[-1] if ledger.trainings else None
    return ScheduleState(
        left=count_items_to_ask(ledger, settings),
        labels=len(ledger.labels),
        open_items=len(ledger.waiting),
        batch_size=None if last is None else last.size,
        batch_open=0 if last is None else last.open,
        batch_model=None if last is None else last.asked.model,
        trained_model=None if trained is None else trained.number,
        trained_labels=0 if trained is None else trained.labels,
        tail=settings.tail,
        training=ledger.training is not None,
        failed=ledger.failure is not None,
        trainable=not ledger.validation.issuperset(ledger.labels)
        and explain_missing_classes(ledger, settings) is None,
        tuning_due=trained is not None and is_tuning_due(trained),
        rolling=count_rolling_items(ledger, settings),
    )


LONGEST_ROLLING = 5.0
"""Seconds of a training, and of a selection, up to which batches roll: others would never end."""


def count_rolling_items(ledger: Ledger, settings: Settings) -> int:
    """Number of waiting items that a new model may select again."""
    if not settings.rolling or not ledger.batches or not ledger.trainings:
        return 0
    if ledger.trainings[-1].seconds > LONGEST_ROLLING:
        return 0
    return len(list_rolling_items(ledger, settings, time.time()))


def count_items_to_ask(ledger: Ledger, settings: Settings) -> int:
    """Number of items that may still be asked for, by the pool and the budget."""
    if settings.budget_money is not None or settings.budget_hours is not None:
        share = campaign_cost(ledger, settings).share
        if share is not None and share >= 1:
            return 0
    left = ledger.items - len(ledger.asked_ids)
    if settings.budget_labels is not None:
        wanted = sum(batch.open for batch in ledger.open_batches) * settings.overlap
        left = min(left, (settings.budget_labels - ledger.vote_count - wanted) // settings.overlap)
    return max(left, 0)


def sign_process(pid: int) -> str:
    """The signature of a process under its trainings; shows others whether it still runs."""
    return f"background process {pid} on {socket.gethostname()}"


def is_training_lost(training: Training, now: float) -> bool:
    """Whether a training in the record will never end because its process is gone.

    This can be checked for processes on this machine; any other training may take a day.
    """
    pid = training.by.removeprefix("background process ").split(" ")[0]
    if pid.isdecimal() and training.by == sign_process(int(pid)):
        return not _is_process_running(int(pid), now - training.at)
    return now - training.at > LOST_AFTER


def _is_process_running(pid: int, seconds: float) -> bool:
    """Whether a process is running and started at least some seconds ago.

    A system may reuse a PID; in a restarted container this process may have the old one.
    """
    age = _read_process_age(pid)
    if age is not None:
        return age + 1.0 >= seconds
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _read_process_age(pid: int) -> float | None:
    """Seconds since the start of a process; None if unknown, -inf if it has ended."""
    try:
        # The name, in brackets, may contain anything; field 22 is the start time.
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        state, *fields = text.rpartition(")")[2].split()
        if state == "Z":  # it has ended, but its parent has not noticed
            return -math.inf
        started = int(fields[18]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return None
