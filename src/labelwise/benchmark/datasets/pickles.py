"""Read Python pickles of arrays without executing code.

A pickle names the functions that rebuild its values. Only the few that NumPy arrays and byte
strings need are allowed; any other name is rejected.
"""

import codecs
import io
import pickle
from typing import Any

import numpy as np

from labelwise.errors import BadInput


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Decode bytes that Python 3 wrote into an old pickle; other codecs are rejected."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the codec {encoding!r} is not allowed")
    return codecs.latin_1_encode(text)[0]


_reconstruct = np.empty(0).__reduce__()[0]  # has no public name in NumPy

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            message = f"it asks for {module}.{name}, which arrays do not need"
            raise pickle.UnpicklingError(message) from None


def unpickle_arrays(name: str, data: bytes) -> Any:
    """Read a pickle of dicts, lists, numbers, texts and NumPy arrays.

    Strings written by Python 2 are returned as bytes.

    >>> unpickle_arrays("test_batch", pickle.dumps({"labels": [3, 1]}))
    {'labels': [3, 1]}
    """
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise nearly anything
        raise BadInput(f"{name} is not a pickle of arrays ({error}); download it again") from error
