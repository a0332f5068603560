r"""Mean and spread of the gradients of items whose labels are unknown.

With :math:`q_i` the assumed law of the label of item :math:`i`, its gradients :math:`g_i(y)` have
the mean :math:`\bar\varphi_i = E_{y \sim q_i}[g_i(y)]` and the deviation
:math:`\sigma_i = E_{y \sim q_i} \lVert g_i(y) - \bar\varphi_i \rVert`.

*Last-layer gradients* of the cross-entropy are :math:`g_i(y) = (p_i - e_y) \otimes h_i`, so

.. math::
    \bar\varphi_i = (p_i - q_i) \otimes h_i , \qquad
    \sigma_i = |h_i| \sum_y q_{iy} \sqrt{|q_i|^2 - 2 q_{iy} + 1} .

For :math:`q = p` every mean is zero, so :math:`q` is the softmax at another temperature or the
smoothed prediction. *Log-likelihoods under m members*: :math:`g_i(y)` holds the members' losses at
label :math:`y`, centered over the members and divided by :math:`\sqrt m`; :math:`q_i` is the
members' mean. Both are Kronecker rows (`kernels.distance.embedding`).

Cost: one pass, ``O(n (K + d))``, in float64 chunks.
Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, eqs. 13 and 14.
"""

from typing import NamedTuple

from labelwise.arrays import Array, device, float64, namespace, row_dots
from labelwise.errors import BadInput
from labelwise.kernels.calibration import softmax
from labelwise.kernels.checks import check_choice, check_positive
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.scaling import apply_scale
from labelwise.pool.rows import Rows

LAWS = ("calibrated", "label_smoothing")
SMALLEST_PROBABILITY = 1e-12
SAME_TEMPERATURE = 1e-3  # A logarithm of the temperature below this counts as temperature 1


class LabelLaw(NamedTuple):
    """Assumed distribution of the unknown labels."""

    # ``calibrated`` (softmax at another temperature) or ``label_smoothing``
    kind: str = "calibrated"
    temperature: float = 1.0  # of the calibrated softmax
    rho: float = 0.1  # probability mass that smoothing spreads evenly over the classes
    scale: float = 1.0  # factor applied to the features (`labelwise.kernels.scaling`)

    def check(self) -> "LabelLaw":
        """Reject values out of range."""
        check_choice("label_law", self.kind, LAWS)
        check_positive("temperature", self.temperature)
        if not 0 <= self.rho <= 1:
            raise BadInput(f"rho must be from 0 to 1; got {self.rho}")
        return self

    def to_info(self) -> dict[str, str | float]:
        """The entries of this law in the info of a selection."""
        if self.kind == "label_smoothing":
            return {"label_law": self.kind, "rho": self.rho}
        return {"label_law": self.kind, "temperature": self.temperature}


def uses_member_losses(rows: Rows) -> bool:
    """Whether the vectors are the members' losses, because last-layer factors are missing."""
    return not ("features" in rows and ("logits" in rows or "probabilities" in rows))


def label_gradients(rows: Rows, law: LabelLaw) -> tuple[Factored, Array]:
    """Mean vectors (``n`` Kronecker rows) and deviations ``(n,)`` (float64) of all items.

    Rows are ``features`` ``(n, d)`` with ``logits`` or ``probabilities`` ``(n, K)``, otherwise
    ``member_probabilities`` ``(n, m, K)``, whose mean replaces the law. The means have the
    precision of the features (float64 if scaled).
    """
    if uses_member_losses(rows):
        return _member_loss_gradients(rows["member_probabilities"])
    predicted, assumed = compute_label_laws(rows, law)
    features = apply_scale(rows["features"], law.scale)
    xp = namespace(features)
    residuals = xp.astype(predicted - assumed, features.dtype, copy=False)
    norms = [xp.sqrt(row_dots(chunk, chunk)) for (chunk,) in iterate_float64_chunks(features)]
    return Factored(residuals, features), _label_spread(assumed) * xp.concat(norms)


def compute_label_laws(rows: Rows, law: LabelLaw) -> tuple[Array, Array]:
    """Predicted and assumed class probabilities, both ``(n, K)`` float64."""
    if "logits" in rows:
        logits = float64(rows["logits"])
        predicted, assumed = softmax(logits), softmax(logits / law.temperature)
    else:
        predicted = _normalize_probabilities(float64(rows["probabilities"]))
        assumed = _normalize_probabilities(predicted ** (1 / law.temperature))
    if law.kind == "label_smoothing":
        assumed = (1 - law.rho) * predicted + law.rho / predicted.shape[1]
    return predicted, assumed


def _normalize_probabilities(masses: Array) -> Array:
    return masses / namespace(masses).sum(masses, axis=1, keepdims=True)


def _label_spread(law: Array) -> Array:
    """``sum_y q_y |q - e_y|`` of every row of ``(n, K)``."""
    xp = namespace(law)
    classes = xp.arange(law.shape[1], device=device(law))
    likeliest = classes[None, :] == xp.argmax(law, axis=1, keepdims=True)
    # 1 - q_y cancels for a likely class; the sum of the other probabilities keeps its digits.
    others = xp.where(likeliest, xp.zeros_like(law), law)
    near = xp.sqrt(xp.sum(others, axis=1) ** 2 + row_dots(others, others))
    far = xp.sqrt(row_dots(law, law)[:, None] - 2 * others + 1)
    return xp.max(law, axis=1) * near + row_dots(others, far)


def _member_loss_gradients(members: Array) -> tuple[Factored, Array]:
    """Means ``(n, m)`` and deviations ``(n,)`` of the members' centered losses."""
    xp = namespace(members)
    means, deviations = [], []
    for (chunk,) in iterate_float64_chunks(members):
        losses = -xp.log(xp.clip(chunk, SMALLEST_PROBABILITY, None))
        losses = (losses - xp.mean(losses, axis=1, keepdims=True)) / members.shape[1] ** 0.5
        law = xp.mean(chunk, axis=1)
        mean = row_dots(losses, law[:, None, :])
        spread = losses - mean[:, :, None]
        deviations.append(row_dots(law, xp.sqrt(xp.sum(spread * spread, axis=1))))
        means.append(xp.astype(mean, members.dtype, copy=False))
    vectors = xp.concat(means)
    return Factored(xp.ones_like(vectors[:, :1]), vectors), xp.concat(deviations)
