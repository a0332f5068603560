"""The queue of waiting items against one that looks at everything every time."""

from hypothesis import given
from hypothesis import strategies as st

from labelwise.record.events import Asked, Event, Started, Told, Withdrawn
from labelwise.record.label_queue import LabelQueue
from labelwise.record.ledger import Ledger, replay
from tests.record.sequences import patient, sequences

IDS = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.lists(IDS, unique=True, max_size=4)),
        st.tuples(st.just("add"), IDS),
        st.tuples(st.just("discard"), IDS),
        st.tuples(st.just("done"), IDS),
        st.tuples(st.just("give_back"), IDS),
    ),
    max_size=40,
)


@given(STEPS)
def test_waits_as_a_list_would(steps: list[tuple[str, object]]) -> None:
    queue, order, waits, done = LabelQueue(), list[int](), set[int](), set[int]()
    for what, given_ids in steps:
        if isinstance(given_ids, list):
            queue.append_items(given_ids)
            order = [id for id in order if id not in given_ids] + given_ids
            waits |= set(given_ids)
        elif isinstance(given_ids, int) and given_ids in order:
            id = given_ids
            if what == "add":
                assert queue.add(id) == (id not in waits)
                waits.add(id)
            elif what == "discard":
                assert (queue.discard(id) is not None) == (id in waits)
                waits.discard(id)
            elif what == "done":
                done.add(id)
            else:
                done.discard(id)
                queue.reopen_for("ann", id)
        expected = [id for id in order if id in waits]
        assert list(queue) == expected
        assert len(queue) == len(expected)
        assert [id in queue for id in range(8)] == [id in waits for id in range(8)]
        assert repr(queue) == f"<{len(waits)} of {len(order)} items wait>"
        assert [id for id in queue.iterate_for("ann", done.__contains__) if id not in done] == [
            id for id in expected if id not in done
        ]


@patient
@given(sequences())
def test_asking_on_the_way_makes_no_difference_to_what_is_available(events: list[Event]) -> None:
    ledger, people = Ledger(), ("", "ann", "bob", "nobody")
    for number, event in enumerate(events, start=1):
        ledger.extend([event])
        fresh = replay(events[:number])
        for by in people:
            assert ledger.available(by, 3, event.at) == fresh.available(by, 3, event.at)


def test_who_works_alone_on_items_for_two_is_not_kept_looking_through_their_own() -> None:
    ids = tuple(range(2000))
    ledger = replay([Started(0.0, {"overlap": 2}, 2000), Asked(0.0, 1, ids)])
    looks = 0

    class Counted(dict):  # type: ignore[type-arg]
        def get(self, *args: object) -> object:
            nonlocal looks
            looks += 1
            return super().get(*args)

    ledger.votes = Counted()
    for id in ids[:-1]:
        assert ledger.available("ann", 1, 1.0) == [id]
        ledger.extend([Told(1.0, id, 1, "ann")])
    assert looks < 20 * len(ids)  # looking through all of them every time takes 2,000,000
    assert ledger.available("bob", 2, 1.0) == [0, 1]
    ledger.extend([Withdrawn(2.0, 5, "ann")])
    assert ledger.available("ann", 2, 2.0) == [5, 1999]
