"""Uploads: new items that somebody sends, added to the source of a campaign.

An image becomes a file in the source folder, and the rows of a table are appended to the source
table. Both are checked before the source changes; `Project.refresh` then adds the items.
"""

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from labelwise.campaign.folder.description import CampaignDescription
from labelwise.errors import BadInput
from labelwise.files import write_atomically
from labelwise.media.images import IMAGE_SUFFIXES, find_image_format
from labelwise.media.tables import iterate_rows, read_table

APPENDED = (".csv", ".tsv", ".jsonl")  # Tables to which rows can be appended

LONGEST_NAME = 150


def save_upload(description: CampaignDescription, source: Path, name: str, content: bytes) -> int:
    r"""Add a file to the source of a campaign; the number of new items in it.

    Folders in the name are ignored.

    Example:
        >>> source = Path(tempfile.mkdtemp()) / "texts.csv"
        >>> _ = source.write_text("text\na rose\n")
        >>> campaign = CampaignDescription("plants", "table", "texts.csv", "texts", ("text",))
        >>> save_upload(campaign, source, "more.csv", b"text\nan oak\na fir\n")
        2
        >>> source.read_text().split("\n")[1:3]
        ['a rose', 'an oak']
    """
    name = PurePath(name.replace("\\", "/")).name.lstrip(".")
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise BadInput(f"the name {name[:60]!r} of the file cannot be used; give another")
    if description.form == "array" or description.features:
        raise BadInput("features are added to their file, and then with labelwise start --refresh")
    suffix = Path(name).suffix.lower()
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / f"upload{suffix}"
        given.write_bytes(content)
        if description.form == "folder":
            if suffix not in IMAGE_SUFFIXES:
                raise BadInput(f"{name} is not an image; give {', '.join(sorted(IMAGE_SUFFIXES))}")
            broken = find_image_format([given]).broken
            if broken:
                raise BadInput(f"{name} cannot be read: {broken[given]}")
            return _save_uploaded_image(source, name, content)
        if suffix not in APPENDED:
            raise BadInput(f"{name} is not a table; give one of {', '.join(APPENDED)}")
        table = read_table(given)
        for column in (*description.text, *description.columns):
            if column not in table:
                raise BadInput(f"{name} has no column {column!r}; it has {', '.join(table)}")
        return _append_uploaded_rows(source, list(iterate_rows(table)))


def _save_uploaded_image(folder: Path, name: str, content: bytes) -> int:
    """Write an image under its name or a free one; nothing if the same file is there."""
    place, number = folder / name, 1
    while place.exists():
        if place.read_bytes() == content:
            return 0
        number += 1
        place = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    with write_atomically(place, durable=True) as part:
        part.write_bytes(content)
    return 1


def _append_uploaded_rows(source: Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Append rows to a table; columns that it does not have are left out."""
    added, old = list(rows), source.read_bytes()
    if source.suffix.lower() not in APPENDED:
        raise BadInput(f"rows cannot be added to {source.name}; give a new file and --refresh")
    text = io.StringIO(newline="")
    if source.suffix.lower() == ".jsonl":
        for row in added:
            text.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        names = list(read_table(source))
        head = old.decode("utf-8-sig").splitlines()[0]
        by = "\t" if source.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
        writer = csv.writer(text, delimiter=by, lineterminator="\n")
        writer.writerows([row.get(name, "") for name in names] for row in added)
    with write_atomically(source, durable=True) as part:
        ending = b"" if old.endswith((b"\n", b"\r")) else os.linesep.encode()
        part.write_bytes(old + ending + text.getvalue().encode())
    return len(added)
