"""One algorithm per module, each with a ``STRATEGY`` of the module's name; found without a list."""

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache

from labelwise.errors import UnknownName
from labelwise.strategy import Strategy


@cache
def names() -> tuple[str, ...]:
    """The names of all strategies: those of the modules of this package."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> Strategy:
    """The strategy of that name; an unknown name is an error that lists all names."""
    if name not in names():
        close = get_close_matches(str(name), names(), 1)
        hint = f"did you mean {close[0]}? or " if close else ""
        raise UnknownName(f"no strategy is called {name!r}; {hint}choose from {', '.join(names())}")
    strategy: Strategy = importlib.import_module(f"{__name__}.{name}").STRATEGY
    return strategy


def strategies() -> dict[str, Strategy]:
    """All strategies by name.

    Example:
        >>> strategies()["badge"].needs
        ('features', 'probabilities')
    """
    return {name: get(name) for name in names()}
