"""From files to checked arrays."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labelwise.benchmark.datasets.archives import gather, matches
from labelwise.benchmark.datasets.entries import Arrays, Entry, Files, Layout, Parts
from labelwise.errors import BadInput, LabelwiseWarning


def read_files(entry: Entry, sources: Sequence[Path]) -> Parts:
    """The arrays of a data set, by the first of its layouts whose files are all there.

    Args:
        entry: what is to be found.
        sources: folders or archives, searched through together.
    """
    wanted = [pattern for layout in entry.layouts for pattern in layout.wanted]
    files: dict[str, bytes] = {}
    for source in sources:
        files.update(gather(source, wanted))
    for layout in entry.layouts:
        if all(_names(files, pattern) for pattern in layout.wanted):
            return layout.read(
                {n: files[n] for pattern in layout.wanted for n in _names(files, pattern)}
            )
    places = " and ".join(str(source) for source in sources)
    forms = "; or ".join(_described(layout) for layout in entry.layouts)
    raise BadInput(f"the files of {entry.name} are not all in {places}; wanted {forms}")


def _names(files: Files, pattern: str) -> list[str]:
    return [name for name in files if matches(name, pattern)]


def _described(layout: Layout) -> str:
    return f"{layout.form} ({', '.join(pattern.removeprefix('*') for pattern in layout.wanted)})"


def check(entry: Entry, parts: Parts, digest: str) -> None:
    """Compare a data set with what the catalogue says.

    Raises:
        BadInput: if counts, shape, classes or values are wrong.

    Warns:
        LabelwiseWarning: if all that is right but the arrays differ from the copy that is known, in
            their order for instance.
    """
    for part, inputs, targets in _pairs(parts):
        if len(inputs) != len(targets):
            raise BadInput(
                f"{entry.name} has {len(inputs)} {part} items but {len(targets)} targets"
            )
        if inputs.shape[1:] != entry.shape:
            raise BadInput(f"{entry.name} has items of shape {inputs.shape[1:]}, not {entry.shape}")
        for array in (inputs, targets):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise BadInput(f"{entry.name} has {part} values that are not finite")
    counts = len(parts.inputs), len(parts.test_inputs)
    if counts not in ((entry.train, entry.test), *entry.other_counts):
        raise BadInput(
            f"{entry.name} has {counts[0]} training and {counts[1]} test items instead of "
            f"{entry.train} and {entry.test}; are files missing?"
        )
    if entry.classes is not None:
        _check_classes(entry, parts)
    if entry.digest is not None and digest != entry.digest:
        warnings.warn(
            f"these arrays of {entry.name} have checksum {digest[:16]} instead of "
            f"{entry.digest[:16]}: counts and classes are right, but order or values are not those "
            "of the known copy, so that results with the same seed will differ",
            LabelwiseWarning,
            stacklevel=3,
        )


def _pairs(parts: Parts) -> tuple[tuple[str, Arrays, Arrays], ...]:
    return (
        ("training", parts.inputs, parts.targets),
        ("test", parts.test_inputs, parts.test_targets),
    )


def _check_classes(entry: Entry, parts: Parts) -> None:
    known = {"training": entry.train_counts, "test": entry.test_counts}
    for part, _, targets in _pairs(parts):
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= (entry.classes or 0):
            raise BadInput(
                f"{entry.name} has {part} classes from {low} to {high}; there are {entry.classes}"
            )
        counts = np.bincount(targets, minlength=entry.classes or 0)
        wanted = known[part]
        if wanted is not None and counts.tolist() != list(wanted):
            wrong = int(np.flatnonzero(counts != np.array(wanted))[0])
            raise BadInput(
                f"{entry.name} has {counts[wrong]} {part} items of class {wrong} instead of "
                f"{wanted[wrong]}"
            )
