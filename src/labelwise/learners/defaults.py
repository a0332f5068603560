r"""The default model of a campaign.

=======  ============================  ====================================================
kind     inputs                        model
=======  ============================  ====================================================
images   ``(n, d)`` of an encoder      `LinearProbe`
texts    ``(n, d)`` of an encoder      `LinearProbe`
numbers  ``(n, d)`` columns            `TableModel`
images   ``(n, c, side, side)`` bytes  a network trained from scratch, which needs torch
=======  ============================  ====================================================

Any kind can have a network instead; see `labelwise.learners.default_network`.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.learner import Learner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.blocks import Progress

KINDS = ("images", "texts", "numbers")

NETWORKS = {
    "perceptron": "labelwise.learners.default_network:make_perceptron",
    "convolutions": "labelwise.learners.default_network:Convolutions",
}
"""Networks by short names."""

Builder = Callable[[tuple[int, ...], int], Any]
"""``builder(shape of one item, outputs) -> module``, whose last layer is linear."""

_INSTALL = "run pip install 'labelwise[torch]'"


def default_learner(
    kind: str,
    inputs: Any,
    classes: int | None = None,
    *,
    regression: bool = False,
    module: Builder | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Learner:
    """Make the default learner for items of a kind.

    Args:
        kind: ``"images"``, ``"texts"`` or ``"numbers"``.
        inputs: of the pool, as in the table above; memory maps are not read whole.
        classes: number of classes; follows from the labels if None.
        regression: whether labels are values.
        module: ``module(shape, outputs)`` builds a torch network to use instead.
        device: of a network: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: called as ``progress(stage, done, total)``.

    Example:
        >>> import numpy as np
        >>> type(default_learner("images", np.zeros((20, 1280), np.float32), 10)).__name__
        'LinearProbe'
    """
    if kind not in KINDS:
        raise UnknownName(f"no kind of items is called {kind!r}; choose from {', '.join(KINDS)}")
    if module is not None or inputs.ndim > 2:
        try:
            from labelwise.learners.default_network import make_network_learner
        except ImportError as error:
            raise MissingDependency(
                f"training a network needs torch ({error}); {_INSTALL}, or start a campaign with "
                "an encoder"
            ) from error
        return make_network_learner(
            inputs,
            classes,
            regression=regression,
            module=module,
            device=device,
            progress=progress,
        )
    known = None if regression else max(classes or 2, 2)
    if kind != "numbers":
        return LinearProbe(classes=known, regression=regression)
    try:
        from labelwise.learners.table_model import TableModel
    except ImportError as error:
        raise MissingDependency(
            f"models of tables need scikit-learn ({error}); run pip install 'labelwise[web]'"
        ) from error
    return TableModel(classes=known, regression=regression)


def load_builder(name: str, *, places: Sequence[Path] = ()) -> Builder:
    """Import a function that builds networks, named ``package.module:function``.

    Args:
        name: of the function, or one of `NETWORKS`.
        places: folders to search first.

    Example:
        >>> load_builder("labelwise.learners.default_network:Convolutions").__name__
        'Convolutions'
    """
    module, _, function = NETWORKS.get(name, name).partition(":")
    if not module or not function:
        raise BadInput(
            f"name a function as package.module:function; got {name!r}, or take "
            f"one of {', '.join(NETWORKS)}"
        )
    try:
        with _extend_path(places):
            found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        if error.name == "torch":
            raise MissingDependency(f"{name} needs torch; {_INSTALL}") from error
        raise UnknownName(f"{module} cannot be imported ({error}); check {name!r}") from error
    except AttributeError as error:
        raise UnknownName(f"{module} has no {function!r}; check {name!r}") from error
    if not callable(found):
        raise BadInput(f"{name} is not a function; it must build a network from (shape, outputs)")
    builder: Builder = found
    return builder


@contextmanager
def _extend_path(places: Sequence[Path]) -> Iterator[None]:
    added = [str(place.resolve()) for place in places]
    sys.path[:0] = added
    try:
        yield
    finally:
        for place in added:
            sys.path.remove(place)
