"""What users write as text: ids in files, values of options."""

import csv
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TextIO, get_args

from labelwise.errors import BadInput
from labelwise.strategy import Strategy

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CALLED = {int: "a whole number", float: "a number", bool: "true or false"}
_READ: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: _WORDS[text.lower()],
    str: str,
}


def read_ids(path: Path) -> list[int]:
    """Ids from a text file with one per line, or from the column id of a .csv file."""
    if not path.is_file():
        raise BadInput(f"there is no file {path} to read ids from")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            texts = _texts(file, path)
    except UnicodeDecodeError:
        raise BadInput(
            f"{path} is no text in UTF-8; give one id per line, or a .csv with a column id"
        ) from None
    return [_id(text, number, path) for number, text in texts]


def _texts(file: TextIO, path: Path) -> list[tuple[int, str]]:
    """The ids as they are written, with the numbers of their lines."""
    if path.suffix != ".csv":
        return [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    reader = csv.DictReader(file)
    try:
        if "id" not in (reader.fieldnames or ()):
            raise BadInput(f"{path} has no column called id; name it in the first line")
        return [(reader.line_num, row["id"] or "") for row in reader]
    except csv.Error as error:
        raise BadInput(f"line {reader.line_num} of {path} is no line of a .csv ({error})") from None


def _id(text: str, number: int, path: Path) -> int:
    try:
        return int(text)
    except ValueError:
        got = text.strip()
        raise BadInput(
            f"line {number} of {path} must be an id, a whole number; got {got!r}"
        ) from None


def parse_options(strategy: Strategy, texts: Mapping[str, str]) -> dict[str, Any]:
    """Options from their texts; a value has the type that the option is declared with."""
    known = strategy.options
    for name, text in texts.items():
        if name not in known:
            strategy.with_options(**{name: text})  # refuses it and lists the right ones
    return {name: _value(strategy, name, text) for name, text in texts.items()}


def _value(strategy: Strategy, name: str, text: str) -> Any:
    kinds = _kinds(strategy, name)
    if type(None) in kinds and text.lower() == "none":
        return None
    for kind in kinds:
        try:
            if kind in _READ:
                return _READ[kind](text)
        except (ValueError, KeyError):
            continue
    wanted = " or ".join(_CALLED[kind] for kind in kinds if kind in _CALLED)
    if not wanted:
        raise BadInput(f"option {name} of {strategy.name} takes no text; give it in Python")
    none = ", or none" if type(None) in kinds else ""
    raise BadInput(f"option {name} of {strategy.name} takes {wanted}{none}; got {text!r}")


def _kinds(strategy: Strategy, name: str) -> list[Any]:
    """The types that an option may have: as declared, else that of its default; text comes last."""
    parameter = inspect.signature(strategy.main).parameters[name]
    declared = parameter.annotation
    if declared is parameter.empty:
        return [type(parameter.default)]
    kinds = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return sorted(kinds, key=lambda kind: kind is str)
