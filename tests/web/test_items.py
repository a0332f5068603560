"""The list of all items against a slow version, and the rules for suggestions."""

import random
import time

import numpy as np
import pytest

from labelwise.campaign.project import Project
from labelwise.record.events import Asked, Skipped, Told, Trained, Training
from labelwise.web.items import ItemQuery, ItemTable
from labelwise.web.predictions import PoolPredictions, read_predictions, write_predictions
from labelwise.web.worker import Worker

PEOPLE, NAMES = ("ann", "bob"), [str(digit) for digit in range(10)]


@pytest.fixture
def busy(make_project):
    """A campaign in which some items are labelled, skipped, disputed or waiting."""
    project, now, chance = make_project(), time.time(), random.Random(3)
    events = []
    for batch in (1, 2):
        ids = tuple(range(40 * batch, 40 * batch + 40))
        guesses = tuple((chance.choice(NAMES[:3]), round(chance.random(), 3)) for _ in ids)
        held = ids[:5]
        events.append(Asked(now, batch, ids, strategy="margin", guesses=guesses, validation=held))
        for item in ids[3:30]:
            events.append(Told(now, item, chance.choice(NAMES[:3]), chance.choice(PEOPLE)))
        events += [Skipped(now, item, "bob", "blurred") for item in ids[30:34]]
    events.append(Told(now, 50, NAMES[4], "cem"))
    project.open_record().commit(lambda ledger, now: (events, None))
    return project


def describe_slowly(project, item):
    """Status, label, prediction, confidence, first annotator and batch of an item."""
    ledger = project.open_record().ledger()
    disputed = {one.id for one in ledger.disagreements()}
    status = (
        "disputed"
        if item in disputed
        else "skipped"
        if item in ledger.skipped
        else "labelled"
        if item in ledger.labels
        else "waiting"
        if item in ledger.waiting
        else "open"
    )
    label, batch = ledger.labels.get(item), ledger.batch_of(item)
    prediction = confidence = None
    if batch is not None and (label is not None or item not in ledger.validation):
        prediction, confidence = ledger.batches[batch - 1].asked.guesses[ledger.pick_of(item).rank]
    by = next(iter(ledger.votes.get(item, {})), None)
    return {
        "status": status,
        "label": label,
        "prediction": prediction,
        "confidence": confidence,
        "by": by,
        "batch": batch,
        "name": project.items.describe(item)["name"],
    }


def find_slowly(project, query):
    facts = {item: describe_slowly(project, item) for item in range(len(project.items))}

    def matches(one):
        if query.show == "surprising":
            if None in (one["label"], one["prediction"]) or one["label"] == one["prediction"]:
                return False
        elif query.show not in ("all", one["status"]):
            return False
        wanted = (query.label, query.prediction, query.by, query.batch)
        given = (one["label"], one["prediction"], one["by"], one["batch"])
        if any(a is not None and a != b for a, b in zip(wanted, given, strict=True)):
            return False
        return all(word in one["name"].lower() for word in query.search.lower().split())

    found = [item for item, one in facts.items() if matches(one)]
    if query.sort == "id":
        return sorted(found, reverse=query.descending)
    known = [item for item in found if facts[item][query.sort] is not None]
    sign = -1 if query.descending else 1
    values = sorted({facts[item][query.sort] for item in known})
    known.sort(key=lambda item: sign * values.index(facts[item][query.sort]))
    return known + [item for item in found if facts[item][query.sort] is None]


@pytest.mark.parametrize(
    "query",
    [
        ItemQuery(),
        ItemQuery(descending=True),
        ItemQuery(search="SCAN 004"),
        ItemQuery(search="nothing"),
        *(ItemQuery(show=show) for show in ("open", "waiting", "labelled", "skipped", "disputed")),
        ItemQuery(show="surprising", sort="confidence", descending=True),
        ItemQuery(label="1", sort="batch", descending=True),
        ItemQuery(label="no such class"),
        ItemQuery(prediction="2", sort="label"),
        ItemQuery(by="bob", sort="prediction"),
        ItemQuery(batch=2, sort="confidence"),
        ItemQuery(sort="by", descending=True),
    ],
    ids=str,
)
def test_lists_match_the_slow_version(busy, query):
    listed = ItemTable(busy, busy.open_record().look).list_items(query, 0, 200)
    expected = find_slowly(busy, query)
    assert [row.id for row in listed.rows] == expected
    assert listed.total == len(expected)
    for row in listed.rows[:20]:
        facts = describe_slowly(busy, row.id)
        assert (row.status, row.label, row.prediction) == (
            facts["status"],
            facts["label"],
            facts["prediction"],
        )
        assert row.batch == facts["batch"] and facts["by"] in (None, *row.by)


def test_the_newest_predictions_replace_those_of_unlabelled_items(busy):
    record = busy.open_record()
    table, ledger = ItemTable(busy, record.look), record.ledger()
    before = {row.id: row.prediction for row in table.list_items(ItemQuery(), 0, 200).rows}
    n = len(busy.items)
    newest = PoolPredictions(
        7, ["8", "2"], np.arange(n, dtype=np.int32) % 2, np.full(n, 0.5, np.float32)
    )
    write_predictions(busy.home, newest)
    for row in table.list_items(ItemQuery(), 0, 200).rows:
        if row.id in ledger.labels:
            assert row.prediction == before[row.id]
        else:
            held = row.id in ledger.validation
            assert row.prediction == (None if held else newest.names[newest.codes[row.id]])
    (busy.home / "predictions.npz").write_bytes(b"PK damaged")
    assert read_predictions(busy.home) is None


def test_labels_that_a_model_doubts_out_of_fold_are_surprising(busy):
    record, now = busy.open_record(), time.time()
    item = next(iter(record.ledger().labels))
    other = next(name for name in NAMES if name != record.ledger().labels[item])
    metrics = {"out_of_fold": {"suspicious": [[item, 0.001, other]]}}
    events = [Training(now, 1, 9), Trained(now, 1, 9, 1.0, metrics)]
    record.commit(lambda ledger, now: (events, None))
    query = ItemQuery(show="surprising", sort="confidence", descending=True)
    first = ItemTable(busy, record.look).list_items(query, 0, 1).rows[0]
    assert (first.id, first.prediction, first.confidence) == (item, other, 0.999)


def test_all_items_are_predicted_as_by_the_campaign(make_project, tmp_path):
    np.save(tmp_path / "f.npy", np.random.default_rng(0).normal(size=(60, 4)))
    project = Project.start(tmp_path / "f.npy", home=tmp_path / "c", classes=("left", "right"))
    campaign = project.campaign()
    inputs = np.load(tmp_path / "f.npy")
    ids = campaign.ask(30).ids
    campaign.tell({int(item): "left" if inputs[item, 0] < 0 else "right" for item in ids})
    campaign.train()
    Worker(project.home, lambda **fields: None).predict_items()
    found = read_predictions(project.home)
    expected = campaign.predict(np.arange(60))
    assert found is not None and found.number == 1
    assert [found.names[code] for code in found.codes] == expected.labels
    assert found.confidence == pytest.approx(expected.confidence, abs=1e-5)


def test_a_list_follows_the_record(busy):
    record = busy.open_record()
    table = ItemTable(busy, record.look)
    query = ItemQuery(label="9")
    assert table.list_items(query, 0, 10).total == 0
    record.tell({70: "9"}, by="ann")
    assert [row.id for row in table.list_items(query, 0, 10).rows] == [70]


@pytest.mark.parametrize(
    ("metrics", "allowed"),
    [
        ({"accuracy": 0.8, "validation_labels": 30}, True),
        ({"accuracy": 0.69, "validation_labels": 90}, False),
        ({"accuracy": 1.0, "validation_labels": 29}, False),
        ({}, False),
    ],
)
def test_predictions_are_suggested_only_if_the_model_is_accurate_enough(
    project, page, metrics, allowed
):
    now = time.time()
    guesses = tuple(("3", 0.75) for _ in range(10))
    events = [
        Training(now, 1, 50),
        Trained(now, 1, 50, 1.0, metrics),
        Asked(now, 2, tuple(range(20, 30)), guesses=guesses, model=1, validation=(21,)),
    ]
    project.open_record().commit(lambda ledger, now: (events, None))
    answer = page("ann").get("/api/suggestions", params={"ids": "20,21,22,5"}).json()
    assert answer["allowed"] is allowed
    found = [(one["id"], one["label"], one["confidence"]) for one in answer["suggestions"]]
    assert found == ([(20, "3", 0.75), (22, "3", 0.75)] if allowed else [])


def test_predictions_are_saved_as_a_file(project, page):
    guesses = tuple((label, 0.25) for label in ("3", "=1+1"))
    asked = Asked(time.time(), 2, (30, 31), guesses=guesses, model=1)
    project.open_record().commit(lambda ledger, now: ([asked], None))
    project.open_record().tell({31: "4"}, by="ann")
    lines = page("ann").get("/api/predictions").text.splitlines()
    assert lines[0].lstrip("\ufeff") == "id,item,label,prediction,confidence"
    assert lines[1:] == ["30,scan-0030.png,,3,0.25", "31,scan-0031.png,4,'=1+1,0.25"]


@pytest.mark.parametrize("labels, shown", [(29, False), (30, True)])
def test_confusions_and_calibration_are_shown_from_enough_labels_on(project, page, labels, shown):
    now = time.time()
    found = {
        "labels": labels,
        "classes": NAMES[:2],
        "confusions": [[14, 2], [1, labels - 17]],
        "reliability": [[0.6, 0.5, 10], [0.9, 1.0, labels - 10]],
    }
    events = [Training(now, 1, 60), Trained(now, 1, 60, 1.0, {"out_of_fold": found})]
    project.open_record().commit(lambda ledger, now: (events, None))
    answer = page("ann").get("/api/quality").json()
    assert (answer["source"], answer["labels"], answer["needed"]) == (
        "cross-validation",
        labels,
        30,
    )
    assert answer["confusions"] == (found["confusions"] if shown else [])
    bins = [[one["confidence"], one["right"], one["labels"]] for one in answer["reliability"]]
    assert bins == (found["reliability"] if shown else [])
    assert (answer["calibration_error"] is None) is not shown


def test_a_label_is_recorded_with_the_suggestion_that_was_shown(project, page):
    labels = [{"id": 0, "label": "3", "suggested": "5"}, {"id": 1, "label": "4"}]
    assert page("ann").post("/api/labels", json={"labels": labels}).status_code == 200
    record = project.open_record()
    told = [event for event in record.storage.read(record.name) if isinstance(event, Told)]
    assert [(one.label, one.suggested) for one in told] == [("3", "5"), ("4", None)]
