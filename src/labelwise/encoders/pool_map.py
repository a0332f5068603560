r"""A map of a pool: a place in the plane for every row, and groups of near-duplicates.

Places: principal components, then t-SNE of a sample of landmarks; every other row is placed
between its nearest landmarks, weighted by inverse squared distances. Similar rows are close to
each other; distances between far places mean nothing.

Near-duplicates: rows whose centred vectors :math:`u_i = (x_i - \bar x) / |x_i - \bar x|` are much
closer than neighbours usually are,

.. math:: |u_i - u_j|^2 \le \operatorname{clip}(m / 4, \; 0.04, \; 0.3) ,

where m is the median squared distance of a landmark to its nearest one (the bounds are cosines of
0.98 and 0.85), and everything that is linked through such pairs. Pairs are searched among rows that
have one of their two nearest landmarks in common. Rows of a table have a fixed limit, ``SAME``
standard deviations per column.

Cost: ``O(n d c + n L c)`` for ``c`` components and ``L`` landmarks, and ``O(n d m)`` for cells of
``m`` rows; memory ``O(n c)``.
Reference: L. van der Maaten, "Accelerating t-SNE using Tree-Based Algorithms", JMLR 15, 2014.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelwise.arrays import Ids

SAMPLE = 10_000  # Rows from which means, deviations and principal components are computed
COMPONENTS, LANDMARKS, NEIGHBOURS = 50, 2_500, 5
PERPLEXITY = 30.0
BLOCK = 4_096
CLOSEST, SIMILAR, SAME = 0.04, 0.3, 0.02

Vectors = NDArray[np.float32]
Prepare = Callable[[NDArray[np.generic]], Vectors]


class PoolMap(NamedTuple):
    """Places ``(n, 2)`` in the unit square, and the group ``(n,)`` of every row; -1 for none."""

    places: Vectors
    groups: NDArray[np.int32]


def make_map(rows: NDArray[np.generic], *, table: bool = False) -> PoolMap:
    """Map rows ``(n, ...)``, which may be a memory map.

    With ``table``, rows are columns of a table, with different units.
    """
    n = len(rows)
    draw = np.random.default_rng(0)
    sample = np.sort(draw.choice(n, min(n, SAMPLE), replace=False))
    prepare = fit_map_preparation(rows[sample], table)
    landmarks = np.sort(draw.choice(n, min(n, LANDMARKS), replace=False))
    components = _find_map_components(prepare(rows[sample]))
    shrunk = np.concatenate(
        [prepare(rows[first : first + BLOCK]) @ components for first in range(0, n, BLOCK)]
    )
    flat = _embed_landmarks(shrunk[landmarks])
    places, nearest = np.empty((n, 2), np.float32), np.empty((n, 2), np.int64)
    for first in range(0, n, BLOCK):
        part = slice(first, first + BLOCK)
        places[part], nearest[part] = _place_between_landmarks(
            shrunk[part], shrunk[landmarks], flat
        )
    places[landmarks] = flat
    low, high = places.min(axis=0), places.max(axis=0)
    places = (places - low) / np.maximum(high - low, 1e-12)
    limit = SAME**2 if table else choose_duplicate_limit(prepare(rows[landmarks]))
    return PoolMap(places, find_near_duplicates(rows, prepare, nearest, limit))


def fit_map_preparation(sample: NDArray[np.generic], table: bool) -> Prepare:
    """A function that centres rows, and scales them to unit length or unit deviation.

    Missing numbers count as the mean.
    """
    flat = sample.reshape(len(sample), -1).astype(np.float32)
    finite = np.where(np.isfinite(flat), flat, np.nan)
    known = np.isfinite(flat).sum(axis=0)
    mean = (np.nansum(finite, axis=0) / np.maximum(known, 1)).astype(np.float32)
    spread = np.sqrt(np.nansum((finite - mean) ** 2, axis=0) / np.maximum(known, 1))
    scale = np.where(spread > 1e-12, spread, 1.0) * np.sqrt(flat.shape[1])

    def prepare_map_rows(given: NDArray[np.generic]) -> Vectors:
        found = given.reshape(len(given), -1).astype(np.float32)
        found = np.where(np.isfinite(found), found - mean, 0)
        lengths = np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return np.asarray(found / (scale if table else lengths), dtype=np.float32)

    return prepare_map_rows


def choose_duplicate_limit(vectors: Vectors) -> float:
    """The largest squared distance of near-duplicates, from a sample ``(m, d)`` of unit vectors."""
    distances = 2 - 2 * vectors @ vectors.T
    np.fill_diagonal(distances, 4)
    return float(np.clip(np.median(distances.min(axis=1)) / 4, CLOSEST, SIMILAR))


def _find_map_components(rows: Vectors) -> Vectors:
    """Principal components ``(d, c)`` of prepared rows, which are centred already."""
    from sklearn.utils.extmath import randomized_svd

    _, _, found = randomized_svd(rows, min(COMPONENTS, *rows.shape), random_state=0)
    return np.asarray(found.T, dtype=np.float32)


def _embed_landmarks(rows: Vectors) -> Vectors:
    """Places of landmarks: t-SNE, or the first components of fewer than ten rows."""
    if len(rows) < 10:
        return np.hstack([rows, np.zeros((len(rows), 2), np.float32)])[:, :2]
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    padded = np.hstack([rows, np.zeros((len(rows), 1), np.float32)]) if rows.shape[1] < 2 else rows
    method = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1)
    return np.asarray(method.fit_transform(padded), dtype=np.float32)


def _place_between_landmarks(
    rows: Vectors, landmarks: Vectors, flat: Vectors
) -> tuple[Vectors, Ids]:
    """Places ``(b, 2)`` of rows, and their two nearest landmarks ``(b, 2)``."""
    distances = (landmarks**2).sum(axis=1) - 2 * rows @ landmarks.T
    distances += (rows**2).sum(axis=1)[:, None]
    count = min(NEIGHBOURS, len(landmarks))
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    close = np.take_along_axis(distances, nearest, axis=1)
    order = np.argsort(close, axis=1, kind="stable")
    nearest, close = (np.take_along_axis(one, order, axis=1) for one in (nearest, close))
    weights = 1 / np.maximum(close, 1e-6)
    weights /= weights.sum(axis=1, keepdims=True)
    places = (weights[:, :, None] * flat[nearest]).sum(axis=1)
    return places, nearest[:, [0, min(1, count - 1)]]


def find_near_duplicates(
    rows: NDArray[np.generic], prepare: Prepare, cells: Ids, limit: float
) -> NDArray[np.int32]:
    """The group of every row, -1 for rows that resemble no other one.

    Args:
        rows: ``(n, ...)``.
        prepare: gives the vectors to compare.
        cells: two cells of every row, ``(n, 2)``; rows without a common cell are not compared.
        limit: the largest squared distance of two near-duplicates.
    """
    n = len(rows)
    links: list[NDArray[np.int64]] = []
    members = np.argsort(cells.ravel(), kind="stable") // 2
    ends = np.flatnonzero(np.diff(np.sort(cells.ravel()))) + 1
    for cell in np.split(members, ends):
        cell = np.unique(cell)
        vectors = prepare(rows[cell])
        norms = (vectors**2).sum(axis=1)
        for first in range(0, len(cell), BLOCK):
            part = vectors[first : first + BLOCK]
            close = norms[first : first + BLOCK, None] + norms - 2 * part @ vectors.T <= limit
            # The first and the last match of each row: all pairs of many copies would not fit.
            for match in (close.argmax(axis=1), len(cell) - 1 - close[:, ::-1].argmax(axis=1)):
                links.append(np.stack([cell[first : first + BLOCK], cell[match]]))
    source, target = np.concatenate(links, axis=1)
    graph = sparse.coo_matrix((np.ones(len(source), bool), (source, target)), shape=(n, n))
    _, found = sparse.csgraph.connected_components(graph, directed=False)
    sizes = np.bincount(found)
    _, groups = np.unique(np.where(sizes[found] > 1, found, n), return_inverse=True)
    return np.where(sizes[found] > 1, groups, -1).astype(np.int32)
