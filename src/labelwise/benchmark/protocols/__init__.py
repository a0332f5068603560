"""The experiments, one file per paper, each with ``EXPERIMENTS``; found without a list."""

import difflib
import importlib
import pkgutil
from functools import cache

from labelwise.benchmark.protocol import Protocol
from labelwise.errors import UnknownName


@cache
def experiments() -> dict[str, Protocol]:
    """All experiments by name, paper after paper.

    >>> experiments()["sparse-table2-mnist"].batch
    40
    """
    found: dict[str, Protocol] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        papers = importlib.import_module(f"{__name__}.{module.name}").EXPERIMENTS
        found.update(papers)
    return found


def get(name: str) -> Protocol:
    """The experiment of that name; a wrong name is an error with the nearest one."""
    known = experiments()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "see labelwise benchmark list"
        raise UnknownName(f"no experiment is called {name!r}; {hint}")
    return known[name]
