"""Items that are gone close their place in the batch, and keep what people said of them."""

import numpy as np
import pytest
from PIL import Image

from labelwise.campaign import export
from labelwise.campaign.folder.missing_items import (
    MISSING_REASON,
    SYSTEM_ANNOTATOR,
    find_missing_items,
    list_closed_items,
)
from labelwise.campaign.project import Project
from labelwise.record.events import Asked, Resolved


@pytest.fixture
def pictures(tmp_path):
    """A campaign of 12 pictures, two labels each; 0 to 5 are asked for."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(12):
        grey = np.full((8, 8), 20 * number, dtype=np.uint8)
        Image.fromarray(grey).save(folder / f"{number:02d}.png")
    settings = {"classes": ("owl", "wren"), "overlap": 2, "validation": 0.0}
    project = Project.start(folder, home=tmp_path / "photos.labelwise", **settings)
    project.open_record().commit(lambda ledger, now: ([Asked(now, 1, tuple(range(6)))], None))
    return project


def remove(project, *ids):
    for item in ids:
        project.items.path(item).unlink()


def put_back(project, *ids):
    for item in ids:
        grey = np.full((8, 8), 20 * item, dtype=np.uint8)
        Image.fromarray(grey).save(project.source / f"{item:02d}.png")


def test_a_picture_that_is_gone_with_one_of_two_labels_keeps_it_and_closes_its_batch(pictures):
    record = pictures.open_record()
    record.tell(dict.fromkeys(range(6), "owl"), by="ann")
    record.tell(dict.fromkeys(range(5), "owl"), by="bob")
    assert list(record.ledger().waiting) == [5]
    remove(pictures, 5)
    assert pictures.close_missing() == [5]
    ledger = record.ledger()
    assert not ledger.open_batches and ledger.labels == dict.fromkeys(range(6), "owl")
    assert record.lend("bob", 5) == []
    assert list_closed_items(ledger) == [5]
    assert pictures.close_missing() == []


def test_without_a_label_it_is_skipped_and_a_tie_stays_on_record(pictures):
    record = pictures.open_record()
    record.change(overlap=3)
    record.tell({0: "owl"}, by="ann")
    record.tell({0: "wren"}, by="bob")
    remove(pictures, 0, 1)
    assert pictures.close_missing() == [0, 1]
    ledger = record.ledger()
    assert {item: (skip.by, skip.reason) for item, skip in ledger.skipped.items()} == {
        0: (SYSTEM_ANNOTATOR, MISSING_REASON),
        1: (SYSTEM_ANNOTATOR, MISSING_REASON),
    }
    assert ledger.votes[0] == {"ann": "owl", "bob": "wren"} and list(ledger.waiting) == [2, 3, 4, 5]


def test_what_comes_back_waits_for_the_labels_that_it_still_wants(pictures):
    record = pictures.open_record()
    record.tell({2: "owl"}, by="ann")
    remove(pictures, 2, 3)
    assert set(pictures.refresh().missing) == {2, 3}
    assert list(record.ledger().waiting) == [0, 1, 4, 5]
    put_back(pictures, 2, 3)
    grown = pictures.refresh()
    assert (grown.missing, set(grown.returned), grown.new) == ((), {2, 3}, 0)
    ledger = record.ledger()
    assert list(ledger.waiting) == [0, 1, 2, 3, 4, 5] and list_closed_items(ledger) == []
    record.tell({2: "wren"}, by="bob")
    assert [entry.id for entry in record.ledger().disagreements()] == [2]


def test_a_refresh_leaves_alone_what_a_person_of_that_name_settled(pictures):
    record = pictures.open_record()
    record.tell({0: "owl"}, by="ann")
    record.tell({0: "wren"}, by="bob")
    # Records of 0.1.0 may have such a person.
    record.commit(lambda ledger, now: ([Resolved(now, 0, "wren", SYSTEM_ANNOTATOR)], None))
    assert pictures.refresh().returned == ()
    assert record.ledger().labels[0] == "wren"


def test_a_folder_that_is_away_as_a_whole_closes_nothing(pictures):
    length = pictures.open_record().ledger().length
    away = pictures.source.rename(pictures.source.with_name("away"))
    assert pictures.close_missing() == []
    pictures.source.mkdir()  # an empty place to mount it
    assert pictures.close_missing() == []
    assert pictures.open_record().ledger().length == length
    pictures.source.rmdir()
    away.rename(pictures.source)
    remove(pictures, 1)
    assert find_missing_items(pictures.items, [0, 1, 2]) == [1]


def test_texts_are_kept_by_the_campaign_and_never_missing(tmp_path):
    table = tmp_path / "notes.csv"
    table.write_text("note\na red bird\na grey bird\na wild fish\n")
    project = Project.start(
        table, home=tmp_path / "c", text="note", encoder="tfidf", classes=("a", "b")
    )
    project.open_record().commit(lambda ledger, now: ([Asked(now, 1, (0, 1, 2))], None))
    table.unlink()
    assert project.close_missing() == []


def test_the_export_says_who_gave_the_label_and_not_who_closed_the_item(pictures):
    record = pictures.open_record()
    record.tell({4: "owl"}, by="ann", seconds=2.0)
    remove(pictures, 4)
    pictures.close_missing()
    events = pictures.storage().read(pictures.name)
    assert isinstance(events[-1], Resolved)
    (row,) = export.label_rows(record.ledger(), record.labels(), events, str)
    told = export.format_utc(events[-2].at)
    assert (row["label"], row["by"], row["at"], row["seconds"]) == ("owl", "ann", told, 2.0)
