"""What any storage must do: one suite over all of them."""

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

import labelwise.campaign
from labelwise.errors import BadInput, Conflict, MissingDependency, StorageFailed, UnknownName
from labelwise.record import open_storage
from labelwise.record.events import (
    FORMAT,
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
from labelwise.record.storage import MemoryStorage, Storage

EVERYTHING: list[Event] = [
    Started(1.5, {"classes": ["a", "b"], "seed": 0, "price": None}, 100, "ann"),
    Changed(2.0, {"batch": 10}, "ann"),
    Added(2.5, 7),
    Asked(
        3.0,
        1,
        (5, 2**63 - 1, -4),
        weights=(1.0, 0.1, 3.0),
        scores=(0.25, -1e300, 5e-324),
        strategy="badge",
        seed=2**70,
        options={"p": 0.5, "deep": {"list": [1, None, True, "x"]}},
        model=2,
        validation=(9,),
        guesses=(("a", 0.9), (1, 0.5), (2.5, 0.1)),
        info={"rounds": 3},
    ),
    Lent(4.0, (5, 9), "bob", 604.0),
    Returned(5.0, (9,), "bob"),
    Told(6.0, 5, "näïve \x00 \ud800 💡 \u2028", "Zoë", 1.25),
    Told(6.5, 9, 3, "", None),
    Told(6.6, -4, 2.5),
    Withdrawn(7.0, 5, "Zoë"),
    Skipped(8.0, 5, "bob", "'; DROP TABLE labelwise_events; --"),
    Resolved(9.0, 9, 4, "ann"),
    Released(12.0, (40, 55)),
    Renamed(12.5, "wren", "owl", "ann"),
    Noted(9.5, 9, "blurred", "ann"),
    Training(10.0, 1, 2, "ann"),
    Trained(11.0, 1, 2, 0.5, {"accuracy": 0.5, "interval": [0.1, 0.9]}, "models/1", 7),
    TrainingFailed(12.0, 2, "loss is nan\nat step 3"),
]


def told(count: int, start: int = 0, by: str = "ann") -> list[Event]:
    return [Told(float(id), id, id % 3, by) for id in range(start, start + count)]


def test_gives_every_event_back_as_it_was(storage: Storage) -> None:
    assert storage.append("birds", EVERYTHING) == len(EVERYTHING)
    found = storage.read("birds")
    assert found == EVERYTHING
    assert [type(event.label) for event in found if isinstance(event, Told)] == [str, int, float]


def test_appends_after_what_is_there(storage: Storage) -> None:
    assert storage.append("birds", told(3)) == 3
    assert storage.append("birds", told(2, 3)) == 5
    assert storage.append("birds", []) == 5
    assert storage.read("birds") == told(5)
    assert storage.read("birds", 3) == told(2, 3)
    assert storage.read("birds", 5) == storage.read("birds", 99) == []
    assert storage.length("birds") == 5


def test_an_unknown_campaign_is_empty_and_stays_unknown(storage: Storage) -> None:
    assert storage.length("birds") == 0
    assert storage.read("birds") == []
    assert storage.load_snapshot("birds") is None
    assert storage.append("birds", []) == 0
    assert storage.campaigns() == []


def test_keeps_campaigns_apart(storage: Storage) -> None:
    names = ["zebras", "Äpfel", "birds", "birds ", 'it\'s; -- "so"', "Birds"]
    for count, name in enumerate(names, start=1):
        storage.append(name, told(count, by=name))
    assert storage.campaigns() == sorted(names)
    for count, name in enumerate(names, start=1):
        assert storage.read(name) == told(count, by=name)


def test_expected_turns_a_race_into_an_error(storage: Storage) -> None:
    storage.append("birds", told(3), expected=0)
    with pytest.raises(Conflict, match="has 3 events, not 2; read it again and retry"):
        storage.append("birds", told(1), expected=2)
    assert storage.append("birds", told(1, 3), expected=3) == 4
    assert storage.read("birds") == told(4)


def test_one_bad_event_keeps_all_out(storage: Storage) -> None:
    storage.append("birds", told(1))
    bad: list[Sequence[Event]] = [
        [*told(1), Told(0.0, 1, float("nan"))],
        [*told(1), Told(0.0, 1, True)],
        [*told(1), "told"],  # type: ignore[list-item]
    ]
    for events in bad:
        with pytest.raises(BadInput):
            storage.append("birds", events)
        with pytest.raises(BadInput):
            storage.transact("birds", 1, lambda _, events=events: events)  # type: ignore[misc]
    assert storage.read("birds") == told(1)


@pytest.mark.parametrize("name", ["", "two\nlines", "nul\x00", "\ud800", "a" * 201, None])
def test_refuses_names_that_not_all_storages_can_hold(storage: Storage, name: str) -> None:
    with pytest.raises(BadInput, match="campaign's name"):
        storage.append(name, told(1))
    with pytest.raises(BadInput, match="campaign's name"):
        storage.transact(name, 0, lambda _: told(1))
    with pytest.raises(BadInput, match="campaign's name"):
        storage.save_snapshot(name, 0, b"")


def test_transact_decides_on_what_came_since(storage: Storage) -> None:
    storage.append("birds", told(3))
    seen: list[list[Event]] = []

    def decide(events: list[Event]) -> list[Event]:
        seen.append(events)
        return told(2, 3)

    assert storage.transact("birds", 1, decide) == 5
    assert storage.transact("birds", 5, lambda events: seen.append(events) or []) == 5
    assert seen == [told(2, 1), []]
    assert storage.read("birds") == told(5)


def test_transact_begins_a_new_record(storage: Storage) -> None:
    assert storage.transact("birds", 0, lambda events: told(2 if not events else 9)) == 2
    assert storage.read("birds") == told(2)


def test_an_error_while_deciding_changes_nothing_and_passes_through(storage: Storage) -> None:
    storage.append("birds", told(2))

    def decide(events: list[Event]) -> list[Event]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        storage.transact("birds", 0, decide)
    with pytest.raises(KeyError, match="mine"):
        storage.transact("fish", 0, decide)
    assert storage.read("birds") == told(2)
    assert storage.campaigns() == ["birds"]
    assert storage.transact("birds", 2, lambda _: told(1, 2)) == 3  # the lock was let go


def test_going_on_from_further_than_the_record_reaches_is_a_conflict(storage: Storage) -> None:
    storage.append("birds", told(2))
    with pytest.raises(Conflict, match="has 2 events, fewer than the 5 read before"):
        storage.transact("birds", 5, lambda _: told(1))
    with pytest.raises(Conflict, match="fewer than the 3"):
        storage.save_snapshot("birds", 3, b"x")
    with pytest.raises(BadInput, match="numbered from 0; got -1"):
        storage.transact("birds", -1, lambda _: told(1))
    with pytest.raises(BadInput, match="numbered from 0; got -1"):
        storage.read("birds", -1)
    assert storage.read("birds") == told(2)


def test_keeps_only_the_newest_snapshot(storage: Storage) -> None:
    storage.append("birds", told(5))
    storage.append("fish", told(1))
    assert storage.load_snapshot("birds") is None
    body = bytes(range(256)) * 1000
    storage.save_snapshot("birds", 2, b"two")
    storage.save_snapshot("birds", 4, body)
    storage.save_snapshot("birds", 3, b"late")
    assert storage.load_snapshot("birds") == (4, body)
    storage.save_snapshot("birds", 4, b"")
    assert storage.load_snapshot("birds") == (4, b"")
    assert storage.load_snapshot("fish") is None


def test_many_threads_neither_lose_nor_double_an_event(storage: Storage) -> None:
    def work(number: int) -> None:
        for turn in range(10):
            if turn % 2:
                storage.append("birds", told(3, by=f"{number}-{turn}"))
            else:
                storage.transact("birds", 0, lambda events: told(2, by=f"{len(events)}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = storage.read("birds")
    assert len(events) == storage.length("birds") == 6 * (5 * 3 + 5 * 2)
    starts: list[int] = []
    position = 0
    while position < len(events):  # each group whole, and decided on just what was before it
        first = events[position]
        assert isinstance(first, Told)
        alone = "-" not in first.by
        assert alone is False or int(first.by) == position
        assert events[position : position + 3 - alone] == told(3 - alone, by=first.by)
        starts.append(position)
        position += 3 - alone
    assert len(starts) == 60


def test_a_closed_storage_says_so(storage: Storage) -> None:
    storage.append("birds", told(1))
    storage.close()
    storage.close()
    for use in (
        lambda: storage.append("birds", told(1)),
        lambda: storage.read("birds"),
        lambda: storage.length("birds"),
        lambda: storage.campaigns(),
        lambda: storage.load_snapshot("birds"),
        lambda: storage.transact("birds", 0, lambda _: []),
    ):
        with pytest.raises(StorageFailed, match="closed; open it again"):
            use()


def test_is_found_again_by_its_url(storage_url: str) -> None:
    first = open_storage(storage_url)
    first.append("birds", EVERYTHING)
    first.save_snapshot("birds", 3, b"three")
    second = open_storage(storage_url, create=False)
    assert second.read("birds") == EVERYTHING
    first.append("birds", told(1))
    assert second.read("birds", len(EVERYTHING)) == told(1)
    first.close()
    assert second.append("birds", told(1)) == len(EVERYTHING) + 2
    assert second.load_snapshot("birds") == (3, b"three")
    second.close()


def test_opening_without_creating_makes_nothing(storage_url: str) -> None:
    for _ in range(2):
        with pytest.raises(UnknownName, match=r"there is no file|does not contain a labelwise"):
            open_storage(storage_url, create=False)


@pytest.mark.parametrize(
    "url", ["labels.db", "", "mysql://u:secret@h/d", "postgresql://u:sec:ret@h:port/d", None]
)
def test_refuses_other_urls_without_showing_them(url: str) -> None:
    with pytest.raises(BadInput, match="storage") as caught:
        open_storage(url)
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_names_the_package_that_postgresql_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency, match=r"pip install 'labelwise\[postgres\]'"):
        open_storage("postgresql://u@h/d")


def test_a_record_of_a_newer_format_is_refused_and_left_alone(storage: Storage) -> None:
    storage.append("birds", told(1))
    write_lines(storage, [f'{{"kind":"told","format":{FORMAT + 2},"moment":"noon"}}'])
    words = rf"newer labelwise \(format {FORMAT + 2}\); this one reads up to format {FORMAT}"
    with pytest.raises(StorageFailed, match=words):
        storage.read("birds")
    with pytest.raises(StorageFailed, match=words):
        storage.transact("birds", 0, lambda _: told(1))
    assert storage.length("birds") == 2


def test_the_package_imports_nothing_before_it_is_asked_for() -> None:
    script = """
import sys
import labelwise.campaign
before = set(sys.modules)
assert not {"torch", "sqlalchemy", "labelwise.record.storage"} & before
storage = labelwise.campaign.open_storage("memory://")
import labelwise.record.ledger, labelwise.record.snapshots
assert not {"torch", "sqlalchemy", "psycopg", "sklearn", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match=r"labelwise.campaign has no 'Desks'"):
        labelwise.campaign.Desks  # noqa: B018


def write_lines(storage: Storage, lines: list[str]) -> None:
    """Append lines as another version of labelwise would have."""
    from labelwise.record import sql_storage

    if isinstance(storage, MemoryStorage):
        storage._records["birds"].extend(lines)
        return
    assert isinstance(storage, sql_storage.SqlStorage)
    with storage._begin(writes=True) as connection:
        length = sql_storage._lock_campaign_row(connection, "birds")
        rows = [
            {"campaign": "birds", "number": number, "body": line}
            for number, line in enumerate(lines, start=length)
        ]
        connection.execute(sql_storage._events.insert(), rows)
        longer = sql_storage._campaigns.update().values(length=length + len(lines))
        connection.execute(longer.where(sql_storage._campaigns.c.name == "birds"))
