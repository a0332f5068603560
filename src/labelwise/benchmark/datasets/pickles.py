"""Python pickles of arrays, without what makes pickles dangerous.

A pickle names the functions that are to rebuild its values, and a harmful one names harmful ones.
Here only the few that NumPy arrays and byte strings need are found; any other name is refused.
"""

import codecs
import io
import pickle
from typing import Any

import numpy as np

from labelwise.errors import BadInput


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes into an old pickle; other codecs could do more than that."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the codec {encoding!r} is not among what is allowed")
    return codecs.latin_1_encode(text)[0]


_reconstruct = np.empty(0).__reduce__()[0]  # NumPy's maker of empty arrays has no public name

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            message = f"it asks for {module}.{name}, which no array needs"
            raise pickle.UnpicklingError(message) from None


def unpickle(name: str, data: bytes) -> Any:
    """The value in a pickle of dicts, lists, numbers, texts and NumPy arrays.

    Args:
        name: of the file, for the message.
        data: the pickle; what Python 2 wrote as str comes back as bytes.

    >>> unpickle("test_batch", pickle.dumps({"labels": [3, 1]}))
    {'labels': [3, 1]}
    """
    try:
        return _Reader(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise nearly anything
        raise BadInput(f"{name} is no pickle of arrays ({error}); download it again") from error
