"""Similarities from 0 to 1 of rows: clipped cosine, Gaussian and top hat, in float32 and exactly.

`SimilarityKernel.compare` is fast and rounded; `compare_levels` rounds further, down to multiples
of 1 / 65,535, which take 16 bits; `compare_exactly` computes in float64 from the definition.

Cost: one matrix product, ``n T d``, for ``n`` rows and ``T`` targets of ``d`` numbers.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    HostArray,
    Ids,
    float64,
    like,
    namespace,
    row_noise,
    squared_norms,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_choice, check_positive
from labelwise.kernels.distance.farthest import sum_block
from labelwise.kernels.distance.gaussian import median_distance
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows, read_features
from labelwise.strategy import Job
from labelwise.threads import run_in_threads, split_range

KERNELS = ("cosine", "gaussian", "tophat")
AUTO = "auto"
PRODUCT = 1 << 22
"""Similarities computed at a time on a CPU, so that they are still in cache when they are
rounded."""
ROUNDED = 1 << 20
"""Similarities rounded at a time by one thread."""
COSINE_ROUNDING, GAUSSIAN_ROUNDING = 1e-6, 2.0**-22
"""Maximum rounding error of a similarity in float32."""
LEVELS = 65535.0  # Similarities are kept as whole numbers up to this
MOST_POWER = 8.0  # Narrowest kernel of `SimilarityKernel.narrow`
WIDTH_ITEMS, WIDTH_STREAM = 1000, 1
"""Items whose median distance is the default width, and the noise stream that chooses them."""


@dataclass(frozen=True)
class SimilarityKernel:
    """A similarity from 0 to 1 of two rows."""

    # "cosine", the clipped cosine of centered rows; "gaussian", ``exp(-|x - y|^2 / s^2)``; or
    # "tophat", 1 up to a distance of ``s`` and 0 beyond
    kind: str
    mean: Floats  # that rows are centered by, ``(d,)``
    width: float = 1.0  # ``s``
    power: float = 1.0  # of the cosine
    narrows: bool = False  # whether `narrow` sets the power

    def narrow(self, covered: Floats) -> "SimilarityKernel":
        """The kernel whose power makes a typical target half covered by the labelled items.

        ``covered`` ``(T,)`` is the highest cosine of every target with a labelled item. The power
        is ``log 0.5 / log median(covered)``, from 1 to `MOST_POWER`.
        """
        typical = float(np.clip(np.median(covered), 0.5, 0.5 ** (1 / MOST_POWER)))
        return replace(self, power=round(math.log(0.5) / math.log(typical), 2))

    @property
    def rounding(self) -> float:
        """Maximum error of the similarities of `compare`."""
        if self.kind == "cosine":
            return COSINE_ROUNDING * max(self.power, 1.0)
        return GAUSSIAN_ROUNDING if self.kind == "gaussian" else 0.0

    @property
    def step(self) -> int:
        """Levels that a similarity may lie above its own."""
        return 0 if self.kind == "tophat" else 1

    def embed(self, features: Array) -> Array:
        """Centered rows in float64, of length 1 for the cosine (or 0), in units of the width."""
        xp = namespace(features)
        rows = float64(features) - like(self.mean, features)
        if self.kind != "cosine":
            return rows / self.width
        size = xp.max(xp.abs(rows), axis=1, keepdims=True) if rows.shape[1] else rows
        # A row that equals the mean up to rounding has no direction.
        scale = xp.max(xp.abs(float64(features)), axis=1, keepdims=True)
        scale = xp.maximum(scale, xp.full_like(scale, float(np.abs(self.mean).max(initial=0.0))))
        empty = size <= 2.0**-40 * scale
        rows = rows / xp.where(empty, xp.ones_like(size), size)
        norms = xp.sqrt(squared_norms(rows))[:, None]
        return xp.where(empty, xp.zeros_like(rows), rows / xp.where(empty, 1.0 + norms, norms))

    def prepare(self, features: Array, *, exact: bool = False) -> Array:
        """`embed`, some rows at a time, in the precision that `compare` needs, or in float64."""
        xp = namespace(features)
        dtype = xp.float32 if self.kind == "cosine" and not exact else xp.float64
        step = max((1 << 16) // max(features.shape[1], 1), 64)
        if not isinstance(features, np.ndarray):
            return xp.astype(self.embed(features), dtype)
        out = np.empty(features.shape, dtype=dtype)

        def fill(span: slice) -> None:
            out[span] = self.embed(features[span])

        run_in_threads(fill, split_range(len(features), step))
        return out

    def compare(self, targets: Array, candidates: Array) -> Array:
        """Similarities of prepared rows, ``(T, d)`` and ``(n, d)`` to ``(T, n)`` float32."""
        xp = namespace(candidates)
        return xp.astype(self._compare(targets, candidates), xp.float32, copy=False)

    def compare_levels(self, targets: Array, candidates: Array) -> Array:
        """`to_levels` of the similarities of prepared rows, ``(T, n)``."""
        if not isinstance(candidates, np.ndarray):
            return to_levels(self.compare(targets, candidates))
        count, width = len(targets), len(candidates)
        levels = np.empty((count, width), dtype=np.uint16)
        step = min(max(PRODUCT // max(width, 1), 64), max(count, 1))
        scratch = np.empty((step, width), dtype=candidates.dtype)
        for first in range(0, count, step):
            some = targets[first : first + step]
            found = self._compare(some, candidates, scratch[: len(some)])
            to_levels(found, levels[first : first + step])
        return levels

    def compare_exactly(self, targets: Array, candidates: Array) -> Array:
        """Similarities of embedded rows in float64, ``(T, n)``."""
        return self._compare(targets, candidates)

    def compare_pairs(self, left: Floats, right: Floats) -> Floats:
        """Similarity of every embedded row with the row at the same position, ``(n,)``."""
        if self.kind == "cosine":
            return np.asarray(np.clip(np.vecdot(left, right), 0, 1) ** self.power)
        difference = left - right
        return np.asarray(np.exp(-np.vecdot(difference, difference)))

    def _compare(self, targets: Array, candidates: Array, out: HostArray | None = None) -> Array:
        xp, there = namespace(candidates), {} if out is None else {"out": out}
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # flags set by BLAS
            inner = xp.matmul(targets, xp.matrix_transpose(candidates), **there)
        if self.kind == "cosine":
            return inner if self.power == 1 else _clip(inner, 0.0, 1.0) ** self.power
        inner *= -2
        inner += squared_norms(targets)[:, None]
        inner += squared_norms(candidates)[None, :]
        if self.kind == "gaussian":
            return xp.exp(-_clip(inner, 0.0, math.inf))
        return xp.astype(inner <= 1 + 2.0**-30, inner.dtype)


def _clip(values: Array, low: float, high: float) -> Array:
    if isinstance(values, np.ndarray):
        return np.clip(values, low, high, out=values)
    return namespace(values).clip(values, low, high)


def fit_kernel(
    shards: Shards,
    labelled: Rows | None,
    kind: str,
    width: float | None = None,
    power: float | str = 1.0,
) -> SimilarityKernel:
    """The kernel of a pool: its mean in one pass, and the width of a Gaussian.

    Labelled rows count for the mean. The width of a Gaussian is the median distance between
    candidates if None; a power of `AUTO` is set by `SimilarityKernel.narrow`.
    """
    total, count = shards.sum(sum_block, read_features), len(shards)
    if labelled is not None:
        known = to_numpy(float64(labelled["features"]))
        total, count = total + known.sum(axis=0), count + len(known)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.asarray(total / count)
    if not np.isfinite(mean).all():
        raise BadInput("the sum of the features is infinite; multiply all features by 1e-100")
    if kind == "gaussian" and width is None:
        ids = choose_by_hash(shards.ids, WIDTH_ITEMS, WIDTH_STREAM)
        width = median_distance(to_numpy(float64(shards.rows(ids)["features"])))
    exponent = 1.0 if isinstance(power, str) else power
    return SimilarityKernel(kind, mean, 1.0 if width is None else width, exponent, power == AUTO)


def to_levels(similarities: Array, out: HostArray | None = None) -> Array:
    """Similarities, overwritten, as multiples of 1 / 65,535: uint16, or float32 if not NumPy."""
    if not isinstance(similarities, np.ndarray):
        xp = namespace(similarities)
        return xp.floor(xp.clip(similarities * LEVELS, 0, LEVELS))
    levels = np.empty(similarities.shape, dtype=np.uint16) if out is None else out
    nothing = np.zeros(similarities.shape[1:], dtype=similarities.dtype)

    def round_rows(span: slice) -> None:
        part = similarities[span]
        part *= LEVELS
        np.maximum(part, nothing, out=part)  # with a scalar it takes twice as long
        np.copyto(levels[span], part, casting="unsafe")

    rows = max(ROUNDED // max(math.prod(similarities.shape[1:]), 1), 1)
    run_in_threads(round_rows, split_range(len(similarities), rows))
    return levels


def choose_by_hash(ids: Ids, count: int, *stream: int, seed: int = 0) -> Ids:
    """The ``count`` items of smallest `row_noise` (or all), in the order of ids."""
    ids = np.sort(ids)
    if count >= len(ids):
        return ids
    noise = row_noise(seed, ids, *stream)
    return np.sort(ids[np.lexsort((ids, noise))[:count]])


def check_kernel(job: Job) -> None:
    """Reject a kernel, width or power out of range."""
    options = job.options
    check_choice("kernel", options["kernel"], KERNELS)
    for name in ("sigma", "radius"):
        if options[name] is not None:
            check_positive(name, options[name])
    if options["kernel"] == "tophat" and options["radius"] is None:
        raise BadInput("kernel 'tophat' needs a radius; give the distance of similar items")
    power = options["power"]
    if isinstance(power, str):
        check_choice("power", power, (AUTO,))
        if options["kernel"] != "cosine":
            raise BadInput(f"power 'auto' needs kernel 'cosine'; got {options['kernel']!r}")
    else:
        check_positive("power", power)
