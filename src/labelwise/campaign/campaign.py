"""Campaign: ask for labels, tell them, train, and ask again, on a record that outlives the process.

What a campaign knows is in its record; the object holds a pool, a learner and nothing else that
could be lost.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.campaign import asking, fitting
from labelwise.campaign.asking import Request, selection_of
from labelwise.campaign.choosing import Standing, stand
from labelwise.campaign.desk import Desk
from labelwise.campaign.model import Model, Places, plain
from labelwise.campaign.operations import Seconds, check_expected, check_person, whole_ids
from labelwise.errors import Conflict, StorageFailed, UnknownName
from labelwise.learner import Learner
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.record.events import Asked, Event, Label, Trained, Training, TrainingFailed
from labelwise.record.ledger import Ledger
from labelwise.record.storage import Storage
from labelwise.selection.result import Selection


class Campaign(Desk):
    """A pool, a model and the record of a labelling campaign; all that a `Desk` does, and more.

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
        **settings: Any,
    ) -> None:
        """Start a campaign, or go on with the one of this name that the storage holds.

        Args:
            name: of the campaign.
            pool: the items, under ids that never change; it may have grown.
            learner: trained on the labels; see `labelwise.Learner`.
            storage: where the record is; see `labelwise.open_storage`.
            home: a folder for checkpoints of the model, if the learner can save itself.
            clock: gives the seconds since the epoch.
            progress: called as ``progress(stage, done, total)`` while a batch is chosen.
            **settings: see `labelwise.campaign.Settings`; those of a campaign that is there need
                not be given again, and are changed by `change`.
        """
        super().__init__(name, storage, clock=clock)
        self.pool, self.learner = pool, learner
        self.home = None if home is None else Path(home)
        self._progress = progress
        self._places = Places(pool)
        self._model = Model(learner, self._places)
        self._busy = threading.RLock()  # a learner does one thing at a time
        self.start(len(pool), **settings)
        asked = self.look(lambda ledger: np.fromiter(ledger.asked_ids, dtype=np.int64))
        missing = asked[~self._places.known(asked)]
        if len(missing):
            raise UnknownName(
                f"campaign {name!r} asked for item {missing[0]}, which the pool does not have; "
                "give it the pool it was started with"
            )

    @property
    def desk(self) -> Desk:
        """The campaign as the people who label see it."""
        return self

    def tell(
        self,
        labels: Mapping[int, Label],
        *,
        by: str = "",
        seconds: Seconds = None,
        anything: bool = False,
        expected: int | None = None,
    ) -> int:
        """As `Desk.tell`; with ``anything``, of any item of the pool."""
        if anything:
            self._places.of(whole_ids(labels))
        return super().tell(labels, by=by, seconds=seconds, anything=anything, expected=expected)

    def left(self) -> int:
        """How many items of the pool can still be asked for."""
        taken = self.look(lambda ledger: stand(ledger, self.settings_of(ledger)).taken)
        return len(self.pool) - int(np.isin(self._places.ids, taken).sum())

    def ask(
        self,
        strategy: str | int | None = None,
        budget: int | None = None,
        *,
        seed: int | None = None,
        expected: int | None = None,
        ahead: bool = False,
        **options: Any,
    ) -> Selection:
        """The batch to label now: the open one, or a new one where all labels are in.

        As long as a batch is open, every call gives that batch, from any process. A new one is
        chosen with the model of the last `train`; nothing is trained here.

        Args:
            strategy: what chooses; the setting if None, and ``first`` as long as there is no
                model. A number is taken for the budget.
            budget: how many items; the setting ``batch`` if None, or what is left of the pool.
            seed: decides every draw; follows from the campaign's seed if None.
            expected: how long the record must be, as `Ledger.length` told it.
            ahead: open the next batch as soon as the last is down to its tail (setting ``tail``).
            **options: of the strategy.

        Returns:
            The picks in order. ``info`` holds the number of the batch, its strategy, seed and
            options, the number of the model, and which ids are for measuring.

        Raises:
            Conflict: the record has another length than expected.
        """
        request = Request.of(strategy, budget, seed, options)
        while True:
            found = self.look(lambda ledger: self._before_asking(ledger, ahead, expected))
            if isinstance(found, Asked):
                return selection_of(found)
            standing, trained = found
            wish = request.wish(self._places, standing, trained, self._progress)
            with self._busy:
                if trained is not None:
                    self._restore(trained)
                new = asking.chosen(self._places, self._model, standing, wish, trained)
            open_it = partial(asking.opened, asked=new, ahead=ahead)
            settled = self.commit(open_it, expected=expected)
            if settled is not None:
                return selection_of(settled)

    def _before_asking(
        self, ledger: Ledger, ahead: bool, expected: int | None
    ) -> Asked | tuple[Standing, Trained | None]:
        """The open batch, or what a new one depends on."""
        settings = self.settings_of(ledger)
        check_expected(ledger, expected)
        batch = asking.open_batch(ledger, ahead)
        if batch is not None:
            return batch.asked
        return stand(ledger, settings), ledger.trainings[-1] if ledger.trainings else None

    def train(
        self,
        *,
        seed: int | None = None,
        by: str = "",
        lost: Callable[[Training, float], bool] | None = None,
    ) -> Trained:
        """Train the learner on all labels that stand, with the weights of their batches.

        Items drawn for measuring are left out, and measured on. A training that fails is noted in
        the record and raised here; no label is lost by it.

        Args:
            seed: of the training; follows from the campaign's seed if None.
            by: who wants it.
            lost: if given, another training in the record that has not ended is a `Conflict`,
                unless ``lost(training, now)`` says that it never will.

        Returns:
            The event, with ``metrics``: training_labels, validation_labels, loss, accuracy (or
            mse) with its interval where there are validation labels, agreement with the model
            before, and prequential, how well that one guessed the last batch.
        """
        check_person(by)

        def begin(ledger: Ledger, now: float) -> tuple[list[Event], fitting.Plan]:
            running = ledger.training
            if lost is not None and running is not None and not lost(running, now):
                raise Conflict(f"training {running.number} is at work; wait for it")
            plan = fitting.planned(ledger, self.settings_of(ledger), seed)
            return [Training(now, plan.number, plan.labels, by)], plan

        plan = self.commit(begin)
        try:
            with self._busy:
                if plan.before is not None:
                    self._restore(plan.before)
                seconds, metrics = fitting.trained(plan, self._model)
                checkpoint = self._saved(plan.number)

            def end(ledger: Ledger, now: float) -> tuple[list[Event], Trained]:
                event = Trained(
                    now, plan.number, plan.labels, seconds, plain(metrics), checkpoint, plan.seed
                )
                return [event], event

            return self.commit(end)
        except BaseException as error:
            self._note_failure(plan.number, error)
            raise

    def _saved(self, number: int) -> str | None:
        """Write a checkpoint, if there is a home for it; its name there."""
        name = f"models/{number}"
        return name if self.home is not None and self._model.save(self.home / name) else None

    def _note_failure(self, number: int, error: BaseException) -> None:
        self._model.number = None
        words = fitting.in_words(error)

        def fail(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            ended = any(trained.number == number for trained in ledger.trainings)
            return [] if ended else [TrainingFailed(now, number, words)], None

        try:
            self.commit(fail)
        except StorageFailed as second:
            error.add_note(f"nor could the failure be recorded: {second}")

    def _restore(self, past: Trained) -> None:
        """Hold the model of a past training: as it is, from its checkpoint, or trained again."""
        if self._model.number == past.number:
            return
        if not fitting.from_checkpoint(self._model, past, self.settings.regression, self.home):
            fitting.train_again(self._model, past, self.storage.read(self.name))
