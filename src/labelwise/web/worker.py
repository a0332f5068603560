"""The background process: trains and asks for the next batch while people label.

``python -m labelwise.web.worker HOME`` is started by the server, reads orders from its input,
reports its progress on its output (one line of JSON each), and ends when its input does. Orders are
``train`` (now, whatever the state of the batch) and ``refresh`` (add the new items of the source).
"""

import queue
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from labelwise.campaign.project import Project
from labelwise.campaign.runner import CampaignRunner
from labelwise.campaign.training import describe_training_error
from labelwise.errors import Conflict, LabelwiseError, MissingDependency
from labelwise.record.events import Training
from labelwise.rounds import DeferredLearner, Step
from labelwise.web.background import READY, WorkerOrder, connect_to_server, limit_progress_reports
from labelwise.web.predictions import predict_pool, write_predictions

LOOK_INTERVAL = 0.5  # Seconds between two looks at the record
MOST_PREDICTED = 300_000  # Largest pool of which all items are predicted after a training
RETRY_DELAY = 5.0  # Seconds before a record that could not be read is read again


class Worker:
    """Looks at a campaign's record and runs the next step.

    ``report`` is called with ``stage``, ``done``, ``total`` and ``error``, as far as they apply.
    """

    def __init__(self, home: Path, report: Callable[..., None]) -> None:
        self._report = report
        self._project = Project.open(home)
        self._progress = limit_progress_reports(self._report_progress)
        self._runner = CampaignRunner(self._project, progress=self._progress)
        self._predicted: int | None = None  # number of the training whose predictions are written
        self._record = self._runner.record
        self._seen_length = -1
        self._awaited: Training | None = None  # the running training at the last look
        self._error: tuple[str, int] | None = None  # with the number of steps done at that time
        self._stage = ""  # none between two steps
        self._warm = False
        self.trained_at = 0.0  # end of the last training, by the monotonic clock

    def run_next_step(self, *, ordered: bool = False) -> bool:
        """Run the next step; False if there is none.

        With ``ordered``, it trains whatever the state of the batch.
        """
        runner = self._runner
        length = self._record.storage.length(self._record.name)
        # A process that ends during its training leaves no event, so it is checked every time.
        if length == self._seen_length and not ordered and not runner.is_lost(self._awaited):
            return False
        self._seen_length = -1  # look again if the record cannot be read now
        if ordered:
            runner.failed_labels = runner.stuck_batches = None
        runner.record_lost_training()
        step = runner.choose_step()
        labels, self._awaited, done = self._record.look(
            lambda ledger: (
                len(ledger.labels),
                ledger.training,
                len(ledger.trainings) + len(ledger.batches),
            )
        )
        if ordered and (step is None or labels):
            step = "train"
        if step is None:
            if self._error is not None and self._error[1] != done:
                self._error = None  # another process has done the step
                self._report()
            self._seen_length = length
            return False
        batch = self._record.look(lambda ledger: len(ledger.batches)) + 1
        return self._run_step(step, labels, batch, done)

    def _run_step(self, step: Step, labels: int, batch: int, done: int) -> bool:
        training = step != "ask"
        self._stage = f"training on {labels:,} labels" if training else f"selecting batch {batch:,}"
        self._report(stage=self._stage)
        try:
            try:
                result = self._runner.run_step(step)
            finally:  # before the report, so that an order in response to it is later
                self.trained_at = time.monotonic() if training else self.trained_at
                self._stage = ""
        except Conflict:  # another process does this step
            result = None
        except Exception as error:
            failed = "training" if training else "selection"
            text = f"the {failed} failed: {describe_training_error(error)}"
            self._error = text, done
            self._report(error=text)
            if not isinstance(error, LabelwiseError):
                traceback.print_exc()
            return False
        self._error = None
        self._report()
        return result is not None

    def refresh_items(self) -> None:
        """Add the new items of the source to the campaign."""
        self._stage = "adding items"
        self._report(stage=self._stage)
        try:
            self._project.refresh(skip_broken=True, progress=self._progress)
        except (LabelwiseError, OSError) as error:
            self._error = f"the items could not be added: {error}", -1
        else:
            self._error = None
        self._stage = ""
        self.report_rest()

    def report_rest(self) -> None:
        """Report the state while nothing runs: no news, or the last error."""
        self._report(**({} if self._error is None else {"error": self._error[0]}))

    def _report_progress(self, stage: str, done: int, total: int) -> None:
        """Report the progress of a step.

        Nothing is reported between two steps, so that the page shows an idle process while all
        items are predicted.
        """
        if self._stage:
            words = self._stage if stage == "training" else f"{self._stage}: {stage}"
            self._report(stage=words, done=done, total=total)

    def predict_items(self) -> None:
        """Predict all items with the newest model, while there is nothing else to do.

        Whole networks and very large pools are left out: they would take minutes.
        """
        last = self._record.look(lambda ledger: ledger.trainings[-1:])
        if not last or last[0].number == self._predicted:
            return
        self._predicted, project = last[0].number, self._project
        large = len(project.items) > MOST_PREDICTED or project.inputs.ndim != 2
        if large or last[0].metrics.get("classes") is None:
            return
        try:
            campaign = self._runner.open_campaign()
            found = predict_pool(campaign, self._predicted, len(project.items))
            if found is not None:
                write_predictions(project.home, found)
        except (LabelwiseError, OSError) as error:  # the page does without them
            print(f"labelwise: the items could not be predicted: {error}", file=sys.stderr)

    def warm_up(self) -> None:
        """Import everything that a training needs, while there is nothing else to do."""
        if self._warm:
            return
        self._warm = True
        self._report(stage=READY)
        learner = self._runner.open_campaign().learner
        with suppress(MissingDependency):  # a training will report it
            assert isinstance(learner, DeferredLearner) and learner.made
        self.report_rest()


def main(arguments: Sequence[str]) -> None:
    """Look and work until the input ends."""
    report, orders = connect_to_server()
    try:
        worker = Worker(Path(arguments[0]), report)
    except LabelwiseError as error:
        print(f"labelwise: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    ordered = unreadable = False
    given: set[str] = set()
    while True:
        try:
            if "refresh" in given:
                worker.refresh_items()
            while worker.run_next_step(ordered=ordered):
                ordered = False
            ordered = False
            worker.warm_up()
            worker.predict_items()
            if unreadable:
                unreadable = False
                worker.report_rest()
        except LabelwiseError as error:  # the record cannot be read: labels are refused too
            unreadable = True
            report(error=str(error))
            time.sleep(RETRY_DELAY)
        given = _wait_for_worker_orders(orders, worker.trained_at)
        ordered = "train" in given or ordered


def _wait_for_worker_orders(orders: "queue.Queue[WorkerOrder]", trained_at: float) -> set[str]:
    """Wait a moment for orders; those to train count only since the last training ended."""
    try:
        given = [orders.get(timeout=LOOK_INTERVAL)]
    except queue.Empty:
        return set()
    while not orders.empty():
        given.append(orders.get())
    return {order for order, at in given if order != "train" or at > trained_at}


if __name__ == "__main__":
    main(sys.argv[1:])
