"""The experiments: one TOML file per paper or family, found without a list.

Every table is an experiment with the fields of `Protocol`; ``base`` names an experiment of the same
file whose fields it inherits, where the keys of ``learner`` and ``settings`` are merged. An entrant
is the name of a strategy or a table of `Entrant` fields.
"""

import difflib
import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, ProtocolScale, merge_protocol_changes
from labelwise.errors import UnknownName
from labelwise.files import JsonObject


@cache
def read_experiments() -> dict[str, Protocol]:
    """All experiments by name, paper by paper.

    >>> read_experiments()["sparse-table2-mnist"].batch
    40
    """
    found: dict[str, Protocol] = {}
    folder = files(__package__)
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            for name, fields in tomllib.loads(file.read_text("utf-8")).items():
                found[name] = _parse_protocol(name, _convert_to_tuples(fields), found)
    return found


def get_experiment(name: str) -> Protocol:
    """The experiment of that name; the error for an unknown name suggests a similar one."""
    known = read_experiments()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "see labelwise benchmark list"
        raise UnknownName(f"there is no experiment {name!r}; {hint}")
    return known[name]


def _parse_protocol(name: str, fields: JsonObject, known: dict[str, Protocol]) -> Protocol:
    if "entrants" in fields:
        fields["entrants"] = tuple(
            Entrant(entry) if isinstance(entry, str) else Entrant(**entry)
            for entry in fields["entrants"]
        )
    if "scales" in fields:
        fields["scales"] = {
            scale: ProtocolScale(changes.pop("reduced"), changes)
            for scale, changes in fields["scales"].items()
        }
    base = fields.pop("base", None)
    if base is None:
        return Protocol(name=name, **fields)
    return replace(known[base], name=name, **merge_protocol_changes(known[base], fields))


def _convert_to_tuples(value: Any) -> Any:
    """Replace lists by tuples, so that protocols can be compared and are not changed."""
    if isinstance(value, dict):
        return {name: _convert_to_tuples(part) for name, part in value.items()}
    return tuple(map(_convert_to_tuples, value)) if isinstance(value, list) else value
