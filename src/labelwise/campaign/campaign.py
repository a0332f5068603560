"""Campaign: ask for labels, tell them, train, and ask again, on a record that survives restarts.

All state of a campaign is in its record; the object only adds a pool and a learner.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.campaign import batches
from labelwise.campaign.batches import CampaignState
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.operations import check_annotator
from labelwise.campaign.training import (
    CampaignModel,
    TrainingPlan,
    describe_training_error,
    plan_training,
)
from labelwise.errors import BadInput, Conflict, StorageFailed, UnknownName
from labelwise.files import JsonObject, to_json
from labelwise.learner import Label, Learner
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.record.events import Asked, Event, Trained, Training, TrainingFailed
from labelwise.record.group_commit import check_record_length
from labelwise.record.ledger import Ledger
from labelwise.record.storage import Storage
from labelwise.rounds import Predictions
from labelwise.selection.result import Selection

log = logging.getLogger("labelwise.campaign")


class Campaign(CampaignRecord):
    """The record of a campaign with a pool and a model: it also asks for batches and trains.

    Example:
        >>> import labelwise
        >>> from labelwise.campaign import open_storage
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import LogisticRegression
        >>> images, digits = load_digits(return_X_y=True)
        >>> make = lambda: LogisticRegression(max_iter=1000)
        >>> campaign = Campaign(
        ...     "digits", labelwise.Pool(images), labelwise.SklearnLearner(make),
        ...     open_storage("memory://"), strategy="entropy", batch=40, seed=1,
        ... )
        >>> first = campaign.ask()
        >>> bool((campaign.ask().ids == first.ids).all())  # the batch is open: it stays the same
        True
        >>> length = campaign.tell({item: digits[item] for item in first.ids}, by="ann")
        >>> trained = campaign.train()
        >>> len(campaign.ask())
        40
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        learner: Learner,
        storage: Storage,
        *,
        home: str | Path | None = None,
        clock: Callable[[], float] = time.time,
        progress: Progress | None = None,
        prelabels: Mapping[int, tuple[Label, float]] | None = None,
        **settings: Any,
    ) -> None:
        """Start a campaign, or continue the one of this name in the storage.

        Args:
            name: of the campaign.
            pool: the items, under ids that never change; it may have grown.
            learner: trained on the labels; see `labelwise.Learner`.
            storage: of the record; see `labelwise.open_storage`.
            home: a folder for checkpoints of the model, if the learner can save itself.
            clock: returns the seconds since the epoch.
            progress: called as ``progress(stage, done, total)`` while a batch is selected.
            prelabels: label and confidence by id, shown as guesses before there is a model.
            **settings: see `labelwise.campaign.Settings`; an existing campaign keeps its own,
                which `change` changes.
        """
        super().__init__(name, storage, clock=clock)
        self.pool, self.learner = pool, learner
        self.home = None if home is None else Path(home)
        self._progress, self._prelabels = progress, dict(prelabels or {})
        self._model = CampaignModel(pool, learner)
        self._model_lock = threading.RLock()  # serializes the use of the learner
        self.start(len(pool), **settings)
        asked = self.look(lambda ledger: np.fromiter(ledger.asked_ids, dtype=np.int64))
        missing = asked[~pool.index.contains(asked)]
        if len(missing):
            raise UnknownName(
                f"campaign {name!r} asked for item {missing[0]}, which the pool does not have; "
                "give it the pool it was started with"
            )

    def _check_unasked_items(self, ids: Iterable[object]) -> None:
        self.pool.find_positions(list(ids))

    def count_left(self) -> int:
        """Number of items of the pool that can still be asked for."""
        return batches.count_free_items(self.pool, self.look(batches.find_taken_items))

    def ask(
        self,
        strategy: str | int | None = None,
        budget: int | None = None,
        *,
        seed: int | None = None,
        expected: int | None = None,
        ahead: bool = False,
        roll: bool = False,
        **options: Any,
    ) -> Selection:
        """The batch to label now: the open one, or a new one if all labels are in.

        As long as a batch is open, every call returns that batch, from any process. A new one is
        selected with the model of the last `train`; nothing is trained here.

        Args:
            strategy: the setting if None, or the setting ``first`` before there is a model. A
                number is used as the budget.
            budget: number of items; the setting ``batch`` if None, limited to the remaining pool.
            seed: decides every draw; follows from the campaign's seed if None.
            expected: length that the record must have, from `Ledger.length`, or else `Conflict`.
            ahead: open the next batch as soon as only the tail of the last one is open.
            roll: select the open items that nobody works on again, with the newest model, and
                ``budget`` further ones. Where training uses weights they stay.
            **options: of the strategy.

        Returns:
            The picks in order. ``info`` holds the number of the batch, its strategy, seed and
            options, the number of the model, and the ids of the holdout.
        """
        name: Any = strategy
        if isinstance(name, int | np.integer) and not isinstance(name, bool):
            if budget is not None:
                raise BadInput(f"the budget is given twice: {name} and {budget}")
            name, budget = None, int(name)
        settled: Asked | None = None
        while settled is None:
            found = self.look(lambda ledger: self._read_state(ledger, ahead, roll, expected))
            if isinstance(found, Asked):
                settled = found
                break
            rolled = len(found.released) + len(found.carried)
            size = (budget or 0) + rolled if rolled else budget
            request = batches.make_batch_request(self.pool, found, name, size, seed, options)
            with self._model_lock:
                if found.trained is not None:
                    self._restore_model(found.trained)
                new = batches.select_batch(
                    self._model, found, request, self._progress, self._prelabels
                )
            if len(found.released):
                record_batch = partial(batches.roll_batch, asked=new, released=found.released)
            else:
                record_batch = partial(batches.open_batch, asked=new, ahead=ahead)
            settled = self.commit(record_batch, expected=expected)
        picks = batches.read_batch_selection(settled)
        return replace(picks, keys=self._name_items(picks.ids)) if self.pool.has_keys else picks

    def _name_items(self, ids: Any) -> list[Any]:
        """The keys of some items."""
        keys = self.pool.keys
        return [keys[place] for place in self.pool.index.find_positions(ids)]

    def labels(self) -> dict[Any, Label]:
        """As `CampaignRecord.labels`, by the keys of the pool."""
        found = super().labels()
        if not self.pool.has_keys:
            return found
        return dict(zip(self._name_items(list(found)), found.values(), strict=True))

    def labelled(self) -> list[JsonObject]:
        """As `CampaignRecord.labelled`; ``id`` is the key of the pool."""
        rows = super().labelled()
        if not self.pool.has_keys:
            return rows
        names = self._name_items([row["id"] for row in rows])
        return [{**row, "id": name} for row, name in zip(rows, names, strict=True)]

    def _read_state(
        self, ledger: Ledger, ahead: bool, roll: bool, expected: int | None
    ) -> Asked | CampaignState:
        """The open batch, or the state that determines a new one."""
        settings = self.settings_of(ledger)
        if expected is not None:
            check_record_length(ledger, expected)
        newest = ledger.trainings[-1].number if ledger.trainings else None
        if roll and ledger.batches and ledger.batches[-1].asked.model != newest:
            rolling = batches.list_rolling_items(ledger, settings, self.clock())
            if rolling:
                return CampaignState.from_ledger(ledger, settings, rolling)
        batch = batches.find_open_batch(ledger, ahead)
        return CampaignState.from_ledger(ledger, settings) if batch is None else batch.asked

    def train(
        self,
        *,
        seed: int | None = None,
        by: str = "",
        lost: Callable[[Training, float], bool] | None = None,
        postpone_tuning: bool = False,
    ) -> Trained:
        """Train the learner on all current labels, with the weights of their batches.

        The holdout is not trained on but measured with. A training that fails is recorded and
        raised; no label is lost by it.

        Args:
            seed: of the training; follows from the campaign's seed if None.
            by: the annotator who starts it.
            lost: if given, a training in the record that has not ended is a `Conflict`, unless
                ``lost(training, now)`` says that it never will.
            postpone_tuning: take over what cross-validation chose before where choosing again
                would take more than a moment.

        Returns:
            The event, with ``metrics``: training_labels, validation_labels, loss, accuracy (or
            mse) with its interval if there is a holdout, agreement with the previous model, and
            prequential, how well that one predicted the last batch.
        """
        check_annotator(by)

        def begin(ledger: Ledger, now: float) -> tuple[list[Event], TrainingPlan]:
            running = ledger.training
            if lost is not None and running is not None and not lost(running, now):
                raise Conflict(f"training {running.number} is running; wait for it")
            plan = plan_training(
                ledger, self.settings_of(ledger), seed, postpone_tuning=postpone_tuning
            )
            return [Training(now, plan.number, plan.labels, by)], plan

        plan = self.commit(begin)
        try:
            with self._model_lock:
                if plan.before is not None:
                    self._restore_model(plan.before)
                seconds, metrics = self._model.run_training(plan)
                checkpoint = self._model.save_checkpoint(self.home, plan.number)
            values = to_json(metrics, non_finite=lambda value: None)

            def end(ledger: Ledger, now: float) -> tuple[list[Event], Trained]:
                event = Trained(
                    now, plan.number, plan.labels, seconds, values, checkpoint, plan.seed
                )
                return [event], event

            log.info("%s: model %d trained in %.2f s", self.name, plan.number, seconds)
            return self.commit(end)
        except BaseException as error:
            self._record_failure(plan.number, error)
            raise

    def load_model(self) -> CampaignModel:
        """The model of the last training."""
        past = self.look(lambda ledger: ledger.trainings[-1] if ledger.trainings else None)
        if past is None:
            raise BadInput("the campaign has no model yet; label a batch and train first")
        with self._model_lock:
            self._restore_model(past)
        return self._model

    def predict(self, ids: Any) -> Predictions:
        """Labels of some items by the last model, and their probabilities; None for values."""
        found = self.load_model().predict(ids)
        if found is None:
            raise BadInput(f"{type(self.learner).__name__} cannot predict; take another learner")
        return found

    def _record_failure(self, number: int, error: BaseException) -> None:
        self._model.forget_model()
        text = describe_training_error(error)

        def fail(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            ended = any(trained.number == number for trained in ledger.trainings)
            return [] if ended else [TrainingFailed(now, number, text)], None

        try:
            self.commit(fail)
        except StorageFailed as second:
            error.add_note(f"the failure could not be recorded: {second}")

    def _restore_model(self, past: Trained) -> None:
        """Hold the model of a past training: as it is, from its checkpoint, or trained again."""
        if self._model.number == past.number:
            return
        if not self._model.load_checkpoint(past, self.settings.regression, self.home):
            self._model.repeat_training(past, self.storage.read(self.name))
