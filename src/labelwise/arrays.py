"""Common interface to NumPy and torch, and the row operations that all kernels share.

Rows (features, probabilities, ...) may live in any array library and on any device. Item ids,
picks and everything of size ``(n,)`` that decides a pick are NumPy arrays on the host.
"""

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from labelwise.threads import is_worker_thread

Array = Any
"""A NumPy array or a torch tensor."""

HostArray = NDArray[Any]
"""A NumPy array of any dtype."""
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Positions = NDArray[np.integer[Any] | np.bool_]
"""Positions of rows, or a mask of them, on the host."""


def namespace(*arrays: Array) -> Any:
    """The array-API namespace (``numpy`` or its torch counterpart) that the arrays belong to."""
    if len(arrays) > 1:
        return array_api_compat.array_namespace(*arrays)
    (array,) = arrays
    kind = type(array)
    if kind not in _NAMESPACES:
        # NumPy 2 is its own array-API namespace.
        numpy = issubclass(kind, np.ndarray)
        _NAMESPACES[kind] = np if numpy else array_api_compat.array_namespace(array)
    return _NAMESPACES[kind]


_NAMESPACES: dict[type, Any] = {}
"""Cache of namespaces by array type; lookups are frequent."""


def device(array: Array) -> Any:
    """Return the device of the array."""
    return array_api_compat.device(array)


def is_array(value: object) -> bool:
    """Whether ``value`` is an array of a library we can compute with."""
    return bool(array_api_compat.is_array_api_obj(value))


def to_numpy(array: Array) -> HostArray:
    """The same values as a NumPy array on the host (no copy where none is needed)."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.asarray(array)


def like(values: Array, other: Array, *, dtype: object = None) -> Array:
    """Bring host ``values`` to the library and device of ``other``, in ``dtype`` if given."""
    xp = namespace(other)
    return xp.asarray(values, dtype=dtype, device=device(other))


def workplace(rows: Array) -> Array:
    """Return an empty float64 array on the device for small work: the rows' GPU or the host."""
    if isinstance(rows, np.ndarray) or str(device(rows)) == "cpu":
        return np.empty(0)
    xp = namespace(rows)
    return xp.empty((0,), dtype=xp.float64, device=device(rows))


def bring(array: Array, place: Array) -> Array:
    """The array in float64 in the library and on the device of ``place``."""
    if isinstance(place, np.ndarray):
        return np.asarray(to_numpy(array), dtype=np.float64)
    return like(array, place, dtype=place.dtype)


def float64(array: Array) -> Array:
    """The array in double precision (itself if it already is)."""
    return namespace(array).astype(array, namespace(array).float64, copy=False)


def detached(array: Array) -> Array:
    """Return the array without autograd history."""
    return array.detach() if getattr(array, "requires_grad", False) else array


def working(array: Array) -> Array:
    """Return the array as float32 or float64, and `detached`.

    Numbers of at most two bytes become float32; other types that need conversion become float64.
    """
    array, xp = detached(array), namespace(array)
    if array.dtype in (xp.float32, xp.float64):
        return array
    return xp.astype(array, xp.float32 if array.dtype.itemsize <= 2 else xp.float64)


def precision(rows: Array) -> float:
    """Relative spacing of the numbers in an array; integers count as float64."""
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return float(np.finfo(np.float64).eps)
    return float(xp.finfo(rows.dtype).eps)


def take(array: Array, positions: Positions) -> Array:
    """The rows at ``positions`` (host integers or a host boolean mask), in that order."""
    if isinstance(array, np.ndarray):
        return array[positions]
    return array[like(np.ascontiguousarray(positions), array)]


def put(array: Array, positions: Positions, values: Array | float) -> None:
    """Overwrite the rows at ``positions`` (host integers) in place."""
    array[positions if isinstance(array, np.ndarray) else like(positions, array)] = values


def row_dots(rows: Array, others: Array) -> Array:
    """Inner product of every row with the row at the same position of ``others``."""
    if isinstance(rows, np.ndarray) and rows.shape[-1] < _NARROW:
        return np.einsum("...k,...k->...", rows, others)
    return namespace(rows).linalg.vecdot(rows, others)  # for torch, twice as fast as xp.vecdot


def squared_norms(rows: Array) -> Array:
    """Squared Euclidean norm of every row: ``(n, d)`` to ``(n,)``."""
    return row_dots(rows, rows)


_NARROW = 48
"""Rows with fewer numbers are multiplied without BLAS, which has a cost per row."""


_ONE_THREAD = 1 << 19
"""BLAS uses one thread for products of fewer multiplications."""
_SMALL = 12 * _ONE_THREAD
"""Products of up to this many multiplications (under 1 ms) are kept on one thread."""
_TALL, _FLAT = 48, 16
"""Rows of a tile if more do not fit, and the number of rows below which a product is flat."""


def row_products(rows: Array, points: Array) -> Array:
    """Inner product of every row with every point: ``(n, d)`` and ``(m, d)`` to ``(n, m)``.

    Small products, and all products in a worker thread of `run_in_threads`, are cut into tiles that
    BLAS computes on one thread: waking a second thread costs more than it saves, and on a busy
    machine a hundred times more.
    """
    n, m = len(rows), len(points)
    if n < _FLAT <= m and isinstance(rows, np.ndarray):  # BLAS does the transposed product faster
        return np.ascontiguousarray(row_products(points, rows).T)
    d = rows.shape[1]
    on_one = n * m * d <= _ONE_THREAD // (128 if min(n, m) == 1 else 2)  # lower for a vector
    on_all = n * m * d > _SMALL and not is_worker_thread()
    # BLAS sometimes sets the flags for finite rows. Rows that are not finite are rejected by the
    # checks of norms and scores.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if on_one or on_all or not isinstance(rows, np.ndarray):
            return rows @ namespace(points).matrix_transpose(points)
        if min(n, m) == 1:
            return np.vecdot(rows[:, None, :], points[None, :, :])
        out = np.empty((n, m), dtype=np.result_type(rows, points))
        pairs = max((_ONE_THREAD - 1) // d, 1)
        width = min(m, max(pairs // min(n, _TALL), 1))
        height = max(pairs // width, 1)
        points = np.asfortranarray(points)  # BLAS is faster by columns for small tiles
        for top in range(0, n, height):
            for left in range(0, m, width):
                some, others = slice(top, top + height), slice(left, left + width)
                out[some, others] = rows[some] @ points[others].T
    return out


def squared_distances(rows: Array, points: Array) -> Array:
    """Squared distance of rows ``(n, d)`` to points ``(m, d)``: ``(n, m)``, not negative."""
    xp = namespace(rows)
    distances = row_products(rows, points)
    distances *= -2
    distances += squared_norms(rows)[:, None]
    distances += squared_norms(points)[None, :]
    return xp.clip(distances, 0, None, out=distances)


def largest(scores: HostArray, count: int, ids: Ids) -> NDArray[np.intp]:
    """Positions of the ``count`` largest scores, largest first, equal scores by smaller id.

    ``scores`` are ``(n,)`` without NaN; ``count`` is at most ``n``.
    """
    if count < len(scores):
        bar = np.partition(scores, len(scores) - count)[len(scores) - count] if count else np.inf
        above = np.flatnonzero(scores > bar)
        at = np.flatnonzero(scores == bar)
        at = at[np.argsort(ids[at], kind="stable")][: count - len(above)]
        chosen = np.concatenate([above, at])
    else:
        chosen = np.arange(len(scores))
    return chosen[np.lexsort((ids[chosen], -scores[chosen]))]


def comparable(scores: Array) -> Floats:
    """Scores as float64, rounded to 9 digits (30 bits), so that equal rows tie.

    The same row gives scores that differ in the last bits from one array library, block split
    or machine to the next. Rounding makes those differences ties, which the smaller id wins.
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    fractions, exponents = np.frexp(values)
    return np.asarray(np.ldexp(np.round(fractions * 2.0**30), exponents - 30))


_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64 - 1
_SCRAMBLE = tuple(np.uint64(word) for word in (30, _FIRST, 27, _SECOND, 31))


def row_noise(seed: int, ids: Ids, *stream: int) -> Floats:
    """Uniform noise in (0, 1), one number per item: a function of (seed, stream, id) alone.

    It depends neither on the order nor on the split of the items, nor on the array library. Two
    rounds of SplitMix64, keyed by a SplitMix64 hash of the seed and the stream.
    """
    key, keys = 0, []
    for word in (seed, *stream, 1):
        keys.append(key)
        key = (key + int(word) + _GOLDEN) & _WORD
        key = ((key ^ (key >> 30)) * _FIRST) & _WORD
        key = ((key ^ (key >> 27)) * _SECOND) & _WORD
        key ^= key >> 31
    words = np.asarray(ids).astype(np.uint64)
    words *= np.uint64(_GOLDEN)
    high, first, middle, second, low = _SCRAMBLE
    for one in (keys[-1], key):
        words += np.uint64(one)
        words ^= words >> high
        words *= first
        words ^= words >> middle
        words *= second
        words ^= words >> low
    words >>= np.uint64(12)
    noise = words.astype(np.float64)
    noise += 0.5
    noise *= 2.0**-52
    return noise


def waiting_times(seed: int, stream: tuple[int, ...], rates: Array, ids: Ids) -> Floats:
    """Exponential waiting times, one per item, from `row_noise`; infinite at rate 0."""
    times = row_noise(seed, ids, *stream)
    np.negative(np.log(times, out=times), out=times)
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(times / rates)
