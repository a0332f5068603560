"""Inspection of torch modules: calls, the last linear layer (head) and its inputs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput, UnknownName
from labelwise.learners.inputs import Batch, batch_length


def call_module(module: nn.Module, batch: Batch) -> Tensor:
    """The module's output ``(b, K)`` for a batch.

    A module may return a tensor, a tuple that begins with one, or an object with ``logits``
    (as the classifiers of Hugging Face do). An output ``(b,)`` counts as ``(b, 1)``.
    """
    try:
        answer = call_plain(module, batch)
    except RuntimeError as error:
        kinds = describe_integer_inputs(batch)
        if not kinds or "type" not in str(error):
            raise
        raise BadInput(
            f"the module does not accept integers ({kinds}) as inputs: "
            f"{str(error).splitlines()[0]}; "
            "give floating-point numbers, for example inputs.astype('float32')"
        ) from error
    answer = getattr(answer, "logits", answer)
    output = answer[0] if isinstance(answer, tuple) else answer
    if not isinstance(output, Tensor):
        raise BadInput(f"the module must give a tensor; got {type(output).__name__}")
    count = batch_length(batch)
    if output.ndim == 1 and len(output) == count:
        output = output[:, None]
    if output.ndim != 2 or len(output) != count:
        raise BadInput(
            f"the module must give one row per item; for {count} items it gave "
            f"{tuple(output.shape)}"
        )
    return output


def call_plain(module: nn.Module, batch: Batch) -> Batch:
    """Call the module with a tensor, keywords or several arguments; return what it returns."""
    if isinstance(batch, Mapping):
        try:
            signature(module.forward).bind(**batch)
        except TypeError as error:
            if len(batch) == 1:  # one column, whatever its name
                return module(*batch.values())
            raise BadInput(
                f"the module does not take the columns {', '.join(batch)} ({error}); remove "
                "columns, rename them, or give collate_fn"
            ) from error
        return module(**batch)
    return module(*batch) if isinstance(batch, tuple) else module(batch)


def describe_integer_inputs(batch: Batch) -> str:
    """Data types of the inputs that are not floating-point numbers, as text."""
    if isinstance(batch, Tensor):
        return "" if batch.is_floating_point() else str(batch.dtype).removeprefix("torch.")
    parts = batch.values() if isinstance(batch, Mapping) else batch
    return ", ".join(
        dict.fromkeys(kind for part in parts if (kind := describe_integer_inputs(part)))
    )


def find_head(module: nn.Module, name: str | None, batch: Batch) -> str:
    """The name of the module's last linear layer; the log of a softmax may follow it."""
    layers = {found: layer for found, layer in module.named_modules() if _is_linear_layer(layer)}
    listed = ", ".join(layers) or "none"
    if name is not None:
        if name not in dict(module.named_modules()):
            raise UnknownName(f"the module has no layer {name!r}; its linear layers: {listed}")
        if name not in layers:
            kind = type(module.get_submodule(name)).__name__
            raise BadInput(f"the head must be a linear layer; {name!r} is {kind}, linear: {listed}")
        return name
    last = _find_output_layers(module, layers, batch)
    if not layers:
        raise BadInput(
            "the module has no layer nn.Linear that could be its head; compute features and logits "
            "with it and give them to labelwise.select"
        )
    if len(last) != 1:
        found = " and ".join(last) or "no linear layer"
        raise BadInput(
            f"the output of the module is that of {found}; name the head, one of: {listed}"
        )
    return last[0]


def _is_linear_layer(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and not isinstance(
        layer, nn.modules.linear.NonDynamicallyQuantizableLinear
    )


def _find_output_layers(
    module: nn.Module, layers: Mapping[str, nn.Module], batch: Batch
) -> list[str]:
    given: dict[str, tuple[Tensor, int]] = {}

    def keep_layer_output(name: str, output: object) -> None:
        if isinstance(output, Tensor):
            given[name] = output, output._version

    handles = [
        layer.register_forward_hook(
            lambda _, __, output, name=name: keep_layer_output(name, output)
        )
        for name, layer in layers.items()
    ]
    try:
        with evaluation_mode(module), torch.no_grad():
            output = call_module(module, batch)
    finally:
        for handle in handles:
            handle.remove()
    last = [
        name for name, (value, version) in given.items() if _is_same_output(value, version, output)
    ]
    return last or [name for name, (value, _) in given.items() if _is_log_softmax(value, output)]


def _is_same_output(value: Tensor, version: int, output: Tensor) -> bool:
    """Whether two tensors are the same memory, reshaped at most and not changed since."""
    return (
        value.numel() == output.numel()
        and value.data_ptr() == output.data_ptr()
        and value._version == version
    )


def _is_log_softmax(value: Tensor, output: Tensor) -> bool:
    """Whether the output is the log of the softmax: the same scores but for one number per item."""
    return (
        value.shape == output.shape
        and value.shape[-1] > 1
        and torch.allclose(value.float().log_softmax(dim=1), output.float(), rtol=1e-4, atol=1e-5)
    )


def get_linear_layer(module: nn.Module, head: str) -> nn.Linear:
    """The head itself, by its name."""
    layer = module.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    return layer


def call_with_features(module: nn.Module, head: str, batch: Batch) -> tuple[Tensor, Tensor]:
    """The output ``(b, K)``, and the features ``(b, d)``: what enters the head."""
    entered: list[Tensor] = []
    layer = module.get_submodule(head)
    handle = layer.register_forward_pre_hook(
        lambda _, inputs, named: entered.append(inputs[0] if inputs else named["input"]),
        with_kwargs=True,
    )
    try:
        output = call_module(module, batch)
    finally:
        handle.remove()
    if len(entered) != 1:
        raise BadInput(
            f"the head {head!r} must be called once a batch; was called {len(entered)} times"
        )
    features = entered[0]
    if features.ndim != 2 or len(features) != len(output):
        raise BadInput(
            f"one vector per item must enter the head {head!r}; got {tuple(features.shape)} for "
            f"{len(output)} items"
        )
    return output, features


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """The module in eval mode; every layer goes back to the mode it was in."""
    modes = {layer: layer.training for layer in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def find_shared_parts(module: nn.Module, other: nn.Module) -> str:
    """Describe what a training of one module would change in another; empty if nothing.

    Frozen parameters may be shared, and constants; parameters that are trained, and statistics
    that a layer gathers, may not.
    """
    if module is other:
        return "the module"
    theirs = {id(tensor) for _, tensor in _iterate_trained_tensors(other)}
    names = [name for name, tensor in _iterate_trained_tensors(module) if id(tensor) in theirs]
    return f"the tensor {names[0]!r}" if names else ""


def _iterate_trained_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters that are trained, and statistics that layers gather, by name."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats:
            for own, buffer in layer.named_buffers():
                yield f"{name}.{own}".lstrip("."), buffer


def trainable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require gradients, by name; a shared one under its first name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def get_dtype(module: nn.Module) -> torch.dtype:
    """The floating-point type of the module's parameters."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32
