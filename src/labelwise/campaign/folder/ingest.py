"""Ingest: add the new items of a source to a campaign's folder; at the start, all of them.

New items are embedded like the existing ones and come after them.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import HostArray
from labelwise.campaign.folder.description import (
    EMBEDDING,
    INPUTS,
    TFIDF,
    CampaignDescription,
    UsedEncoder,
    resolve_campaign_path,
)
from labelwise.campaign.folder.encoders import (
    open_campaign_encoders,
    open_new_encoder,
    shorten_encoder_spec,
)
from labelwise.campaign.folder.items import (
    MANIFEST,
    CampaignItems,
    explain_moved_source,
    write_items,
)
from labelwise.campaign.folder.new_items import NewItems, find_new_images, find_new_rows
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.encoding import encode
from labelwise.encoders.feature_files import PartialFeatures
from labelwise.encoders.registry import AUTO, TEXT_HINT
from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput
from labelwise.files import load_npy, lock_file, write_atomically
from labelwise.learners.embedding import LARGEST, Standardizer
from labelwise.media.images import SIDE, find_image_format, read_images
from labelwise.media.tables import ARRAYS, find_input_array, load_arrays
from labelwise.pool.blocks import Progress

WORK = ".encoding"  # Folder in a campaign's folder for features while they are computed

_BLOCK_BYTES = 1 << 26
_IMAGES_AT_ONCE = 512


@dataclass(frozen=True)
class IngestResult:
    """The result of a start or a refresh."""

    new: int  # number of new items
    missing: tuple[int, ...] = ()  # ids of items that are not in the source any more
    returned: tuple[int, ...] = ()  # ids of items that were missing and are there again
    # unusable items that were left out, and the reason
    broken: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # findings and decisions, in sentences


def ingest_items(
    home: Path,
    description: CampaignDescription,
    *,
    without: Sequence[str] = (),
    side: int = SIDE,
    encoders: Sequence[str] = (),
    work: Path | None = None,
    skip_broken: bool = False,
    progress: Progress | None = None,
) -> tuple[CampaignDescription, IngestResult]:
    """Add the new items of the source.

    Inputs are written before the list of items: after a crash between the two there are more
    inputs than items, and the next ingest overwrites them.

    Args:
        home: the campaign's folder, which is changed.
        description: of the campaign.
        without: columns of a table that are not used.
        side: the largest side of scaled images, at the start.
        encoders: specifications for images and texts, at the start.
        work: folder for features while they are computed, which the caller removes; one in the
            campaign's folder if None. After an interruption the next ingest goes on with it.
        skip_broken: leave out unusable items instead of raising an error.
        progress: called as ``progress(stage, done, total)``.

    Returns:
        The new description, and the result.
    """
    with lock_campaign_ingest(home):
        ingestion = _Ingestion(home, description, work or home / WORK, skip_broken, progress)
        found = ingestion.run(without, side, encoders)
        shutil.rmtree(home / WORK, ignore_errors=True)
        return found


@contextmanager
def lock_campaign_ingest(home: Path) -> Iterator[None]:
    """Lock a campaign against other processes that add items."""
    with lock_file(home / ".ingest.lock") as held:
        if not held:
            raise BadInput(f"another process adds items to {home} now; wait for it")
        yield


class _Ingestion:
    """The steps of an ingest; they change `description` and the files.

    Attributes:
        before: number of items before.
        source: path of the source.
    """

    def __init__(
        self,
        home: Path,
        description: CampaignDescription,
        work: Path,
        skip_broken: bool,
        progress: Progress | None,
    ) -> None:
        self.home, self.description, self.work = home, description, work
        self.source = resolve_campaign_path(home, description.source)
        self.skip_broken, self._progress = skip_broken, progress
        exists = (home / INPUTS).exists()
        self._items = CampaignItems(home, description.kind, self.source) if exists else None
        self.before = 0 if self._items is None else len(self._items)

    def run(
        self, without: Sequence[str], side: int, encoders: Sequence[str]
    ) -> tuple[CampaignDescription, IngestResult]:
        """Find new items, add their inputs, then list them."""
        found = self._find_new_items(without)
        broken, entries = dict(found.broken), found.entries
        self._reject_broken(broken, len(found.values) + len(broken))
        notes, new = list(found.notes), len(found.values)
        if new and self._uses_encoders(encoders):
            bad = self._add_encoded(found, encoders, notes)
            entries = [entry for place, entry in enumerate(entries or ()) if place not in bad]
            broken |= {str(found.values[place]): reason for place, reason in bad.items()}
            new = len(entries)
        elif new and found.kind == "images" and not self.description.features:
            unread = self._add_images(found, side)
            broken |= {path: unread[path] for path in found.values if path in unread}
            entries = [entry for entry in entries or () if entry["path"] not in broken]
            new, shape = len(entries), self.description.shape
            size = " x ".join(map(str, shape[1:]))
            notes.append(f"the model sees them as {size}{', grey' * (shape[0] == 1)}")
        elif new:
            self._add_rows(self._choose_values(found))
        if not self.before + new:
            raise BadInput(f"nothing in {self.source} can be used")
        if entries is not None and new:
            write_items(self.home / MANIFEST, entries, after=self.before)
        self.description.write(self.home)
        return self.description, IngestResult(new, tuple(found.missing), (), broken, tuple(notes))

    def _uses_encoders(self, encoders: Sequence[str]) -> bool:
        """Whether the items are encoded: by the encoders given at the start, or as before."""
        if self.before or self.description.encoders:
            return bool(self.description.encoders)
        named = [spec for spec in encoders if spec != AUTO]
        if named and self.description.kind == "numbers":
            raise BadInput(f"{named[0]} cannot encode numbers; leave out --encoder")
        encodable = self.description.kind in ("images", "texts") and not self.description.features
        return bool(encoders) and encodable

    def _find_new_items(self, without: Sequence[str]) -> NewItems:
        """Find the new items of the source; at the start this decides their kind."""
        description, source, before = self.description, self.source, self.before
        if not source.exists():
            raise BadInput(explain_moved_source(source, self.home))
        known = (self._items.entry(item) for item in self._items) if self._items else iter(())
        if description.form == "folder":
            found = find_new_images(source, known)
        elif description.form == "table":
            asked = {"text": description.text, "columns": description.columns, "without": without}
            plan = description.table_columns if before else None
            own = description.id_column
            found, chosen, plan = find_new_rows(source, known, **asked, plan=plan, id_column=own)
            description = replace(
                description,
                text=chosen.text,
                columns=chosen.columns,
                categories=plan.categories,
                fills=plan.fills,
            )
        else:
            rows = read_feature_rows(source)
            if not description.features:
                self._check_known_rows(source, rows)
            notes = [f"{len(rows) - before:,} rows of {rows.shape[1]:,} features"]
            found = NewItems("numbers", None, rows[before:], (), {}, notes)
        self.description = replace(description, kind=found.kind)
        return found

    def _choose_values(self, found: NewItems) -> Any:
        """The values to embed: those of the items, or of files of features."""
        if not self.description.features:
            return found.values
        before, files, parts = self.before, self.description.features, []
        for path in (resolve_campaign_path(self.home, file) for file in files):
            rows, wanted = read_feature_rows(path), before + len(found.values)
            if len(rows) != wanted:
                raise BadInput(
                    f"{path} has {len(rows):,} rows for {wanted:,} items; give one row per item, "
                    f"in the order of {MANIFEST}: new items come last"
                )
            parts.append(rows)
        widths = tuple(rows.shape[1] for rows in parts)
        if before and len(files) > 1 and widths != self.description.widths:
            raise BadInput(
                f"{', '.join(files)} have {widths} columns but had {self.description.widths}; "
                "restore them, or start another campaign"
            )
        self.description = replace(self.description, widths=widths if len(files) > 1 else ())
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        self._check_known_rows(resolve_campaign_path(self.home, files[0]), whole)
        return whole[before:]

    def _check_known_rows(self, path: Path, rows: HostArray) -> None:
        """Reject a file of features whose first rows differ from the known items."""
        before = self.before
        if len(rows) < before:
            raise BadInput(
                f"{path} has {len(rows):,} rows but had {before:,}; restore the missing ones"
            )
        if not before:
            return
        scale = Standardizer.load(self.home / EMBEDDING)
        inputs = load_npy(self.home / INPUTS)
        for part in _split_input_rows(rows, before):
            if not np.array_equal(scale(rows[part]), inputs[part]):
                raise BadInput(
                    f"{path}: rows {part.start} to {part.stop - 1} differ from the start of the "
                    "campaign; rows may only be added at the end: start another campaign"
                )

    def _add_encoded(
        self, found: NewItems, specs: Sequence[str], notes: list[str]
    ) -> dict[int, str]:
        """Encode new images or texts; return why some cannot be used, by position."""
        images = found.kind == "images"
        items: list[Any] = [self.source / path for path in found.values] if images else found.values
        broken: dict[int, str] = {}
        if images:  # damaged files are reported before hours of encoding
            form = find_image_format(items, progress=self._progress)
            broken = {n: form.broken[item] for n, item in enumerate(items) if item in form.broken}
            self._reject_broken(self._name_broken(found, broken), len(items))
        encoders = self._open_encoders(specs, [] if images else items)
        with ExitStack() as stack:
            stores = [
                stack.enter_context(PartialFeatures(self.work / str(number), encoder))
                for number, encoder in enumerate(encoders)
            ]
            for encoder, store in zip(encoders, stores, strict=True):
                stage = "encoding" if len(stores) == 1 else f"encoding by {encoder.name}"
                good = [n for n in range(len(items)) if n not in broken]
                some = [items[n] for n in good]
                bad = store.encode(some, stage=stage, progress=self._progress)
                broken |= {good[place]: reason for place, reason in bad.items()}
            self._reject_broken(self._name_broken(found, broken), len(items))
            good = [n for n in range(len(items)) if n not in broken]
            width = sum(encoder.dimension for encoder in encoders)
            with _extend_input_rows(
                self.home / INPUTS, (width,), np.float32, self.before
            ) as append:
                for part in _split_input_rows(np.empty((len(good), width)), len(good)):
                    some = [items[n] for n in good[part]]
                    append(np.concatenate([store.read(some) for store in stores], axis=1))
        if not self.before:
            self._describe_encoders(specs, encoders, notes)
        return broken

    def _open_encoders(self, specs: Sequence[str], texts: Sequence[str]) -> list[Encoder]:
        """The encoders of the campaign, or at the start the given ones."""
        if self.before:
            return open_campaign_encoders(self.home, self.description)
        kind = self.description.kind
        found = [open_new_encoder(self.home, spec, kind, texts) for spec in specs]
        if len({(encoder.name, encoder.checksum) for encoder in found}) < len(found):
            raise BadInput(f"two encoders are the same: {', '.join(specs)}; leave one out")
        return found

    def _describe_encoders(
        self, specs: Sequence[str], encoders: Sequence[Encoder], notes: list[str]
    ) -> None:
        """Remember the encoders of a new campaign."""
        used = []
        for spec, encoder in zip(specs, encoders, strict=True):
            own = encoder.name if spec == AUTO else spec
            if isinstance(encoder, TfidfEncoder):
                encoder.save(self.home / EMBEDDING)
                notes += [TEXT_HINT] if spec == AUTO else []
            used.append(UsedEncoder(own, encoder.checksum))
            notes.append(
                f"encoded by {shorten_encoder_spec(own)}: {encoder.dimension:,} features each"
            )
        widths = tuple(encoder.dimension for encoder in encoders)
        self.description = replace(self.description, encoders=tuple(used), widths=widths)

    def _name_broken(self, found: NewItems, broken: Mapping[int, str]) -> dict[str, str]:
        return {str(found.values[place]): reason for place, reason in sorted(broken.items())}

    def _add_images(self, found: NewItems, side: int) -> dict[str, str]:
        """Add new images to the inputs; return the broken ones and the reason."""
        files = {path: self.source / path for path in found.values}
        broken: dict[str, str] = {}
        if not self.description.shape:
            form = find_image_format(list(files.values()), side=side, progress=self._progress)
            broken = {
                path: form.broken[file] for path, file in files.items() if file in form.broken
            }
            self._reject_broken(broken, len(files))
            self.description = replace(self.description, shape=form.shape)
        shape, good = self.description.shape, [path for path in files if path not in broken]
        with _extend_input_rows(self.home / INPUTS, shape, np.uint8, self.before) as append:
            for first in range(0, len(good), _IMAGES_AT_ONCE):
                paths = good[first : first + _IMAGES_AT_ONCE]
                block = np.zeros((len(paths), *shape), dtype=np.uint8)
                bad = read_images([files[path] for path in paths], block)
                append(block[[files[path] not in bad for path in paths]])
                broken |= {path: bad[files[path]] for path in paths if files[path] in bad}
                self._report_progress("reading images", first + len(paths), len(good))
            self._reject_broken(broken, len(files))
        return broken

    def _add_rows(self, values: Any) -> None:
        """Add new texts or numbers to the inputs, embedded like the existing ones."""
        path, rows = self.home / EMBEDDING, values
        texts = self.description.kind == "texts" and not self.description.features
        if texts and self.description.embedding != TFIDF:
            rows = encode(values, f"st:{self.description.embedding}", progress=self._progress)
            texts = False
        embed: TfidfEncoder | Standardizer
        if self.before:
            embed = TfidfEncoder.load(path) if texts else Standardizer.load(path)
        else:
            embed = TfidfEncoder.fit(rows) if texts else Standardizer.fit(rows)
            embed.save(path)
        width = len(embed.mean) if texts else rows.shape[1]
        with _extend_input_rows(self.home / INPUTS, (width,), np.float32, self.before) as append:
            for part in _split_input_rows(np.empty((len(rows), width)), len(rows)):
                append(embed(rows[part]))
                self._report_progress("embedding", part.stop, len(rows))

    def _report_progress(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)

    def _reject_broken(self, broken: Mapping[str, str], total: int) -> None:
        """Raise an error that lists unusable items, unless they are to be left out."""
        if not broken or self.skip_broken:
            return
        some = "; ".join(f"{name}: {reason}" for name, reason in list(broken.items())[:3])
        more = f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
        error = BadInput(
            f"{len(broken):,} of {total:,} items cannot be used ({some}{more}); repair or remove "
            "them, or leave them out with --skip-broken"
        )
        for name, reason in broken.items():
            error.add_note(f"{name}: {reason}")
        raise error


@contextmanager
def _extend_input_rows(
    path: Path, shape: Sequence[int], dtype: Any, before: int
) -> Iterator[Callable[[HostArray], None]]:
    """Append rows to the first ``before`` rows of a .npy file, which is replaced atomically.

    The file is written, not mapped: on a full disk a write is an error, but a mapped file would
    kill the process.
    """
    kind, count = np.dtype(dtype), 0
    with write_atomically(path, durable=True) as part, part.open("wb") as file:

        def write_header() -> None:  # NumPy reserves space for a larger number of rows
            descr = np.lib.format.dtype_to_descr(kind)
            header = {"descr": descr, "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, header)

        def append(rows: HostArray) -> None:
            nonlocal count
            file.write(np.ascontiguousarray(rows, dtype=kind).data)
            count += len(rows)

        write_header()
        if before:
            old = load_npy(path)
            if old.shape[1:] != tuple(shape) or old.dtype != kind:
                raise BadInput(f"{path} holds {old.dtype} rows of {old.shape[1:]}")
            for rows in _split_input_rows(old, before):
                append(old[rows])
        yield append
        file.seek(0)
        write_header()


def read_feature_rows(path: Path) -> HostArray:
    """Read and check the rows of a .npy or .npz file."""
    if path.is_file() and path.suffix.lower() not in ARRAYS:
        raise BadInput(f"{path} is not a file of features; give one of {', '.join(ARRAYS)}")
    content = load_arrays(path)
    rows = content[find_input_array(path, content)] if isinstance(content, dict) else content
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not rows.size:
        raise BadInput(
            f"{path} holds {rows.dtype} of shape {rows.shape}; give numbers (items, features), or "
            "a folder of pictures"
        )
    for part in _split_input_rows(rows, len(rows)):
        wrong = ~np.isfinite(rows[part]).all(axis=1)
        if wrong.any():
            row = part.start + int(wrong.argmax())
            raise BadInput(f"{path} has NaN or infinite numbers, first in row {row}; replace them")
        if float(np.abs(rows[part]).max()) > LARGEST:
            raise BadInput(f"{path} has numbers beyond {LARGEST:.0e}; scale them")
    return rows


def _split_input_rows(rows: HostArray, count: int) -> Iterator[slice]:
    """Split the first ``count`` rows into parts of some megabytes."""
    width = int(np.prod(rows.shape[1:], dtype=np.int64)) * 8
    step = max(1, _BLOCK_BYTES // max(1, width))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))
