r"""Query by committee: pick the items on which several models disagree most.

``disagreement="kl"``: the mean divergence of the members from their mean,
:math:`\frac{1}{M} \sum_m KL(p_{im} \Vert \bar p_i)`, equal to BALD's score.

``disagreement="vote_entropy"``: the entropy :math:`-\sum_k \frac{v_k}{M} \log \frac{v_k}{M}` of
the members' votes, with :math:`v_k` of the :math:`M` members for class :math:`k`. It ignores the
confidence of the members.

Regression (``outputs``, one array per model, or ``member_votes`` that are not integers): the
variance of the models' predictions, summed over the outputs. Scale outputs of different units
first.

Cost: one pass, ``O(n M K)``.

Reference: H. Seung, M. Opper, H. Sompolinsky, "Query by Committee", COLT 1992; A. McCallum,
K. Nigam, "Employing EM and Pool-Based Active Learning for Text Classification", ICML 1998;
I. Dagan, S. Engelson, "Committee-Based Sampling for Training Probabilistic Classifiers", ICML 1995.
"""

import numpy as np

from labelwise.arrays import Array, Floats, float64, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_choice
from labelwise.kernels.information.mutual_information import information_gains, prior_outcome
from labelwise.kernels.information.uncertainty import vote_entropy
from labelwise.pool.rows import Rows
from labelwise.strategies.bald import DISAGREEMENT
from labelwise.strategy import Job, ScoreStrategy, read_reference


def score_committee(rows: Rows, labelled: Rows | None, *, disagreement: str = "kl") -> Floats:
    """The disagreement of the members, ``(n,)``.

    Rows are ``member_probabilities`` ``(n, M, K)``, a list of ``probabilities`` ``(n, K)``, a list
    of ``outputs`` ``(n, k)``, or ``member_votes`` ``(n, M)`` or a list of them (integers are
    classes, others are values of a regression), which have only an entropy.

    Options:
        disagreement: ``"kl"`` or ``"vote_entropy"``, for classes.
    """
    if "outputs" in rows:
        return _sum_committee_variances(list(rows["outputs"]))
    if "member_votes" in rows:
        given = rows["member_votes"]
        parts = given if isinstance(given, list) else [given]
        votes = np.concatenate([to_numpy(part) for part in parts], axis=1)
        whole = np.issubdtype(votes.dtype, np.integer)
        return vote_entropy(votes) if whole else _sum_committee_variances(list(votes.T[..., None]))
    if "member_probabilities" in rows:
        members = rows["member_probabilities"]
    else:
        several = list(rows["probabilities"])
        members = namespace(*several).stack(several, axis=1)
    if disagreement == "vote_entropy":
        return vote_entropy(to_numpy(namespace(members).argmax(members, axis=2)))
    return information_gains(members, prior_outcome(members.shape[1]))


def _sum_committee_variances(outputs: list[Array]) -> Floats:
    """The variance over models, summed over outputs."""
    xp = namespace(*outputs)
    first = float64(outputs[0])  # equal predictions then differ by exactly 0
    values = xp.stack([float64(part) - first for part in outputs], axis=0)
    return np.asarray(to_numpy(xp.sum(xp.var(values, axis=0), axis=1)), dtype=np.float64)


def check_committee_job(job: Job) -> None:
    """Reject an unknown disagreement, and probabilities or outputs of a single model."""
    check_choice("disagreement", job.options["disagreement"], ("kl", "vote_entropy"))
    if "member_probabilities" in job.shapes or "member_votes" in job.shapes:
        return
    for name in ("outputs", "probabilities"):
        if len(job.shapes.get(name, "no")) < 2:
            raise BadInput(
                f"committee needs the {name} of two or more models; give a list of arrays"
            )


STRATEGY = ScoreStrategy(
    name="committee",
    needs=("member_probabilities",),
    or_needs=(("probabilities",), ("outputs",), ("member_votes",)),
    several=True,
    score=score_committee,
    check=check_committee_job,
    explain=DISAGREEMENT,
    good_for="several models, for classification and for regression",
    reference=read_reference(__doc__),
)
