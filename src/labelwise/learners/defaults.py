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

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labelwise.arrays import Array
from labelwise.errors import BadInput, MissingDependency, UnknownName, first_line, require_extra
from labelwise.learner import Learner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.media.functions import import_function
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
    inputs: Array,
    classes: int | None = None,
    *,
    regression: bool = False,
    self_training: bool | None = None,
    module: Builder | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Learner:
    """Make the default learner for items of a kind: ``"images"``, ``"texts"`` or ``"numbers"``.

    ``inputs`` of the pool are as in the table above; memory maps are not read whole.
    ``self_training`` is that of a `LinearProbe`, on the predictions of the pool.
    ``module(shape, outputs)`` builds a torch network to use instead, on ``device``.
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
            inputs, classes, regression=regression, module=module, device=device, progress=progress
        )
    known = None if regression else max(classes or 2, 2)
    if kind != "numbers":
        return LinearProbe(
            classes=known, regression=regression, self_training=self_training, unlabelled=inputs
        )
    with require_extra("models of tables need scikit-learn", "web"):
        from labelwise.learners.table_model import TableModel
    return TableModel(classes=known, regression=regression)


def load_builder(name: str, *, places: Sequence[Path] = ()) -> Builder:
    """Import a function ``package.module:function`` that builds networks, or one of `NETWORKS`."""
    purpose = "build a network from (shape, outputs)"
    try:
        return import_function(NETWORKS.get(name, name), purpose, places=places)
    except BadInput as error:
        raise BadInput(f"{error}, or take one of {', '.join(NETWORKS)}") from None


def check_builder(builder: Builder, shape: tuple[int, ...]) -> None:
    """Reject a function that does not build a torch module for items of a shape."""
    name = f"{builder.__module__}:{getattr(builder, '__name__', 'function')}"
    try:
        module = builder(shape, 2)
    except Exception as error:  # whatever the user's function raises
        raise BadInput(
            f"{name}(shape={shape}, outputs=2) failed with {type(error).__name__} "
            f"({first_line(error)}); give a function that builds a network from both"
        ) from error
    if not hasattr(module, "state_dict"):
        raise BadInput(f"{name} must return a torch module; got {type(module).__name__}")
