"""Serialization without pickle of the values that strategies and blocks exchange.

A line of JSON describes the structure of a value; its arrays follow in ``.npy`` format. Supported
are tuples, lists, dictionaries, numbers, texts and objects of labelwise's classes. Reading runs no
code except the import of labelwise's modules.
"""

import importlib
import json
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from labelwise.arrays import Array, HostArray, is_array, to_numpy
from labelwise.errors import BadInput
from labelwise.files import Json

Value = Any
"""A value that strategies and blocks exchange."""
Near = Callable[[HostArray], Array]
"""Moves a host array to the device of the rows."""


def write_value(file: BinaryIO, value: Value) -> None:
    """Write a value at the end of an open file.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> write_value(file, {"scores": (np.arange(3.0), None, [1, "a"])})
        >>> _ = file.seek(0)
        >>> read_value(file)
        {'scores': (array([0., 1., 2.]), None, [1, 'a'])}
    """
    arrays: list[HostArray] = []
    tree = _to_tree(value, arrays, {})
    file.write(json.dumps([len(arrays), tree]).encode() + b"\n")
    for array in arrays:
        npy.write_array(file, array, allow_pickle=False)


def read_value(file: BinaryIO, near: Near | None = None) -> Value:
    """Read the next value of a file; ``near`` converts arrays that were tensors."""
    count, tree = json.loads(file.readline())
    arrays = [npy.read_array(file, allow_pickle=False) for _ in range(count)]
    return _from_tree(tree, arrays, near or (lambda array: array))


def _to_tree(value: Value, arrays: list[HostArray], known: dict[int, int]) -> Json:
    """Convert a value to JSON; append its arrays to ``arrays``, each one once."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        arrays.append(np.asarray(value))
        return ["number", len(arrays) - 1]
    if is_array(value):
        if id(value) not in known:
            known[id(value)] = len(arrays)
            arrays.append(np.asarray(to_numpy(value)))
        return ["array" if isinstance(value, np.ndarray) else "tensor", known[id(value)]]
    if isinstance(value, dict):
        pairs = [[_to_tree(k, arrays, known), _to_tree(v, arrays, known)] for k, v in value.items()]
        return ["dict", pairs]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_to_tree(entry, arrays, known) for entry in value]]
    kind = type(value)
    if not kind.__module__.startswith("labelwise.") or kind.__qualname__ != kind.__name__:
        raise BadInput(
            f"a {kind.__qualname__} cannot be written down, which resume needs; select without it"
        )
    fields = list(value) if isinstance(value, tuple) else vars(value)
    return ["object", f"{kind.__module__}:{kind.__name__}", _to_tree(fields, arrays, known)]


def _from_tree(tree: Json, arrays: list[HostArray], near: Near) -> Value:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind in ("array", "tensor"):
        array = arrays[rest[0]]
        return array if kind == "array" else near(array)
    if kind == "number":
        return arrays[rest[0]][()]
    if kind == "dict":
        return {_from_tree(k, arrays, near): _from_tree(v, arrays, near) for k, v in rest[0]}
    if kind == "object":
        return _make_object(rest[0], _from_tree(rest[1], arrays, near))
    entries = [_from_tree(entry, arrays, near) for entry in rest[0]]
    return tuple(entries) if kind == "tuple" else entries


def _make_object(name: str, fields: Value) -> Value:
    """Create an object of one of labelwise's classes from its fields."""
    module, _, kind = name.partition(":")
    found = getattr(importlib.import_module(module), kind) if _is_own_module(module) else None
    if not isinstance(found, type) or found.__module__ != module:
        raise BadInput(f"a written value is a {name}, which is no class of labelwise")
    if issubclass(found, tuple):
        return tuple.__new__(found, fields)
    value = found.__new__(found)
    vars(value).update(fields)
    return value


def _is_own_module(module: str) -> bool:
    return module.split(".")[0] == "labelwise"
