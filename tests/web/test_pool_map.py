"""The map of the pool over the API, and near-duplicates in the list of items."""

import json

import numpy as np

from labelwise.web.pool_map import FILE, write_map
from tests.web.conftest import ask, wait_until


def copy_rows(project):
    """Make items 5 and 9 copies of item 2."""
    inputs = np.lib.format.open_memmap(project.home / "inputs.npy", mode="r+")
    inputs[[5, 9]] = inputs[2]
    inputs.flush()


def read_marks(answer, n):
    length = int.from_bytes(answer.content[:4], "little")
    names = json.loads(answer.content[4 : 4 + length])
    rest = answer.content[4 + length :]
    assert len(rest) == 5 * n and length % 4 == 0
    label, prediction = np.frombuffer(rest[: 4 * n], "<u2").reshape(2, n)
    return names, label, prediction, np.frombuffer(rest[4 * n :], np.uint8)


def test_a_process_computes_the_map_when_it_is_wanted(project, page):
    copy_rows(project)
    ann = page("ann")
    assert ann.get("/api/map/places").status_code == 404
    first = ann.get("/api/map").json()
    assert first == {"items": 0, "version": "", "says": "the map is being computed"}
    ready = wait_until(lambda: (found := ann.get("/api/map").json())["items"] and found)
    n = len(project.items)
    assert ready["items"] == n and ready["says"] == ""
    places = ann.get("/api/map/places", params={"version": ready["version"]})
    assert np.frombuffer(places.content, "<u2").reshape(2, n).max(axis=1).tolist() == [65535] * 2
    assert "max-age" in places.headers["Cache-Control"]
    rows = ann.get("/api/items", params={"ids": "2,3"}).json()["rows"]
    assert [row["duplicates"] for row in rows] == [[5, 9], []], rows
    found = ann.get("/api/items", params={"show": "duplicates"}).json()
    assert [row["id"] for row in found["rows"]][:3] == [2, 5, 9]


def test_marks_are_labels_predictions_and_what_the_filters_find(project, page):
    write_map(project)
    guesses = tuple(("7", 0.5) for _ in range(2))
    ask(project, (30, 31), guesses=guesses, model=1)
    project.open_record().tell({3: "4", 30: "2"}, by="ann")
    answer = page("ann").get("/api/map/marks", params={"show": "labelled"})
    names, label, prediction, flags = read_marks(answer, len(project.items))
    assert {item: names[label[item] - 1] for item in np.flatnonzero(label).tolist()} == {
        3: "4",
        30: "2",
    }
    assert {item: names[prediction[item] - 1] for item in np.flatnonzero(prediction).tolist()} == {
        30: "7",
        31: "7",
    }
    assert np.flatnonzero(flags & 1).tolist() == [3, 30]
    assert np.flatnonzero(flags & 2).tolist() == [*range(3), *range(4, 20), 31]


def test_a_damaged_map_counts_as_none(project, page):
    (project.home / FILE).write_bytes(b"PK nothing")
    assert page("ann").get("/api/map/places").status_code == 404
    assert page("ann").get("/api/items").json()["total"] == len(project.items)
