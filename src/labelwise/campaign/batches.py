"""Batches of a campaign: select items, record them as an event, and read them back.

A fixed random share of the pool is reserved for the holdout. The strategy never sees reserved
items; every batch takes its share from them at random. So the holdout is a random sample of the
pool for every strategy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_noise
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.settings import BATCHES, Settings
from labelwise.campaign.training import CampaignModel, find_reserved_items
from labelwise.errors import BadInput
from labelwise.files import to_json
from labelwise.learner import Label
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.record.events import Asked, Event, Released, Trained
from labelwise.record.ledger import Batch, Ledger
from labelwise.rounds import adapt_options
from labelwise.selection.result import Selection
from labelwise.selection.run import check_budget
from labelwise.strategy import PastBatch

DRAWN = 52  # Noise stream: which of the items that are reserved for the holdout a batch draws


@dataclass(frozen=True)
class CampaignState:
    """The state that determines the next batch, copied from the ledger."""

    settings: Settings
    batch: int  # number of the next batch
    trained: Trained | None  # the training whose model selects, or None
    taken: Ids  # items that were asked for or labelled, and cannot be picked
    context: Ids  # training items, labelled or waiting for a label; without the holdout
    labels: dict[int, Label]  # of the items that are trained on
    measured: dict[int, Label]  # labels of the holdout
    batches: tuple[Asked, ...]  # all batches so far
    holdout: int  # number of items that were asked for as holdout
    asked: int  # number of items that were asked for
    released: Ids  # waiting picks that can be picked again; see `list_rolling_items`
    carried: Ids  # waiting items of the holdout that move to the next batch

    @classmethod
    def from_ledger(
        cls, ledger: Ledger, settings: Settings, rolling: Sequence[int] = ()
    ) -> "CampaignState":
        """The state of a campaign now, without the ``rolling`` items of its open batches."""
        again = set(rolling)
        released = [item for item in rolling if item not in ledger.validation]
        carried = [item for item in rolling if item in ledger.validation]
        labels = resolve_labels(ledger, settings)
        measured = {item: labels.pop(item) for item in ledger.validation if item in labels}
        coming = [
            item for item in ledger.waiting if item not in ledger.validation and item not in again
        ]
        taken = find_taken_items(ledger)
        return cls(
            settings=settings,
            batch=len(ledger.batches) + 1,
            trained=ledger.trainings[-1] if ledger.trainings else None,
            taken=taken[~np.isin(taken, rolling)] if again else taken,
            context=np.fromiter(dict.fromkeys([*labels, *coming]), dtype=np.int64),
            labels=labels,
            measured=measured,
            batches=tuple(batch.asked for batch in ledger.batches),
            holdout=len(ledger.validation) - len(carried),
            asked=len(ledger.asked_ids) - len(again),
            released=np.array(released, dtype=np.int64),
            carried=np.array(carried, dtype=np.int64),
        )


@dataclass(frozen=True)
class BatchRequest:
    """Parameters of a selection."""

    strategy: str
    options: Mapping[str, Any]
    budget: int
    seed: int


def find_taken_items(ledger: Ledger) -> Ids:
    """Items that were asked for, labelled or skipped, and cannot be picked."""
    taken = dict.fromkeys([*ledger.asked_ids, *ledger.votes, *ledger.resolutions, *ledger.skipped])
    return np.fromiter(taken, dtype=np.int64)


def count_free_items(pool: Pool, taken: Ids) -> int:
    """Number of items of the pool that are not taken."""
    return len(pool) - int(pool.index.contains(taken).sum())


def make_batch_request(
    pool: Pool,
    state: CampaignState,
    strategy: str | None,
    budget: int | None,
    seed: int | None,
    options: Mapping[str, Any],
) -> BatchRequest:
    """The arguments of ``ask``, completed from the settings and limited to the remaining items."""
    settings, left = state.settings, count_free_items(pool, state.taken)
    if not left:
        raise BadInput(
            f"all {len(pool)} items of the pool were asked for or labelled; no item is left to ask"
        )
    if budget is not None:
        check_budget(budget, left)
    if budget == 0:
        raise BadInput("a batch has one item or more; got a budget of 0")
    default = settings.first if state.trained is None else settings.strategy
    name = default if strategy is None else strategy
    given = settings.options if name == settings.strategy else {}
    return BatchRequest(
        strategy=name,
        options={**given, **options},
        budget=min(settings.batch, left) if budget is None else int(budget),
        seed=settings.seed_for(BATCHES, state.batch, seed),
    )


def select_batch(
    model: CampaignModel,
    state: CampaignState,
    request: BatchRequest,
    progress: Progress | None,
    prelabels: Mapping[int, tuple[Label, float]] = MappingProxyType({}),
) -> Asked:
    """A new batch as an event; `open_batch` sets its time and decides whether it is needed.

    Before there is a model, its guesses are the ``prelabels``, if every pick has one.
    """
    past = [PastBatch(old.strategy, old.options, old.ids, old.info) for old in state.batches]
    history = model.make_history(past, state.labels, state.measured)
    options = adapt_options(request.strategy, request.options, history)
    picks, holdout = _select_picks_and_holdout(
        model, state, replace(request, options=options), progress
    )
    guesses, info = None, {**picks.info}
    predicted = None if state.trained is None else model.predict(picks.ids)
    if predicted is not None and predicted.confidence is not None:
        guesses = tuple(zip(predicted.labels, predicted.confidence, strict=True))
    elif predicted is not None:
        info["predicted"] = predicted.labels
    elif prelabels and all(item in prelabels for item in picks.ids.tolist()):
        guesses = tuple(prelabels[item] for item in picks.ids.tolist())
    if picks.counts is not None:
        info["counts"] = picks.counts
    for name in ("strategy", "seed", "options"):  # the event has fields for these
        info.pop(name, None)
    return Asked(
        at=0.0,
        batch=state.batch,
        ids=tuple(picks.ids.tolist()),
        weights=_list_finite_values(picks.weights),
        scores=_list_finite_values(picks.scores),
        strategy=request.strategy,
        seed=request.seed,
        options=to_json(options, non_finite=lambda value: None),
        model=None if state.trained is None else state.trained.number,
        validation=tuple(holdout.tolist()),
        guesses=guesses,
        info=to_json(info, non_finite=lambda value: None),
    )


def _select_picks_and_holdout(
    model: CampaignModel, state: CampaignState, request: BatchRequest, progress: Progress | None
) -> tuple[Selection, Ids]:
    """The picks in order, including holdout items, and the ids of the latter."""
    settings, ids = state.settings, model.pool.ids
    assert ids is not None
    free = ~np.isin(ids, state.taken)
    reserved = find_reserved_items(ids, settings)
    check_budget(request.budget, int(free.sum()))
    apart, others = free & reserved, free & ~reserved
    carried = state.carried
    apart &= ~np.isin(ids, carried)
    others &= ~np.isin(ids, carried)
    # As many holdout picks as keep their share over all batches.
    share, available = settings.validation, int(apart.sum()) + len(carried)
    wanted = round(share * (state.asked + request.budget)) - state.holdout
    wanted = min(max(wanted, 0), math.ceil(share * request.budget), available)
    # More of them where the strategy has too few items left to choose from.
    count = max(wanted, request.budget - int(others.sum()), len(carried))
    noise = row_noise(request.seed, ids[apart], DRAWN)
    drawn = ids[apart][largest(noise, count - len(carried), ids[apart])]
    holdout = np.concatenate([carried, drawn])
    picks = model.select_batch(
        request.strategy,
        request.budget - count,
        candidates=others,
        labelled=state.context[model.pool.index.contains(state.context)],
        options=request.options,
        seed=request.seed,
        progress=progress,
    )
    return _interleave_holdout(picks, holdout), holdout


def _interleave_holdout(picked: Selection, holdout: Ids) -> Selection:
    """Spread the holdout evenly among the picks, with weight and score 0."""
    if not len(holdout):
        return picked
    total, count = len(picked) + len(holdout), np.arange(len(holdout))
    # Places before which `np.insert` puts the holdout.
    places = ((count + 0.5) * total / len(holdout)).astype(np.intp) - count
    weights, counts, scores = picked.weights, picked.counts, picked.scores
    return Selection(
        np.insert(picked.ids, places, holdout),
        None if weights is None else np.insert(weights, places, 0),
        None if counts is None else np.insert(counts, places, 0),
        None if scores is None else np.insert(scores, places, 0),
        picked.info,
    )


def _list_finite_values(values: Floats | None) -> tuple[float, ...] | None:
    """Values as the record holds them; None if some are not finite."""
    if values is None or not np.isfinite(values).all():
        return None
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def find_open_batch(ledger: Ledger, ahead: bool) -> Batch | None:
    """The batch to label: the oldest open one, or None if a new one is due.

    With ``ahead``, a new one is due as soon as only the tail of the last one is open.
    """
    if not ledger.open_batches:
        return None
    if not ahead:
        return ledger.open_batches[0]
    last = ledger.batches[-1]
    tail = float(ledger.settings.get("tail", 0.0))
    return last if last.open > tail * last.size else None


def open_batch(
    ledger: Ledger, now: float, asked: Asked, ahead: bool
) -> tuple[list[Event], Asked | None]:
    """Record a new batch, or return the one that another process opened.

    None if the batch is out of date: the other batch was opened and completed meanwhile.
    """
    batch = find_open_batch(ledger, ahead)
    if batch is not None:
        return [], batch.asked
    taken = any(item in ledger.asked_ids or item in ledger.votes for item in asked.ids)
    if len(ledger.batches) + 1 != asked.batch or taken:
        return [], None
    timed = replace(asked, at=now)
    return [timed], timed


def list_rolling_items(ledger: Ledger, settings: Settings, now: float) -> list[int]:
    """The items that a new model may replace: waiting ones that nobody works on.

    Picks are released. Items of the holdout move to the new batch: they stay a random sample, and
    are not all labelled before the picks. None where training uses the weights of the strategy,
    which hold for whole batches.
    """
    if settings.weights and any(batch.asked.weights for batch in ledger.open_batches):
        return []
    free = ledger.list_free(now)
    return free if any(item not in ledger.validation for item in free) else []


def roll_batch(
    ledger: Ledger, now: float, asked: Asked, released: Ids
) -> tuple[list[Event], Asked | None]:
    """Release waiting picks and record the batch that replaces them.

    Items that somebody began to work on meanwhile stay where they are. None if the batch is out of
    date: another one was opened meanwhile.
    """
    if len(ledger.batches) + 1 != asked.batch:
        return [], None
    free = set(ledger.list_free(now))
    back = tuple(item for item in released.tolist() if item in free)
    taken = {
        item
        for item in asked.ids
        if (item in ledger.asked_ids or item in ledger.votes) and item not in free
    }
    keep = [rank for rank, item in enumerate(asked.ids) if item not in taken]
    timed = replace(
        asked,
        at=now,
        ids=tuple(asked.ids[rank] for rank in keep),
        weights=asked.weights and tuple(asked.weights[rank] for rank in keep),
        scores=asked.scores and tuple(asked.scores[rank] for rank in keep),
        guesses=asked.guesses and tuple(asked.guesses[rank] for rank in keep),
        validation=tuple(item for item in asked.validation if item not in taken),
    )
    return [Released(now, back), timed], timed


def read_batch_selection(asked: Asked) -> Selection:
    """A batch of the record as the selection that ``ask`` returns."""
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
