"""Item ids: keys of any scalar type as int64, and the positions of items by id.

Whole numbers of 64 bits are ids as they are. Any other key (text, bytes, fraction, UUID, date or
time) becomes a stable 63-bit hash, so that noise, ties and samples do not depend on the order of
the rows.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.arrays import Ids, Positions, to_numpy
from labelwise.errors import BadInput, UnknownName, first_line

EXPECTED = "numbers, texts, UUIDs or dates"
Key = Any  # A key of an item as the user gave it: any scalar but NaN and None
Keys = Any  # Several keys: a list, an array or a pandas column


def encode_keys(keys: Keys, what: str = "pool ids") -> tuple[Ids, list[Key] | None]:
    """Convert keys (numbers, texts, bytes, UUIDs, dates or times) to int64 ids ``(n,)``.

    The keys are returned too, as a list, unless all are whole numbers. ``what`` names them in
    errors.

    >>> encode_keys([7, 3])
    (array([7, 3]), None)
    >>> encode_keys(["cat-1.png"])
    (array([5919904146192877560]), ['cat-1.png'])
    """
    if isinstance(keys, np.ma.MaskedArray):
        raise BadInput(f"{what} are a masked array; fill its masked entries in, or leave them out")
    # NumPy turns the numbers of a mixed list into texts, and rounds numbers of 2^63 or more.
    if isinstance(keys, list | tuple) and any(
        isinstance(key, str | bytes) or (isinstance(key, int) and abs(key) >= 2**63) for key in keys
    ):
        given = np.empty(len(keys), dtype=object)
        given[:] = keys
    else:
        try:
            given = np.asarray(keys)
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadInput(f"{what} must be {EXPECTED}; got {first_line(error)}") from error
    if given.ndim != 1:
        raise BadInput(f"{what} must be a list with one id per item; got shape {given.shape}")
    if given.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            ids: Ids = given.astype(np.int64)
        wrong = (ids != given) | ((given > 0) != (ids > 0))  # too large a number wraps around
        if not wrong.any():
            return ids, None
    listed = list(given) if given.dtype.kind == "M" else given.tolist()
    ids = np.fromiter((_encode_key(key, what) for key in listed), np.int64, len(listed))
    unchanged = all(isinstance(key, int) and key == i for key, i in zip(listed, ids, strict=True))
    return ids, (None if unchanged else listed)


def _encode_key(key: Key, what: str) -> int:
    """Return a whole number as it is, and the 63-bit hash of any other key."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, Decimal) and key.is_finite():  # keys of databases
        key = int(key) if key == key.to_integral_value() else key.normalize()
    if isinstance(key, int | np.integer) and -(2**63) <= key < 2**63:
        return int(key)
    if isinstance(key, str):
        text = b"str:" + key.encode(errors="surrogatepass")  # names of files may hold any bytes
    elif isinstance(key, bytes):
        text = b"bytes:" + key
    elif isinstance(key, int):  # 2**63 or more, such as a hash
        text = f"int:{key}".encode()
    elif isinstance(key, Decimal) and key.is_finite():
        text = f"decimal:{key}".encode()
    elif isinstance(key, float) and math.isfinite(key):
        text = b"float:" + struct.pack("<d", key)
    elif isinstance(key, UUID):
        text = b"uuid:" + key.bytes
    elif isinstance(key, date | np.datetime64) and not np.isnat(moment := _to_datetime64(key)):
        # The shortest text is the same for the same moment in any resolution.
        text = b"time:" + np.datetime_as_string(moment, unit="auto").encode()
    else:
        raise BadInput(f"{what} must be {EXPECTED}; got {key!r}")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


def _to_datetime64(key: Key) -> np.datetime64:
    """Convert dates, times and pandas timestamps; a time with a zone is converted to UTC."""
    if isinstance(key, datetime) and key.tzinfo is not None:
        key = key.astimezone(UTC).replace(tzinfo=None)
    return key.to_datetime64() if hasattr(key, "to_datetime64") else np.datetime64(key)


def check_pool_ids(keys: Keys, count: int, what: str = "items") -> tuple[Ids, list[Key] | None]:
    """Convert the keys of a pool's items as `encode_keys` does; reject repeats and collisions."""
    ids, listed = encode_keys(keys)
    if len(ids) != count:
        raise BadInput(f"pool has {len(ids)} ids but {count} {what}; give one id per item")
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        same = np.flatnonzero(ids == values[counts > 1][0])
        shown = [ids[row] if listed is None else listed[row] for row in same.tolist()]
        if any(key != shown[0] for key in shown):
            raise BadInput(
                f"pool ids {shown[0]!r} and {shown[1]!r} have the same hash; rename one of them"
            )
        shown_id = repr(shown[0]) if isinstance(shown[0], str) else shown[0]
        raise BadInput(f"pool ids must be unique; id {shown_id} occurs {len(same)} times")
    return ids, listed


def encode_labelled(labelled: Keys, pool: "Ids | RowNumbers") -> tuple[Ids, list[Key] | None]:
    """Convert the keys of the labelled items as `encode_keys` does; reject repeats.

    ``labelled`` may also be a mask with one truth value per item, or None.

    >>> encode_labelled([True, False, True], np.array([10, 20, 30]))
    (array([10, 30]), None)
    """
    if labelled is None:
        return np.empty(0, dtype=np.int64), None
    if isinstance(labelled, str | bytes | Mapping) or not isinstance(labelled, Iterable):
        raise BadInput(f"labelled must be a list of item ids; got {labelled!r:.60}")
    keys = labelled
    if not hasattr(keys, "__len__") or isinstance(keys, Set):
        keys = list(keys)
    if hasattr(keys, "dtype") or all(isinstance(key, bool) for key in keys):
        keys = to_numpy(keys)
        if keys.dtype.kind == "b":
            if keys.shape != (len(pool),):
                raise BadInput(
                    f"labelled is a mask of shape {keys.shape} but there are {len(pool)} items; "
                    "give one truth value per item, or ids"
                )
            return pool.take(np.flatnonzero(keys)), None
    ids, listed = encode_keys(keys, "labelled")
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        row = int(np.flatnonzero(ids == values[counts > 1][0])[0])
        shown = ids[row] if listed is None else listed[row]
        raise BadInput(f"labelled names item {shown} {counts.max()} times; give each item once")
    return ids, listed


class FileKeys(list[Key]):
    """Keys read from a file, which may write dates, fractions and other keys as texts.

    >>> FileKeys(["2024-05-01", 7]).match([date(2024, 5, 1), "7"])
    [datetime.date(2024, 5, 1), '7']
    """

    def match(self, keys: list[Key] | None) -> list[Key]:
        """The keys of the pool that are written like these; unknown ones stay as they are."""
        if keys is None:
            return [int(key) if isinstance(key, str) and key.isdecimal() else key for key in self]
        known = {str(key).strip(): key for key in keys}
        return [known.get(str(key), key) for key in self]


@dataclass(slots=True, eq=False)
class RowNumbers:
    """Ids that are the row numbers ``first`` to ``last - 1`` without some; they are not stored.

    >>> RowNumbers(3, 8, without=np.array([5])).to_array()
    array([3, 4, 6, 7])
    """

    first: int
    last: int
    # Sorted numbers of the range that are left out
    without: Ids = field(default_factory=partial(np.array, (), np.int64))
    # Store the array once made, for pools of few blocks, where it is asked for often
    keep: bool = False
    _array: Ids | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return self.last - self.first - len(self.without)

    def to_array(self) -> Ids:
        """The ids, ``(n,)``."""
        if self._array is not None:
            return self._array
        ids = np.arange(self.first, self.last, dtype=np.int64)
        ids = np.delete(ids, self.without - self.first) if len(self.without) else ids
        if self.keep:
            self._array = ids
        return ids

    def take(self, positions: Positions) -> Ids:
        """The ids at some positions; the whole array is made only if it has gaps."""
        if len(self.without) or self._array is not None:
            return np.asarray(self.to_array()[positions])
        return np.asarray(positions, dtype=np.int64) + self.first


@dataclass(eq=False)
class IdIndex:
    """Positions of items by id: a binary search in the sorted ids, which are made when needed.

    >>> index = IdIndex(np.array([30, 10, 20]))
    >>> index.find_positions([10, 30]), index.contains([20, 40])
    (array([1, 0]), array([ True, False]))
    """

    ids: Ids | RowNumbers  # of all items, which must be unique; row numbers are not sorted

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], Ids]:
        """The positions in the order of the ids, and the sorted ids."""
        assert isinstance(self.ids, np.ndarray)
        order = np.argsort(self.ids, kind="stable")
        return order, self.ids[order]

    def find_positions(self, ids: ArrayLike, *, missing: int | None = None) -> NDArray[np.intp]:
        """The positions of items; ``missing`` for unknown ones, which are errors if it is None."""
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        if isinstance(self.ids, RowNumbers):
            without = self.ids.without
            before = np.searchsorted(without, wanted)
            known = (wanted >= self.ids.first) & (wanted < self.ids.last)
            if len(without):
                known &= without[np.minimum(before, len(without) - 1)] != wanted
            positions = wanted - self.ids.first - before
        elif len(self.ids):
            order, ascending = self._sorted
            found = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
            positions, known = order[found], ascending[found] == wanted
        else:
            positions, known = np.zeros_like(wanted), np.zeros(len(wanted), dtype=bool)
        if known.all():
            return positions
        if missing is None:
            raise UnknownName(f"no item of the pool has id {wanted[~known][0]}; check the ids")
        return np.where(known, positions, missing)

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Which of some ids belong to an item."""
        return self.find_positions(ids, missing=-1) >= 0


def find_member_positions(ids: Ids, wanted: Ids) -> NDArray[np.intp]:
    """Positions of the wanted items among a block's, in increasing order; others are left out."""
    if len(wanted) == 1:
        return np.flatnonzero(ids == wanted[0])
    if len(ids):  # a search for few items, or none, is much faster
        wanted = wanted[(wanted >= ids.min()) & (wanted <= ids.max())]
    return np.flatnonzero(np.isin(ids, wanted)) if len(wanted) else np.empty(0, dtype=np.intp)
