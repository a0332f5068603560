r"""Per-item gradient norms and products from one forward and one backward pass.

Every call of a known layer gets a *tap*: an identity function that in the backward pass hands the
gradient :math:`\delta` with respect to the layer's output to the record of that call, which adds
the contribution of its parameters to the tally (`labelwise.learners.gradients.layers`). Only the
taps depend on an anchor tensor, so a backward pass with respect to the anchor reaches every tap and
computes no weight gradients.

The autograd graph of the losses determines the method for each parameter:

* every use is a call with a known item axis: layer rules. If there are several such calls, per-item
  gradients are summed over the calls before they are squared;
* it is broadcast to all items, like the position embedding and the class token of a transformer: a
  hook on that node of the graph receives the gradient before it is summed over the items;
* all others are returned by name.

If the item axis of an inner layer is ambiguous, or a parameter is used outside known layers, a
second forward pass over one item identifies the item axis: its length is the batch size in one pass
and 1 in the other.

Cost: a forward pass, a backward pass without weight gradients, and the layer rules; the memory of
the forward pass.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from labelwise.errors import BadInput
from labelwise.learners.gradients.layers import (
    ITEMS_FIRST,
    RULES,
    cast_layer_tensors,
    list_item_axes,
    tally_call,
)
from labelwise.learners.gradients.tally import GradientTally, split_tally_items
from labelwise.learners.network import trainable_parameters

_BROADCAST_NODES = ("AddBackward0", "ExpandBackward0")


@dataclass(eq=False)
class LayerCall:
    """One call of a layer."""

    layer: nn.Module  # a layer of a type in `RULES`
    number: int  # number of earlier calls of the same layer
    names: dict[str, str]  # full names of its trainable parameters, by their names in the layer
    shape: torch.Size  # shape of the input
    output_shape: torch.Size  # shape of the output
    axis: int | None = None  # the item axis; None if unknown
    # Called with input and output gradient in the backward pass
    receive: Callable[[Tensor, Tensor], None] | None = None


SharedCalls = list[tuple[LayerCall, Tensor, Tensor]]
"""Calls with their inputs and output gradients, items first."""


@dataclass(frozen=True, eq=False)
class GraphEdge:
    """One use of a parameter or of a call's output (``source``) by an operation (``node``).

    ``index`` is its place among the operation's inputs, ``target`` the node of the used value.
    """

    node: Node
    index: int
    target: Node
    source: Tensor | LayerCall


class _GradientTap(torch.autograd.Function):
    """The identity with the anchor as an extra input; passes the gradient to a call."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, x: Tensor, call: LayerCall) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(x)  # autograd then detects in-place changes of x
        return output.data  # not a view for autograd, so in-place changes are allowed

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, None, None, None]:
        if ctx.call.receive is not None:
            ctx.call.receive(ctx.saved_tensors[0], delta)
        return (delta if ctx.needs_input_grad[0] else None), None, None, None


@dataclass(eq=False)
class GraphTrace:
    """A forward pass of ``b`` items."""

    parameters: dict[str, nn.Parameter]  # trainable parameters by name
    anchor: Tensor  # the tensor that all taps depend on
    b: int
    losses: Tensor = field(init=False)  # ``(b,)``
    calls: list[LayerCall] = field(default_factory=list)  # the calls that the losses depend on
    # All uses that the losses depend on, in an order determined by the graph alone
    edges: list[GraphEdge] = field(default_factory=list)
    is_paused: bool = False  # whether new calls are currently not tapped
    _names: dict[Tensor, str] = field(init=False)
    _numbers: Counter[nn.Module] = field(default_factory=Counter)
    _latest: Callable[[], object] = lambda: None
    _latest_call: LayerCall | None = None

    def __post_init__(self) -> None:
        self._names = {p: name for name, p in self.parameters.items()}

    def count_parameter_uses(self) -> Counter[Tensor]:
        """Number of uses of each parameter."""
        return Counter(edge.source for edge in self.edges if isinstance(edge.source, Tensor))

    def add_tap(
        self, layer: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: Tensor
    ) -> Tensor | None:
        """Tap a call; a forward hook."""
        if self.is_paused:
            return None
        number = self._numbers[layer]
        self._numbers[layer] += 1
        own = {k: self._names[p] for k, p in layer.named_parameters() if p in self._names}
        given = [*args, *kwargs.values()]
        if not own or not torch.is_grad_enabled() or len(given) != 1:
            return None
        x = given[0]
        if not isinstance(x, Tensor) or not list_item_axes(layer, x.ndim):
            return None
        call = LayerCall(layer, number, own, x.shape, output.shape)
        if type(layer) in ITEMS_FIRST and len(x) == self.b:
            call.axis = 0
        tapped: Tensor = _GradientTap.apply(output, self.anchor, x, call)  # type: ignore[no-untyped-call]
        self._latest, self._latest_call = weakref.ref(tapped), call
        return tapped

    def mark_outputs(self, outputs: object) -> None:
        """Set the item axis of the last call if its output is the output of the module."""
        if self._latest_call is not None and self._latest() is outputs:
            self._latest_call.axis = 0

    def read_graph(self, losses: Tensor) -> None:
        """Walk the graph of the losses."""
        self.losses = losses
        waiting = [] if losses.grad_fn is None else [losses.grad_fn]
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            if type(node).__name__ == "CheckpointFunctionBackward":
                raise BadInput(
                    "the module uses reentrant checkpoints, which hide its parameters; "
                    "make them with use_reentrant=False"
                )
            for index, (target, _) in enumerate(node.next_functions):
                if target is None:
                    continue
                source = getattr(target, "variable", None)
                if source is None:
                    source = getattr(target, "call", None)
                if isinstance(source, Tensor | LayerCall):
                    self.edges.append(GraphEdge(node, index, target, source))
                if not isinstance(source, Tensor) and target not in seen:
                    seen.add(target)
                    waiting.append(target)
                    if isinstance(source, LayerCall):
                        self.calls.append(source)


@contextmanager
def trace_forward(
    module: nn.Module, b: int, device: torch.device, losses: Callable[..., Tensor]
) -> Iterator[GraphTrace]:
    """Run the module with taps, active until its backward pass; ``losses(mark)`` marks outputs."""
    anchor = torch.zeros((), device=device, requires_grad=True)
    trace = GraphTrace(trainable_parameters(module), anchor, b)
    handles = []
    try:
        for layer in module.modules():
            if type(layer) in RULES and set(dict(layer.named_parameters())) <= {"weight", "bias"}:
                hook = layer.register_forward_hook(trace.add_tap, prepend=True, with_kwargs=True)
                handles.append(hook)
        trace.read_graph(losses(trace.mark_outputs))
        yield trace
    finally:
        for handle in handles:
            handle.remove()
        for call in trace.calls:
            call.receive = None  # breaks a reference cycle that would keep tensors alive


def tally_batch(
    module: nn.Module,
    losses: Callable[..., Tensor],
    first: Callable[..., Tensor],
    tally: GradientTally,
) -> list[str]:
    """Add all parameters that layer rules or broadcasts cover to the tally.

    ``losses`` computes the losses of all items, ``first`` that of the first alone (see
    `trace_forward`). Returns the names of the remaining parameters.
    """
    with trace_forward(module, tally.count, tally.device, losses) as trace:
        uses, broadcast = trace.count_parameter_uses(), dict[str, Tensor]()
        used = {name for name, p in trace.parameters.items() if uses[p]}
        counted = _find_rule_parameters(trace, uses)
        if counted != used:
            trace.is_paused = True
            with trace_forward(module, 1, tally.device, first) as single:
                _find_item_axes(trace, single)
                counted = _find_rule_parameters(trace, uses)
                broadcast = _hook_parameter_broadcasts(trace, single, used - counted, tally)
            trace.is_paused = False
        shared = _add_gradient_receivers(trace, counted, uses, tally)
        if counted or broadcast:
            # Requesting the broadcast parameters makes autograd run their nodes.
            wanted = [trace.anchor, *broadcast.values()]
            torch.autograd.grad(trace.losses.sum(), wanted, allow_unused=True)
        with torch.no_grad():
            _tally_shared_calls(shared, tally)
    return [name for name in trace.parameters if name in used - counted - set(broadcast)]


def _find_rule_parameters(trace: GraphTrace, uses: Counter[Tensor]) -> set[str]:
    """Names of parameters that are used only in calls with a known item axis."""
    known = [call for call in trace.calls if call.axis is not None]
    tapped = Counter(name for call in known for name in call.names.values())
    return {name for name, p in trace.parameters.items() if 0 < uses[p] == tapped[name]}


def _find_item_axes(trace: GraphTrace, single: GraphTrace) -> None:
    """Find the item axis of layers that accept any axes before their features."""
    shapes = {(call.layer, call.number): call.shape for call in single.calls}
    for call in trace.calls:
        shape = shapes.get((call.layer, call.number), torch.Size())
        for axis in list_item_axes(call.layer, len(shape)) if call.axis is None else ():
            if shape[axis] == 1 and (*shape[:axis], trace.b, *shape[axis + 1 :]) == (*call.shape,):
                call.axis = axis
                break


def _add_gradient_receivers(
    trace: GraphTrace, counted: set[str], uses: Counter[Tensor], tally: GradientTally
) -> SharedCalls:
    """Register the receivers of all calls; return the list filled by shared parameters."""
    shared: SharedCalls = []
    many = {name for name in counted if uses[trace.parameters[name]] > 1}
    for call in trace.calls:
        names = {local: name for local, name in call.names.items() if name in counted}
        if call.axis is not None and names:
            call.names = names
            keeps = bool(many.intersection(names.values()))
            call.receive = partial(_receive_call_gradient, call, tally, shared if keeps else None)
    return shared


def _receive_call_gradient(
    call: LayerCall, tally: GradientTally, shared: SharedCalls | None, x: Tensor, delta: Tensor
) -> None:
    """Tally a call now, or store its tensors if it shares a parameter with other calls."""
    if call.axis:
        x, delta = x.movedim(call.axis, 0), delta.movedim(call.axis, 0)
    if shared is None:
        tally_call(call.layer, x, delta, call.names, tally)
    else:
        shared.append((call, x, delta))


def _tally_shared_calls(shared: SharedCalls, tally: GradientTally) -> None:
    """Add the calls that share parameters: gradients are summed over calls, then squared."""
    if not shared:
        return
    _, inputs, deltas = zip(*shared, strict=True)
    floats = sum(p.numel() for call, _, _ in shared for p in call.layer.parameters())
    for rows in split_tally_items(floats, inputs[0], deltas[0]):
        sums: dict[str, Tensor] = {}
        for call, x, delta in shared:
            some = cast_layer_tensors(x[rows], delta[rows])
            gradients = RULES[type(call.layer)].gradients(call.layer, *some)
            for local, name in call.names.items():
                own = gradients[local]
                sums[name] = sums[name] + own if name in sums else own
        for name, total in sums.items():
            tally.add_gradients(rows, total, tally.get_vector(name))


def _hook_parameter_broadcasts(
    trace: GraphTrace, single: GraphTrace, names: set[str], tally: GradientTally
) -> dict[str, Tensor]:
    """Tally the named parameters where they are broadcast to items; return those covered."""
    if trace.b == 1 or len(trace.edges) != len(single.edges):
        return {}
    counted: dict[str, Tensor] = {}
    known = {id(trace.parameters[name]): name for name in names}
    uses = Counter(edge.source for edge in trace.edges)
    for edge, other in zip(trace.edges, single.edges, strict=True):
        own = _find_broadcast_parameters(edge.source, known)
        sources = [edge.source, *(trace.parameters[name] for name in own.values())]
        if (
            not own
            or not _is_same_graph_edge(edge, other)
            or any(uses[source] > 1 for source in sources)
        ):
            continue
        axis = _find_broadcast_axis(edge, other, trace.b)
        if axis is not None:
            counted |= {name: trace.parameters[name] for name in own.values()}
            edge.node.register_prehook(partial(_receive_broadcast_gradient, edge, axis, own, tally))
    return counted


def _find_broadcast_parameters(source: Tensor | LayerCall, known: dict[int, str]) -> dict[str, str]:
    """Parameters of this source, if all of them can be tallied."""
    if isinstance(source, Tensor):
        return {"": known[id(source)]} if id(source) in known else {}
    if source.axis is not None or type(source.layer) in ITEMS_FIRST:
        return {}
    return source.names if set(source.names.values()) <= set(known.values()) else {}


def _get_source_shape(source: Tensor | LayerCall) -> torch.Size:
    return source.shape if isinstance(source, Tensor) else source.output_shape


def _is_same_graph_edge(edge: GraphEdge, other: GraphEdge) -> bool:
    """Whether edges of two passes belong to the same operation of the program."""
    same = type(edge.node).__name__ == type(other.node).__name__ and edge.index == other.index
    if isinstance(edge.source, Tensor) or isinstance(other.source, Tensor):
        return same and edge.source is other.source
    places = [(e.layer, e.number, e.shape, e.output_shape) for e in (edge.source, other.source)]
    return same and places[0] == places[1]


def _find_broadcast_axis(edge: GraphEdge, other: GraphEdge, b: int) -> int | None:
    """The axis along which the source is broadcast to the items, or None."""
    if type(edge.node).__name__ not in _BROADCAST_NODES:
        return None
    all_items, one = (tuple(e.node._input_metadata[0].shape) for e in (edge, other))
    own = _get_source_shape(edge.source)
    missing = len(all_items) - len(own)
    for axis in range(len(one)):
        if one[axis] == 1 and (*one[:axis], b, *one[axis + 1 :]) == all_items:
            return axis if axis < missing or own[axis - missing] == 1 else None
    return None


def _receive_broadcast_gradient(
    edge: GraphEdge,
    axis: int,
    names: dict[str, str],
    tally: GradientTally,
    gradients: tuple[Tensor, ...],
) -> None:
    """Tally the gradient that arrives at a node which broadcasts a parameter or a constant call."""
    source, own, delta = edge.source, _get_source_shape(edge.source), gradients[0]
    b, axes = delta.shape[axis], delta.ndim
    alpha = getattr(edge.node, "_saved_alpha", 1) if edge.index == 1 else 1
    # (..., b, ...) to (b, *own), summed over the axes broadcast within an item.
    delta = alpha * delta.movedim(axis, 0).unsqueeze(axis + 1)
    delta = delta.sum_to_size(b, *[1] * (axes - len(own)), *own).reshape(b, *own)
    if isinstance(source, Tensor):
        tally.add_gradients(slice(0, b), delta, tally.get_vector(names[""]))
        return
    (x,) = edge.target.saved_tensors  # type: ignore[attr-defined]
    tally_call(source.layer, x.expand(b, *x.shape), delta, names, tally)
