"""How the next batch is chosen: who may be picked, what is only measured on, and the picks.

For measuring, an item is set apart by a draw of its own id, with the chance ``validation``. The
strategy never sees the items that are set apart, and a batch takes its share from them at random:
they stay a random sample of the pool, whatever the strategy prefers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, is_array, largest, row_noise
from labelwise.campaign.model import Model, Places
from labelwise.campaign.settings import Settings
from labelwise.campaign.training import standing_labels
from labelwise.errors import BadInput
from labelwise.pool.blocks import Progress
from labelwise.pool.rows import take_rows
from labelwise.record.events import Asked, Label
from labelwise.record.ledger import Ledger
from labelwise.selection.entry import select
from labelwise.selection.result import Selection
from labelwise.selection.run import check_budget
from labelwise.strategies import get
from labelwise.strategy import Strategy

APART, DRAWN, STOP = 51, 52, 53
"""Streams of noise: who is set apart, who of them is drawn, and on whom models are compared."""


@dataclass(frozen=True)
class Standing:
    """What a choice depends on, copied from the ledger.

    Attributes:
        settings: as they are now.
        batch: the number of the next batch.
        taken: items that were asked for or labelled, and cannot be picked.
        context: those of them that are trained on, or will be when their labels come.
        labels: of the items that are trained on.
        measured: labels of the items that are only measured on.
        batches: all batches so far.
        validation: how many items were asked for to measure.
        asked: how many items were asked for.
    """

    settings: Settings
    batch: int
    taken: Ids
    context: Ids
    labels: dict[int, Label]
    measured: dict[int, Label]
    batches: tuple[Asked, ...]
    validation: int
    asked: int


@dataclass(frozen=True)
class Wish:
    """What to choose by."""

    strategy: str
    options: dict[str, Any]
    budget: int
    seed: int
    modelled: bool
    progress: Progress | None = field(default=None, compare=False)


def stand(ledger: Ledger, settings: Settings) -> Standing:
    """What the next choice depends on."""
    labels = standing_labels(ledger, settings)
    measured = {item: labels.pop(item) for item in ledger.validation if item in labels}
    coming = [item for item in ledger.waiting if item not in ledger.validation]
    taken = {**dict.fromkeys(ledger.asked_ids), **dict.fromkeys(ledger.votes)}
    taken |= {**dict.fromkeys(ledger.resolutions), **dict.fromkeys(ledger.skipped)}
    return Standing(
        settings=settings,
        batch=len(ledger.batches) + 1,
        taken=_ids(taken),
        context=_ids(dict.fromkeys([*labels, *coming])),
        labels=labels,
        measured=measured,
        batches=tuple(batch.asked for batch in ledger.batches),
        validation=len(ledger.validation),
        asked=len(ledger.asked_ids),
    )


def choose(places: Places, model: Model, standing: Standing, wish: Wish) -> tuple[Selection, Ids]:
    """The picks in order, those for measuring among them, and which these are.

    Picks for measuring have weight and score 0.
    """
    settings, ids = standing.settings, places.ids
    free = ~np.isin(ids, standing.taken)
    apart = row_noise(settings.seed, ids, APART) < settings.validation
    check_budget(wish.budget, int(free.sum()))
    count = _to_measure(
        standing, wish.budget, int((free & apart).sum()), int((free & ~apart).sum())
    )
    measured = _drawn(ids[free & apart], count, wish.seed)
    kept = free & ~apart
    context = standing.context[places.known(standing.context)]
    kept[places.of(context)] = True
    picked = _pick(places, model, context, kept, wish, wish.budget - count)
    return _woven(picked, measured), measured


def budget_of(places: Places, standing: Standing, wanted: int | None) -> int:
    """How many to pick: what is wanted; by default a batch, or the rest where that is smaller."""
    left = len(places.ids) - int(np.isin(places.ids, standing.taken).sum())
    if not left:
        raise BadInput(
            f"all {len(places.ids)} items of the pool were asked for or labelled; nothing is left "
            "to ask"
        )
    if wanted is not None:
        check_budget(wanted, left)
        if wanted == 0:
            raise BadInput("a batch has one item or more; got a budget of 0")
        return int(wanted)
    return min(standing.settings.batch, left)


def stop_set(places: Places, seed: int, most: int = 2000) -> Ids:
    """Fixed items of the pool on which one model is compared with the next."""
    noise = row_noise(seed, places.ids, STOP)
    return places.ids[largest(noise, min(most, len(noise)), places.ids)]


def _ids(items: Iterable[int]) -> Ids:
    return np.fromiter(items, dtype=np.int64)


def _to_measure(standing: Standing, budget: int, apart: int, others: int) -> int:
    """How many picks are for measuring, so that their share is right over all batches."""
    share = standing.settings.validation
    wanted = round(share * (standing.asked + budget)) - standing.validation
    wanted = min(max(wanted, 0), math.ceil(share * budget))
    return max(min(wanted, apart), budget - others)


def _drawn(ids: Ids, count: int, seed: int) -> Ids:
    return ids[largest(row_noise(seed, ids, DRAWN), count, ids)]


def _pick(
    places: Places, model: Model, context: Ids, kept: NDArray[np.bool_], wish: Wish, count: int
) -> Selection:
    if count == 0:
        return Selection(np.empty(0, dtype=np.int64))
    strategy = get(wish.strategy).with_options(**wish.options)
    positions = np.flatnonzero(kept)
    rows = _rows(places, model, strategy, wish.modelled)
    if rows and len(positions) < len(kept):
        rows = take_rows(rows, positions)
    return select(
        strategy,
        count,
        **rows,
        ids=places.ids[positions],
        labelled=context,
        seed=wish.seed,
        progress=wish.progress,
    )


def _rows(places: Places, model: Model, strategy: Strategy, modelled: bool) -> dict[str, Any]:
    """The representations that a strategy reads; before there is a model, the inputs themselves."""
    sets = [strategy.needs, *strategy.or_needs]
    if () in sets:
        return {}
    if modelled:
        for names in sets:
            if model.offers(names) and (not _compares(strategy, names) or _several(model, names)):
                return model.represent(names)
        wanted = ", or ".join(
            " and ".join(names) + " of several models" * _compares(strategy, names)
            for names in sets
        )
        kind = type(model.learner).__name__
        raise BadInput(f"{strategy.name} needs {wanted}, which {kind} does not give")
    inputs: Any = places.pool.inputs
    if ("features",) in sets and is_array(inputs) and inputs.ndim > 1:
        return {"features": inputs.reshape(len(inputs), -1)}
    reads = "a trained model" if ("features",) not in sets else "inputs that are arrays of numbers"
    raise BadInput(
        f"{strategy.name} needs {reads}, and there is no model yet; ask with 'random', or train"
    )


def _compares(strategy: Strategy, names: Sequence[str]) -> bool:
    """Whether a strategy that compares members can read these only as several models give them."""
    members = [all(map(_of_members, needed)) for needed in (strategy.needs, names)]
    return members == [True, False]


def _of_members(name: str) -> bool:
    return name.startswith("member_")


def _several(model: Model, names: Sequence[str]) -> bool:
    """Whether the learner is several models, each of which gives these; one item tells."""
    one = model.learner.represent(model.places.inputs(model.places.ids[:1]), list(names))
    return all(isinstance(rows, list | tuple) and len(rows) > 1 for rows in one.values())


def _woven(picked: Selection, measured: Ids) -> Selection:
    """The picks with those for measuring spread evenly among them."""
    if not len(measured):
        return picked
    total = len(picked) + len(measured)
    places = ((np.arange(len(measured)) + 0.5) * total / len(measured)).astype(np.intp)
    mask = np.zeros(total, dtype=bool)
    mask[places] = True

    def weave(values: Any, others: Any) -> Any:
        if values is None:
            return None
        result = np.zeros(total, dtype=np.asarray(values).dtype)
        result[~mask], result[mask] = values, others
        return result

    return Selection(
        weave(picked.ids, measured),
        weave(picked.weights, 0.0),
        weave(picked.counts, 0),
        weave(picked.scores, 0.0),
        picked.info,
    )
