"""Hints that work when they are pasted: commands with the campaign's folder that the user gave.

Errors and notes from all layers name commands such as ``labelwise train``. Who called with
``-c FOLDER`` has to give it again, or the command would find another campaign, or none.
"""

import inspect
import re
import shlex
from contextvars import ContextVar
from pathlib import Path

_given: ContextVar[Path | None] = ContextVar("campaign", default=None)


def remember(folder: Path | None) -> None:
    """Note which campaign's folder the user gave; None for none."""
    _given.set(folder)


def pasteable(text: str) -> str:
    """A text in which every command of a campaign has the folder that the user gave, if any.

    Example:
        >>> remember(Path("my photos"))
        >>> pasteable("none is trained; run labelwise train, then labelwise ask --out batch.csv")
        "none is trained; run labelwise train -c 'my photos', then labelwise ask -c 'my photos' \
--out batch.csv"
        >>> remember(None)
        >>> pasteable("run labelwise train")
        'run labelwise train'
    """
    folder = _given.get()
    if folder is None:
        return text
    # Not "labelwise label-studio", nor where the folder is named already.
    named = rf"\blabelwise (?:{'|'.join(_commands())})(?![\w-])(?! -c )"
    return re.sub(named, lambda found: f"{found[0]} -c {quoted(folder)}", text)


def quoted(path: object) -> str:
    """A path as a shell takes it.

    Example:
        >>> quoted(Path("my photos")), quoted("photos")
        ("'my photos'", 'photos')
    """
    return shlex.quote(str(path))


def _commands() -> list[str]:
    """The commands that take ``--campaign``, those of the group ``label-studio`` too."""
    from labelwise.cli.commands import app

    groups = [("", app), *((f"{g.name} ", g.typer_instance) for g in app.registered_groups)]
    found = []
    for group, commands in groups:
        for entry in commands.registered_commands if commands is not None else ():
            function = entry.callback
            if function is not None and "campaign" in inspect.signature(function).parameters:
                found.append(group + (entry.name or function.__name__.replace("_", "-")))
    return found
