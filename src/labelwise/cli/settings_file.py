"""Defaults of options from ``labelwise.toml``, or ``[tool.labelwise]`` of ``pyproject.toml``.

A section is named like its command, and an entry like its option::

    [start]
    batch = 20
    encoder = ["auto", "onnx:mine.onnx"]

    [benchmark.run]
    workers = 4

The file is that of the current folder or of the nearest folder above it; ``labelwise.toml`` comes
before ``pyproject.toml`` in the same folder. An option on the command line comes first, then an
environment variable, then the file, then the default. Unknown names are errors.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput

FILE, PROJECT_FILE = "labelwise.toml", "pyproject.toml"


def read_settings(group: Any, folder: Path) -> dict[str, Any]:
    """Read the defaults of a group's commands, in the form of Click's ``default_map``."""
    for place in (folder, *folder.parents):
        for path in (place / FILE, place / PROJECT_FILE):
            if path.is_file() and (content := _read_section(path)) is not None:
                return _convert_group(group, content, str(path))
    return {}


def _read_section(path: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name != FILE:
            return None  # the file of another tool, which will report it
        raise BadInput(f"{path} is not valid TOML ({error})") from error
    if path.name == FILE:
        return content
    found: Mapping[str, Any] | None = content.get("tool", {}).get("labelwise")
    return found


def _convert_group(group: Any, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = {}
    for name, section in content.items():
        command = _find_name(name, group.commands, where, "command")
        if not isinstance(section, Mapping):
            raise BadInput(f"{where}: {name} is a command; write its options below [{name}]")
        convert = _convert_group if hasattr(command, "commands") else _convert_options
        found[name] = convert(command, section, f"{where}, [{name}]")
    return found


def _convert_options(command: Any, section: Mapping[str, Any], where: str) -> dict[str, Any]:
    options = {
        flag.removeprefix("--"): option
        for option in command.params
        for flag in (*option.opts, *option.secondary_opts)
        if flag.startswith("--")
    }
    found = {}
    for name, value in section.items():
        option = _find_name(name.replace("_", "-"), options, where, "option")
        if isinstance(value, list) != bool(option.multiple) or isinstance(value, Mapping):
            wanted = "a list" if option.multiple else "one value"
            raise BadInput(f"{where}: {name} takes {wanted}; got {value!r}")
        if option.is_flag and not isinstance(value, bool):
            raise BadInput(f"{where}: {name} is true or false; got {value!r}")
        given = value if option.is_flag else _to_text(value)
        negated = f"--{name}" in option.secondary_opts
        found[option.name] = not given if negated else given
    return found


def _to_text(value: Any) -> Any:
    """Values as texts, which the option converts and checks as on the command line."""
    return [str(entry) for entry in value] if isinstance(value, list) else str(value)


def _find_name(name: str, known: Mapping[str, Any], where: str, what: str) -> Any:
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(sorted(known))}"
    raise BadInput(f"{where}: there is no {what} {name!r}; {hint}")
