"""The public call: from arrays, files or a pool to a selection."""

from typing import Any

from labelwise.errors import BadInput
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.selection.request import SelectionRequest
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import Strategy


def select(
    strategy: str | Strategy,
    budget: int,
    *,
    pool: Pool | None = None,
    features: Any = None,
    probabilities: Any = None,
    logits: Any = None,
    member_probabilities: Any = None,
    member_votes: Any = None,
    outputs: Any = None,
    gradient_norms: Any = None,
    gradient_products: Any = None,
    duals: Any = None,
    ids: Any = None,
    labelled: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
    on: Any = None,
    actors: int | None = None,
    device: Any = None,
    memory: float | None = None,
    resume: Any = None,
    **options: Any,
) -> Selection:
    """Pick the items of a pool that are worth labelling.

    Each representation is a NumPy array, a torch tensor (on any device), or the path of a .npy or
    .parquet file, of a folder of them or a pattern (``"pool-*.npy"``); a list has one per model.
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
        duals: ``(n,)`` predicted dual variables.
        ids: ``(n,)`` the items' keys: integers, texts, UUIDs, dates or times; row numbers if None.
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
    given = {
        "features": features,
        "probabilities": probabilities,
        "logits": logits,
        "member_probabilities": member_probabilities,
        "member_votes": member_votes,
        "outputs": outputs,
        "gradient_norms": gradient_norms,
        "gradient_products": gradient_products,
        "duals": duals,
        "ids": ids,
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
