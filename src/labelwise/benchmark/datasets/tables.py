"""Readers of rows of numbers, in the files of UCI and KEEL, and of two sets of pictures."""

import csv
import io
import json
import zipfile
from collections.abc import Sequence

import numpy as np

from labelwise.arrays import row_noise
from labelwise.benchmark.datasets.entries import Arrays, Files, Parts, held_out, numbered
from labelwise.benchmark.datasets.images import matching, pick
from labelwise.errors import BadInput


def read_columns(name: str, text: str, delimiter: str | None = ",") -> dict[str, Arrays]:
    r"""A table of numbers by column; without a head the columns are called 0, 1, ...

    Args:
        name: of the file, for the message.
        text: of a .csv file, of a KEEL file (``@attribute`` lines, then ``@data``), or of rows.
        delimiter: between two numbers; None for blanks and tabs.

    >>> read_columns("small.csv", "a,b\n1,2\n3,4\n")["b"]
    array([2., 4.])
    """
    lines = [line.strip() for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    if lines and lines[0].startswith("@"):
        body = next((n for n, line in enumerate(lines) if line.lower() == "@data"), len(lines)) + 1
        head = [line.split()[1] for line in lines if line.lower().startswith("@attribute")]
        head = [entry.split("{")[0] for entry in head]
        lines = lines[body:]
    else:
        head = []
    split = csv.reader(lines, delimiter=delimiter) if delimiter else [row.split() for row in lines]
    rows = list(split)
    if not head and rows and not _is_number(rows[0][0]):
        head = [entry.strip() for entry in rows.pop(0)]
    try:
        table = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise BadInput(f"{name} is no table of numbers ({error})") from error
    if table.ndim != 2 or (head and len(head) != table.shape[1]):
        raise BadInput(f"{name} has rows of {table.shape[1:]} numbers for {len(head)} columns")
    names = head or [str(number) for number in range(table.shape[1])]
    return dict(zip(names, table.T, strict=True))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def regression(
    files: Files,
    *,
    file: str,
    targets: Sequence[str],
    without: Sequence[str] = (),
    delimiter: str | None = ",",
    share: float = 0.2,
) -> Parts:
    """A table with columns to predict; some of its rows are held out.

    Args:
        files: one of which matches ``file``.
        file: a pattern.
        targets: the columns to predict.
        without: columns that are neither targets nor features.
        delimiter: between two numbers; None for blanks and tabs.
        share: of the rows that are held out.
    """
    name, data = pick(files, file)
    columns = read_columns(name, data.decode("utf-8", "replace"), delimiter)
    missing = [key for key in (*targets, *without) if key not in columns]
    if missing:
        raise BadInput(f"{name} has no column {missing[0]!r}; it has {', '.join(columns)}")
    features = [values for key, values in columns.items() if key not in (*targets, *without)]
    values = np.stack([columns[key] for key in targets], axis=1)
    rows = np.stack(features, axis=1).astype(np.float32)
    return held_out(rows, values.astype(np.float32), round(share * len(rows)))


def satimage(files: Files) -> Parts:
    """Landsat pixels: 36 numbers and a class of 1, 2, 3, 4, 5 or 7 (there is no 6) per row."""

    def read(pattern: str) -> tuple[Arrays, Arrays]:
        name, data = pick(files, pattern)
        table = np.stack(list(read_columns(name, data.decode(), None).values()), axis=1)
        classes = numbered([str(int(value)) for value in table[:, -1]], list("123457"))
        return table[:, :-1].astype(np.float32), classes

    return Parts(*read("*sat.trn*"), *read("*sat.tst*"))


def quick_draw(files: Files, *, test: int = 20) -> Parts:
    """Quick, Draw!: a file per class, 784 grey values per line; the last lines are held out."""
    drawings = []
    for name, data in matching(files, "*drawings/*.ndjson"):
        rows = np.array([json.loads(line) for line in data.splitlines() if line], dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != 784 or len(rows) <= test:
            raise BadInput(
                f"{name} has drawings of shape {rows.shape}; wanted more than {test} x 784"
            )
        drawings.append(rows.reshape(-1, 1, 28, 28))
    train = [rows[:-test] for rows in drawings]
    held = [rows[-test:] for rows in drawings]
    counts = [[len(rows) for rows in part] for part in (train, held)]
    labels = [np.repeat(np.arange(len(drawings)), count) for count in counts]
    return Parts(np.concatenate(train), labels[0], np.concatenate(held), labels[1])


def dsprites(files: Files, *, train: int, test: int, total: int = 737_280) -> Parts:
    """dSprites: some of its pictures, drawn once and for all, with scale, x and y of the sprite.

    All of them would take 12 GB as float32. The orientation is left out, since a square looks the
    same after a quarter turn and an ellipse after half of one.
    """
    name, data = pick(files, "*dsprites*.npz")
    noise = row_noise(0, np.arange(total))
    chosen = np.sort(np.argsort(noise, kind="stable")[: train + test])
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            with archive.open("latents_values.npy") as file:
                latents = np.lib.format.read_array(file, allow_pickle=False)
            images = _some_rows(archive, "imgs.npy", chosen, total)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"{name} is not the file of dSprites ({error})") from error
    return held_out(
        images[:, None] * np.uint8(255), latents[chosen][:, [2, 4, 5]].astype(np.float32), test
    )


def _some_rows(archive: zipfile.ZipFile, name: str, rows: Arrays, total: int) -> Arrays:
    """Rows of an array in a .npz file, read block by block: the whole would take 3 GB."""
    with archive.open(name) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if shape[0] != total:
            raise ValueError(f"it has {shape[0]} pictures instead of {total}")
        width = int(np.prod(shape[1:])) * dtype.itemsize
        kept = []
        for begin in range(0, total, 8192):
            count = min(8192, total - begin)
            block = np.frombuffer(file.read(count * width), dtype).reshape(count, *shape[1:])
            kept.append(block[rows[(rows >= begin) & (rows < begin + count)] - begin])
    return np.concatenate(kept)
