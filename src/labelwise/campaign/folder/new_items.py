"""New items of a source: images of a folder, or rows of a table, that a campaign does not have.

An image is identified by its path, a row by its text or its numbers.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.errors import BadInput
from labelwise.files import JsonObject, to_json
from labelwise.learners.embedding import LARGEST
from labelwise.media.folders import find_images
from labelwise.media.table_columns import TableColumns
from labelwise.media.tables import (
    ChosenColumns,
    Columns,
    abbreviate_names,
    choose_columns,
    iterate_rows,
    join_texts,
    read_keys,
    read_table,
)


@dataclass(frozen=True)
class NewItems:
    """The new items of a source."""

    kind: str  # ``"images"``, ``"texts"`` or ``"numbers"``
    # of the new items, for ``items.jsonl``; None if they need no list
    entries: Sequence[JsonObject] | None
    values: Any  # of the new items: paths, texts, or an array ``(n, d)``
    missing: Sequence[int]  # ids of known items that the source does not have any more
    broken: Mapping[str, str]  # unusable items and the reason
    notes: Sequence[str]  # findings and decisions, in sentences


def find_new_images(folder: Path, known: Iterable[JsonObject]) -> NewItems:
    """Find the images whose paths are not among the known entries."""
    found = find_images(folder)
    before = {str(entry["path"]): item for item, entry in enumerate(known)}
    current = set(found.paths)
    new = [path for path in found.paths if path not in before]
    if not current and not before:
        some = f"; it has {_format_ending_counts(found.others)}" if found.others else ""
        broken = f"; {len(found.refused)} links lead out of it" if found.refused else ""
        raise BadInput(f"{folder} has no images{some}{broken}")
    missing = [item for path, item in before.items() if path not in current]
    folders = len({path.rpartition("/")[0] for path in new})
    notes = [f"{len(new):,} pictures" + (f" in {folders:,} folders" if folders > 1 else "")]
    if found.others:
        notes.append(f"left out, not images: {_format_ending_counts(found.others)}")
    return NewItems("images", [{"path": path} for path in new], new, missing, found.refused, notes)


def find_new_rows(
    path: Path,
    known: Iterable[JsonObject],
    *,
    text: Sequence[str] = (),
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
    plan: TableColumns | None = None,
    id_column: str | None = None,
) -> tuple[NewItems, ChosenColumns, TableColumns]:
    """Find the rows of a table that are not among the known entries, and the columns used.

    ``plan`` is that of the start of the campaign; it is made now if None.

    A row is identified by its text or its numbers, so other columns may change or be added. Equal
    rows are separate items. Ids of the user are part of the identity; a known id with another text
    or other numbers is an error.
    """
    table = read_table(path)
    keys = None if id_column is None else read_keys(path, table, id_column)
    without = [*without, *([] if id_column is None else [id_column])]
    chosen = choose_columns(path, table, text=text, columns=columns, without=without)
    if chosen.numeric and not columns:
        _reject_mixed_columns(path, table, chosen, without)
    plan = plan or TableColumns.plan(path, table, chosen.columns, chosen.categorical)
    values: Any
    if chosen.text:
        values = join_texts(table, chosen.text)
        entries: list[JsonObject] = [{"text": text} for text in values]
    else:
        values = plan.convert(path, table, chosen.columns)
        entries = [{"row": _to_json_row(row)} for row in iterate_rows(table)]
    if keys is not None:
        entries = [{"key": key, **entry} for key, entry in zip(keys, entries, strict=True)]
        known = list(known)
        _reject_changed_rows(path, known, entries, chosen)
    before: dict[bytes, list[int]] = {}
    for item, entry in enumerate(known):
        before.setdefault(_hash_item_entry(entry, chosen), []).append(item)
    for items in before.values():
        items.reverse()
    new = []
    for place, entry in enumerate(entries):
        same = before.get(_hash_item_entry(entry, chosen))
        if same:
            same.pop()
        else:
            new.append(place)
    missing = sorted(item for items in before.values() for item in items)
    broken = {f"row {place + 1}": _find_row_problem(entries[place], values[place]) for place in new}
    broken = {name: reason for name, reason in broken.items() if reason}
    usable = [place for place in new if f"row {place + 1}" not in broken]
    kept = [entries[place] for place in usable]
    some = [values[place] for place in usable] if chosen.text else values[usable]
    kind = "texts" if chosen.text else "numbers"
    notes = [f"{len(new):,} {'texts' if chosen.text else 'rows'}", *chosen.notes]
    notes += plan.describe()
    return NewItems(kind, kept, some, missing, broken, notes), chosen, plan


def _reject_changed_rows(
    path: Path,
    known: Iterable[JsonObject],
    entries: Iterable[JsonObject],
    chosen: ChosenColumns,
) -> None:
    hashes = {entry["key"]: _hash_item_entry(entry, chosen) for entry in known}
    for entry in entries:
        if hashes.get(entry["key"], b"") not in (b"", _hash_item_entry(entry, chosen)):
            raise BadInput(
                f"the row of {path} with the id {entry['key']!r} differs from the one that was "
                "added to the campaign; give a changed row a new id"
            )


def _reject_mixed_columns(
    path: Path, table: Columns, chosen: ChosenColumns, without: Sequence[str]
) -> None:
    """Reject numbers next to texts, such as the id and date of reviews, as the items."""
    others = [name for name in table if name not in chosen.numeric and name not in without]
    prose = [name for name in others if _is_prose_column(table[name])]
    if prose:
        raise BadInput(
            f"{path} has texts ({abbreviate_names(prose)}) and numbers "
            f"({abbreviate_names(chosen.numeric)}); choose what to label: --text {prose[0]} or "
            f"--columns {','.join(chosen.numeric[:12])}"
        )


def _is_prose_column(values: Sequence[object]) -> bool:
    """Whether a column contains sentences: five words on average, mostly different."""
    texts = [value for value in values if isinstance(value, str)]
    words = sum(len(text.split()) for text in texts)
    return words >= 5 * len(values) and len(set(texts)) > len(values) / 2


def _find_row_problem(entry: JsonObject, value: Any) -> str:
    """The problem with a row, or an empty text."""
    if "text" not in entry:
        if not np.isfinite(value).all():
            return "an infinite number"
        return "" if (np.abs(value) <= LARGEST).all() else f"a number beyond {LARGEST:.0e}"
    if not entry["text"].strip():
        return "an empty text"
    try:
        entry["text"].encode()
    except UnicodeEncodeError:  # a lone surrogate, which only JSON can write
        return "half a character, which is not valid text"
    return ""


def _hash_item_entry(entry: JsonObject, chosen: ChosenColumns) -> bytes:
    """The identity of an item of a table; spaces around a text do not count."""
    numbers = [] if chosen.text else [entry["row"].get(name) for name in chosen.columns]
    known = entry["text"].strip() if chosen.text else numbers
    if "key" in entry:
        known = [entry["key"], known]
    return hashlib.sha256(json.dumps(known).encode()).digest()


def _to_json_row(row: JsonObject) -> JsonObject:
    """A row as JSON values: dates become texts, NaN and infinity null, lone surrogates marks."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in to_json(row, non_finite=lambda value: None).items()
    }


def _format_ending_counts(others: Mapping[str, int]) -> str:
    most = sorted(others.items(), key=lambda entry: (-entry[1], entry[0]))
    words = [f"{count:,} {ending}" for ending, count in most[:5]]
    return ", ".join(words) + (", ..." if len(most) > 5 else "")
