"""Import a user's function by its name, ``package.module:function``."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput, MissingDependency, UnknownName


def import_function(name: str, purpose: str, *, places: Sequence[Path] = ()) -> Callable[..., Any]:
    """Import a function, from ``places`` first; ``purpose`` names it in errors."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise BadInput(f"name a function as package.module:function; got {name!r}")
    try:
        with _extend_import_path(places):
            found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        if error.name == "torch":
            raise MissingDependency(
                f"{name} needs torch; run pip install 'labelwise[torch]'"
            ) from error
        raise UnknownName(f"{module} cannot be imported ({error}); check {name!r}") from error
    except AttributeError as error:
        raise UnknownName(f"{module} has no {function!r}; check {name!r}") from error
    if not callable(found):
        raise BadInput(f"{name} is not a function; it must {purpose}")
    called: Callable[..., Any] = found
    return called


@contextmanager
def _extend_import_path(places: Sequence[Path]) -> Iterator[None]:
    added = [str(place.resolve()) for place in places]
    sys.path[:0] = added
    try:
        yield
    finally:
        for place in added:
            sys.path.remove(place)
