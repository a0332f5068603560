"""Iterations of `labelwise.kernels.sparse.iht` on iterates as long as the pool.

For a pool that is one block, its ids in order, on a GPU that multiplies float64 numbers in tensor
cores. The launches are those of `labelwise.kernels.sparse.iht_fused`; the iterates are those of
`thresholding`, up to rounding.
"""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, Ids, bring, device, namespace
from labelwise.kernels.loop.scan import Arrays
from labelwise.kernels.sparse.iht_blocks import Rules
from labelwise.kernels.sparse.label_gradients import label_gradients
from labelwise.kernels.sparse.problem import Problem
from labelwise.kernels.sparse.steps import TINY
from labelwise.pool.blocks import Shard

GPUS, TRITON = ((8, 0), (9, 0)), (3, 6)
"""Compute capabilities with such tensor cores, and the first Triton known to use them. What is not
listed is left to the array operations: this Triton cannot multiply float64 on the next one."""
CLASSES = 64
"""Vectors with longer first factors are left to the array operations."""
SLOPES = {"ROWS": 64, "WIDE": 32, "num_warps": 4, "num_stages": 6}
FEW_SLOPES = {"ROWS": 16, "WIDE": 128, "num_warps": 2, "num_stages": 3}
IMAGE = {"ROWS": 32, "WIDE": 128, "num_warps": 4, "num_stages": 4}
"""The tile of the rows, of a pool or of a batch, that a program multiplies at a time, its threads
in groups of 32, and how many tiles are on their way."""
PARTS, FEW_PARTS = 66, 94
"""In how many parts an image is added up: one of the pool, and one of a batch."""
CHUNK, TILE, TOGETHER = 1024, 32, 128
"""How many numbers of the pool, entries of an image and parts of it a program takes at a time."""


@dataclass(frozen=True)
class Dense:
    """A pool to iterate on.

    Attributes:
        a: ``(n, c)``, the first factors of its vectors in float64, and zeros: tensor cores take
            16 columns at least.
        h: ``(n, d)``, the second ones, as they are.
        variances: ``(n,)``.
        facts: ``1 / b``, ``alpha`` and ``beta``.
        problem: the objective.
        rules: how an iteration is made.
        ids: ``(n,)`` on the host.
    """

    a: Array
    h: Array
    variances: Array
    facts: Array
    problem: Problem
    rules: Rules
    ids: Ids

    @classmethod
    def of(cls, shard: Shard, problem: Problem, rules: Rules) -> "Dense | None":
        """What a block is iterated on with, or None if it cannot be done in this way."""
        if rules.step != "exact" or not (np.diff(shard.ids) > 0).all():
            return None
        vectors, deviations = label_gradients(shard.rows, problem.law)
        count, h = vectors.a.shape[1], vectors.h
        if count > CLASSES or not h.is_contiguous() or not _can_multiply(h):
            return None
        xp: Any = namespace(h)
        shape = (h.shape[0], max(_power(count), 16))
        a = xp.zeros(shape, dtype=xp.float64, device=device(h))
        a[:, :count] = vectors.a
        facts = np.array([1 / problem.budget, problem.alpha, problem.beta])
        return cls(a, h, deviations * deviations, bring(facts, a), problem, rules, shard.ids)

    def kept(self, places: Ids, weights: Floats, keys: Ids) -> tuple[Ids, Floats]:
        """Ids of the items kept in an iteration, the worthiest first, and their weights."""
        order = np.lexsort((places, -keys))
        return self.ids[places[order]], weights[order]

    def nothing(self, place: Array) -> Arrays:
        """The state before the first iteration: two empty iterates."""
        xp, kind = namespace(self.a), {"device": device(self.a)}
        values = xp.zeros_like(self.variances)
        image = xp.zeros_like(bring(self.problem.target, place))
        places = xp.full((self.problem.budget,), -1, dtype=xp.int64, **kind)
        zero = xp.sum(values)
        return (values, values, image, image, places, zero, zero + xp.inf)

    def launches(self, target: Array) -> "_Launches":
        """What an iteration is made of."""
        from labelwise.kernels.sparse import iht_fused as thresholding_fused

        return _Launches(self, thresholding_fused, target)

    def iterate(self, constants: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
        """One iteration, for `labelwise.kernels.loop.scan.Scan`.

        The state is the new and the old iterate, their images, the places of the items kept, the
        factor between the iterates and the last objective. Out come the objective, whether it
        stands still, and of the items kept places, weights and keys that are in order of worth.
        """
        target, standstill = constants
        new, old, image, before, old_places, factor, last = state
        launch = self.launches(target)
        along = launch.gradient(None, (new, old, factor, image, before))
        found = launch.kept(new, old, factor, along)
        weights, next_image, fit = launch.weights(found)
        factor, f, stands = launch.settle(
            (next_image, image, fit), (found.dense, new), weights, found.places, old_places,
            last, standstill,
        )  # fmt: skip
        state = (found.dense, new, next_image, image, found.places, factor, f)
        return state, (f, stands, found.places, weights, found.keys)


@dataclass(frozen=True)
class _Kept:
    """The items kept: their places, keys, and weights to start from; room for the iterate."""

    places: Array
    keys: Array
    start: Array
    dense: Array


class _Gradient(NamedTuple):
    """A gradient, and sums of its squares and of those of its image, in parts."""

    values: Array
    squares: Array
    norms: Array


class _Launches:
    """The launches of one iteration."""

    def __init__(self, pool: Dense, fused: Any, target: Array) -> None:
        self.pool, self.fused, self.target = pool, fused, target
        self.xp, self.device = namespace(target), device(target)
        self.n, (self.classes, self.d) = pool.a.shape[0], target.shape
        self.budget, self.entries = pool.problem.budget, self.classes * self.d
        self.tiles, self.chunks = -(-self.entries // TILE), -(-self.n // CHUNK)
        self.sums = {"TINY": TINY, "SIZE": _power(max(self.tiles, self.chunks))}
        self.wide = {"CLASSES": pool.a.shape[1]}

    def empty(self, *shape: int, kind: Any = None) -> Array:
        return self.xp.empty(shape, dtype=kind or self.xp.float64, device=self.device)

    def gradient(self, places: Array | None, point: tuple[Array, ...]) -> "_Gradient":
        """The gradient, at all items or some places, and the sums that give its step length."""
        gradient, squares = self.slopes(places, point)
        _, norms, fewer = self.image_of(places, gradient, squares)
        return _Gradient(gradient, fewer, norms)

    def slopes(self, places: Array | None, point: tuple[Array, ...]) -> tuple[Array, Array]:
        """The gradient and sums of its squares: one product with all rows, or with some."""
        new, old, factor, image, before = point
        pool, count = self.pool, self.n if places is None else self.budget
        tile = SLOPES if places is None else FEW_SLOPES
        residual = self.empty(self.d, self.wide["CLASSES"])
        self.fused.between[(-(-self.d // TILE),)](
            image, before, self.target, factor, residual, self.d, K=self.classes, WIDE=TILE,
            num_warps=4, **self.wide,
        )  # fmt: skip
        programs = -(-count // tile["ROWS"])
        gradient, squares = self.empty(count), self.empty(programs)
        self.fused.slopes[(programs,)](
            pool.h, pool.a, gradient if places is None else places, new, old, factor, residual,
            gradient, squares, pool.facts, count, self.d, LISTED=places is not None,
            **self.wide, **tile,
        )  # fmt: skip
        return gradient, squares

    def image_of(
        self, places: Array | None, gradient: Array, squares: Array
    ) -> tuple[Array, Array, Array]:
        """The image of a gradient, the other product; sums of its squares, and fewer of others."""
        return self.gathered(self.image(places, gradient, None, gradient, None), squares)

    def image(
        self,
        places: Array | None,
        start: Array,
        along: "_Gradient | None",
        weights: Array,
        dense: Array | None,
    ) -> Array:
        """Parts of the image of weights, which after a step are written where they are wanted."""
        pool, listed = self.pool, places is not None
        parts, direction = FEW_PARTS if listed else PARTS, along or _Gradient(start, start, start)
        partial = self.empty(parts, self.classes, self.d)
        self.fused.image[(-(-self.d // IMAGE["WIDE"]), parts)](
            pool.h, pool.a, places if listed else start, start, direction.values,
            direction.squares, direction.norms, weights, start if dense is None else dense,
            partial, pool.facts, start.shape[0], self.d, self.tiles, LISTED=listed,
            STEP=along is not None, LAST=dense is not None, K=self.classes,
            **self.sums, **self.wide, **IMAGE,
        )  # fmt: skip
        return partial

    def gathered(self, partial: Array, squares: Array | None) -> tuple[Array, Array, Array]:
        """An image from its parts, sums of its squares, and fewer sums of other squares.

        Without others, the squares are those of the image less the target.
        """
        image, norms = self.empty(self.classes, self.d), self.empty(self.tiles)
        fewer = self.empty(self.tiles)
        self.fused.gather[(self.tiles,)](
            partial, self.target, image, norms, norms if squares is None else squares, fewer,
            self.pool.facts, partial.shape[0], self.entries,
            0 if squares is None else squares.shape[0], LESS=squares is None,
            PARTS=TOGETHER, TILE=TILE, num_warps=8,
        )  # fmt: skip
        return image, norms, fewer

    def kept(self, new: Array, old: Array, factor: Array, along: "_Gradient") -> _Kept:
        """The items worth most after a step along the gradient."""
        xp, n, rules = self.xp, self.n, self.pool.rules
        keys, stepped = self.empty(n, kind=xp.int64), self.empty(n)
        counts = xp.zeros((4, 2048), dtype=xp.int32, device=self.device)
        grid, sized = (self.chunks,), {"CHUNK": CHUNK, "num_warps": 8}
        self.fused.worth[grid](
            new, old, factor, along.values, self.pool.variances, along.squares, along.norms,
            stepped, keys, counts, self.pool.facts, n, self.tiles,
            STEPPED=rules.prox_scale == "step", PRINTED=rules.projection == "printed",
            **self.sums, **sized,
        )  # fmt: skip
        bars = self.empty(4, 2, kind=xp.int64)
        for level in (1, 2, 3):
            self.fused.count[grid](keys, counts, bars, n, self.budget, LEVEL=level, **sized)
        tallies = self.empty(2 * self.chunks, kind=xp.int32)
        self.fused.tally[grid](keys, counts, bars, tallies, n, self.budget, **sized)
        places, kept = (self.empty(self.budget, kind=xp.int64) for _ in range(2))
        start, dense = self.empty(self.budget), self.empty(n)
        self.fused.list_kept[grid](
            keys, bars, tallies, stepped, places, start, kept, dense, n,
            SIZE=self.sums["SIZE"], **sized,
        )  # fmt: skip
        return _Kept(places, kept, start, dense)

    def weights(self, found: _Kept) -> tuple[Array, Array, Array]:
        """Weights of the items kept after the de-bias steps, their image and the fit of it."""
        steps = self.pool.rules.debias_steps
        zero = self.xp.zeros_like(self.target[0, 0])
        weights, image, along = found.start, self.target, None
        for step in range(steps + 1):
            if step:
                along = self.gradient(found.places, (weights, weights, zero, image, image))
            after, dense = self.empty(self.budget), found.dense if step == steps else None
            partial = self.image(found.places, weights, along, after, dense)
            image, fit, _ = self.gathered(partial, None)
            weights = after
        return weights, image, fit

    def settle(
        self, images: tuple[Array, ...], iterates: tuple[Array, ...], weights: Array,
        places: Array, old_places: Array, last: Array, standstill: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """How far to go beyond the new iterate, its objective, and whether it stands still."""
        (image, before, norms), (new, old) = images, iterates
        sums, (factor, f) = self.empty(2 * self.chunks), (self.empty() for _ in range(2))
        stands = self.empty(kind=self.xp.int64)
        self.fused.compare[(self.chunks,)](new, old, sums, self.n, CHUNK=CHUNK, num_warps=4)
        self.fused.settle[(1,)](
            image, before, self.target, norms, sums, weights, self.pool.variances, places,
            old_places, last, standstill, factor, f, stands, self.pool.facts, self.entries,
            self.budget, self.tiles, self.chunks, **self.sums, CHUNK=2 * CHUNK, num_warps=16,
        )  # fmt: skip
        return factor, f, stands


def _can_multiply(rows: Array) -> bool:
    """Whether tensor cores multiply float64 numbers where the rows are."""
    library: Any = sys.modules[type(rows).__module__.partition(".")[0]]
    here = device(rows)
    if "cuda" not in str(here) or library.version.cuda is None or not find_spec("triton"):
        return False
    from labelwise.kernels.sparse.iht_fused import VERSION

    return library.cuda.get_device_capability(here) in GPUS and VERSION >= TRITON


def _power(number: int) -> int:
    """The power of two that is not below a number."""
    return 1 << (number - 1).bit_length()
