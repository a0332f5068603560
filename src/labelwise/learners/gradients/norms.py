r"""Per-item gradient norms and products from one forward and one backward pass.

In the backward pass every call of a known layer receives the gradient :math:`\delta` with respect
to its output and adds the contribution of its parameters to the tally (`.layers`). Weight gradients
summed over items are not computed.

The autograd graph of the losses determines the method for each parameter. If every use is a call
with a known item axis, the layer rules apply. If there are several such calls, per-item gradients
are summed over the calls before they are squared. Parameters that are broadcast to the items are
handled by `labelwise.learners.gradients.broadcasts`. The names of all others are returned.

If the item axis of an inner layer is ambiguous, or a parameter is used outside known layers, an
additional pass over one item identifies the item axis.

Cost: a forward pass, a backward pass without weight gradients, and the layer rules; the memory of
the forward pass.
"""

from collections import Counter
from functools import partial

import torch
from torch import Tensor, nn

from labelwise.learners.gradients.broadcasts import tally_broadcasts
from labelwise.learners.gradients.graph import GraphTrace, LayerCall, trace_forward
from labelwise.learners.gradients.inputs import Inputs, Loss, map_inputs
from labelwise.learners.gradients.layers import RULES, cast_inputs, position_axes, tally_call
from labelwise.learners.gradients.tally import GradientTally, split_items

Shared = list[tuple[LayerCall, Tensor, Tensor]]
"""Calls with their inputs and output gradients, items first."""


def tally_batch(
    module: nn.Module, inputs: Inputs, targets: Tensor, loss: Loss, tally: GradientTally
) -> list[str]:
    """Add all parameters that layer rules or broadcasts cover to the tally.

    Args:
        module: in eval mode.
        inputs: of ``b`` items.
        targets: ``(b, ...)``.
        loss: gives ``(b,)``.
        tally: of ``b`` items.

    Returns:
        The names of the remaining parameters.
    """
    with trace_forward(module, inputs, targets, loss) as trace:
        uses, broadcast = trace.count_uses(), dict[str, Tensor]()
        used = {name for name, p in trace.parameters.items() if uses[p]}
        counted = _count_calls(trace, uses)
        if counted != used:
            trace.is_paused = True
            one = map_inputs(inputs, lambda tensor: tensor[:1])
            with trace_forward(module, one, targets[:1], loss) as single:
                _find_axes(trace, single)
                counted = _count_calls(trace, uses)
                broadcast = tally_broadcasts(trace, single, used - counted, tally)
            trace.is_paused = False
        shared = _add_receivers(trace, counted, uses, tally)
        if counted or broadcast:
            # Requesting the broadcast parameters makes autograd run their nodes.
            wanted = [trace.anchor, *broadcast.values()]
            torch.autograd.grad(trace.losses.sum(), wanted, allow_unused=True)
        with torch.no_grad():
            _tally_shared(shared, tally)
    return [name for name in trace.parameters if name in used - counted - set(broadcast)]


def _count_calls(trace: GraphTrace, uses: Counter[Tensor]) -> set[str]:
    """Names of parameters that are used only in calls with a known item axis."""
    known = [call for call in trace.calls if call.axis is not None]
    tapped = Counter(name for call in known for name in call.names.values())
    return {name for name, p in trace.parameters.items() if 0 < uses[p] == tapped[name]}


def _find_axes(trace: GraphTrace, single: GraphTrace) -> None:
    """Find the item axis of layers that accept any axes before their features.

    Another axis may have the length of the batch by chance. In the pass over one item the item axis
    has length 1 and all other axes keep their lengths.
    """
    shapes = {(call.layer, call.number): call.shape for call in single.calls}
    for call in trace.calls:
        shape = shapes.get((call.layer, call.number), torch.Size())
        for axis in position_axes(call.layer, len(shape)) if call.axis is None else ():
            if shape[axis] == 1 and (*shape[:axis], trace.b, *shape[axis + 1 :]) == (*call.shape,):
                call.axis = axis
                break


def _add_receivers(
    trace: GraphTrace, counted: set[str], uses: Counter[Tensor], tally: GradientTally
) -> Shared:
    """Register the receivers of all calls; return the list filled by shared parameters."""
    shared: Shared = []
    many = {name for name in counted if uses[trace.parameters[name]] > 1}
    for call in trace.calls:
        names = {local: name for local, name in call.names.items() if name in counted}
        if call.axis is not None and names:
            call.names = names
            keeps = bool(many.intersection(names.values()))
            call.receive = partial(_receive_gradient, call, tally, shared if keeps else None)
    return shared


def _receive_gradient(
    call: LayerCall, tally: GradientTally, shared: Shared | None, x: Tensor, delta: Tensor
) -> None:
    """Tally a call now, or store its tensors if it shares a parameter with other calls."""
    if call.axis:
        x, delta = x.movedim(call.axis, 0), delta.movedim(call.axis, 0)
    if shared is None:
        tally_call(call.layer, x, delta, call.names, tally)
    else:
        shared.append((call, x, delta))


def _tally_shared(shared: Shared, tally: GradientTally) -> None:
    """Add the calls that share parameters: gradients are summed over calls, then squared."""
    if not shared:
        return
    _, inputs, deltas = zip(*shared, strict=True)
    floats = sum(p.numel() for call, _, _ in shared for p in call.layer.parameters())
    for rows in split_items(floats, inputs[0], deltas[0]):
        sums: dict[str, Tensor] = {}
        for call, x, delta in shared:
            some = cast_inputs(x[rows], delta[rows])
            gradients = RULES[type(call.layer)].gradients(call.layer, *some)
            for local, name in call.names.items():
                own = gradients[local]
                sums[name] = sums[name] + own if name in sums else own
        for name, total in sums.items():
            tally.add_gradients(rows, total, tally.get_vector(name))
