"""What users write as text: ids in files, values of options."""

import csv
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput
from labelwise.strategy import Strategy

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CALLED = {int: "a whole number", float: "a number", bool: "true or false"}


def read_ids(path: Path) -> list[int]:
    """Ids from a text file with one per line, or from the column id of a .csv file."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read ids from")
    with path.open(newline="") as file:
        if path.suffix == ".csv":
            reader = csv.DictReader(file)
            if "id" not in (reader.fieldnames or ()):
                raise BadInput(f"{path} has no column called id; name it in the first line")
            texts = [(reader.line_num, row["id"]) for row in reader]
        else:
            texts = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    return [_id(text, number, path) for number, text in texts]


def _id(text: str, number: int, path: Path) -> int:
    try:
        return int(text)
    except ValueError:
        got = text.strip()
        raise BadInput(
            f"line {number} of {path} must be an id, a whole number; got {got!r}"
        ) from None


def parse_options(strategy: Strategy, texts: Mapping[str, str]) -> dict[str, Any]:
    """Options from their texts; a value has the type of the option's default."""
    known = strategy.options
    for name, text in texts.items():
        if name not in known:
            strategy.with_options(**{name: text})  # refuses it and lists the right ones
    return {name: _value(strategy, name, text) for name, text in texts.items()}


def _value(strategy: Strategy, name: str, text: str) -> Any:
    default = strategy.options[name]
    declared = inspect.signature(strategy.main).parameters[name].annotation
    kind = declared if declared in (int, float, bool, str) else type(default)
    if kind is type(None):
        return _guess(text)
    try:
        if kind is bool:
            return _WORDS[text.lower()]
        return kind(text) if kind in _CALLED else text
    except (ValueError, KeyError):
        raise BadInput(
            f"option {name} of {strategy.name} takes {_CALLED[kind]}; got {text!r}"
        ) from None


def _guess(text: str) -> Any:
    """A value for an option that is None by default: a number if it reads as one, else text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text.lower() == "none" else text
