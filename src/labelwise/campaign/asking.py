"""From a wish for labels to a batch in the record, and from the record to a selection."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelwise.campaign.choosing import Standing, Wish, budget_of, choose
from labelwise.campaign.model import Model, Places, plain
from labelwise.campaign.settings import BATCHES
from labelwise.campaign.tuning import tuned
from labelwise.errors import BadInput
from labelwise.pool.blocks import Progress
from labelwise.record.events import Asked, Event, Trained
from labelwise.record.ledger import Batch, Ledger
from labelwise.selection.result import Selection


@dataclass(frozen=True)
class Request:
    """What a call of ``ask`` says; None where it leaves a thing to the settings."""

    strategy: str | None
    budget: int | None
    seed: int | None
    options: dict[str, Any]

    @classmethod
    def of(
        cls, strategy: Any, budget: int | None, seed: int | None, options: dict[str, Any]
    ) -> "Request":
        """The arguments of ``ask``; a number in the place of the strategy is the budget."""
        if isinstance(strategy, int | np.integer) and not isinstance(strategy, bool):
            if budget is not None:
                raise BadInput(f"the budget is given twice: {strategy} and {budget}")
            strategy, budget = None, int(strategy)
        return cls(strategy, budget, seed, options)

    def wish(
        self,
        places: Places,
        standing: Standing,
        trained: Trained | None,
        progress: Progress | None,
    ) -> Wish:
        """What to choose by, with the settings in the place of what was left to them."""
        settings = standing.settings
        usual = settings.first if trained is None else settings.strategy
        name = usual if self.strategy is None else self.strategy
        options = settings.options if name == settings.strategy else {}
        return Wish(
            strategy=name,
            options={**options, **self.options},
            budget=budget_of(places, standing, self.budget),
            seed=settings.seed_for(BATCHES, standing.batch, self.seed),
            modelled=trained is not None,
            progress=progress,
        )


def open_batch(ledger: Ledger, ahead: bool) -> Batch | None:
    """The batch that is to be labelled: the oldest that is open, or None for a new one.

    ``ahead`` wants a new one as soon as the last is down to its tail.
    """
    if not ledger.open_batches:
        return None
    if not ahead:
        return ledger.open_batches[0]
    last = ledger.batches[-1]
    tail = float(ledger.settings.get("tail", 0.0))
    return last if last.open > tail * last.size else None


def chosen(
    places: Places, model: Model, standing: Standing, wish: Wish, trained: Trained | None
) -> Asked:
    """A new batch as an event; `opened` gives it its time, and decides whether it is needed."""
    wish = tuned(wish, standing, model)
    picks, measured = choose(places, model, standing, wish)
    guesses, info = None, {**picks.info}
    guessed = None if trained is None else model.predict(picks.ids)
    if guessed is not None and guessed.confidence is not None:
        guesses = tuple(zip(guessed.labels, guessed.confidence, strict=True))
    elif guessed is not None:
        info["predicted"] = guessed.labels
    if picks.counts is not None:
        info["counts"] = picks.counts
    for name in ("strategy", "seed", "options"):  # these have fields of their own
        info.pop(name, None)
    return Asked(
        at=0.0,
        batch=standing.batch,
        ids=tuple(picks.ids.tolist()),
        weights=_numbers(picks.weights),
        scores=_numbers(picks.scores),
        strategy=wish.strategy,
        seed=wish.seed,
        options=plain(wish.options),
        model=None if trained is None else trained.number,
        validation=tuple(measured.tolist()),
        guesses=guesses,
        info=plain(info),
    )


def opened(
    ledger: Ledger, now: float, asked: Asked, ahead: bool
) -> tuple[list[Event], Asked | None]:
    """Open the batch, or find the one that someone else opened; None if that came and went."""
    batch = open_batch(ledger, ahead)
    if batch is not None:
        return [], batch.asked
    taken = any(item in ledger.asked_ids or item in ledger.votes for item in asked.ids)
    if len(ledger.batches) + 1 != asked.batch or taken:
        return [], None
    timed = replace(asked, at=now)
    return [timed], timed


def selection_of(asked: Asked) -> Selection:
    """A batch of the record as the selection that ``ask`` gave."""
    info = {
        **asked.info,
        "batch": asked.batch,
        "strategy": asked.strategy,
        "seed": asked.seed,
        "options": asked.options,
        "model": asked.model,
        "validation": list(asked.validation),
    }
    counts = info.pop("counts", None)
    return Selection(
        np.array(asked.ids, dtype=np.int64),
        None if asked.weights is None else np.array(asked.weights, dtype=np.float64),
        None if counts is None else np.array(counts, dtype=np.int64),
        None if asked.scores is None else np.array(asked.scores, dtype=np.float64),
        info,
    )


def _numbers(values: Any) -> tuple[float, ...] | None:
    """Values as the record holds them; None where some are no finite numbers."""
    if values is None or not np.isfinite(values).all():
        return None
    return tuple(np.asarray(values, dtype=np.float64).tolist())
