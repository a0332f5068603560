"""Whether the labelled items stand for the pool: the rule ``spectrum`` of stopping.

The weighted labels stand for the pool in every direction of the features if all eigenvalues of
`labelwise.theory.spectrum` are in [3/4, 5/4].

Cost: one or two passes over the pool.

Reference: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from labelwise.campaign.advice import SPECTRUM, Advice

_BAND = (0.75, 1.25)


def spectrum_advice(spectrum: Any) -> Advice:
    """Whether the labelled items stand for the pool in every direction of the features.

    Args:
        spectrum: a `labelwise.theory.spectrum.Spectrum`, what `spectrum_summary` made of one, or
            None.

    >>> spectrum_advice({"lower": 0.8, "upper": 1.2, "rank": 12, "unseen": 0}).stop
    True
    """
    if spectrum is None:
        return Advice(
            SPECTRUM, False, "the spectrum of the labelled items was not measured", judged=False
        )
    found = spectrum if isinstance(spectrum, Mapping) else spectrum_summary(spectrum)
    lower, upper, rank = float(found["lower"]), float(found["upper"]), int(found["rank"])
    if not (math.isfinite(lower) and math.isfinite(upper)) or rank < 1:
        return Advice(
            SPECTRUM, False, "the features have no direction to judge the labels by", judged=False
        )
    seen = f"the labelled items see between {100 * lower:.0f} and {100 * upper:.0f} % of the "
    seen += f"pool in each of {rank} directions of the features"
    if _BAND[0] <= lower and upper <= _BAND[1]:
        return Advice(SPECTRUM, True, f"{seen}, all within 75 to 125: they stand for all of it")
    if found["unseen"]:
        return Advice(SPECTRUM, False, f"{seen}, and nothing of {found['unseen']} of them")
    side = "too little of some" if lower < _BAND[0] else "too much of some"
    return Advice(SPECTRUM, False, f"{seen}, where 75 to 125 are wanted: {side}")


def spectrum_summary(spectrum: Any) -> dict[str, Any]:
    """What the rule reads of a spectrum, as plain values that a record can hold.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> from labelwise.theory.spectrum import weighted_spectrum
    >>> found = weighted_spectrum(Selection(np.array([0])), np.eye(2))
    >>> spectrum_summary(found)
    {'lower': 0.0, 'upper': 2.0, 'rank': 2, 'unseen': 1}
    """
    return {
        "lower": float(spectrum.lower),
        "upper": float(spectrum.upper),
        "rank": int(spectrum.rank),
        "unseen": int(spectrum.unseen),
    }


def labelled_spectrum(ledger: Any, features: Any) -> Any:
    """The spectrum of what a model is trained on, against the pool.

    Weights are those of training: of mean 1 in every batch, and 1 where a batch has none.

    Args:
        ledger: the campaign's.
        features: ``(n, d)`` of the whole pool with ids 0, 1, ..., or shards with their own ids.

    Returns:
        A `labelwise.theory.spectrum.Spectrum`, or None where nothing is labelled.

    >>> import numpy as np
    >>> from labelwise.record.events import Asked, Started, Told
    >>> from labelwise.record.ledger import replay
    >>> events = [Started(0.0, {}, 4), Asked(1.0, 1, (0, 2)), Told(2.0, 0, "a"), Told(3.0, 2, "b")]
    >>> pool = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> found = labelled_spectrum(replay(events), pool)
    >>> found.rank, round(found.lower, 6), round(found.upper, 6)
    (2, 1.0, 1.0)
    """
    from labelwise.campaign.training import batch_weights
    from labelwise.selection.result import Selection
    from labelwise.theory.spectrum import weighted_spectrum

    ids = np.array([item for item in sorted(ledger.labels) if item not in ledger.validation])
    if not len(ids):
        return None
    given = batch_weights(ledger)
    weights = np.array([given.get(int(item), 1.0) for item in ids])
    # Relative to one another they are right; together they stand for the whole pool.
    scaled = weights * (ledger.items / weights.sum()) if weights.sum() > 0 else None
    return weighted_spectrum(Selection(ids.astype(np.int64), scaled), features)
