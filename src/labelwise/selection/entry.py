"""The public call: from arrays or files, by the name of a strategy, to a selection."""

from typing import Any

from labelwise.pool.blocks import Progress
from labelwise.selection.request import Asked
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import Strategy


def select(
    strategy: str | Strategy,
    budget: int,
    *,
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
    .parquet file, of a folder of them or a pattern (``"pool-*.npy"``); a list of them is one per
    model. Give those that the strategy needs. Tensors beside arrays or files: all are computed with
    where the tensors are.

    Args:
        strategy: a name from `labelwise.strategies`, or a strategy.
        budget: how many items to pick.
        features: ``(n, d)``, as a rule the last hidden layer.
        probabilities: ``(n, K)`` class probabilities.
        logits: ``(n, K)`` class scores before the softmax.
        member_probabilities: ``(n, m, K)`` from posterior draws, dropout, an ensemble or models.
        member_votes: ``(n, m)`` what each member predicts.
        outputs: ``(n, k)`` predicted values of a regression.
        gradient_norms: ``(n,)`` squared norms of the items' gradients over the whole network.
        gradient_products: ``(n,)`` their products with the sum of the labelled items' gradients.
        duals: ``(n,)`` predicted dual variables.
        ids: ``(n,)`` the items' ids; row numbers if None.
        labelled: ids of the items that are labelled already; context, never picked again.
        seed: decides every draw.
        progress: called as ``progress(stage, done, total)`` while the selection runs.
        on: where the rows are read: in this process if None; ``"ray"`` on a Ray cluster started
            here, ``"ray:HOST:PORT"`` or ``"ray://HOST:PORT"`` on one that runs, or
            `labelwise.pool.ray.shards.RayActors` that are to serve several calls. The picks
            are the same.
        actors: how many processes of the cluster hold the rows; one per CPU if None.
        device: where rows of files and host arrays are computed with, such as ``"cuda"``: a block
            at a time is brought there. Where they are if None.
        memory: how many GiB the selection may take; what the machine has free if None. One that
            would take more is refused before it starts; before that, what is kept beside the rows
            goes to temporary files.
        resume: a folder in which to write down how far the selection has come, now and then. The
            same call goes on from there after an interruption; the folder goes at the end.
        **options: the strategy's own options, by name; an unknown one is an error.

    Returns:
        The picks in order, with weights where the method gives them.

    Example:
        >>> import numpy as np
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
        >>> select("k_center", 3, features=features).ids
        array([0, 4, 2])
        >>> select("k_center", 2, features=features, labelled=[4]).ids
        array([0, 2])
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
    }
    given = {name: value for name, value in given.items() if value is not None}
    asked = Asked(
        chosen.with_options(**options),
        budget,
        given,
        ids=ids,
        labelled=labelled,
        seed=seed,
        progress=progress,
        on=on,
        actors=actors,
        device=device,
        memory=memory,
        resume=resume,
    )
    with asked.open().ready().picks() as found:
        return found
