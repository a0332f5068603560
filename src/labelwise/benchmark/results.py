"""The results file: one JSON object per line, one line per round, only ever appended to.

A line is written whole or, after a crash, not at all: it counts only when its end of line is
there. What a crash left of a line is cut off, with a warning, when the next line is appended, and
is left out, with a warning, when the file is read before that. Anything else that is wrong in a
file is refused with its line number. Numbers that JSON has no form for (inf, the imbalance of
labels that miss a class; nan, the error of a training that diverged) are written as text.
"""

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from labelwise.errors import BadInput, LabelwiseWarning

FORMAT = 1
"""The number that every line carries; a line with another one is refused."""


class RunKey(NamedTuple):
    """What makes one run: two rounds belong together if these are the same."""

    experiment: str
    scale: str
    dataset: str
    network: str
    strategy: str
    options: str  # as JSON, keys sorted
    seed: int


@dataclass(frozen=True)
class Round:
    """One round of one run: what was measured, what it took, and what was bought after it.

    Attributes:
        experiment: name of the protocol.
        scale: small, medium or full.
        dataset: name of the data set.
        network: name of the architecture.
        strategy: name of the strategy.
        seed: fixes the first labels, the initial weights and the split; runs are paired by it.
        round: 0 is measured with the first labels only.
        labels: labels bought up to now, the first ones included.
        metric: name of what was measured on the test set.
        value: the measurement; the mean over the models where there are several.
        higher_is_better: whether a larger value is a better one.
        values: one measurement per model.
        options: the strategy's options that differ from its defaults.
        reduced: what was reduced against the paper, in words; empty if nothing was.
        validation_labels: labels spent on validation, not among ``labels``.
        seconds: of ``train``, ``represent`` and ``select``.
        peak_megabytes: memory, or None where it was not measured.
        imbalance: largest over smallest class count of the labelled set; inf if a class is missing.
        effective_size: of the picks' weights, in one shot those of all picks up to now; None
            without weights.
        picks: ids bought after this measurement; empty in the last round.
        weights: of the picks, or None.
        device: where it ran.
        versions: of labelwise, torch, numpy.
        started: ISO time.
        code: version and digest of the source that made it; empty in lines from before it was
            noted.

    Example:
        >>> first = Round("toy", "small", "digits", "mlp", "random", 0, 0, 20, "accuracy", 0.5)
        >>> from_json(to_json(first)) == first
        True
    """

    experiment: str
    scale: str
    dataset: str
    network: str
    strategy: str
    seed: int
    round: int
    labels: int
    metric: str
    value: float
    higher_is_better: bool = True
    values: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    reduced: str = ""
    validation_labels: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_megabytes: float | None = None
    imbalance: float | None = None
    effective_size: float | None = None
    picks: tuple[int, ...] = ()
    weights: tuple[float, ...] | None = None
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    code: str = ""

    def __post_init__(self) -> None:
        for name, least in (("round", 0), ("labels", 0), ("validation_labels", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be {least} or more; got {getattr(self, name)}")
        if self.weights is not None and len(self.weights) != len(self.picks):
            raise BadInput(
                f"round has {len(self.picks)} picks but {len(self.weights)} weights; "
                "give one per pick, or None"
            )

    @property
    def key(self) -> RunKey:
        """The run that the round belongs to."""
        options = json.dumps(_plain(self.options), sort_keys=True)
        names = (self.experiment, self.scale, self.dataset, self.network, self.strategy)
        return RunKey(*names, options, self.seed)


def append(path: Path | str, entry: Round) -> None:
    """Add a round to a results file: one write, flushed to the disk before it returns.

    What a crash left of an unfinished last line is cut off first, and a warning says so. One
    process at a time may write a file.

    Args:
        path: the file; it and its folder are made if they are not there.
        entry: the round.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "results.jsonl"
        >>> append(path, Round("toy", "small", "digits", "mlp", "random", 0, 0, 20, "accuracy", 1))
        >>> [entry.labels for entry in read(path)]
        [20]
    """
    path = Path(path)
    line = (to_json(entry) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        _cut_torn_line(path, file)
        written = file.write(line)
        os.fsync(file.fileno())
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes of a line fitted into {path}")


def read(paths: Path | str | Iterable[Path | str]) -> list[Round]:
    """The rounds of one or several results files, in the order of the lines.

    A round that is there twice with the same labels, value and picks is taken once, with a
    warning (the same file given twice, or a run repeated); with different ones it is refused.

    Args:
        paths: a file, or several.

    Returns:
        The rounds, of all runs.
    """
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    found: dict[tuple[RunKey, int], tuple[Round, str]] = {}
    repeated = 0
    for path in files:
        for number, entry in _lines(path):
            where = f"line {number} of {path}"
            name = entry.key, entry.round
            if name not in found:
                found[name] = entry, where
                continue
            _check_same(*found[name], entry, where)
            repeated += 1
    if repeated:
        warnings.warn(
            f"{repeated} rounds are there more than once; each was taken once",
            LabelwiseWarning,
            stacklevel=2,
        )
    return [entry for entry, _ in found.values()]


def to_json(entry: Round) -> str:
    """A round as one line of JSON, without the end of line."""
    content = {"format": FORMAT} | {
        item.name: _plain(getattr(entry, item.name)) for item in fields(entry)
    }
    return json.dumps(content, allow_nan=False)


def from_json(line: str) -> Round:
    """A round from its line; BadInput says what is wrong with it."""
    try:
        content = json.loads(line)
    except ValueError as error:
        raise BadInput(f"is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise BadInput("is not a JSON object")
    number = content.pop("format", None)
    if number != FORMAT:
        raise BadInput(f"has format {number}, and this labelwise reads format {FORMAT}")
    known = {item.name for item in fields(Round)}
    if strange := sorted(set(content) - known):
        raise BadInput(f"has an unknown field {strange[0]!r}")
    try:
        return Round(**{name: _typed(name, value) for name, value in content.items()})
    except TypeError as error:
        raise BadInput(f"is not a round ({error})") from None


def _cut_torn_line(path: Path, file: Any) -> None:
    end = file.seek(0, os.SEEK_END)
    whole = end
    block = 4096
    while whole:  # backwards, to the last end of line
        start = max(0, whole - block)
        file.seek(start)
        place = file.read(whole - start).rfind(b"\n")
        if place >= 0:
            whole = start + place + 1
            break
        whole = start
    if whole == end:
        return
    warnings.warn(
        f"{path} ended in {end - whole} bytes of an unfinished line; they were cut off",
        LabelwiseWarning,
        stacklevel=3,
    )
    file.truncate(whole)


def _lines(path: Path) -> Iterator[tuple[int, Round]]:
    if not path.is_file():
        raise BadInput(f"there is no results file {path}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"line {number} of {path} is unfinished, after a crash; it is left out",
                    LabelwiseWarning,
                    stacklevel=4,
                )
                return
            try:
                yield number, from_json(line.decode())
            except (BadInput, UnicodeDecodeError) as error:
                raise BadInput(f"line {number} of {path} {error}; mend or remove it") from None


def _check_same(first: Round, there: str, second: Round, here: str) -> None:
    pairs = [(entry.labels, entry.value, entry.picks) for entry in (first, second)]
    if repr(pairs[0]) != repr(pairs[1]):  # as text, so that nan equals nan
        raise BadInput(
            f"round {first.round} of {first.strategy}, seed {first.seed}, of {first.experiment} "
            f"has value {first.value:g} in {there} and {second.value:g} in {here}; give one of them"
        )


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it has no number for, as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, str) or value is None:
        return value
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


_HINTS = get_type_hints(Round)


def _typed(name: str, value: Any) -> Any:
    """A field's value as its type wants it; BadInput if it is of another kind."""
    hint = _HINTS[name]
    try:
        if value is None and type(None) in getattr(hint, "__args__", ()):
            return None
        return _READERS[hint](value)
    except (TypeError, ValueError, AttributeError):
        raise BadInput(f"has {value!r} as {name}") from None


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and math.isfinite(float(value))):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(_number(part) for part in value)


_READERS: dict[Any, Any] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _truth,
    float | None: _number,
    tuple[float, ...]: _numbers,
    tuple[float, ...] | None: _numbers,
    tuple[int, ...]: lambda value: tuple(_integer(part) for part in value),
    Mapping[str, Any]: dict,
    Mapping[str, float]: lambda value: {name: _number(part) for name, part in value.items()},
    Mapping[str, str]: lambda value: {name: _text(part) for name, part in value.items()},
}
