"""`select`, and the request behind it: validated when it is made, planned, checked, then run."""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, Positions
from labelwise.errors import BadInput, LabelwiseError, first_line
from labelwise.files import JsonObject, to_json
from labelwise.kernels.calibration import softmax
from labelwise.kernels.linear.leverage import rank_tolerance
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.blocks import BLOCK_BYTES, LocalShards, Progress, Shard, Spill, open_shards
from labelwise.pool.ids import FileKeys, IdIndex, Key, Keys, RowNumbers, encode_labelled
from labelwise.pool.pool import Pool
from labelwise.pool.representations import (
    convert_rows,
    find_tensor_device,
    flatten_sources,
)
from labelwise.pool.rows import Rows
from labelwise.pool.sources.change_guard import guard_files
from labelwise.pool.sources.parquet import ID
from labelwise.pool.sources.source import ArraySource, Given, Source, Sources
from labelwise.selection import run
from labelwise.selection.checkpoint import (
    check_resume_folder,
    checksum_ids,
    describe_pool,
    load_or_select,
    record_calls,
)
from labelwise.selection.plan import (
    SelectionPlan,
    check_plan_memory,
    find_free_memory,
    plan_sources,
)
from labelwise.selection.result import Selection
from labelwise.strategies import get, strategies
from labelwise.strategy import Job, ScoreStrategy, Strategy

log = logging.getLogger("labelwise.selection")

SMALL = 1 << 30
"""A selection that needs at most this many bytes is not compared with the free memory."""
Cluster = Any  # None, the address of a Ray cluster, or `labelwise.pool.ray.shards.RayActors`
Device = Any  # None, or what torch takes for a device


@dataclass
class SelectionRequest:
    """The arguments of `select`, which explains them, and the state of the request.

    Making it rejects arguments that do not fit together and opens the files. `prepare` makes every
    check that does not read a candidate's row. `run` picks.
    """

    strategy: Strategy
    budget: int
    pool: Pool
    labelled: Keys = None
    seed: int = 0
    progress: Progress | None = None
    on: Cluster = None
    actors: int | None = None
    device: Device = None
    memory: float | None = None
    resume: str | Path | None = None

    def __post_init__(self) -> None:
        given = self.pool.representations
        offered = {"probabilities": given["logits"], **given} if "logits" in given else given
        names = self.strategy.match_needs(offered) or tuple(given)[:1]
        run.check_budget(self.budget)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise BadInput(f"seed must be a whole number; got {self.seed!r}")
        number = isinstance(self.memory, int | float | np.number) and self.memory is not True
        if self.memory is not None and not (number and self.memory > 0):
            raise BadInput(f"memory must be a number of GiB above 0; got {self.memory!r}")
        if self.resume is not None and not (isinstance(self.resume, str | Path) and self.resume):
            raise BadInput(f"resume must be the name of a folder; got {self.resume!r}")
        if self.progress is not None and not callable(self.progress):
            raise BadInput(
                f"progress must be a function of (stage, done, total); got {self.progress!r}"
            )
        if not (self.on is None or isinstance(self.on, str) or hasattr(self.on, "generations")):
            raise BadInput(f"on must be ray, ray:HOST:PORT or ray://HOST:PORT; got {self.on!r}")
        if self.actors is not None and not isinstance(self.on, str):
            raise BadInput(f"actors is {self.actors!r} but on names no cluster; give on='ray' too")
        if self.on is not None and self.resume is not None:
            raise BadInput(
                "resume is for rows on this machine; Ray restores lost parts automatically"
            )
        if self.on is not None and self.device is not None:
            raise BadInput(
                f"device is {self.device!r} but the rows are on a cluster; give one of the two"
            )
        self.seed = int(self.seed)
        self.values = {name: offered[name] for name in names}
        self.sources: Sources = {}
        if "probabilities" in names and "probabilities" not in given:
            renamed = ["logits" if name == "probabilities" else name for name in names]
            opened = dict(zip(names, self.pool.open_sources(renamed).values(), strict=True))
            sources, values = _open_softmax_sources(
                opened["probabilities"], offered["logits"], self.on
            )
            self.sources = {**opened, "probabilities": sources}
            self.values["probabilities"] = values
        elif names:
            self.sources = self.pool.open_sources(names)
        if self.strategy.options.get("rtol", 0.0) is None:
            # Rows of float16 are computed with in float32, where their rounding would count as
            # independent directions.
            every = flatten_sources(self.sources)
            coarsest = max((s.precision for name, s in every if name.startswith("features")))
            if coarsest > 1e-5:
                self.strategy = self.strategy.with_options(rtol=rank_tolerance(coarsest, 1, 1))
        self._index: IdIndex | None = None
        self._keys: list[Key] | None = None
        self._labelled_keys: list[Key] | None = None
        self._taken = np.empty(0, dtype=np.int64)
        self._shards: LocalShards | None = None
        self._known: Rows | None = None

    def plan(self, *, timed: bool = False) -> SelectionPlan | None:
        """The cost of the selection; None if no rows are read."""
        if not self.sources:
            return None
        return plan_sources(self.strategy, self.sources, self.budget, timed=timed)

    @property
    def memory_limit(self) -> float:
        """Bytes that the selection may use."""
        return find_free_memory() if self.memory is None else self.memory * 2**30

    def prepare(self) -> int:
        """Make every check that reads no candidate's row, open the blocks, count the candidates."""
        if not self.sources and not self.pool.has_ids:
            raise BadInput(f"{self.strategy.name} needs a pool: give features, or ids")
        ids, self._keys = self.pool.resolve_ids(self.sources)
        self._index = IdIndex(ids)
        labelled = self.labelled
        if isinstance(labelled, FileKeys):
            labelled = labelled.match(self._keys)
        self._taken, self._labelled_keys = encode_labelled(labelled, ids)
        left = len(ids) - len(self._taken)
        try:
            rows = self._index.find_positions(self._taken)
            run.check_budget(self.budget, left)
            plan = plan_sources(self.strategy, self.sources, self.budget) if self.sources else None
            if self.budget and self.strategy.check is not None:
                shapes, options = plan.shapes if plan else {}, self.strategy.options
                try:
                    self.strategy.check(Job(left, self.budget, shapes, options, labelled=len(rows)))
                except TypeError as error:
                    raise BadInput(
                        f"an option of {self.strategy.name} has a value of the wrong type "
                        f"({first_line(error)}); see labelwise strategies {self.strategy.name}"
                    ) from error
            if plan is None:
                listed = ids.to_array() if isinstance(ids, RowNumbers) else ids
                self._shards = LocalShards([Shard(np.delete(listed, rows), {})], self.progress)
            elif self.on is None:
                self._open_blocks(self._index, plan)
        except LabelwiseError as error:
            raise self._restore_original_keys(error) from error
        return left

    def _open_blocks(self, index: IdIndex, plan: SelectionPlan) -> None:
        """Check memory and the folder to resume from, and open the rows in this process."""
        if self.resume is not None:
            check_resume_folder(Path(self.resume), self._describe_selection())
        spill = None
        if self.memory is not None or plan.memory > SMALL:
            limit = self.memory_limit
            check_plan_memory(plan, limit, self.pool.representations)
            spill = Spill(limit - plan.least_memory)
        sources = self.sources
        place = self.device
        if place is None and not all(source.is_numpy for _, source in flatten_sources(sources)):
            place = find_tensor_device(sources)
        if place is not None:
            from labelwise.pool.sources.device_blocks import join_tensors, move_to_device

            sources = (join_tensors if self.device is None else move_to_device)(sources, place)
        self._shards, self._known = open_shards(
            sources, ids=index, labelled=self._taken, progress=self.progress, spill=spill
        )

    @contextmanager
    def run(self) -> Iterator[Selection]:
        """Pick; once the caller has saved the picks, the folder to resume from is removed."""
        if self._index is None:
            self.prepare()
        assert self._index is not None
        begin = time.perf_counter()
        with ExitStack() as until_saved:
            try:
                with ExitStack() as opened:
                    if self.on is not None:
                        shards = opened.enter_context(self._open_on_ray(self._index))
                        labelled = shards.labelled
                    else:
                        assert self._shards is not None
                        shards, labelled = self._shards, self._known
                        if any(not source.in_memory for _, source in flatten_sources(self.sources)):
                            opened.enter_context(guard_files(self.values))
                    if self.resume is None:
                        picks = run.select(
                            self.strategy, shards, self.budget, labelled=labelled, seed=self.seed
                        )
                    else:
                        picks = self._resume(until_saved)
            except LabelwiseError as error:
                raise self._restore_original_keys(error) from error
            seconds = time.perf_counter() - begin
            log.info("%s: %d picks in %.2f s", self.strategy.name, len(picks.ids), seconds)
            if self._keys is not None:  # the keys are not whole numbers
                rows = self._index.find_positions(picks.ids)
                picks = replace(picks, keys=[self._keys[row] for row in rows.tolist()])
            yield picks

    def _resume(self, until_saved: ExitStack) -> Selection:
        """Continue from a folder, which is kept for as long as the stack."""
        assert self.resume is not None and self._shards is not None
        folder, known = Path(self.resume), self._known
        recorded = until_saved.enter_context(
            record_calls(self._shards, folder, self._describe_selection())
        )
        given = (self.strategy, recorded, self.budget)
        return load_or_select(folder, lambda: run.select(*given, labelled=known, seed=self.seed))

    def _open_on_ray(self, index: IdIndex) -> AbstractContextManager[Any]:
        from labelwise.pool.ray.shards import open_ray_shards

        ids = index.ids
        if isinstance(ids, RowNumbers) and ids.first:
            ids = ids.to_array()
        return open_ray_shards(
            self.on,
            self.values,
            len(ids),
            ids=None if isinstance(ids, RowNumbers) else ids,
            labelled=self._taken,
            actors=self.actors,
            progress=self.progress,
        )

    def _restore_original_keys(self, error: LabelwiseError) -> LabelwiseError:
        """The same error with keys in place of the hashes of keys."""
        listed = self._labelled_keys
        if self._index is None or (self._keys is None and listed is None):
            return error
        hashes = dict(zip(self._taken.tolist(), listed or [], strict=False))
        text = str(error)
        for word in set(text.replace(";", " ").replace(",", " ").split()):
            if not word.isdecimal() or len(word) < 10:
                continue
            (row,) = self._index.find_positions([int(word)], missing=-1).tolist()
            if self._keys is not None and row >= 0:
                hashes[int(word)] = self._keys[row]
            if int(word) in hashes:
                text = text.replace(word, repr(hashes[int(word)]))
        return type(error)(text)

    def _describe_selection(self) -> JsonObject:
        """Describe the identity of this selection for the folder to resume from."""
        ids = self._index.ids if self._index is not None else None
        return {
            "version": version("labelwise"),
            "strategy": self.strategy.name,
            "options": to_json(self.strategy.options),
            "budget": int(self.budget),
            "seed": self.seed,
            "pool": describe_pool(self.values, self.sources),
            "ids": None if isinstance(ids, RowNumbers) else checksum_ids(ids),
            "labelled": checksum_ids(self._taken) if len(self._taken) else None,
            "device": None if self.device is None else str(self.device),
            "block": BLOCK_BYTES,
        }


class SoftmaxSource:
    """Probabilities computed from a source of logits ``(n, K)`` whenever rows are read."""

    in_memory = False

    def __init__(self, logits: Source) -> None:
        """Read from ``logits``."""
        self._logits, self.shape = logits, logits.shape
        self.is_numpy, self.precision = logits.is_numpy, logits.precision
        self.bytes_per_row, self.held_bytes = logits.bytes_per_row, logits.held_bytes

    def read(self, first: int, last: int) -> Array:
        """The probabilities of rows ``first`` to ``last - 1``."""
        return self._convert(self._logits.read(first, last))

    def take(self, positions: Positions) -> Array:
        """The probabilities of the rows at the given positions."""
        return self._convert(self._logits.take(positions))

    @staticmethod
    def _convert(logits: Array) -> Array:
        with np.errstate(invalid="ignore"):  # NaN is rejected with the item's id, as in any row
            return softmax(convert_rows("logits", logits))


def _open_softmax_sources(logits: Any, given: Any, on: Cluster) -> tuple[Any, Any]:
    """The source of probabilities, and what others know them by; lists for several models."""
    if isinstance(logits, list):
        pairs = [_open_softmax_sources(*pair, on) for pair in zip(logits, given, strict=True)]
        return [source for source, _ in pairs], [value for _, value in pairs]
    source = SoftmaxSource(logits)
    if logits.in_memory:
        rows = source.read(0, logits.shape[0])
        return ArraySource(rows), rows
    if on is not None:
        raise BadInput("a cluster reads probabilities from files; save the softmax of the logits")
    return source, given


def select(
    strategy: str | Strategy,
    budget: int,
    *,
    pool: Pool | None = None,
    features: Given = None,
    probabilities: Given = None,
    logits: Given = None,
    member_probabilities: Given = None,
    member_votes: Given = None,
    outputs: Given = None,
    gradient_norms: Given = None,
    gradient_products: Given = None,
    gradient_sketch: Given = None,
    duals: Given = None,
    ids: Keys = None,
    id_column: str | None = None,
    labelled: Keys = None,
    seed: int = 0,
    progress: Progress | None = None,
    on: Cluster = None,
    actors: int | None = None,
    device: Device = None,
    memory: float | None = None,
    resume: str | Path | None = None,
    **options: Any,
) -> Selection:
    """Pick the items of a pool that are worth labelling.

    Each representation is an array (NumPy, torch on any device, JAX, SciPy sparse), a table
    (pandas, polars, pyarrow), or the path of a .npy or .parquet file, of a folder of them or a
    pattern (``"pool-*.npy"``); a list has one per model.
    Give those that the strategy needs, or a pool that holds them. If some are tensors, the
    computation runs where they are.

    Args:
        strategy: a name from `labelwise.strategies`, or a strategy.
        budget: number of items to pick.
        pool: ids and representations; instead of ``ids`` and the representations below.
        features: ``(n, d)``, usually the last hidden layer.
        probabilities: ``(n, K)`` class probabilities.
        logits: ``(n, K)`` class scores before the softmax.
        member_probabilities: ``(n, m, K)`` from posterior draws, dropout, an ensemble or models.
        member_votes: ``(n, m)`` the prediction of each member.
        outputs: ``(n, k)`` predicted values of a regression.
        gradient_norms: ``(n,)`` squared norms of the items' gradients over the whole network.
        gradient_products: ``(n,)`` their products with the sum of the labelled items' gradients.
        gradient_sketch: ``(n, d)`` random projections of gradients over the whole network.
        duals: ``(n,)`` predicted dual variables.
        ids: ``(n,)`` the items' keys: numbers, texts, UUIDs, dates or times; row numbers if None.
        id_column: the column of tables and Parquet files that holds the keys; ``id`` if None.
        labelled: keys of the items that are labelled already; context, never picked again.
        seed: determines every draw.
        progress: called as ``progress(stage, done, total)`` during the selection.
        on: where the rows are read: in this process if None; ``"ray"`` on a Ray cluster started
            here, ``"ray:HOST:PORT"`` or ``"ray://HOST:PORT"`` on a running one, or
            `labelwise.pool.ray.shards.RayActors` that serve several calls. The picks are the same.
        actors: number of processes of the cluster that hold the rows; one per CPU if None.
        device: where to compute with rows of files and host arrays, such as ``"cuda"``: one block
            at a time is copied there. Where the rows are if None.
        memory: GiB that the selection may use; the free memory if None. If it needs more, state
            goes to temporary files; if that does not suffice, it is rejected before it starts.
        resume: a folder for checkpoints. After an interruption the same call continues from there;
            the folder is removed at the end.
        **options: the strategy's own options, by name; an unknown one is an error.

    Returns:
        The picks in order, with weights if the method provides them.

    Example:
        >>> import numpy as np
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
        >>> select("k_center", 3, features=features).ids
        array([0, 4, 2])
        >>> select("k_center", 2, features=features, labelled=[4]).ids
        array([0, 2])
        >>> select("k_center", 2, features=features, ids=list("abcde"), labelled=["e"]).keys
        ['a', 'c']
    """
    chosen = get(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, Strategy):
        raise BadInput(f"strategy must be a name or a labelwise.Strategy; got {strategy!r:.60}")
    given = {
        "features": features,
        "probabilities": probabilities,
        "logits": logits,
        "member_probabilities": member_probabilities,
        "member_votes": member_votes,
        "outputs": outputs,
        "gradient_norms": gradient_norms,
        "gradient_products": gradient_products,
        "gradient_sketch": gradient_sketch,
        "duals": duals,
        "ids": ids,
        "id_column": id_column,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if pool is not None and not isinstance(pool, Pool):
        kind = type(pool).__name__
        raise BadInput(f"pool must be a labelwise.Pool; got {kind}: give arrays as features=...")
    if pool is not None and given:
        raise BadInput(f"give either a pool or representations and ids; got pool and {min(given)}")
    request = SelectionRequest(
        chosen.with_options(**options) if options else chosen,
        budget,
        Pool(**given) if pool is None else pool,
        labelled,
        seed,
        progress,
        on,
        actors,
        device,
        memory,
        resume,
    )
    with request.run() as picks:
        return picks


def score(
    strategy: str | Strategy,
    *,
    pool: Pool | None = None,
    ids: Keys = None,
    id_column: str = ID,
    labelled: Keys = None,
    device: Device = None,
    **given: Any,
) -> Floats:
    """The score of every item of a pool, ``(n,)``, for strategies that score items one by one.

    The arguments are those of `select`; ``given`` are representations and options of the strategy.
    Scores are in the order of the rows, and NaN for labelled items.

    Example:
        >>> score("margin", probabilities=np.array([[0.5, 0.5], [0.9, 0.1]])).round(1).tolist()
        [0.0, -0.8]
    """
    chosen = get(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, ScoreStrategy):
        scoring = ", ".join(n for n, s in strategies().items() if isinstance(s, ScoreStrategy))
        name = getattr(chosen, "name", strategy)
        raise BadInput(f"{name} does not score items one by one; choose from {scoring}")
    rows = {name: value for name, value in given.items() if name in REPRESENTATIONS}
    if pool is not None and (rows or ids is not None):
        raise BadInput("give either a pool or representations and ids; got both")
    options = {name: value for name, value in given.items() if name not in REPRESENTATIONS}
    chosen = chosen.with_options(**options) if options else chosen
    items = Pool(ids=ids, id_column=id_column, **rows) if pool is None else pool
    request = SelectionRequest(chosen, 0, items, labelled, device=device)
    request.budget = request.prepare()
    scores = np.full(request.budget + len(request._taken), np.nan)
    with request.run() as picks:
        if picks.scores is not None and request._index is not None:
            scores[request._index.find_positions(picks.ids)] = picks.scores
    return scores
