"""How a campaign's folder takes in what its source has and it has not; at the start, all of it.

What is new is embedded like what was there before, and comes after it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.folder.description import EMBEDDING, INPUTS, TFIDF, Facts, place_of
from labelwise.campaign.folder.items import MANIFEST, Items, moved, write_items
from labelwise.campaign.folder.new_items import Arrivals, new_pictures, new_rows
from labelwise.errors import BadInput
from labelwise.learners.embedding import Standardizer, TfidfEmbedding, encode_sentences
from labelwise.media.images import SIDE, find_image_format, read_images
from labelwise.media.tables import find_input_array, load_arrays
from labelwise.pool.blocks import Progress

_BLOCK_BYTES = 1 << 26


@dataclass(frozen=True)
class Grown:
    """What came of a start or a refresh.

    Attributes:
        new: how many items were added.
        gone: ids of items that are not in the source any more, since the last time.
        back: ids of items that were gone and are there again.
        broken: what is wrong with items that were left out.
        notes: what was found and decided, in sentences.
    """

    new: int
    gone: tuple[int, ...] = ()
    back: tuple[int, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def grow(
    home: Path,
    facts: Facts,
    *,
    without: Sequence[str] = (),
    side: int = SIDE,
    skip_broken: bool = False,
    progress: Progress | None = None,
) -> tuple[Facts, Grown]:
    """Add what the source has and the campaign has not.

    Inputs are written before the list: after a crash between the two there are more of them
    than items, and those too many are written over the next time.

    Args:
        home: the campaign's folder, written to.
        facts: what is known of the campaign.
        without: columns of a table that are not used.
        side: the largest side that pictures are scaled to, where none was before.
        skip_broken: leave out what cannot be read, in place of refusing it.
        progress: called as ``progress(stage, done, total)``.

    Returns:
        What is known now, and what came of it.
    """
    with _alone(home):
        return _grown(_Growth(home, facts, skip_broken, progress), without, side)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Keep others from growing the same campaign: two would write over one another's items.

    The lock is on the folder itself, and ends with the process; Windows has none.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = os.open(home, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"another process adds items to {home} now; wait for it") from None
        yield
    finally:
        os.close(folder)


def _grown(growth: "_Growth", without: Sequence[str], side: int) -> tuple[Facts, Grown]:
    """Add what is new, step by step."""
    before = growth.before
    found = growth.arrivals(without)
    broken, entries = dict(found.broken), found.entries
    _refuse(broken, len(found.values) + len(broken), growth.skip_broken)
    notes, new = list(found.notes), len(found.values)
    if new and found.kind == "images" and growth.facts.features is None:
        bad = growth.add_pictures(found, side)
        broken |= {path: bad[path] for path in found.values if path in bad}
        entries = [entry for entry in entries or () if entry["path"] not in broken]
        new, shape = len(entries), growth.facts.shape
        size = " x ".join(map(str, shape[1:]))
        notes.append(f"the model sees them as {size}{', grey' * (shape[0] == 1)}")
    elif new:
        growth.add_rows(growth.features(found))
    if not before + new:
        raise BadInput(f"nothing in {growth.source} can be used")
    if entries is not None and new:
        write_items(growth.home / MANIFEST, entries, after=before)
    growth.facts.write(growth.home)
    return growth.facts, Grown(new, tuple(found.gone), (), broken, tuple(notes))


class _Growth:
    """The steps of growing; `facts` and the files change with them.

    Attributes:
        before: how many items there were.
        source: where they come from.
    """

    def __init__(
        self, home: Path, facts: Facts, skip_broken: bool, progress: Progress | None
    ) -> None:
        """Nothing is read but the list of the items that are there."""
        self.home, self.facts = home, facts
        self.source = place_of(home, facts.source)
        self.skip_broken, self._progress = skip_broken, progress
        there = (home / INPUTS).exists()
        self._items = Items(home, facts.kind, self.source) if there else None
        self.before = 0 if self._items is None else len(self._items)

    def arrivals(self, without: Sequence[str]) -> Arrivals:
        """What is new in the source; settles the kind of the items at the start."""
        facts, source, before = self.facts, self.source, self.before
        if not source.exists():
            raise BadInput(moved(source, self.home))
        known = (self._items.entry(item) for item in self._items) if self._items else iter(())
        if facts.form == "folder":
            found = new_pictures(source, known)
        elif facts.form == "table":
            asked = {"text": facts.text, "columns": facts.columns, "without": without}
            found, chosen = new_rows(source, known, **asked)
            self.facts = replace(self.facts, text=chosen.text, columns=chosen.numeric)
        else:
            rows = _array(source)
            self._check_rows(source, rows)
            notes = [f"{len(rows) - before:,} rows of {rows.shape[1]:,} features"]
            found = Arrivals("numbers", None, rows[before:], (), {}, notes)
        self.facts = replace(self.facts, kind=found.kind)
        return found

    def features(self, found: Arrivals) -> Any:
        """What is embedded: the items' own values, or those of a file of features."""
        if self.facts.features is None:
            return found.values
        path, before = place_of(self.home, self.facts.features), self.before
        rows, wanted = _array(path), before + len(found.values)
        if len(rows) != wanted:
            raise BadInput(
                f"{path} has {len(rows):,} rows for {wanted:,} items; give one row per item, in "
                f"the order of {MANIFEST}: new items come last"
            )
        self._check_rows(path, rows)
        return rows[before:]

    def _check_rows(self, path: Path, rows: NDArray[Any]) -> None:
        """Refuse a file of features whose first rows are not those of the known items."""
        before = self.before
        if len(rows) < before:
            raise BadInput(f"{path} has {len(rows):,} rows, and had {before:,}; put them back")
        if not before:
            return
        scale = Standardizer.load(self.home / EMBEDDING)
        inputs = np.load(self.home / INPUTS, mmap_mode="r", allow_pickle=False)
        for part in _parts(rows, before):
            if not np.array_equal(scale(rows[part]), inputs[part]):
                raise BadInput(
                    f"{path} has other rows {part.start} to {part.stop - 1} than at the start; "
                    "rows may only be added at its end: start another campaign"
                )

    def add_pictures(self, found: Arrivals, side: int) -> dict[str, str]:
        """Add the new pictures to the inputs; what is wrong with those that are left out."""
        files = {path: self.source / path for path in found.values}
        bad: dict[str, str] = {}
        if not self.facts.shape:
            form = find_image_format(list(files.values()), side=side, progress=self._progress)
            bad = {path: form.broken[file] for path, file in files.items() if file in form.broken}
            _refuse(bad, len(files), self.skip_broken)
            self.facts = replace(self.facts, shape=form.shape)
        good = [path for path in files if path not in bad]
        with _RowsFile(self.home / INPUTS, self.facts.shape, np.uint8, self.before) as out:
            for part in _parts(np.empty((len(good), 0)), len(good), most=512):
                block = np.zeros((part.stop - part.start, *self.facts.shape), dtype=np.uint8)
                broken = read_images([files[path] for path in good[part]], block)
                kept = [place for place, p in enumerate(good[part]) if files[p] not in broken]
                out.append(block[kept])
                bad |= {path: broken[files[path]] for path in good[part] if files[path] in broken}
                if self._progress is not None:
                    self._progress("reading images", part.stop, len(good))
            _refuse(bad, len(files), self.skip_broken)
        return bad

    def add_rows(self, values: Any) -> None:
        """Add new texts or numbers to the inputs, embedded as those before them were."""
        path, facts, rows = self.home / EMBEDDING, self.facts, values
        texts = facts.kind == "texts" and facts.features is None
        if texts and facts.embedding != TFIDF:
            rows = encode_sentences(values, facts.embedding, progress=self._progress)
            texts = False
        embed: TfidfEmbedding | Standardizer
        if self.before:
            embed = TfidfEmbedding.load(path) if texts else Standardizer.load(path)
        else:
            embed = TfidfEmbedding.fit(rows) if texts else Standardizer.fit(rows)
            embed.save(path)
        width = len(embed.mean) if texts else rows.shape[1]
        with _RowsFile(self.home / INPUTS, (width,), np.float32, self.before) as out:
            for part in _parts(np.empty((len(rows), width)), len(rows)):
                out.append(embed(rows[part]))
                if self._progress is not None:
                    self._progress("embedding", part.stop, len(rows))


class _RowsFile:
    """A .npy file that grows by rows and appears whole or not at all.

    It is written, not mapped: on a full disk writing is an error, where a mapped file would end
    the process.
    """

    def __init__(self, path: Path, shape: Sequence[int], dtype: Any, before: int) -> None:
        """Begin with the first ``before`` rows of the file that is there."""
        self._path, self._shape, self._dtype = path, tuple(shape), np.dtype(dtype)
        self._before = before
        self._count = 0

    def __enter__(self) -> "_RowsFile":
        self._partial = self._path.with_name(f"{self._path.name}.partial")
        self._file = self._partial.open("wb")
        self._head()
        if self._before:
            old = np.load(self._path, mmap_mode="r", allow_pickle=False)
            if old.shape[1:] != self._shape or old.dtype != self._dtype:
                raise BadInput(f"{self._path} holds {old.dtype} rows of {old.shape[1:]}")
            for part in _parts(old, self._before):
                self.append(old[part])
        return self

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)
        self._count += len(rows)

    def _head(self) -> None:
        """NumPy leaves room in the head for the number of rows to grow."""
        shape = (self._count, *self._shape)
        kind = np.lib.format.dtype_to_descr(self._dtype)
        head = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, head)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self._file.seek(0)
                self._head()
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink(missing_ok=True)


def _array(path: Path) -> NDArray[Any]:
    """The rows of a .npy or .npz file, checked."""
    held = load_arrays(path)
    rows = held[find_input_array(path, held)] if isinstance(held, dict) else held
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not rows.size:
        raise BadInput(
            f"{path} holds {rows.dtype} of shape {rows.shape}; give numbers (items, features), or "
            "a folder of pictures"
        )
    for part in _parts(rows, len(rows)):
        wrong = ~np.isfinite(rows[part]).all(axis=1)
        if wrong.any():
            row = part.start + int(wrong.argmax())
            raise BadInput(f"{path} has NaN or infinite numbers, first in row {row}; mend it")
    return rows


def _parts(rows: NDArray[Any], count: int, *, most: int | None = None) -> Iterator[slice]:
    """The first ``count`` rows in parts of some megabytes, or of ``most`` rows."""
    width = int(np.prod(rows.shape[1:], dtype=np.int64)) * 8
    step = most or max(1, _BLOCK_BYTES // max(1, width))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def _refuse(broken: Mapping[str, str], total: int, skip: bool) -> None:
    """An error that lists what cannot be read, unless it is to be left out; its notes list all."""
    if not broken or skip:
        return
    some = "; ".join(f"{name}: {reason}" for name, reason in list(broken.items())[:3])
    more = f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
    error = BadInput(
        f"{len(broken):,} of {total:,} items cannot be used ({some}{more}); mend or remove them, "
        "or leave them out with --skip-broken"
    )
    for name, reason in broken.items():
        error.add_note(f"{name}: {reason}")
    raise error
