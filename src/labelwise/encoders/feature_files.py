"""Features in files: partial ones, so that an interrupted run can continue, and complete ones."""

import hashlib
import io
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from labelwise.encoders.encoder import Encoder, Features
from labelwise.encoders.encoding import encode_batches
from labelwise.errors import BadInput
from labelwise.files import check_output_path, lock_file, read_json, write_atomically, write_json
from labelwise.pool.blocks import Progress
from labelwise.pool.sources.parquet import import_pyarrow

FORMATS = (".npy", ".parquet")
_ROWS_AT_ONCE = 8192
SAVE_SECONDS = 2.0  # Time between two writes to disk

_ROWS, _KEYS, _NOTE, _LOCK = "rows.float32", "items.sha256", "encoder.json", "lock"
_KEY_BYTES = 32

log = logging.getLogger("labelwise.encoders")


class PartialFeatures:
    """Rows that an encoder has finished, by item; use it in a ``with`` statement.

    ``rows.float32`` has the rows and ``items.sha256`` a hash per row. Rows are written first: after
    a crash, rows without a hash are encoded again.
    """

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Name the folder, which is made if needed, and the encoder."""
        self.folder, self._encoder = folder, encoder

    def __enter__(self) -> Self:
        """Open the files; rows of another encoder are removed."""
        encoder, self._row_bytes = self._encoder, 4 * self._encoder.dimension
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock_file(self.folder / _LOCK)
        if not self._lock.__enter__():
            self._lock.__exit__(None, None, None)
            raise BadInput(f"another process encodes into {self.folder} now; wait for it")
        facts = {"checksum": encoder.checksum, "dimension": encoder.dimension}
        note = self.folder / _NOTE
        if not note.is_file() or read_json(note) != facts:
            for name in (_ROWS, _KEYS):
                (self.folder / name).unlink(missing_ok=True)
            write_json(note, facts)
        self._rows, self._keys = ((self.folder / name).open("ab+") for name in (_ROWS, _KEYS))
        self._count = min(self._keys.tell() // _KEY_BYTES, self._rows.tell() // self._row_bytes)
        self._rows.truncate(self._count * self._row_bytes)
        self._keys.truncate(self._count * _KEY_BYTES)
        self._keys.seek(0)
        held = self._keys.read()
        starts = range(0, len(held), _KEY_BYTES)
        self._places = {held[n : n + _KEY_BYTES]: n // _KEY_BYTES for n in starts}
        self._unsaved: list[tuple[bytes, bytes]] = []
        self._saved_at = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Save what is finished, also after an error or an interruption."""
        try:
            self._save_feature_rows()
        finally:
            self._rows.close()
            self._keys.close()
            self._lock.__exit__(None, None, None)

    def encode(
        self,
        items: Sequence[Any],
        *,
        batch_size: int | None = None,
        stage: str = "encoding",
        progress: Progress | None = None,
    ) -> dict[int, str]:
        """Encode the items whose rows are not there yet; equal items are encoded once.

        Returns:
            Why items cannot be read, by position.
        """
        keys = [_hash_encoded_item(item) for item in items]
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        missing = sorted(place for key, place in first.items() if key not in self._places)
        broken: dict[int, str] = {}
        done = len(items) - len(missing)

        def report_encoded(done: int) -> None:
            if progress is not None:
                progress(stage, done, len(items))

        report_encoded(done)
        wanted = [items[place] for place in missing]
        for batch in encode_batches(self._encoder, wanted, batch_size=batch_size):
            self._append_feature_rows(
                [keys[missing[place]] for place in batch.places], batch.features
            )
            broken |= {missing[place]: reason for place, reason in batch.broken.items()}
            done += len(batch.places) + len(batch.broken)
            report_encoded(done)
        self._save_feature_rows()
        log.info("%s: %d items encoded", self._encoder.name, len(missing))
        reasons = {keys[place]: reason for place, reason in broken.items()}
        return {place: reasons[key] for place, key in enumerate(keys) if key in reasons}

    def read(self, items: Sequence[Any]) -> Features:
        """The rows of encoded items, ``(n, d)``."""
        places = [self._places[_hash_encoded_item(item)] for item in items]
        if not places:
            return np.empty((0, self._encoder.dimension), np.float32)
        shape = (self._count, self._encoder.dimension)
        held = np.memmap(self.folder / _ROWS, np.float32, "r", shape=shape)
        return np.array(held[places])

    def remove(self) -> None:
        """Remove the folder; call it after the ``with`` statement."""
        shutil.rmtree(self.folder)

    def _append_feature_rows(self, keys: list[bytes], rows: Features) -> None:
        for key in keys:
            self._places[key] = self._count
            self._count += 1
        self._unsaved.append((b"".join(keys), np.ascontiguousarray(rows).tobytes()))
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._save_feature_rows()

    def _save_feature_rows(self) -> None:
        for file, part in ((self._rows, 1), (self._keys, 0)):
            file.seek(0, io.SEEK_END)
            file.writelines(entry[part] for entry in self._unsaved)
            file.flush()
            os.fsync(file.fileno())
        self._unsaved.clear()
        self._saved_at = time.monotonic()


def _hash_encoded_item(item: Any) -> bytes:
    """Identify an item between two runs: a text, or the path, size and time of an image file."""
    if not isinstance(item, Path):
        return hashlib.sha256(str(item).encode("utf-8", "surrogatepass")).digest()
    try:
        status = item.stat()
        facts = f"\0{status.st_size}\0{status.st_mtime_ns}"
    except OSError:  # the file is gone; reading it says so
        facts = ""
    return hashlib.sha256(os.fsencode(item.absolute()) + facts.encode()).digest()


def write_feature_file(
    path: Path, ids: Sequence[str | int], width: int, read: Callable[[slice], Features]
) -> None:
    """Write a file atomically, some rows at a time.

    Args:
        path: ends in .npy, for rows alone, or in .parquet, for the columns ``id`` and ``features``.
        ids: of the n items.
        width: number of features d.
        read: returns some of the ``(n, d)`` rows.
    """
    check_output_path(path, FORMATS)
    parts = [slice(first, first + _ROWS_AT_ONCE) for first in range(0, len(ids), _ROWS_AT_ONCE)]
    with write_atomically(path, durable=True) as file:
        if path.suffix == ".npy":
            with file.open("wb") as out:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(ids), width)}
                np.lib.format.write_array_header_1_0(out, header)
                for part in parts:
                    out.write(np.ascontiguousarray(read(part), dtype="<f4").data)
            return
        arrow, parquet = import_pyarrow("writing .parquet")
        kind = arrow.string() if isinstance(ids[0], str) else arrow.int64()
        rows = arrow.list_(arrow.float32(), width)
        schema = arrow.schema([("id", kind), ("features", rows)])
        with parquet.ParquetWriter(file, schema) as out:
            for part in parts:
                flat = arrow.array(read(part).reshape(-1), arrow.float32())
                columns = [
                    arrow.array(ids[part], kind),
                    arrow.FixedSizeListArray.from_arrays(flat, width),
                ]
                out.write_table(arrow.table(columns, schema=schema))
