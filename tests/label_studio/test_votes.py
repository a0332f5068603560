"""The record follows what people say in Label Studio: against saying it all anew."""

from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.campaign import open_storage
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.errors import BadInput
from labelwise.label_studio.formats import AnnotatorVote, TaskVotes
from labelwise.label_studio.votes import (
    DELETED,
    SKIPPED,
    SYSTEM_ANNOTATOR,
    VOTES_FILE,
    ImportedVotes,
    import_votes,
)

LABELS = ("cat", "dog")
people = st.sampled_from(["ann", "bob", "cem"])
words = st.builds(
    TaskVotes,
    st.dictionaries(
        people, st.builds(AnnotatorVote, st.sampled_from(LABELS), st.none()), max_size=3
    ),
    st.none(),
)


@st.composite
def stands(draw):
    """What is said of an item at some time: labels, and perhaps a skip by someone else."""
    votes = dict(draw(words).votes)
    skip = draw(st.none() | people)
    votes.pop(skip, None)
    return TaskVotes(votes, skip)


@pytest.fixture
def record():
    made = CampaignRecord("birds", open_storage("memory://"))
    made.start(100, classes=LABELS)
    return made


def new_record():
    made = CampaignRecord("birds", open_storage("memory://"))
    made.start(100, classes=LABELS)
    return made


def vote(label, seconds=None):
    return AnnotatorVote(label, seconds)


def one(by, label, seconds=None):
    return {3: TaskVotes({by: AnnotatorVote(label, seconds)})}


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 3), stands()), max_size=6))
def test_the_record_stands_as_label_studio_does_whatever_came_before(tmp_path_factory, history):
    record, folder = new_record(), tmp_path_factory.mktemp("tasks")
    for state in history:
        owned = ImportedVotes(folder)  # as a later call in another process would have it
        said = {**dict.fromkeys(owned.items, TaskVotes()), **state}
        import_votes(record, said, owned)
        ledger = record.ledger()
        for item in range(4):
            wanted = state.get(item, TaskVotes())
            assert ledger.votes.get(item, {}) == {by: v.label for by, v in wanted.votes.items()}
            skip = ledger.skipped.get(item)
            assert (skip.by if skip else None) == wanted.skip
        before = ledger.length
        assert not any(import_votes(record, said, ImportedVotes(folder)).values())
        assert record.ledger().length == before


def test_labels_given_on_the_page_are_left_alone(record, tmp_path):
    record.tell({3: "dog", 4: "cat"}, by="eve", anything=True)
    import_votes(record, one("ann", "cat"), ImportedVotes(tmp_path))
    import_votes(record, {3: TaskVotes()}, ImportedVotes(tmp_path))
    assert record.ledger().votes == {3: {"eve": "dog"}, 4: {"eve": "cat"}}


def test_what_changed_is_counted_by_kind(record, tmp_path):
    assert import_votes(record, one("ann", "cat"), ImportedVotes(tmp_path)) == {"new": 1}
    assert import_votes(record, one("ann", "dog"), ImportedVotes(tmp_path)) == {"changed": 1}
    assert import_votes(record, {3: TaskVotes({}, "ann")}, ImportedVotes(tmp_path)) == {
        "skipped": 1
    }
    assert record.ledger().skipped[3].reason == SKIPPED
    assert import_votes(record, {3: TaskVotes()}, ImportedVotes(tmp_path)) == {"withdrawn": 1}
    assert not record.ledger().skipped and not record.ledger().labels


def test_time_is_counted_once_though_label_studio_adds_it_up(record, tmp_path):
    import_votes(record, one("ann", "cat", 3.0), ImportedVotes(tmp_path))
    import_votes(record, one("ann", "cat", 3.0), ImportedVotes(tmp_path))
    assert record.ledger().seconds_spent == 3.0
    import_votes(record, one("ann", "dog", 5.5), ImportedVotes(tmp_path))
    assert record.ledger().seconds_spent == 5.5


def test_what_an_interruption_left_in_the_record_is_still_followed(record, tmp_path):
    class Interrupted(Exception):
        pass

    class Broken(ImportedVotes):
        def save_votes(self, votes, *, add):
            if not add:
                raise Interrupted  # as if the power went after the record was written
            super().save_votes(votes, add=add)

    with pytest.raises(Interrupted):
        import_votes(record, one("ann", "cat", 3.0), Broken(tmp_path))
    assert record.ledger().votes == {3: {"ann": "cat"}}
    import_votes(record, one("ann", "dog", 4.0), ImportedVotes(tmp_path))
    assert record.ledger().votes == {3: {"ann": "dog"}}
    import_votes(record, {3: TaskVotes()}, ImportedVotes(tmp_path))
    assert not record.ledger().votes


def test_a_disagreement_that_was_settled_stays_settled(record, tmp_path):
    both = {3: TaskVotes({"ann": vote("cat"), "bob": vote("dog")})}
    import_votes(record, both, ImportedVotes(tmp_path))
    record.resolve({3: "dog"}, by="ann")
    import_votes(record, {3: TaskVotes({"bob": vote("dog")})}, ImportedVotes(tmp_path))
    ledger = record.ledger()
    assert ledger.votes[3] == {"bob": "dog"}
    assert ledger.resolutions[3].label == "dog" and ledger.resolutions[3].by == "ann"


def test_a_deleted_task_loses_its_labels_and_is_not_asked_for_again(record, tmp_path):
    import_votes(record, one("ann", "cat") | {4: TaskVotes({}, "bob")}, ImportedVotes(tmp_path))
    assert import_votes(record, dict.fromkeys([3, 4, 5]), ImportedVotes(tmp_path)) == {
        "withdrawn": 2
    }
    ledger = record.ledger()
    assert not ledger.labels and not ledger.votes
    assert {item: (skip.by, skip.reason) for item, skip in ledger.skipped.items()} == dict.fromkeys(
        (3, 4, 5), (SYSTEM_ANNOTATOR, DELETED)
    )
    length = ledger.length
    assert not any(import_votes(record, dict.fromkeys([3, 4, 5]), ImportedVotes(tmp_path)).values())
    assert record.ledger().length == length


def test_a_deleted_task_keeps_labels_from_elsewhere(record, tmp_path):
    record.tell({3: "dog"}, by="eve", anything=True)
    import_votes(record, one("ann", "cat"), ImportedVotes(tmp_path))
    import_votes(record, {3: None}, ImportedVotes(tmp_path))
    assert dict(record.ledger().labels) == {3: "dog"}


def test_nothing_is_written_to_disk_without_news(record, tmp_path):
    import_votes(record, one("ann", "cat"), ImportedVotes(tmp_path))
    stamp = (tmp_path / VOTES_FILE).stat().st_mtime_ns
    import_votes(record, one("ann", "cat"), ImportedVotes(tmp_path))
    assert (tmp_path / VOTES_FILE).stat().st_mtime_ns == stamp


def test_a_damaged_memory_is_named(tmp_path):
    (tmp_path / VOTES_FILE).write_text('{"ann": [1, 2]}')
    with pytest.raises(BadInput, match=r"told\.json is damaged"):
        ImportedVotes(tmp_path)


def test_many_items_are_followed_in_several_steps(record, tmp_path, monkeypatch):
    monkeypatch.setattr("labelwise.label_studio.votes.ITEMS_PER_COMMIT", 7)
    said = {item: TaskVotes(MappingProxyType({"ann": vote("cat")})) for item in range(20)}
    assert import_votes(record, said, ImportedVotes(tmp_path)) == {"new": 20}
    assert len(record.ledger().labels) == 20
