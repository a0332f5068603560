"""The ledger against one that goes through the whole record for every answer."""

import time
import timeit
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.record.events import (
    Asked,
    Changed,
    Event,
    Lent,
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
from labelwise.record.ledger import Ledger, replay
from labelwise.record.snapshots import load_ledger
from labelwise.record.storage import Storage
from labelwise.record.votes import (
    Disagreement,
    LastAction,
    Resolution,
    Skip,
    majority_label,
)
from tests.record.sequences import PEOPLE, patient, sequences
from tests.record.slow_ledger import WORDS, SlowLedger

ASKED = Asked(1.0, 1, (8, 4, 6), weights=(20.0, 50.0, 30.0))


@patient
@given(sequences())
def test_knows_of_items_what_a_walk_through_the_record_finds(events: list[Event]) -> None:
    ledger, slow = replay(events), SlowLedger(events)
    assert ledger.length == len(events)
    assert ledger.settings == slow.settings()
    assert ledger.overlap == slow.settings().get("overlap", 1)
    assert ledger.items == slow.items()
    assert repr(sorted(ledger.labels.items())) == repr(sorted(slow.labels().items()))
    for id in range(5):
        votes, skip, resolution = slow.said_of(id)
        assert repr(dict(ledger.votes.get(id, {}))) == repr(votes)
        assert (id in ledger.votes) == bool(votes)
        assert ledger.skipped.get(id) == (skip and Skip(skip.by, skip.reason, skip.at))
        settled = resolution and Resolution(resolution.label, resolution.by)
        assert ledger.resolutions.get(id) == settled
    assert sorted(found.id for found in ledger.disagreements()) == slow.disagreements()
    assert all(found.votes == ledger.votes[found.id] for found in ledger.disagreements())


@patient
@given(sequences())
def test_knows_of_batches_what_a_walk_through_the_record_finds(events: list[Event]) -> None:
    ledger, slow = replay(events), SlowLedger(events)
    waiting = slow.waiting()
    assert list(ledger.waiting) == waiting
    assert len(ledger.waiting) == len(waiting)
    assert ledger.asked_ids == slow.asked_ids()
    assert [batch.asked for batch in ledger.batches] == slow.of(Asked)
    for index, batch in enumerate(ledger.batches):
        assert batch.number == batch.asked.batch
        ids = {*batch.asked.ids, *batch.asked.validation}
        assert batch.size == sum((slow.place(id) or (None,))[0] == index for id in ids)
        assert batch.open == sum((slow.place(id) or (None,))[0] == index for id in waiting)
    assert ledger.open_batches == [batch for batch in ledger.batches if batch.open]
    for id in range(5):
        place = slow.place(id)
        assert (id in ledger.waiting) == (id in waiting)
        assert ledger.weight_of(id) == slow.weight_of(id)
        assert ledger.batch_of(id) == (place and slow.of(Asked)[place[0]].batch)
        assert (ledger.pick_of(id) or (None, None))[1] == (place[1] if place else None)
    assert ledger.validation == {id for event in slow.of(Asked) for id in event.validation}


@patient
@given(sequences(), st.integers(0, 8), st.sampled_from([0.0, 2.0, 10.0]))
def test_lends_what_a_walk_through_the_record_would(
    events: list[Event], count: int, later: float
) -> None:
    ledger, slow = replay(events), SlowLedger(events)
    now = (events[-1].at if events else 0.0) + later
    for by in (*PEOPLE, "new"):
        assert ledger.available(by, count, now) == slow.available(by, count, now)
        live = [id for id in range(5) if ledger.leases.get(id, {}).get(by, now) > now]
        assert live == sorted(slow.own_loans(by, now))


@patient
@given(sequences())
def test_knows_of_people_what_a_walk_through_the_record_finds(events: list[Event]) -> None:
    ledger, slow = replay(events), SlowLedger(events)
    assert set(ledger.per_annotator) == {event.by for event in slow.of(*WORDS, Withdrawn)}
    for by, work in ledger.per_annotator.items():
        assert (work.labels, work.skips, work.seconds, work.at) == slow.work(by)
    for by in PEOPLE:
        assert ledger.last_action(by) == (LastAction(*found) if (found := slow.last(by)) else None)
    seconds = [event.seconds for event in slow.of(Told) if event.seconds is not None]
    assert list(ledger.recent_seconds) == seconds
    assert ledger.seconds_spent == sum(seconds)
    assert ledger.vote_count == sum(len(slow.said_of(id)[0]) for id in slow.ids())
    assert ledger.trainings == slow.trainings()
    assert ledger.training == slow.training()
    assert ledger.failure == slow.failure()


def test_a_batch_by_hand() -> None:
    ledger = replay([Started(0.0, {"batch": 3}, 100), ASKED])
    assert list(ledger.waiting) == [8, 4, 6]
    ledger.extend([Told(2.0, 4, "cat", "ann", 2.0)])
    ledger.extend([Skipped(3.0, 8, "bob", "blurred")])
    assert list(ledger.waiting) == [6]
    assert ledger.open_batches[0].open == 1
    ledger.extend([Told(4.0, 6, "dog", "ann", 4.0)])
    assert not ledger.waiting
    assert ledger.open_batches == []
    ledger.extend([Withdrawn(5.0, 4, "ann")])
    assert list(ledger.waiting) == [4]
    assert ledger.labels == {6: "dog"}
    assert ledger.seconds_spent == 6.0  # the time was spent all the same


def test_two_labels_that_differ_wait_for_a_third_or_for_a_decision() -> None:
    events = [Started(0.0, {"overlap": 2}, 9), ASKED, Told(2.0, 4, "cat", "ann")]
    ledger = replay([*events, Told(3.0, 4, "dog", "bob")])
    assert ledger.disagreements() == [Disagreement(4, {"ann": "cat", "bob": "dog"})]
    assert 4 not in ledger.labels
    assert 4 not in ledger.waiting
    ledger.extend([Told(4.0, 4, "dog", "cem")])
    assert ledger.labels == {4: "dog"}
    assert ledger.disagreements() == []
    ledger.extend([Resolved(5.0, 4, "cat", "ann")])
    assert ledger.labels == {4: "cat"}
    ledger.extend([Withdrawn(6.0, 4, "ann")])  # of the decision; her label stands
    assert ledger.labels == {4: "dog"}
    assert ledger.votes[4] == {"ann": "cat", "bob": "dog", "cem": "dog"}


def test_lends_an_item_to_one_person_until_the_loan_lapses() -> None:
    ledger = replay([ASKED, Lent(10.0, (8, 4), "ann", 20.0)])
    assert ledger.available("bob", 5, now=19.9) == [6]
    assert ledger.available("ann", 5, now=19.9) == [8, 4, 6]
    assert ledger.available("bob", 5, now=20.0) == [8, 4, 6]
    ledger.extend([Returned(11.0, (8,), "ann")])
    assert ledger.available("bob", 2, now=19.0) == [8, 6]
    ledger.extend([Told(12.0, 4, 1, "ann")])
    assert ledger.leases == {}


def test_two_are_lent_an_item_that_wants_two_labels_but_never_three() -> None:
    ledger = replay([Started(0.0, {"overlap": 2}, 9), Asked(1.0, 1, (7,))])
    ledger.extend([Lent(2.0, (7,), "ann", 99.0)])
    assert ledger.available("bob", 1, now=3.0) == [7]
    ledger.extend([Lent(3.0, (7,), "bob", 99.0)])
    assert ledger.available("cem", 1, now=4.0) == []
    ledger.extend([Told(5.0, 7, 1, "ann")])
    assert ledger.available("cem", 1, now=6.0) == []
    assert ledger.available("ann", 1, now=6.0) == []
    assert ledger.available("cem", 1, now=99.0) == [7]


def test_who_labelled_an_item_and_has_it_lent_again_counts_once() -> None:
    ledger = replay([Started(0.0, {"overlap": 2}, 9), Asked(1.0, 1, (7,)), Told(2.0, 7, 1, "ann")])
    ledger.extend([Lent(3.0, (7,), "ann", 99.0)])
    assert ledger.available("bob", 1, now=4.0) == [7]
    assert ledger.available("ann", 1, now=4.0) == []


def test_loans_that_lapsed_are_forgotten_in_time() -> None:
    ledger = replay([ASKED, Lent(2.0, (8, 4), "ann", 9.0), Lent(9.0, (8,), "bob", 20.0)])
    assert ledger.leases == {8: {"bob": 20.0}, 4: {"ann": 9.0}}
    ledger.extend([Lent(10.0, (6,), "ann", 20.0)])
    assert ledger.leases == {8: {"bob": 20.0}, 6: {"ann": 20.0}}


def test_undoing_goes_back_one_by_one() -> None:
    ledger = replay([ASKED, Told(2.0, 8, 1, "ann"), Skipped(3.0, 4, "ann"), Told(4.0, 8, 2, "ann")])
    undone = []
    while (last := ledger.last_action("ann")) is not None:
        undone.append(last)
        ledger.extend([Withdrawn(5.0, last.id, "ann")])
    assert undone == [LastAction(8, "told"), LastAction(4, "skipped")]
    assert list(ledger.waiting) == [8, 4, 6]


def test_more_overlap_opens_what_was_done() -> None:
    ledger = replay([ASKED, *(Told(2.0, id, 0, "ann") for id in ASKED.ids)])
    assert not ledger.waiting
    ledger.extend([Changed(3.0, {"overlap": 2})])
    assert list(ledger.waiting) == [8, 4, 6]
    assert ledger.available("ann", 3, now=4.0) == []
    assert ledger.available("bob", 3, now=4.0) == [8, 4, 6]
    ledger.extend([Changed(5.0, {"overlap": 1})])
    assert not ledger.waiting


def test_a_training_runs_until_it_ends_well_or_badly() -> None:
    ledger = replay([Training(1.0, 1, 10)])
    assert ledger.training == Training(1.0, 1, 10)
    ledger.extend([TrainingFailed(2.0, 1, "out of memory")])
    assert ledger.training is None
    assert ledger.failure == TrainingFailed(2.0, 1, "out of memory")
    ledger.extend([Training(3.0, 2, 10)])
    assert ledger.failure is not None
    ledger.extend([Trained(4.0, 2, 10, 1.0, {})])
    assert ledger.training is None
    assert ledger.failure is None
    assert [trained.number for trained in ledger.trainings] == [2]


def test_the_median_settles_a_regression() -> None:
    votes = {"ann": 1.0, "bob": 5, "cem": 2.0}
    assert majority_label(votes, regression=True) == 2.0
    assert majority_label(votes) is None
    assert majority_label({"ann": 1, "bob": "1"}, regression=True) is None  # a text has no place
    assert majority_label({}) is None


def test_equal_votes_share_one_mapping() -> None:
    ledger = replay(Told(float(id), id, id % 2, "ann") for id in range(1000))
    assert len({id(votes) for votes in ledger.votes.values()}) == 2
    ledger.extend([Told(0.0, 4, 7, "bob")])
    assert ledger.votes[4] == {"ann": 0, "bob": 7}
    assert ledger.votes[6] == {"ann": 0}


def test_loads_the_whole_record_of_a_storage(storage: Storage) -> None:
    events = [Started(0.0, {}, 9), ASKED, Told(2.0, 8, "cat", "ann")]
    storage.append("birds", events)
    assert load_ledger(storage, "birds").labels == {8: "cat"}
    assert load_ledger(storage, "fish").length == 0


def half_labelled(batches: int, size: int) -> Ledger:
    """All but the last half batch are labelled; the first item is lent to somebody who left."""
    ledger = replay([Started(0.0, {}, 10**6)])
    for number in range(1, batches + 1):
        begin = number * size
        ids = tuple(range(begin, begin + size))
        ledger.extend([Asked(0.0, number, ids, weights=(1.0,) * size)])
        ledger.extend(Told(1.0, id, id % 3, f"person {id % 5}") for id in ids[1:])
    for id in range(batches * size, batches * size + size // 2):
        ledger.extend([Withdrawn(2.0, id, f"person {id % 5}")])
    ledger.extend([Lent(3.0, tuple(ledger.waiting)[:1], "gone", 1e12)])
    return ledger


@pytest.mark.parametrize("batches", [2, 2400], ids=["large", "many"])
def test_answers_take_no_longer_as_the_record_grows(batches: int) -> None:
    """A hundred times the labels, in a hundred times the batches or in batches so much larger."""
    short = half_labelled(20, 20)
    long = half_labelled(batches, 48_000 // batches)
    assert long.vote_count > 90 * short.vote_count

    def ask(ledger: Ledger) -> Callable[[], None]:
        waiting = next(iter(ledger.waiting))

        def all_kinds() -> None:
            ledger.available("person 1", 5, 4.0)
            ledger.last_action("person 1")
            ledger.weight_of(waiting)
            len(ledger.labels), len(ledger.waiting), ledger.disagreements()
            ledger.extend([Told(5.0, waiting, 1, "person 1", 1.0)])
            ledger.extend([Withdrawn(6.0, waiting, "person 1")])
            ledger.extend([Lent(7.0, (waiting,), "person 2", 9.0)])
            ledger.extend([Returned(8.0, (waiting,), "person 2")])

        return all_kinds

    times = [
        min(timeit.repeat(ask(ledger), timer=time.process_time, number=20, repeat=15))
        for ledger in (short, long)
    ]
    assert times[1] < 5 * times[0]


def test_a_training_that_ends_late_is_not_taken_for_the_newest() -> None:
    began = [Training(1.0, 1, 20), Training(2.0, 2, 30)]
    ends = {number: Trained(3.0, number, 10, 1.0, {}) for number in (1, 2)}
    assert replay([*began, ends[1]]).training == began[1]
    both = replay([*began, ends[2], ends[1]])
    assert both.trainings == [ends[1], ends[2]] and both.training is None
    late = TrainingFailed(4.0, 1, "out of memory")
    assert replay([*began, ends[2], late]).failure is None
    assert replay([*began, late]).training == began[1]
