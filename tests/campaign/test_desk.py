"""The desk: labels in, items out, for many people at once."""

import doctest
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import numpy as np
import pytest

from labelwise.campaign import desk as module
from labelwise.campaign import operations
from labelwise.campaign.desk import Desk
from labelwise.errors import BadInput, Conflict, StorageFailed, UnknownName
from labelwise.record.events import Asked, Changed, Lent, Skipped, Told, Withdrawn
from labelwise.record.storage import MemoryStorage, open_storage
from tests.campaign.toys import IDS, Clock
from tests.campaign.workers import label_all, label_in_a_process

ITEMS = IDS.tolist()


def make_desk(storage, ids=ITEMS, clock=None, **settings):
    """A desk with one open batch."""
    clock = Clock() if clock is None else clock
    desk = Desk("birds", storage, clock=clock)
    desk.start(1000, **{"classes": ("owl", "wren"), **settings})
    storage.append("birds", [Asked(0.0, 1, tuple(ids), strategy="random")])
    return desk


def kinds(storage):
    return [type(event) for event in storage.read("birds")]


@pytest.fixture
def memory():
    return MemoryStorage()


def test_the_examples_run():
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_a_desk_without_a_campaign_says_so(storage):
    desk = Desk("brids", storage)
    for call in (lambda: desk.lend("ann"), lambda: desk.tell({1: "owl"}), lambda: desk.settings):
        with pytest.raises(UnknownName, match="there is no campaign called 'brids'; start it"):
            call()
    assert storage.campaigns() == []


def test_starting_twice_is_starting_once(storage):
    desk = Desk("birds", storage)
    first = desk.start(10, batch=5, classes=("owl", "wren"), by="ann")
    assert Desk("birds", storage).start(10, classes=("owl", "wren")) == first
    assert Desk("birds", storage).start(10) == first
    assert storage.length("birds") == 1


def test_starting_with_other_settings_is_refused(memory):
    desk = Desk("birds", memory)
    desk.start(10, batch=5)
    with pytest.raises(BadInput, match=r"'birds' has batch=5, not 6; leave it out, or call change"):
        desk.start(10, batch=6)
    with pytest.raises(UnknownName, match="no setting 'bach'"):
        desk.start(10, bach=6)


def test_a_pool_may_grow_but_not_shrink(memory):
    desk = Desk("birds", memory)
    desk.start(10)
    desk.start(14)
    assert desk.ledger().items == 14
    with pytest.raises(BadInput, match="the pool has 9 items but campaign 'birds' has 14"):
        desk.start(9)


def test_change_records_only_what_changed(storage):
    desk = make_desk(storage)
    assert desk.change(batch=50, overlap=3, by="ann").overlap == 3
    assert desk.change(overlap=3).overlap == desk.settings.overlap == 3
    changes = [event for event in storage.read("birds") if isinstance(event, Changed)]
    assert changes == [Changed(1000.0, {"overlap": 3}, "ann")]
    with pytest.raises(BadInput, match="overlap must be"):
        desk.change(overlap=0)


def test_a_label_is_kept_with_its_person_its_time_and_its_duration(storage):
    desk = make_desk(storage)
    length = desk.tell({ITEMS[0]: "owl", ITEMS[1]: 1}, by="ann", seconds={ITEMS[0]: 2.5})
    assert storage.read("birds")[2:] == [
        Told(1000.0, ITEMS[0], "owl", "ann", 2.5),
        Told(1000.0, ITEMS[1], "wren", "ann", None),
    ]
    assert length == storage.length("birds") == 4
    assert desk.labels() == {ITEMS[0]: "owl", ITEMS[1]: "wren"}


def test_ids_and_labels_may_be_numpy_numbers(memory):
    desk = make_desk(memory, classes=(0, 1))
    desk.tell({np.int64(ITEMS[0]): np.int64(1)}, by="ann", seconds=np.float64(2))
    assert desk.labels() == {ITEMS[0]: 1}
    assert desk.ledger().per_annotator["ann"].seconds == 2.0


def test_telling_the_same_again_adds_nothing_and_telling_otherwise_changes_the_label(storage):
    desk = make_desk(storage)
    length = desk.tell({ITEMS[0]: "owl"}, by="ann")
    assert desk.tell({ITEMS[0]: "owl"}, by="ann") == length
    assert desk.tell({ITEMS[0]: "wren"}, by="ann") == length + 1
    assert desk.labels() == {ITEMS[0]: "wren"}
    assert desk.ledger().vote_count == 1


@pytest.mark.parametrize(
    ("labels", "more", "error", "words"),
    [
        ({5: "owl"}, {}, UnknownName, "item 5 was never asked for; check the id, or give anything"),
        (
            {ITEMS[0]: "hawk"},
            {},
            BadInput,
            f"label of item {ITEMS[0]} is 'hawk', which is not a class",
        ),
        ({"5": "owl"}, {}, BadInput, "an item id is a whole number; got '5'"),
        ({True: "owl"}, {}, BadInput, "an item id is a whole number; got True"),
        ({ITEMS[0]: "owl"}, {"by": 3}, BadInput, "an annotator's name is a text"),
        ({ITEMS[0]: "owl"}, {"by": "a\nb"}, BadInput, "an annotator's name is a text"),
        (
            {ITEMS[0]: "owl"},
            {"by": 201 * "a"},
            BadInput,
            "an annotator's name is a text of up to 200",
        ),
        ({ITEMS[0]: "owl"}, {"seconds": -1}, BadInput, "must be a number from 0; got -1"),
        ({ITEMS[0]: "owl"}, {"seconds": float("nan")}, BadInput, "must be a number from 0"),
    ],
)
def test_one_wrong_label_and_nothing_is_kept(memory, labels, more, error, words):
    desk = make_desk(memory)
    with pytest.raises(error, match=words):
        desk.tell({ITEMS[1]: "owl", **labels}, **more)
    assert memory.length("birds") == 2


def test_labels_of_items_that_nobody_asked_for_are_taken_on_request(memory):
    desk = make_desk(memory)
    desk.tell({5: "owl"}, by="ann", anything=True)
    assert desk.labels() == {5: "owl"}
    assert desk.why(5) == "It was not picked: it was labelled without being asked for."


def test_expected_turns_a_race_into_a_retry(storage):
    desk, other = make_desk(storage), Desk("birds", storage)
    length = desk.ledger().length
    other.tell({ITEMS[0]: "owl"}, by="bob")
    for call in (
        lambda: desk.tell({ITEMS[1]: "owl"}, expected=length),
        lambda: desk.skip(ITEMS[1], expected=length),
        lambda: desk.change(batch=7, expected=length),
        lambda: desk.resolve({ITEMS[0]: "owl"}, expected=length),
        lambda: desk.withdraw(ITEMS[0], by="bob", expected=length),
    ):
        with pytest.raises(Conflict, match="the record has 3 events, not 2"):
            call()
    assert storage.length("birds") == 3
    assert desk.tell({ITEMS[1]: "owl"}, expected=desk.ledger().length) == 4


def test_a_skip_takes_an_item_off_the_desk_and_a_label_brings_it_back(storage):
    desk = make_desk(storage)
    desk.skip(ITEMS[0], reason="blurred", by="ann")
    desk.skip([ITEMS[0]], reason="blurred", by="ann")
    assert kinds(storage).count(Skipped) == 1
    assert ITEMS[0] not in desk.lend("bob", 10)
    assert desk.ledger().skipped[ITEMS[0]].reason == "blurred"
    desk.tell({ITEMS[0]: "owl"}, by="bob")
    assert desk.labels() == {ITEMS[0]: "owl"} and not desk.ledger().skipped


def test_skipping_an_item_drops_ones_own_label_and_withdrawing_the_skip_asks_anew(memory):
    desk = make_desk(memory)
    desk.tell({ITEMS[0]: "owl"}, by="ann")
    desk.skip(ITEMS[0], by="ann")
    assert desk.labels() == {}
    desk.withdraw([ITEMS[0]], by="ann")
    assert desk.labels() == {} and ITEMS[0] in desk.ledger().waiting


def test_only_what_was_asked_for_can_be_skipped(memory):
    desk = make_desk(memory)
    with pytest.raises(UnknownName, match="item 5 was never asked for"):
        desk.skip(5)
    with pytest.raises(BadInput, match="a reason is a text; got 3"):
        desk.skip(ITEMS[0], reason=3)


def test_people_withdraw_only_what_they_said_themselves(storage):
    desk = make_desk(storage)
    desk.tell({ITEMS[0]: "owl"}, by="ann")
    with pytest.raises(BadInput, match=f"'bob' has no label or skip of item {ITEMS[0]}"):
        desk.withdraw(ITEMS[0], by="bob")
    desk.withdraw(ITEMS[0], by="ann")
    assert desk.labels() == {} and len(desk.ledger().waiting) == len(ITEMS)
    with pytest.raises(BadInput, match="'ann' has no label or skip"):
        desk.withdraw(ITEMS[0], by="ann")


def test_undo_goes_back_through_labels_and_skips_and_lends_the_item_again(storage):
    desk = make_desk(storage)
    first, second, third = desk.lend("ann", 3)
    desk.tell({first: "owl"}, by="ann")
    desk.skip(second, by="ann")
    desk.tell({third: "owl"}, by="bob")
    assert desk.undo("ann") == second
    assert not desk.ledger().skipped and "ann" in desk.ledger().leases[second]
    assert desk.undo("ann") == first
    assert desk.undo("ann") is None
    assert desk.labels() == {third: "owl"}
    assert set(desk.lend("ann", 2)) == {first, second}
    assert not {first, second} & set(desk.lend("cem", 10))


def test_undoing_a_resolution_brings_the_disagreement_back(storage):
    desk = make_desk(storage, overlap=2)
    desk.tell({ITEMS[0]: "owl"}, by="ann")
    desk.tell({ITEMS[0]: "wren"}, by="bob")
    desk.resolve({ITEMS[0]: 1}, by="cem")
    assert desk.labels() == {ITEMS[0]: "wren"} and not desk.ledger().disagreements()
    assert desk.undo("cem") == ITEMS[0]
    assert [entry.id for entry in desk.ledger().disagreements()] == [ITEMS[0]]
    assert not desk.ledger().leases


def test_only_what_has_labels_can_be_resolved(memory):
    desk = make_desk(memory)
    with pytest.raises(UnknownName, match=f"item {ITEMS[0]} has no label yet; label it"):
        desk.resolve({ITEMS[0]: "owl"})


def test_a_loan_is_for_one_person_until_it_lapses(storage):
    clock = Clock()
    desk = make_desk(storage, clock=clock, lend_seconds=60.0)
    mine = desk.lend("ann", 4)
    assert mine == ITEMS[:4]
    assert desk.lend("bob", 10) == ITEMS[4:]
    clock.now += 59
    assert desk.lend("cem", 10) == []
    clock.now += 2
    assert desk.lend("cem", 10) == ITEMS


def test_who_holds_a_loan_gets_it_again_and_renewed_only_in_its_second_half(storage):
    clock = Clock()
    desk = make_desk(storage, clock=clock, lend_seconds=60.0)
    assert desk.lend("ann", 2) == desk.lend("ann", 2) == ITEMS[:2]
    assert kinds(storage).count(Lent) == 1
    clock.now += 40
    assert desk.lend("ann", 2) == ITEMS[:2]
    assert kinds(storage).count(Lent) == 2
    clock.now += 40  # the first loan would have lapsed
    assert desk.lend("bob", 1) == ITEMS[2:3]


def test_what_is_given_back_goes_to_others(storage):
    desk = make_desk(storage)
    desk.lend("ann", 4)
    desk.give_back("ann", [ITEMS[1], ITEMS[5]])
    assert desk.lend("bob", 1) == [ITEMS[1]]
    desk.give_back("ann")
    desk.give_back("ann")
    assert set(desk.lend("bob", 6)) == set(ITEMS)


def test_overlap_lends_an_item_to_so_many_different_people(storage):
    desk = make_desk(storage, ids=ITEMS[:2], overlap=3)
    for person in ("ann", "bob"):
        assert desk.lend(person, 5) == ITEMS[:2]
        desk.tell(dict.fromkeys(ITEMS[:2], "owl"), by=person)
        assert desk.lend(person, 5) == []
    assert desk.lend("cem", 5) == ITEMS[:2]
    assert desk.lend("dee", 5) == []
    desk.tell({ITEMS[0]: "wren"}, by="cem")
    assert list(desk.ledger().waiting) == ITEMS[1:2]
    assert desk.labels()[ITEMS[0]] == "owl"


def test_count_must_be_a_number(memory):
    desk = make_desk(memory)
    for count in (-1, 1.5, True):
        with pytest.raises(BadInput, match="count must be a whole number, 0 or more"):
            desk.lend("ann", count)
    assert desk.lend("ann", 0) == []


def test_items_that_the_same_step_labels_are_not_leased(memory):
    desk = make_desk(memory, overlap=2)
    ledger, without = desk.ledger(), {ITEMS[0]: "owl"}
    given = {"by": "ann", "count": 3, "now": 5.0, "without": without}
    assert operations.lease_items(ledger, desk.settings, **given)[1] == ITEMS[1:4]


def test_votes_are_weighed_by_reliability_where_the_campaign_says_so(memory):
    ids = list(range(41))
    desk = make_desk(memory, ids=ids, overlap=3, resolution="weighted", classes=(0, 1, 2, 3))
    desk.tell({item: item % 4 for item in ids}, by="ann")
    desk.tell({item: item % 4 for item in ids[:40]}, by="bob")
    desk.tell({item: 0 for item in ids[:40]} | {40: 3}, by="eve")  # always says 0
    assert 40 % 4 == 0 and desk.ledger().labels.get(40) is None  # ann 0, eve 3: level
    assert desk.labels()[40] == 0  # ann is nearly always right
    desk.resolve({40: 3}, by="bob")
    assert desk.labels()[40] == 3


def test_a_row_for_every_labelled_item(memory):
    desk = make_desk(memory)
    memory.append("birds", [Asked(1.0, 2, (7, 3), weights=(20.0, 0.0), validation=(3,))])
    desk.tell({3: "owl", 7: "wren"}, by="ann")
    assert desk.labelled() == [
        {
            "id": 3,
            "label": "owl",
            "weight": 0.0,
            "batch": 2,
            "validation": True,
            "votes": {"ann": "owl"},
        },
        {
            "id": 7,
            "label": "wren",
            "weight": 20.0,
            "batch": 2,
            "validation": False,
            "votes": {"ann": "wren"},
        },
    ]


def test_a_storage_that_fails_and_recovers_loses_nothing(sqlite_url):
    with closing(open_storage(sqlite_url)) as storage:
        desk = make_desk(storage)
        desk.tell({ITEMS[0]: "owl"}, by="ann")
        real, storage.transact = storage.transact, _full
        with pytest.raises(StorageFailed, match="no space"):
            desk.tell({ITEMS[1]: "owl"}, by="ann")
        storage.transact = real
        assert desk.labels() == {ITEMS[0]: "owl"}
        desk.tell({ITEMS[1]: "wren"}, by="ann")
        assert desk.labels() == {ITEMS[0]: "owl", ITEMS[1]: "wren"}


def _full(campaign, start, decide):
    decide([])
    raise StorageFailed("no space is left on the disk")


def test_eight_threads_label_everything_once(storage):
    ids = list(range(1, 721, 3))
    desk = make_desk(storage, ids=ids)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda person: label_all(desk, f"person {person}"), range(8)))
    assert sorted(item for part in parts for item in part) == ids
    events = [event for event in storage.read("birds") if isinstance(event, Told)]
    assert sorted(event.id for event in events) == ids
    assert not any(isinstance(event, Withdrawn) for event in storage.read("birds"))


def test_four_processes_label_everything_once(storage_url):
    ids = list(range(1, 181, 3))
    with closing(open_storage(storage_url)) as storage:
        make_desk(storage, ids=ids)
        people = [f"person {number}" for number in range(4)]
        with get_context("spawn").Pool(4) as pool:
            parts = pool.starmap(label_in_a_process, [(storage_url, person) for person in people])
        assert sorted(item for part in parts for item in part) == ids
        labelled = [event.id for event in storage.read("birds") if isinstance(event, Told)]
        assert sorted(labelled) == ids
        assert set(Desk("birds", storage).labels()) == set(ids)


def test_the_desk_needs_no_model_and_no_torch():
    code = "import sys, labelwise.campaign.desk; print({'torch', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_someone_else_holds_is_not_lent_twice_by_an_undo(memory):
    clock = Clock()
    desk = make_desk(memory, clock=clock, lend_seconds=60.0)
    assert desk.lend("ann") == ITEMS[:1]
    clock.now += 61
    assert desk.lend("bob") == ITEMS[:1]
    desk.tell({ITEMS[0]: "owl"}, by="ann")
    assert desk.undo("ann") == ITEMS[0]
    assert set(desk.ledger().leases[ITEMS[0]]) == {"bob"}
    assert desk.lend("ann") == ITEMS[1:2]


def test_an_undo_lends_no_item_that_someone_else_skipped(memory):
    desk = make_desk(memory)
    desk.tell({ITEMS[0]: "owl"}, by="ann")
    desk.skip(ITEMS[0], by="bob")
    assert desk.undo("ann") == ITEMS[0]
    assert not desk.ledger().leases


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (("0", "1"), [0, 1, 2], ("0", "1", "2")),
        ((0, 1), ["0", "1", "2"], (0, 1, 2)),
        (("owl", "wren"), ["wren", "owl", "3"], ("wren", "owl", "3")),
        (None, ["0", "1", "2"], (0, 1, 2)),
    ],
)
def test_classes_added_later_are_of_the_kind_of_the_labels_that_were_told(
    memory, before, wanted, after
):
    desk = make_desk(memory, classes=before)
    first = 0 if before is None else before[0]
    desk.tell({ITEMS[0]: first})
    classes = desk.change(classes=wanted).classes
    assert classes == after and list(map(type, classes)) == list(map(type, after))
    assert desk.labels()[ITEMS[0]] in classes
