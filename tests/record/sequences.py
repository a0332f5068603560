"""Random lists of events, as a campaign could have them and worse."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from labelwise.record.events import (
    Added,
    Asked,
    Changed,
    Event,
    Lent,
    Noted,
    Released,
    Renamed,
    Resolved,
    Returned,
    Skipped,
    Started,
    Told,
    Trained,
    Training,
    TrainingFailed,
    Withdrawn,
)

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For machines that have other things to do."""

PEOPLE = ("", "ann", "bob")
IDS = st.integers(0, 4)
LABELS = st.sampled_from([0, 1, 1.0, "1", 2.5])
SECONDS = st.sampled_from([None, 0.0, 0.5, 1.25])
BY = st.sampled_from(PEOPLE)
SETTINGS = st.fixed_dictionaries(
    {}, optional={"overlap": st.integers(1, 3), "regression": st.booleans(), "batch": IDS}
)
SOME_IDS = st.lists(IDS, max_size=4, unique=True).map(tuple)


NUMBERS = st.integers(1, 3)
SOON = st.sampled_from([0.0, 3.0, 30.0])
NOW = st.just(0.0)


def _asked(ids: tuple[int, ...], others: tuple[int, ...], given: dict[str, Any]) -> Asked:
    numbers = tuple(float(id) + 0.5 for id in ids)
    weights, scores = (numbers if given[name] else None for name in ("weights", "scores"))
    guesses = tuple((given["guess"], 0.25) for _ in ids) if given["scores"] else None
    model, info = given["model"], {"deep": [1, None]}
    return Asked(0.0, 0, ids, weights, scores, "badge", 7, {}, model, others, guesses, info)


GIVEN = st.fixed_dictionaries(
    {
        "weights": st.booleans(),
        "scores": st.booleans(),
        "guess": LABELS,
        "model": st.none() | NUMBERS,
    }
)
EVENT: st.SearchStrategy[Event] = st.one_of(
    *[st.builds(Told, NOW, IDS, LABELS, BY, SECONDS)] * 4,
    st.builds(Skipped, NOW, IDS, BY, st.sampled_from(["", "blurred"])),
    st.builds(Withdrawn, NOW, IDS, BY),
    st.builds(Resolved, NOW, IDS, LABELS, BY),
    st.builds(_asked, SOME_IDS, SOME_IDS, GIVEN),
    st.builds(Released, NOW, SOME_IDS),
    st.builds(Renamed, NOW, LABELS, LABELS, BY),
    st.builds(Lent, NOW, SOME_IDS, BY, SOON),
    st.builds(Returned, NOW, SOME_IDS, BY),
    st.builds(Started, NOW, SETTINGS, IDS, BY),
    st.builds(Changed, NOW, SETTINGS, BY),
    st.builds(Added, NOW, IDS),
    st.builds(Training, NOW, NUMBERS, IDS, BY),
    st.builds(Trained, NOW, NUMBERS, IDS, st.just(0.5), st.just({"loss": 1})),
    st.builds(TrainingFailed, NOW, NUMBERS, st.just("out of memory")),
)


def _in_order(steps: list[tuple[float, Event]]) -> list[Event]:
    """Events at times that do not go back, with batches numbered from 1."""
    events: list[Event] = []
    at, batch = 0.0, 0
    for pause, event in steps:
        at += pause
        changes: dict[str, Any] = {"at": at}
        if isinstance(event, Asked):
            changes["batch"] = batch = batch + 1
        elif isinstance(event, Lent):
            changes["until"] = at + event.until
        events.append(replace(event, **changes))
    return events


def busy(seed: int) -> list[Event]:
    """Sixty events of people who work at the same few items, as chance has it."""
    chance = random.Random(seed)
    events: list[Event] = [Started(0.0, {"overlap": chance.randint(1, 3)}, 9)]
    for number in range(60):
        at, id, by = float(number), chance.randrange(5), chance.choice(PEOPLE)
        some = tuple(chance.sample(range(5), chance.randint(0, 4)))
        label = chance.choice([0, 1, 1.0, "1", 2.5])
        told = Told(at, id, label, by, chance.choice([None, 0.5, 1.25]))
        weights = tuple(chance.random() for _ in some)
        batch = 1 + sum(isinstance(event, Asked) for event in events)
        other: Event = chance.choice(
            [
                Skipped(at, id, by, "blurred"),
                Withdrawn(at, id, by),
                Withdrawn(at, id, by),
                Resolved(at, id, label, by),
                Released(at, some[:2]),
                Renamed(at, label, chance.choice([0, 1, "1"]), by),
                Noted(at, id, chance.choice(["", "unsure"]), by),
                Asked(at, batch, some, weights, None, "badge", validation=some[:1]),
                Lent(at, some, by, at + chance.choice([0.0, 3.0, 30.0])),
                Returned(at, some, by),
                Changed(at, {"regression": chance.random() < 0.2}),
            ]
        )
        events.append(chance.choice([told, other]))
    return events


def sequences(most: int = 40) -> st.SearchStrategy[list[Event]]:
    """Up to ``most`` events of any kind, or sixty of a busy campaign."""
    steps = st.tuples(st.sampled_from([0.0, 1.0, 5.0]), EVENT)
    sizes = st.integers(0, most)  # a list left to itself would seldom have more than ten
    odd = sizes.flatmap(lambda n: st.lists(steps, min_size=n, max_size=n)).map(_in_order)
    return st.one_of(odd, *(st.integers(0, 2**32).map(busy) for _ in range(4)))
