r"""Parameters that are broadcast to all items.

Transformers are the common case: a position embedding of ``0 .. T - 1``, or a parameter, is added
to the tokens of every item, and a class token is expanded to all items. A hook on that node of the
autograd graph receives the gradient before it is summed over the items, which is the per-item
gradient, and reduces it to the shape of the parameter.

The item axis is found by comparing a pass over all items with a pass over one item: both graphs
must match node by node, and the length of the axis is the batch size in one and 1 in the other.

Cost: none beyond the backward pass.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from labelwise.learners.gradients.graph import GraphEdge, GraphTrace, LayerCall
from labelwise.learners.gradients.layers import ITEMS_FIRST, tally_call
from labelwise.learners.gradients.tally import GradientTally

_NODES = ("AddBackward0", "ExpandBackward0")


def tally_broadcasts(
    trace: GraphTrace, single: GraphTrace, names: set[str], tally: GradientTally
) -> dict[str, Tensor]:
    """Register hooks that tally the named parameters where they are broadcast to items.

    Args:
        trace: trace of all items, before its backward pass.
        single: trace of one item.
        names: names of candidate parameters.
        tally: receives the contributions in the backward pass.

    Returns:
        The parameters that will be tallied, by name.
    """
    if trace.b == 1 or len(trace.edges) != len(single.edges):
        return {}
    counted: dict[str, Tensor] = {}
    known = {id(trace.parameters[name]): name for name in names}
    uses = Counter(edge.source for edge in trace.edges)
    for edge, other in zip(trace.edges, single.edges, strict=True):
        own = _find_parameters(edge.source, known)
        sources = [edge.source, *(trace.parameters[name] for name in own.values())]
        if not own or not _is_same_use(edge, other) or any(uses[source] > 1 for source in sources):
            continue
        axis = _find_item_axis(edge, other, trace.b)
        if axis is not None:
            counted |= {name: trace.parameters[name] for name in own.values()}
            edge.node.register_prehook(_make_hook(edge, axis, own, tally))
    return counted


def _find_parameters(source: Tensor | LayerCall, known: dict[int, str]) -> dict[str, str]:
    """Parameters of this source, if all of them can be tallied."""
    if isinstance(source, Tensor):
        return {"": known[id(source)]} if id(source) in known else {}
    if source.axis is not None or type(source.layer) in ITEMS_FIRST:
        return {}
    return source.names if set(source.names.values()) <= set(known.values()) else {}


def _get_shape(source: Tensor | LayerCall) -> torch.Size:
    return source.shape if isinstance(source, Tensor) else source.output_shape


def _is_same_use(edge: GraphEdge, other: GraphEdge) -> bool:
    """Whether edges of two passes belong to the same operation of the program."""
    same = type(edge.node).__name__ == type(other.node).__name__ and edge.index == other.index
    if isinstance(edge.source, Tensor) or isinstance(other.source, Tensor):
        return same and edge.source is other.source
    places = [(e.layer, e.number, e.shape, e.output_shape) for e in (edge.source, other.source)]
    return same and places[0] == places[1]


def _find_item_axis(edge: GraphEdge, other: GraphEdge, b: int) -> int | None:
    """The axis along which the source is broadcast to the items, or None."""
    if type(edge.node).__name__ not in _NODES:
        return None
    all_items, one = (tuple(e.node._input_metadata[0].shape) for e in (edge, other))
    own = _get_shape(edge.source)
    missing = len(all_items) - len(own)
    for axis in range(len(one)):
        if one[axis] == 1 and (*one[:axis], b, *one[axis + 1 :]) == all_items:
            return axis if axis < missing or own[axis - missing] == 1 else None
    return None


def _make_hook(
    edge: GraphEdge, axis: int, names: dict[str, str], tally: GradientTally
) -> Callable[[tuple[Tensor, ...]], None]:
    """Make the hook that tallies the gradient arriving at the node."""
    alpha = getattr(edge.node, "_saved_alpha", 1) if edge.index == 1 else 1
    source, own = edge.source, _get_shape(edge.source)
    if isinstance(source, Tensor):
        return partial(_tally_parameter, names[""], own, axis, alpha, tally)
    (x,) = edge.target.saved_tensors  # type: ignore[attr-defined]
    return partial(_tally_constant, source, x, names, own, axis, alpha, tally)


def _tally_parameter(
    name: str,
    own: torch.Size,
    axis: int,
    alpha: float,
    tally: GradientTally,
    grads: tuple[Tensor, ...],
) -> None:
    delta = alpha * _reduce_gradient(grads[0], own, axis)
    tally.add_gradients(slice(0, len(delta)), delta, tally.get_vector(name))


def _tally_constant(
    call: LayerCall,
    x: Tensor,
    names: dict[str, str],
    own: torch.Size,
    axis: int,
    alpha: float,
    tally: GradientTally,
    grads: tuple[Tensor, ...],
) -> None:
    delta = alpha * _reduce_gradient(grads[0], own, axis)
    tally_call(call.layer, x.expand(len(delta), *x.shape), delta, names, tally)


def _reduce_gradient(delta: Tensor, own: torch.Size, axis: int) -> Tensor:
    """``(..., b, ...)`` as ``(b, *own)``, summed over axes broadcast within an item."""
    b, axes = delta.shape[axis], delta.ndim
    delta = delta.movedim(axis, 0).unsqueeze(axis + 1)
    return delta.sum_to_size(b, *[1] * (axes - len(own)), *own).reshape(b, *own)
