"""The results file: one JSON object per line and round, append-only.

A line counts only with its end of line. A torn line after a crash is cut off, with a warning, when
the next line is appended, and skipped, with a warning, when the file is read before that. Any other
damage is rejected with its line number. Infinity and NaN are written as text.
"""

import gzip
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, get_type_hints

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import to_json
from labelwise.tracking import Tracker

FORMAT = 1  # The format number of every line


class RunKey(NamedTuple):
    """Identifies a run: two rounds with the same key belong together."""

    experiment: str
    scale: str
    dataset: str
    network: str
    strategy: str
    options: str  # as JSON, keys sorted
    seed: int


_TRACKED = ("experiment", "scale", "dataset", "network", "strategy", "seed", "options")


@dataclass(frozen=True)
class RoundResult:
    """One round of one run: the measurement, its cost, and the labels bought after it."""

    experiment: str
    scale: str
    dataset: str
    network: str
    strategy: str
    seed: int  # fixes the first labels, the initial weights and the split; runs are paired by it
    round: int  # 0 is measured with the first labels only
    labels: int  # labels bought so far, including the first ones
    metric: str
    value: float  # the measurement; the mean over the models where there are several
    higher_is_better: bool = True
    values: tuple[float, ...] = ()  # one measurement per model
    # Further measures on the test set by name
    measures: Mapping[str, float] = field(default_factory=dict)
    # The strategy's options that differ from its defaults
    options: Mapping[str, object] = field(default_factory=dict)
    reduced: str = ""  # how the protocol was reduced compared with the paper; empty if it was not
    validation_labels: int = 0  # labels spent on validation, not among ``labels``
    # Of ``train``, ``represent`` and ``select``
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_megabytes: float | None = None
    # Largest over smallest class count of the labelled set; inf if a class is missing
    imbalance: float | None = None
    # Of the picks' weights (in one-shot runs of all picks so far); None without weights
    effective_size: float | None = None
    picks: tuple[int, ...] = ()  # ids bought after this measurement; empty in the last round
    weights: tuple[float, ...] | None = None
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    code: str = ""  # version and digest of the source; empty in older lines

    def __post_init__(self) -> None:
        for name in ("round", "labels", "validation_labels"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} must be 0 or more; got {getattr(self, name)}")
        if self.weights is not None and len(self.weights) != len(self.picks):
            raise BadInput(
                f"round has {len(self.picks)} picks but {len(self.weights)} weights; "
                "give one per pick, or None"
            )

    @property
    def key(self) -> RunKey:
        """The run that the round belongs to."""
        options = json.dumps(to_json(self.options), sort_keys=True)
        names = (self.experiment, self.scale, self.dataset, self.network, self.strategy)
        return RunKey(*names, options, self.seed)

    def log(self, tracker: Tracker) -> None:
        """Log the measures by the number of labels, in a run per strategy and seed."""
        shown = "".join(f" {name}={value}" for name, value in self.options.items())
        seconds = {f"seconds/{name}": value for name, value in self.seconds.items()}
        tracker.log(
            f"{self.experiment} {self.dataset} {self.strategy}{shown} seed {self.seed}",
            self.labels,
            {
                self.metric: self.value,
                **self.measures,
                **seconds,
                "imbalance": self.imbalance,
                "effective_size": self.effective_size,
            },
            {name: getattr(self, name) for name in _TRACKED},
        )


def append_result(path: Path | str, *entries: RoundResult) -> None:
    """Append rounds with one write and flush them to disk; only one process may write a file."""
    path = Path(path)
    lines = "".join(f"{format_result_line(entry)}\n" for entry in entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        _cut_torn_result_line(path, file)
        written = file.write(lines)
        os.fsync(file.fileno())
    if written != len(lines):
        raise OSError(f"only {written} of {len(lines)} bytes of a line were written to {path}")


def read_results(paths: Path | str | Iterable[Path | str]) -> list[RoundResult]:
    """The rounds of one or several results files (.gz too), in the order of the lines.

    A repeated round with the same labels, value and picks is used once, with a warning; with
    different ones it is rejected.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    found: dict[tuple[RunKey, int], tuple[RoundResult, str]] = {}
    repeated = 0
    for path in files:
        for number, entry in _iterate_result_lines(path):
            where, name = f"line {number} of {path}", (entry.key, entry.round)
            if name in found:
                _check_repeated_round(*found[name], entry, where)
                repeated += 1
            found.setdefault(name, (entry, where))
    if repeated:
        warnings.warn(
            f"{repeated} rounds occur more than once; each was used once",
            LabelwiseWarning,
            stacklevel=2,
        )
    return [entry for entry, _ in found.values()]


def format_result_line(entry: RoundResult) -> str:
    """A round as one line of JSON, without the end of line."""
    content = {item.name: to_json(getattr(entry, item.name)) for item in fields(entry)}
    return json.dumps({"format": FORMAT} | content, allow_nan=False)


def parse_result_line(line: str) -> RoundResult:
    """A round from its line; BadInput describes what is wrong with it."""
    try:
        content = json.loads(line)
    except ValueError as error:
        raise BadInput(f"is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise BadInput("is not a JSON object")
    number = content.pop("format", None)
    if number != FORMAT:
        raise BadInput(f"has format {number}, and this labelwise reads format {FORMAT}")
    if strange := sorted(set(content) - set(_HINTS)):
        raise BadInput(f"has an unknown field {strange[0]!r}")
    try:
        return RoundResult(
            **{name: _parse_result_field(name, value) for name, value in content.items()}
        )
    except TypeError as error:
        raise BadInput(f"is not a round ({error})") from None


def _cut_torn_result_line(path: Path, file: BinaryIO) -> None:
    end = complete = file.seek(0, os.SEEK_END)
    while complete:  # search backwards for the last end of line
        start = max(0, complete - 4096)
        file.seek(start)
        place = file.read(complete - start).rfind(b"\n")
        if place >= 0:
            complete = start + place + 1
            break
        complete = start
    if complete == end:
        return
    warnings.warn(
        f"{path} ended in {end - complete} bytes of an unfinished line; they were cut off",
        LabelwiseWarning,
        stacklevel=3,
    )
    file.truncate(complete)


def _iterate_result_lines(path: Path) -> Iterator[tuple[int, RoundResult]]:
    if not path.is_file():
        raise BadInput(f"there is no results file {path}")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"line {number} of {path} is unfinished after a crash; it is skipped",
                    LabelwiseWarning,
                    stacklevel=4,
                )
                return
            try:
                yield number, parse_result_line(line.decode())
            except (BadInput, UnicodeDecodeError) as error:
                raise BadInput(f"line {number} of {path} {error}; repair or remove it") from None


def _check_repeated_round(first: RoundResult, there: str, second: RoundResult, here: str) -> None:
    pairs = [(entry.labels, entry.value, entry.picks) for entry in (first, second)]
    if repr(pairs[0]) != repr(pairs[1]):  # as text, so that nan equals nan
        raise BadInput(
            f"round {first.round} of {first.strategy}, seed {first.seed}, of {first.experiment} "
            f"has value {first.value:g} in {there} and {second.value:g} in {here}; give one of them"
        )


_HINTS = get_type_hints(RoundResult)


def _parse_result_field(name: str, value: object) -> Any:
    """A field's value in its type; BadInput if it has another one."""
    hint = _HINTS[name]
    try:
        if value is None and type(None) in getattr(hint, "__args__", ()):
            return None
        return _PARSERS[hint](value)
    except (TypeError, ValueError, AttributeError):
        raise BadInput(f"has {value!r} as {name}") from None


def _require_field_type(kind: type) -> Callable[[object], object]:
    def parse_exact_type(value: object) -> object:
        if type(value) is not kind:
            raise TypeError
        return value

    return parse_exact_type


def _parse_result_number(value: Any) -> float:
    """A number, or "inf" or "nan"."""
    if isinstance(value, bool) or (isinstance(value, str) and math.isfinite(float(value))):
        raise TypeError
    return float(value)


def _parse_result_numbers(values: Any) -> tuple[float, ...]:
    return tuple(_parse_result_number(value) for value in values)


_PARSERS: dict[Any, Callable[[Any], Any]] = {
    str: _require_field_type(str),
    int: _require_field_type(int),
    float: _parse_result_number,
    bool: _require_field_type(bool),
    float | None: _parse_result_number,
    tuple[float, ...]: _parse_result_numbers,
    tuple[float, ...] | None: _parse_result_numbers,
    tuple[int, ...]: lambda values: tuple(map(_require_field_type(int), values)),
    Mapping[str, object]: dict,
    Mapping[str, float]: lambda value: {
        name: _parse_result_number(part) for name, part in value.items()
    },
    Mapping[str, str]: lambda value: {
        name: _require_field_type(str)(v) for name, v in value.items()
    },
}
