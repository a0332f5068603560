r"""Last-layer gradients of items with a pseudo-label, and of items with a label.

The gradient of the loss of item :math:`i` with respect to a last linear layer is
:math:`g_i = a_i h_i^\top` (`labelwise.kernels.distance.embedding`), with

* classification, cross-entropy: :math:`a_i = p_i - e_{y_i}`. The pseudo-label is the most likely
  class, or a class drawn from :math:`p_i`;
* regression, :math:`\frac{1}{2} |f - y|^2`: :math:`a_i = f(x_i) - y_i`. The gradient at the model's
  own prediction is zero; the pseudo-label is the mean of other models' predictions, or one of them,
  drawn.

Gradients are float64, some rows at a time: those of labelled items nearly cancel in their sum.

Reference: J. Ash, C. Zhang, A. Krishnamurthy, J. Langford, A. Agarwal, "Deep Batch Active Learning
by Diverse, Uncertain Gradient Lower Bounds", ICLR 2020.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    device,
    float64,
    like,
    namespace,
    row_noise,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_boolean, check_choice
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.pool.rows import Rows

Labels = Array | list[float] | None
"""Classes ``(m,)``, or values ``(m,)`` or ``(m, k)``, of labelled items."""
KINDS = ("argmax", "sample")
NOISE_STREAM = 23


class PseudoLabels(NamedTuple):
    """The rule for pseudo-labels, and whether the last layer has a bias."""

    kind: str = "argmax"  # ``argmax`` (in a regression, the mean of the other models) or ``sample``
    bias: bool = False  # whether the last layer has a bias, so that features end in a 1
    seed: int = 0  # decides drawn pseudo-labels

    def check(self) -> "PseudoLabels":
        """Reject invalid values."""
        check_choice("pseudo", self.kind, KINDS)
        check_boolean("bias", self.bias)
        return self


def get_single_model(rows: Rows, name: str) -> Array:
    """A representation of one model; a list of several is rejected."""
    value = rows[name]
    if isinstance(value, list | tuple):
        raise BadInput(
            f"one array of {name} is needed; got a list of {len(value)}: give those of the model "
            "to be trained"
        )
    return value


def pseudo_gradients(rows: Rows, ids: Ids, pseudo: PseudoLabels) -> Iterator[Factored]:
    """The items' gradients at their pseudo-labels, some rows at a time, in float64.

    Rows are ``features`` ``(n, d)`` with ``probabilities`` ``(n, K)``, or with a list of
    ``outputs`` ``(n, k)``: those of the model first, then those of other models.

    >>> rows = {"features": np.array([[2.0]]), "probabilities": np.array([[0.25, 0.75]])}
    >>> next(pseudo_gradients(rows, np.arange(1), PseudoLabels())).dense().tolist()
    [[0.5, -0.5]]
    """
    if "outputs" in rows:
        residuals = _compute_output_residuals(rows["outputs"], ids, pseudo)
    else:
        probabilities = get_single_model(rows, "probabilities")
        residuals = subtract_one_hot(probabilities, _pseudo_labels(probabilities, ids, pseudo))
    return _layer_gradients(residuals, rows, pseudo.bias)


def labelled_gradient(labelled: Rows, labels: Labels, bias: bool) -> Floats:
    """The gradient of the labelled items' summed loss, ``(K, d)`` on the host.

    ``labels`` are ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values. With ``bias`` the features
    end in a 1, ``(K, d + 1)``.

    >>> rows = {"features": np.array([[2.0], [1.0]]), "probabilities": np.full((2, 2), 0.5)}
    >>> labelled_gradient(rows, [0, 1], bias=True).tolist()
    [[-0.5, 0.0], [0.5, 0.0]]
    """
    total: Array = 0.0
    for rows in _layer_gradients(_compute_labelled_residuals(labelled, labels), labelled, bias):
        xp = namespace(rows.h)
        total = total + to_numpy(xp.matmul(xp.matrix_transpose(rows.a), rows.h))
    return np.asarray(total)


def _layer_gradients(residuals: Array, rows: Rows, bias: bool) -> Iterator[Factored]:
    for a, h in iterate_float64_chunks(residuals, get_single_model(rows, "features")):
        xp = namespace(h)
        yield Factored(a, xp.concat([h, xp.ones_like(h[:, :1])], axis=1) if bias else h)


def _pseudo_labels(probabilities: Array, ids: Ids, pseudo: PseudoLabels) -> Array:
    if pseudo.kind == "argmax":
        return namespace(probabilities).argmax(probabilities, axis=1)
    # On the host, so that every array library draws the same.
    cumulative = np.cumsum(to_numpy(probabilities), axis=1, dtype=np.float64)
    marks = row_noise(pseudo.seed, ids, NOISE_STREAM) * cumulative[:, -1]
    return like(np.sum(cumulative[:, :-1] <= marks[:, None], axis=1), probabilities)


def subtract_one_hot(probabilities: Array, classes: Array, dtype: object = None) -> Array:
    """``p_i - e_{y_i}``, ``(n, K)``, row by row in memory, in ``dtype`` if given."""
    xp, (n, count) = namespace(probabilities), probabilities.shape
    copy = xp.astype(probabilities, dtype or probabilities.dtype, copy=True)
    flat = xp.reshape(copy, (-1,))  # one index is twice as fast as two
    flat[xp.arange(n, device=device(flat)) * count + classes] -= 1
    return xp.reshape(flat, (n, count))


def _compute_output_residuals(
    outputs: Array | list[Array], ids: Ids, pseudo: PseudoLabels
) -> Array:
    """The model's prediction less the pseudo-label from the other models, ``(n, k)``."""
    model, *others = (float64(part) for part in outputs)
    xp = namespace(model)
    gaps = xp.stack([model - other for other in others], axis=1)
    if pseudo.kind == "argmax":
        return xp.mean(gaps, axis=1)
    drawn = (row_noise(pseudo.seed, ids, NOISE_STREAM) * len(others)).astype(np.int64)
    share = like(np.eye(len(others))[drawn], gaps, dtype=gaps.dtype)
    return xp.sum(gaps * share[:, :, None], axis=1)


def _compute_labelled_residuals(labelled: Rows, labels: Labels) -> Array:
    """``p_i - e_{y_i}`` or ``f(x_i) - y_i`` of the labelled items, ``(m, K)``."""
    regression = "outputs" in labelled
    if regression:
        outputs = labelled["outputs"]
        given = float64(outputs[0] if isinstance(outputs, list | tuple) else outputs)
    else:
        given = get_single_model(labelled, "probabilities")
    values = np.asarray(to_numpy(labels))
    if regression:
        return given - like(values.reshape(given.shape), given, dtype=given.dtype)
    return subtract_one_hot(given, like(values.astype(np.int64), given))


def check_gradient_labels(labels: Labels, count: int, width: int, *, regression: bool) -> None:
    """Reject labels that do not fit the labelled items."""
    if labels is None:
        raise BadInput(
            f"the labels of the {count} labelled items are needed; give labels in the order of "
            "labelled, or gamma=0 to do without"
        )
    values = np.asarray(to_numpy(labels))
    fits = values.shape == (count, width) or (values.shape == (count,) and width == 1)
    if not (fits if regression else values.shape == (count,)):
        shape = f"({count}, {width})" if regression and width > 1 else f"({count},)"
        raise BadInput(f"labels must have shape {shape}, one per labelled item; got {values.shape}")
    if regression:
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise BadInput("labels of a regression must be finite numbers; correct them")
        return
    whole = values.dtype.kind in "iu"
    if not whole or values.min() < 0 or values.max() >= width:
        got = f"{values.min()} to {values.max()}" if whole else values.dtype
        raise BadInput(f"labels must be classes, whole numbers from 0 to {width - 1}; got {got}")
