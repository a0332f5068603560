"""Snapshots: a ledger as bytes, so that opening a long record need not replay all of it.

A snapshot is a saving of time and nothing more: it can be lost, and one that cannot be read or was
made by another version is passed over and the record replayed. So it has its own format number,
raised whenever the ledger's parts change, and no upgrades.

The bytes are a magic word, a JSON header and columns of little-endian numbers, each compressed by
itself. Labels and people are numbers into lists in the header. A ledger of 1,000,000 labels takes
some megabytes and about a second to load; as JSON objects it would take ten.
"""

import gc
import json
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from labelwise.errors import LabelwiseWarning, StorageFailed
from labelwise.record.events import Asked, Label, decode, encode
from labelwise.record.ledger import Batch, Ledger, Resolution, Skip, Work
from labelwise.record.storage import Storage
from labelwise.record.waiting import Waiting

EVERY, SHARE = 10_000, 0.02
"""After how many events a new snapshot is worth its price: so many, or this share of the record.

To load the record then takes as long as its snapshot and hardly longer; and keeping snapshots takes
time in proportion to the events that are written, however many there are.
"""

VERSION = 1
_MAGIC = b"labelwise snapshot\n"


def newest(storage: Storage, campaign: str) -> Ledger:
    """The ledger of the newest snapshot that can be read, or an empty one."""
    kept = storage.snapshot(campaign)
    if kept is None:
        return Ledger()
    number, body = kept
    try:
        ledger = from_bytes(body)
    except (ValueError, KeyError, IndexError, TypeError, zlib.error) as error:
        warnings.warn(
            f"the snapshot of {campaign!r} at event {number} is damaged ({error}); "
            "replaying the whole record instead",
            LabelwiseWarning,
            stacklevel=3,
        )
        return Ledger()
    return Ledger() if ledger is None else ledger


def keep(storage: Storage, campaign: str, ledger: Ledger) -> None:
    """Keep a snapshot of a ledger that is up to date with the storage.

    Example:
        >>> from labelwise.record.events import Told
        >>> from labelwise.record.storage import open_storage
        >>> storage, ledger = open_storage("memory://"), Ledger()
        >>> event = Told(at=0.0, id=3, label="owl")
        >>> ledger.apply(event)
        >>> storage.append("birds", [event])
        1
        >>> keep(storage, "birds", ledger)
        >>> storage.snapshot("birds")[0]
        1
    """
    storage.keep_snapshot(campaign, ledger.length, to_bytes(ledger))
    ledger.kept = ledger.length


def keep_if_due(storage: Storage, campaign: str, ledger: Ledger, every: int = EVERY) -> bool:
    """Keep a snapshot if many events came since the last one; whether it was kept.

    A storage that cannot be written to right now is no reason to fail: nothing is lost.
    """
    if ledger.length - ledger.kept < max(every, SHARE * ledger.length):
        return False
    try:
        keep(storage, campaign, ledger)
    except StorageFailed:
        ledger.kept = ledger.length  # try again after as many events, not with the next one
        return False
    return True


def to_bytes(ledger: Ledger) -> bytes:
    """A ledger as bytes, for `from_bytes`."""
    with without_collecting():
        return _pack(*_taken_apart(ledger))


def _taken_apart(ledger: Ledger) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    labels, people = _Table(), _Table()
    columns: dict[str, np.ndarray[Any, Any]] = {}
    header: dict[str, Any] = {
        "version": VERSION,
        "length": ledger.length,
        "settings": ledger.settings,
        "items": ledger.items,
        "told": ledger.told,
        "seconds_spent": ledger.seconds_spent,
        "trainings": [encode(event) for event in ledger.trainings],
        "training": None if ledger.training is None else encode(ledger.training),
        "failure": None if ledger.failure is None else encode(ledger.failure),
        "per_annotator": [[by, *astuple(work)] for by, work in ledger.per_annotator.items()],
        "skipped": [[id, *astuple(skip)] for id, skip in ledger.skipped.items()],
        "resolutions": [[id, *astuple(made)] for id, made in ledger.resolutions.items()],
        "loans": [[id, list(loans.items())] for id, loans in ledger.loans.items()],
        "lent_to": [[by, list(ids)] for by, ids in ledger._lent_to.items()],
        "undecided": list(ledger._undecided),
        "said": [[by, len(ids)] for by, ids in ledger._said.items()],
    }
    columns["said"] = _ids(chain.from_iterable(ledger._said.values()))
    columns["validation"] = _ids(sorted(ledger.validation))
    columns["recent"] = _floats(ledger.recent_seconds)
    _put_labels(ledger, labels, columns)
    _put_votes(ledger, labels, people, columns)
    header["batches"] = _put_batches(ledger, labels, columns)
    header["labels"], header["people"] = labels.values, people.values
    return header, columns


def from_bytes(body: bytes) -> Ledger | None:
    """The ledger that `to_bytes` wrote, or None if another version did.

    Raises:
        ValueError, KeyError, IndexError, TypeError, zlib.error: if the bytes are damaged.
    """
    with without_collecting():
        header, columns = _unpack(body)
        if header["version"] != VERSION:
            return None
        ledger = Ledger()
        ledger.use_settings(header["settings"])
        for name in ("length", "items", "told", "seconds_spent"):
            setattr(ledger, name, header[name])
        ledger.kept = ledger.length
        _take_trainings(ledger, header)
        _take_people(ledger, header, columns)
        _take_labels(ledger, header, columns)
        _take_batches(ledger, header, columns)
        return ledger


class _Table:
    """Numbers for labels or names, in the order in which they come up; 1 and 1.0 are two."""

    def __init__(self) -> None:
        self.values: list[Label] = []
        self._codes: dict[type, dict[Label, int]] = {int: {}, float: {}, str: {}}

    def codes(self, values: Iterable[Label]) -> np.ndarray[Any, Any]:
        values = list(values)
        kinds = set(map(type, values))
        if len(kinds) == 1:  # as always but in odd campaigns, and far quicker
            known = self._number(kinds.pop(), dict.fromkeys(values))
            return np.fromiter(map(known.__getitem__, values), dtype="<u4", count=len(values))
        for value in values:
            self._number(type(value), (value,))
        return np.array([self._codes[type(value)][value] for value in values], dtype="<u4")

    def _number(self, kind: type, values: Iterable[Label]) -> dict[Label, int]:
        known = self._codes[kind]
        for value in values:
            if value not in known:
                known[value] = len(self.values)
                self.values.append(value)
        return known


def _put_labels(ledger: Ledger, labels: _Table, columns: dict[str, Any]) -> None:
    columns["labelled"] = _ids(ledger.labels)
    columns["label"] = labels.codes(ledger.labels.values())


def _put_votes(ledger: Ledger, labels: _Table, people: _Table, columns: dict[str, Any]) -> None:
    """Votes as one row per item, how many it has, and one row per vote."""
    votes = ledger.votes.values()
    columns["voted"] = _ids(ledger.votes)
    columns["votes"] = np.fromiter(map(len, votes), dtype="<u4", count=len(votes))
    columns["voter"] = people.codes(chain.from_iterable(votes))
    columns["vote"] = labels.codes(chain.from_iterable(each.values() for each in votes))


def _put_batches(ledger: Ledger, labels: _Table, columns: dict[str, Any]) -> list[Any]:
    """All batches' picks in one column each; the rest of every batch for the header."""
    asked = [batch.asked for batch in ledger.batches]
    columns["order"] = _ids(ledger.waiting.order)
    columns["flags"] = np.frombuffer(bytes(ledger.waiting.flags), dtype="u1")
    columns["asked"] = _ids(chain.from_iterable(event.ids for event in asked))
    columns["weights"] = _floats(chain.from_iterable(event.weights or () for event in asked))
    columns["scores"] = _floats(chain.from_iterable(event.scores or () for event in asked))
    guesses = list(chain.from_iterable(event.guesses or () for event in asked))
    columns["guess"] = labels.codes(map(itemgetter(0), guesses))
    columns["confidence"] = _floats(map(itemgetter(1), guesses))
    columns["measuring"] = _ids(chain.from_iterable(event.validation for event in asked))
    return [_rest_of(batch) for batch in ledger.batches]


_COLUMNS_OF_ASKED = ("ids", "weights", "scores", "guesses", "validation")


def _rest_of(batch: Batch) -> list[Any]:
    event = batch.asked
    counts = [
        None if values is None else len(values)
        for values in (getattr(event, name) for name in _COLUMNS_OF_ASKED)
    ]
    rest = [event.at, event.strategy, event.seed, event.options, event.model, event.info]
    return [batch.number, batch.size, batch.open, batch.first, counts, rest]


def _take_batches(ledger: Ledger, header: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    order, asked_ids = columns["order"].tolist(), columns["asked"]
    ledger.waiting = Waiting.restore(order, columns["flags"].tobytes())
    ledger.validation = set(columns["validation"].tolist())
    guesses = zip(
        _at(header["labels"], columns["guess"]), columns["confidence"].tolist(), strict=True
    )
    parts = {
        "ids": order if np.array_equal(asked_ids, columns["order"]) else asked_ids.tolist(),
        "weights": columns["weights"].tolist(),
        "scores": columns["scores"].tolist(),
        "guesses": list(guesses),
        "validation": columns["measuring"].tolist(),
    }
    begins = dict.fromkeys(parts, 0)
    for number, size, still_open, first, counts, rest in header["batches"]:
        taken: dict[str, Any] = {}
        for name, count in zip(_COLUMNS_OF_ASKED, counts, strict=True):
            begin = begins[name]
            taken[name] = None if count is None else tuple(parts[name][begin : begin + count])
            begins[name] += count or 0
        names = ("at", "strategy", "seed", "options", "model", "info")
        asked = Asked(batch=number, **taken, **dict(zip(names, rest, strict=True)))
        batch = Batch(number, asked, size, still_open, first)
        if still_open:
            ledger._open[len(ledger.batches)] = batch
        ledger.batches.append(batch)
        ledger._firsts.append(first)


def _take_labels(ledger: Ledger, header: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    labels, names = header["labels"], header["people"]
    voted, labelled, counts = columns["voted"], columns["labelled"], columns["votes"]
    people, said = columns["voter"], columns["vote"]
    ids = voted.tolist()
    same = ids if np.array_equal(voted, labelled) else labelled.tolist()  # the same numbers, once
    ledger.labels = dict(zip(same, _at(labels, columns["label"]), strict=True))
    if (counts == 1).all():
        votes: Iterable[Mapping[str, Label]] = _single_votes(ledger, header, people, said)
    else:
        pairs = zip(_at(names, people), _at(labels, said), strict=True)
        votes = _grouped(ledger, pairs, counts.tolist())
    ledger.votes = dict(zip(ids, votes, strict=True))
    ledger._undecided = dict.fromkeys(header["undecided"])


def _at(values: Sequence[Any], places: Any) -> list[Any]:
    """The values at these places."""
    table = np.empty(len(values), dtype=object)
    table[:] = values
    return list(table[places].tolist())


def _single_votes(
    ledger: Ledger, header: Mapping[str, Any], people: Any, said: Any
) -> list[Mapping[str, Label]]:
    """One vote per item: few different ones, so that each is made once."""
    labels, names = header["labels"], header["people"]
    codes = people.astype("i8") * len(labels) + said
    if len(names) * len(labels) > 10_000:  # else a table of all that are possible is small
        pairs, codes = np.unique(codes, return_inverse=True)
    else:
        pairs = np.arange(len(names) * len(labels))
    different = [
        ledger._one_vote(names[pair // len(labels)], labels[pair % len(labels)])
        for pair in pairs.tolist()
    ]
    return _at(different, codes)


def _grouped(
    ledger: Ledger, pairs: Iterator[tuple[str, Label]], counts: Sequence[int]
) -> Iterator[Mapping[str, Label]]:
    for count in counts:
        if count == 1:
            yield ledger._one_vote(*next(pairs))
        else:
            yield dict(next(pairs) for _ in range(count))


def _take_people(ledger: Ledger, header: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    ledger.per_annotator = {by: Work(*rest) for by, *rest in header["per_annotator"]}
    ledger.skipped = {id: Skip(*rest) for id, *rest in header["skipped"]}
    ledger.resolutions = {id: Resolution(*rest) for id, *rest in header["resolutions"]}
    ledger.loans = {id: dict(loans) for id, loans in header["loans"]}
    ledger._lent_to = {by: dict.fromkeys(ids) for by, ids in header["lent_to"]}
    ledger.recent_seconds.extend(columns["recent"].tolist())
    ids, begin = columns["said"].tolist(), 0
    for by, count in header["said"]:
        ledger._said[by] = dict.fromkeys(ids[begin : begin + count])
        begin += count


def _take_trainings(ledger: Ledger, header: Mapping[str, Any]) -> None:
    ledger.trainings = [decode(text) for text in header["trainings"]]  # type: ignore[misc]
    for name in ("training", "failure"):
        setattr(ledger, name, None if header[name] is None else decode(header[name]))


def _ids(values: Iterable[int]) -> np.ndarray[Any, Any]:
    """Ids in half as many bytes where they fit: most of a snapshot is ids."""
    ids = np.fromiter(values, dtype="<i8")
    few = len(ids) and ids.min() >= 0 and ids.max() < 1 << 32
    return ids.astype("<u4") if few else ids


def _floats(values: Iterable[float]) -> np.ndarray[Any, Any]:
    return np.fromiter(values, dtype="<f8")


def _pack(header: dict[str, Any], columns: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    parts = []
    header["columns"] = []
    for name, column in columns.items():
        part = _compress(column.tobytes())
        header["columns"].append([name, column.dtype.str, len(part)])
        parts.append(part)
    head = zlib.compress(json.dumps(header, allow_nan=False).encode(), 1)
    return b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *parts])


def _compress(data: bytes) -> bytes:
    """Compressed, unless a look at the beginning says that it is not worth the time."""
    some = data[:65536]
    return zlib.compress(data, 1 if len(zlib.compress(some, 1)) < 0.6 * len(some) else 0)


def _unpack(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    if not body.startswith(_MAGIC):
        raise ValueError("it does not begin as one")
    begin = len(_MAGIC) + 8
    end = begin + int.from_bytes(body[len(_MAGIC) : begin], "little")
    header = json.loads(zlib.decompress(body[begin:end]))
    columns = {}
    for name, dtype, size in header["columns"]:
        columns[name] = np.frombuffer(zlib.decompress(body[end : end + size]), dtype=dtype)
        end += size
    return header, columns


@contextmanager
def without_collecting() -> Iterator[None]:
    """Hold back garbage collection: it would visit a million new objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
