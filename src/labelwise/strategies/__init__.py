"""One algorithm per file, each with a ``STRATEGY`` of the file's name; found without a list."""

import importlib
import pkgutil
from functools import cache

from labelwise.errors import UnknownName
from labelwise.strategy import Strategy


@cache
def names() -> tuple[str, ...]:
    """The names of all strategies: those of the files beside this one."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> Strategy:
    """The strategy of that name; a wrong name is an error that lists the right ones."""
    if name not in names():
        raise UnknownName(f"no strategy is called {name!r}; choose from {', '.join(names())}")
    strategy: Strategy = importlib.import_module(f"{__name__}.{name}").STRATEGY
    return strategy


def strategies() -> dict[str, Strategy]:
    """All strategies by name.

    Example:
        >>> strategies()["badge"].needs
        ('features', 'probabilities')
    """
    return {name: get(name) for name in names()}
