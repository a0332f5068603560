"""The record: labels in, items out, for many people at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import numpy as np
import pytest

from labelwise.campaign import operations
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.errors import BadInput, Conflict, StorageFailed, UnknownName
from labelwise.record import open_storage
from labelwise.record.events import Asked, Changed, Lent, Skipped, Told, Withdrawn
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import IDS, Clock
from tests.campaign.workers import label_all, label_in_a_process

ITEMS = IDS.tolist()


def make_record(storage, ids=ITEMS, clock=None, **settings):
    """A record with one open batch."""
    clock = Clock() if clock is None else clock
    record = CampaignRecord("birds", storage, clock=clock)
    record.start(1000, **{"classes": ("owl", "wren"), **settings})
    storage.append("birds", [Asked(0.0, 1, tuple(ids), strategy="random")])
    return record


def kinds(storage):
    return [type(event) for event in storage.read("birds")]


@pytest.fixture
def memory():
    return MemoryStorage()


def test_a_record_without_a_campaign_says_so(storage):
    record = CampaignRecord("brids", storage)
    for call in (
        lambda: record.lend("ann"),
        lambda: record.tell({1: "owl"}),
        lambda: record.settings,
    ):
        with pytest.raises(UnknownName, match="there is no campaign called 'brids'; start it"):
            call()
    assert storage.campaigns() == []


def test_starting_twice_is_starting_once(storage):
    record = CampaignRecord("birds", storage)
    first = record.start(10, batch=5, classes=("owl", "wren"), by="ann")
    assert CampaignRecord("birds", storage).start(10, classes=("owl", "wren")) == first
    assert CampaignRecord("birds", storage).start(10) == first
    assert storage.length("birds") == 1


def test_starting_with_other_settings_is_refused(memory):
    record = CampaignRecord("birds", memory)
    record.start(10, batch=5)
    with pytest.raises(BadInput, match=r"'birds' has batch=5, not 6; leave it out, or call change"):
        record.start(10, batch=6)
    with pytest.raises(UnknownName, match="no setting 'bach'"):
        record.start(10, bach=6)


def test_a_pool_may_grow_but_not_shrink(memory):
    record = CampaignRecord("birds", memory)
    record.start(10)
    record.start(14)
    assert record.ledger().items == 14
    with pytest.raises(BadInput, match="the pool has 9 items but campaign 'birds' has 14"):
        record.start(9)


def test_change_records_only_what_changed(storage):
    record = make_record(storage)
    assert record.change(batch=50, overlap=3, by="ann").overlap == 3
    assert record.change(overlap=3).overlap == record.settings.overlap == 3
    changes = [event for event in storage.read("birds") if isinstance(event, Changed)]
    assert changes == [Changed(1000.0, {"overlap": 3}, "ann")]
    with pytest.raises(BadInput, match="overlap must be"):
        record.change(overlap=0)


def test_a_label_is_kept_with_its_person_its_time_and_its_duration(storage):
    record = make_record(storage)
    length = record.tell({ITEMS[0]: "owl", ITEMS[1]: 1}, by="ann", seconds={ITEMS[0]: 2.5})
    assert storage.read("birds")[2:] == [
        Told(1000.0, ITEMS[0], "owl", "ann", 2.5),
        Told(1000.0, ITEMS[1], "wren", "ann", None),
    ]
    assert length == storage.length("birds") == 4
    assert record.labels() == {ITEMS[0]: "owl", ITEMS[1]: "wren"}


def test_ids_and_labels_may_be_numpy_numbers(memory):
    record = make_record(memory, classes=(0, 1))
    record.tell({np.int64(ITEMS[0]): np.int64(1)}, by="ann", seconds=np.float64(2))
    assert record.labels() == {ITEMS[0]: 1}
    assert record.ledger().per_annotator["ann"].seconds == 2.0


def test_telling_the_same_again_adds_nothing_and_telling_otherwise_changes_the_label(storage):
    record = make_record(storage)
    length = record.tell({ITEMS[0]: "owl"}, by="ann")
    assert record.tell({ITEMS[0]: "owl"}, by="ann") == length
    assert record.tell({ITEMS[0]: "wren"}, by="ann") == length + 1
    assert record.labels() == {ITEMS[0]: "wren"}
    assert record.ledger().vote_count == 1


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
        ({"5": "owl"}, {}, UnknownName, "item '5' was never asked for"),
        ({True: "owl"}, {}, BadInput, "an item id is a whole number, a text"),
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
    record = make_record(memory)
    with pytest.raises(error, match=words):
        record.tell({ITEMS[1]: "owl", **labels}, **more)
    assert memory.length("birds") == 2


def test_labels_of_items_that_nobody_asked_for_are_taken_on_request(memory):
    record = make_record(memory)
    record.tell({5: "owl"}, by="ann", anything=True)
    assert record.labels() == {5: "owl"}
    assert record.why(5) == "It was not picked: it was labelled without being asked for."


def test_expected_turns_a_race_into_a_retry(storage):
    record, other = make_record(storage), CampaignRecord("birds", storage)
    length = record.ledger().length
    other.tell({ITEMS[0]: "owl"}, by="bob")
    for call in (
        lambda: record.tell({ITEMS[1]: "owl"}, expected=length),
        lambda: record.skip(ITEMS[1], expected=length),
        lambda: record.change(batch=7, expected=length),
        lambda: record.resolve({ITEMS[0]: "owl"}, expected=length),
        lambda: record.withdraw(ITEMS[0], by="bob", expected=length),
    ):
        with pytest.raises(Conflict, match="the record has 3 events, not 2"):
            call()
    assert storage.length("birds") == 3
    assert record.tell({ITEMS[1]: "owl"}, expected=record.ledger().length) == 4


def test_a_skip_ends_the_wait_for_an_item_and_a_label_brings_it_back(storage):
    record = make_record(storage)
    record.skip(ITEMS[0], reason="blurred", by="ann")
    record.skip([ITEMS[0]], reason="blurred", by="ann")
    assert kinds(storage).count(Skipped) == 1
    assert ITEMS[0] not in record.lend("bob", 10)
    assert record.ledger().skipped[ITEMS[0]].reason == "blurred"
    record.tell({ITEMS[0]: "owl"}, by="bob")
    assert record.labels() == {ITEMS[0]: "owl"} and not record.ledger().skipped


def test_skipping_an_item_drops_ones_own_label_and_withdrawing_the_skip_asks_anew(memory):
    record = make_record(memory)
    record.tell({ITEMS[0]: "owl"}, by="ann")
    record.skip(ITEMS[0], by="ann")
    assert record.labels() == {}
    record.withdraw([ITEMS[0]], by="ann")
    assert record.labels() == {} and ITEMS[0] in record.ledger().waiting


def test_only_what_was_asked_for_can_be_skipped(memory):
    record = make_record(memory)
    with pytest.raises(UnknownName, match="item 5 was never asked for"):
        record.skip(5)
    with pytest.raises(BadInput, match="a reason is a text; got 3"):
        record.skip(ITEMS[0], reason=3)


def test_people_withdraw_only_what_they_said_themselves(storage):
    record = make_record(storage)
    record.tell({ITEMS[0]: "owl"}, by="ann")
    with pytest.raises(BadInput, match=f"'bob' has no label or skip of item {ITEMS[0]}"):
        record.withdraw(ITEMS[0], by="bob")
    record.withdraw(ITEMS[0], by="ann")
    assert record.labels() == {} and len(record.ledger().waiting) == len(ITEMS)
    with pytest.raises(BadInput, match="'ann' has no label or skip"):
        record.withdraw(ITEMS[0], by="ann")


def test_undo_goes_back_through_labels_and_skips_and_lends_the_item_again(storage):
    record = make_record(storage)
    first, second, third = record.lend("ann", 3)
    record.tell({first: "owl"}, by="ann")
    record.skip(second, by="ann")
    record.tell({third: "owl"}, by="bob")
    assert record.undo("ann") == second
    assert not record.ledger().skipped and "ann" in record.ledger().leases[second]
    assert record.undo("ann") == first
    assert record.undo("ann") is None
    assert record.labels() == {third: "owl"}
    assert set(record.lend("ann", 2)) == {first, second}
    assert not {first, second} & set(record.lend("cem", 10))


def test_undoing_a_resolution_brings_the_disagreement_back(storage):
    record = make_record(storage, overlap=2)
    record.tell({ITEMS[0]: "owl"}, by="ann")
    record.tell({ITEMS[0]: "wren"}, by="bob")
    record.resolve({ITEMS[0]: 1}, by="cem")
    assert record.labels() == {ITEMS[0]: "wren"} and not record.ledger().disagreements()
    assert record.undo("cem") == ITEMS[0]
    assert [entry.id for entry in record.ledger().disagreements()] == [ITEMS[0]]
    assert not record.ledger().leases


def test_only_what_has_labels_can_be_resolved(memory):
    record = make_record(memory)
    with pytest.raises(UnknownName, match=f"item {ITEMS[0]} has no label yet; label it"):
        record.resolve({ITEMS[0]: "owl"})


def test_a_loan_is_for_one_person_until_it_lapses(storage):
    clock = Clock()
    record = make_record(storage, clock=clock, lend_seconds=60.0)
    mine = record.lend("ann", 4)
    assert mine == ITEMS[:4]
    assert record.lend("bob", 10) == ITEMS[4:]
    clock.now += 59
    assert record.lend("cem", 10) == []
    clock.now += 2
    assert record.lend("cem", 10) == ITEMS


def test_who_holds_a_loan_gets_it_again_and_renewed_only_in_its_second_half(storage):
    clock = Clock()
    record = make_record(storage, clock=clock, lend_seconds=60.0)
    assert record.lend("ann", 2) == record.lend("ann", 2) == ITEMS[:2]
    assert kinds(storage).count(Lent) == 1
    clock.now += 40
    assert record.lend("ann", 2) == ITEMS[:2]
    assert kinds(storage).count(Lent) == 2
    clock.now += 40  # the first loan would have lapsed
    assert record.lend("bob", 1) == ITEMS[2:3]


def test_what_is_given_back_goes_to_others(storage):
    record = make_record(storage)
    record.lend("ann", 4)
    record.give_back("ann", [ITEMS[1], ITEMS[5]])
    assert record.lend("bob", 1) == [ITEMS[1]]
    record.give_back("ann")
    record.give_back("ann")
    assert set(record.lend("bob", 6)) == set(ITEMS)


def test_overlap_lends_an_item_to_so_many_different_people(storage):
    record = make_record(storage, ids=ITEMS[:2], overlap=3)
    for person in ("ann", "bob"):
        assert record.lend(person, 5) == ITEMS[:2]
        record.tell(dict.fromkeys(ITEMS[:2], "owl"), by=person)
        assert record.lend(person, 5) == []
    assert record.lend("cem", 5) == ITEMS[:2]
    assert record.lend("dee", 5) == []
    record.tell({ITEMS[0]: "wren"}, by="cem")
    assert list(record.ledger().waiting) == ITEMS[1:2]
    assert record.labels()[ITEMS[0]] == "owl"


def test_count_must_be_a_number(memory):
    record = make_record(memory)
    for count in (-1, 1.5, True):
        with pytest.raises(BadInput, match="count must be a whole number, 0 or more"):
            record.lend("ann", count)
    assert record.lend("ann", 0) == []


def test_items_that_the_same_step_labels_are_not_leased(memory):
    record = make_record(memory, overlap=2)
    ledger, without = record.ledger(), {ITEMS[0]: "owl"}
    given = {"by": "ann", "count": 3, "now": 5.0, "without": without}
    assert operations.lease_items(ledger, record.settings, **given)[1] == ITEMS[1:4]


def test_votes_are_weighed_by_reliability_where_the_campaign_says_so(memory):
    ids = list(range(41))
    record = make_record(memory, ids=ids, overlap=3, resolution="weighted", classes=(0, 1, 2, 3))
    record.tell({item: item % 4 for item in ids}, by="ann")
    record.tell({item: item % 4 for item in ids[:40]}, by="bob")
    record.tell({item: 0 for item in ids[:40]} | {40: 3}, by="eve")  # always says 0
    assert 40 % 4 == 0 and record.ledger().labels.get(40) is None  # ann 0, eve 3: level
    assert record.labels()[40] == 0  # ann is nearly always right
    record.resolve({40: 3}, by="bob")
    assert record.labels()[40] == 3


def test_a_row_for_every_labelled_item(memory):
    record = make_record(memory)
    memory.append("birds", [Asked(1.0, 2, (7, 3), weights=(20.0, 0.0), validation=(3,))])
    record.tell({3: "owl", 7: "wren"}, by="ann")
    assert record.labelled() == [
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
        record = make_record(storage)
        record.tell({ITEMS[0]: "owl"}, by="ann")
        real, storage.transact = storage.transact, _full
        with pytest.raises(StorageFailed, match="no space"):
            record.tell({ITEMS[1]: "owl"}, by="ann")
        storage.transact = real
        assert record.labels() == {ITEMS[0]: "owl"}
        record.tell({ITEMS[1]: "wren"}, by="ann")
        assert record.labels() == {ITEMS[0]: "owl", ITEMS[1]: "wren"}


def _full(campaign, start, decide):
    decide([])
    raise StorageFailed("no space is left on the disk")


def test_eight_threads_label_everything_once(storage):
    ids = list(range(1, 721, 3))
    record = make_record(storage, ids=ids)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda person: label_all(record, f"person {person}"), range(8)))
    assert sorted(item for part in parts for item in part) == ids
    events = [event for event in storage.read("birds") if isinstance(event, Told)]
    assert sorted(event.id for event in events) == ids
    assert not any(isinstance(event, Withdrawn) for event in storage.read("birds"))


def test_four_processes_label_everything_once(storage_url):
    ids = list(range(1, 181, 3))
    with closing(open_storage(storage_url)) as storage:
        make_record(storage, ids=ids)
        people = [f"person {number}" for number in range(4)]
        with get_context("spawn").Pool(4) as pool:
            parts = pool.starmap(label_in_a_process, [(storage_url, person) for person in people])
        assert sorted(item for part in parts for item in part) == ids
        labelled = [event.id for event in storage.read("birds") if isinstance(event, Told)]
        assert sorted(labelled) == ids
        assert set(CampaignRecord("birds", storage).labels()) == set(ids)


def test_the_record_needs_no_model_and_no_torch():
    code = "import sys, labelwise.campaign.campaign_record; print({'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_someone_else_holds_is_not_lent_twice_by_an_undo(memory):
    clock = Clock()
    record = make_record(memory, clock=clock, lend_seconds=60.0)
    assert record.lend("ann") == ITEMS[:1]
    clock.now += 61
    assert record.lend("bob") == ITEMS[:1]
    record.tell({ITEMS[0]: "owl"}, by="ann")
    assert record.undo("ann") == ITEMS[0]
    assert set(record.ledger().leases[ITEMS[0]]) == {"bob"}
    assert record.lend("ann") == ITEMS[1:2]


def test_an_undo_lends_no_item_that_someone_else_skipped(memory):
    record = make_record(memory)
    record.tell({ITEMS[0]: "owl"}, by="ann")
    record.skip(ITEMS[0], by="bob")
    assert record.undo("ann") == ITEMS[0]
    assert not record.ledger().leases


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
    record = make_record(memory, classes=before)
    first = 0 if before is None else before[0]
    record.tell({ITEMS[0]: first})
    classes = record.change(classes=wanted).classes
    assert classes == after and list(map(type, classes)) == list(map(type, after))
    assert record.labels()[ITEMS[0]] in classes
