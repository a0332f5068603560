"""Events as JSON, and the promise that every record ever written can be read."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given

from labelwise.errors import BadInput, StorageFailed
from labelwise.record.events import (
    FORMAT,
    KINDS,
    Asked,
    Event,
    Lent,
    Noted,
    Released,
    Renamed,
    Started,
    Told,
    Trained,
    decode_event,
    encode_event,
    event_from_json,
    event_to_json,
    read_event_kind,
)
from labelwise.record.ledger import replay
from tests.record.sequences import patient, sequences
from tests.record.test_storage import EVERYTHING

RECORDS = Path(__file__).parent / "records"
ASKED = Asked(1.0, 1, (3, 5), (1.0, 2.0))


def test_every_kind_has_a_name_and_is_tried() -> None:
    assert set(KINDS.values()) == set(get_args(Event))
    assert {type(event) for event in EVERYTHING} == set(KINDS.values())
    assert [read_event_kind(event) for event in EVERYTHING[:4]] == [
        "started",
        "changed",
        "added",
        "asked",
    ]


@pytest.mark.parametrize("event", EVERYTHING, ids=read_event_kind)
def test_goes_to_json_and_back(event: Event) -> None:
    value = event_to_json(event)
    assert list(value)[:2] == ["kind", "format"]
    assert value["format"] == FORMAT
    assert event_from_json(json.loads(json.dumps(value))) == event
    line = encode_event(event)
    assert line.isascii()
    assert "\n" not in line
    assert decode_event(line) == event


@patient
@given(sequences())
def test_all_sequences_survive_their_text(events: list[Event]) -> None:
    assert repr([decode_event(encode_event(event)) for event in events]) == repr(events)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Told(float("nan"), 1, "a"), "at of Told must be a finite number of seconds; got nan"),
        (Told(1.0, 1.5, "a"), "id of Told must be a whole number of 64 bits; got 1.5"),
        (Told(1.0, 2**63, "a"), "id of Told must be a whole number of 64 bits"),
        (Told(1.0, np.int64(1), "a"), "id of Told must be a whole number"),
        (Told(1.0, True, "a"), "id of Told must be a whole number"),
        (Told(1.0, 1, None), "label of Told must be a whole number, a finite number or a text"),
        (Told(1.0, 1, float("inf")), "label of Told"),
        (Told(1.0, 1, False), "label of Told"),
        (Told(1.0, 1, np.float64(1.0)), "label of Told"),
        (Told(1.0, 1, "a", None), "by of Told must be a text; got None"),
        (Told(1.0, 1, "a", "ann", -1.0), "seconds of Told .* 0 or more"),
        (Lent(1.0, [1, 2], "ann", 2.0), r"ids of Lent must be a tuple .* got \[1, 2\]"),
        (Started(1.0, {"classes": ("a",)}, 3), "settings of Started must be a dict of JSON values"),
        (Started(1.0, {1: 2}, 3), "settings of Started"),
        (Started(1.0, {}, -3), "items of Started must be a whole number, 0 or more; got -3"),
        (Trained(1.0, 1, 2, 0.5, {"loss": float("nan")}), "metrics of Trained"),
        (replace(ASKED, ids=(3, 3)), "ids of batch 1 must all be different"),
        (replace(ASKED, weights=(1.0,)), "batch 1 has 2 ids but 1 weights; give one for each id"),
        (replace(ASKED, scores=(1.0, float("inf"))), "scores of Asked"),
        (replace(ASKED, guesses=(("a", 0.5),)), "2 ids but 1 guesses"),
        (replace(ASKED, guesses=(["a", 0.5], "b")), r"guesses of Asked must be a tuple of \(label"),
        (replace(ASKED, info={"deep": [{"set": {1}}]}), "info of Asked"),
        ({"kind": "told"}, "a record holds events; got dict"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(event: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        event_to_json(event)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput):
        encode_event(event)


def test_a_message_shows_only_the_beginning_of_a_long_value() -> None:
    with pytest.raises(BadInput) as caught:
        event_to_json(Lent(1.0, list(range(10_000)), "ann", 2.0))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "damaged event"),
        ("[1]", "other than an event"),
        ('{"kind":"told"}', "without a format number"),
        ('{"kind":"told","format":true}', "without a format number"),
        ('{"kind":"danced","format":1}', "unknown kind 'danced'; update labelwise"),
        ('{"kind":["told"],"format":1}', "unknown kind"),
        ('{"format":1}', "unknown kind None"),
        ('{"kind":"told","format":1,"at":1.0}', "damaged event of kind 'told'"),
        (
            '{"kind":"added","format":1,"at":1.0,"items":1,"mood":1}',
            "damaged event of kind 'added'",
        ),
        ('{"kind":"asked","format":1,"at":1.0,"batch":1,"ids":[1],"guesses":[3]}', "damaged"),
        ('{"kind":"lent","format":1,"at":1.0,"ids":3,"by":"","until":1}', "damaged"),
        ('{"kind":"told","format":9}', r"newer labelwise \(format 9\); .* update labelwise"),
    ],
)
def test_says_what_is_wrong_with_a_line(text: str, words: str) -> None:
    with pytest.raises(StorageFailed, match=words) as caught:
        decode_event(text)
    assert "\n" not in str(caught.value)


def test_the_first_format_is_read_for_ever() -> None:
    """If this fails, an upgrade is missing: the file must never be changed."""
    lines = (RECORDS / "format1.jsonl").read_text().splitlines()
    events = [decode_event(line) for line in lines]
    since = {Noted, Released, Renamed}
    assert {type(event) for event in events} == set(KINDS.values()) - since
    ledger = replay(events)
    assert ledger.settings["batch"] == 2
    assert ledger.items == 107
    assert ledger.labels == {12: "owl", 40: "wren", 7: "crow", 55: "owl"}
    assert ledger.votes[40] == {"ann": "wren", "bob": "owl"}
    assert ledger.resolutions[40].by == "cem"
    assert {id: skip.reason for id, skip in ledger.skipped.items()} == {31: "zu dunkel – naïve 💡"}
    assert list(ledger.waiting) == [18, 99]
    assert ledger.weight_of(12) == 30.5
    assert ledger.validation == {55}
    assert ledger.batches[1].asked.guesses == (("owl", 0.75), ("crow", 0.5), ("wren", 0.125))
    assert ledger.leases == {18: {"bob": 1767226200.0}}
    assert ledger.seconds_spent == 9.75
    assert ledger.trainings[0].metrics == {"accuracy": 0.75, "interval": [0.5, 0.9]}
    assert ledger.failure is not None
    assert ledger.failure.error == "loss is nan"


def test_this_version_writes_the_first_format_as_it_was() -> None:
    """Delete this test, never the file, when FORMAT goes up."""
    assert FORMAT == 1
    lines = (RECORDS / "format1.jsonl").read_text().splitlines()
    assert [encode_event(decode_event(line)) for line in lines] == lines


def test_the_record_of_the_first_format_leaves_out_no_field() -> None:
    lines = (RECORDS / "format1.jsonl").read_text().splitlines()
    for line in lines:
        value = json.loads(line)
        names = [entry.name for entry in fields(KINDS[value["kind"]])]
        later = {"suggested"}  # since 0.2.0
        assert list(value) == ["kind", "format", *(name for name in names if name not in later)]
