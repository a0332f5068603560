"""A forward pass with a tap on every known layer, and its autograd graph.

A tap is an identity function. In the backward pass it hands the gradient with respect to a layer's
output to the record of that call. Only the taps depend on the anchor tensor, so a backward pass
with respect to the anchor reaches every tap and computes no weight gradients.

The graph lists the calls, parameters and nodes that the losses depend on.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from labelwise.errors import BadInput
from labelwise.learners.gradients.inputs import Inputs, Loss, item_losses, trainable_parameters
from labelwise.learners.gradients.layers import ITEMS_FIRST, RULES, position_axes


@dataclass(eq=False)
class LayerCall:
    """One call of a layer.

    Attributes:
        layer: a layer of a type in `RULES`.
        number: number of earlier calls of the same layer.
        names: full names of its trainable parameters, by their names in the layer.
        shape: shape of the input.
        output_shape: shape of the output.
        axis: the item axis; None if unknown.
        receive: called with input and output gradient in the backward pass.
    """

    layer: nn.Module
    number: int
    names: dict[str, str]
    shape: torch.Size
    output_shape: torch.Size
    axis: int | None = None
    receive: Callable[[Tensor, Tensor], None] | None = None


@dataclass(frozen=True, eq=False)
class GraphEdge:
    """One use of a parameter or of a call's output.

    Attributes:
        node: node of the operation that uses it.
        index: index among the operation's inputs.
        target: node of the used value.
        source: the parameter or the call.
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
    """A forward pass of ``b`` items.

    Attributes:
        parameters: trainable parameters by name.
        anchor: the tensor that all taps depend on.
        losses: ``(b,)``.
        calls: the calls that the losses depend on.
        edges: all uses that the losses depend on, in an order determined by the graph alone.
        is_paused: whether new calls are currently not tapped.
    """

    parameters: dict[str, nn.Parameter]
    anchor: Tensor
    b: int
    losses: Tensor = field(init=False)
    calls: list[LayerCall] = field(default_factory=list)
    edges: list[GraphEdge] = field(default_factory=list)
    is_paused: bool = False
    _names: dict[Tensor, str] = field(init=False)
    _numbers: Counter[nn.Module] = field(default_factory=Counter)
    _latest: Callable[[], Any] = lambda: None
    _latest_call: LayerCall | None = None

    def __post_init__(self) -> None:
        self._names = {p: name for name, p in self.parameters.items()}

    def count_uses(self) -> Counter[Tensor]:
        """Number of uses of each parameter."""
        return Counter(edge.source for edge in self.edges if isinstance(edge.source, Tensor))

    def add_tap(self, layer: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> Any:
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
        if not isinstance(x, Tensor) or not position_axes(layer, x.ndim):
            return None
        call = LayerCall(layer, number, own, x.shape, output.shape)
        if type(layer) in ITEMS_FIRST and len(x) == self.b:
            call.axis = 0
        tapped = _GradientTap.apply(output, self.anchor, x, call)  # type: ignore[no-untyped-call]
        self._latest, self._latest_call = weakref.ref(tapped), call
        return tapped

    def tap_outputs(self, outputs: Any) -> Any:
        """Set the item axis of the last call if its output is the output of the module."""
        if self._latest_call is not None and self._latest() is outputs:
            self._latest_call.axis = 0
        return outputs

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
    module: nn.Module, inputs: Inputs, targets: Tensor, loss: Loss
) -> Iterator[GraphTrace]:
    """Run the module with taps, which stay active while its backward pass may call layers."""
    anchor = torch.zeros((), device=targets.device, requires_grad=True)
    trace = GraphTrace(trainable_parameters(module), anchor, len(targets))
    handles = []
    try:
        for layer in module.modules():
            if type(layer) in RULES and set(dict(layer.named_parameters())) <= {"weight", "bias"}:
                hook = layer.register_forward_hook(trace.add_tap, prepend=True, with_kwargs=True)
                handles.append(hook)
        trace.read_graph(
            item_losses(
                module, inputs, targets, lambda outputs, y: loss(trace.tap_outputs(outputs), y)
            )
        )
        yield trace
    finally:
        for handle in handles:
            handle.remove()
        for call in trace.calls:
            call.receive = None  # breaks a reference cycle that would keep tensors alive
