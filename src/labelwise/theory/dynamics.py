r"""Training speed of a set of items: training dynamics, alignment, approximation ratio.

With :math:`g_u` the gradient of the loss of item :math:`u` and :math:`g_S = \sum_{u \in S} g_u`,
the training loss of :math:`S` falls at the rate :math:`G(S) = |g_S|^2`. For the squared loss and a
constant kernel :math:`\Theta` (the neural tangent kernel of a very wide
network), with :math:`f` the outputs and :math:`Y` the targets,

.. math::
    G_{MSE} = \operatorname{Tr}\,(f - Y)^\top \Theta (f - Y) , \qquad
    A = \operatorname{Tr}\, Y^\top \Theta Y .

The alignment :math:`A` is :math:`G_{MSE}` of a network whose outputs are zero. A batch :math:`Q` is
picked as if its items did not interact; the approximation ratio measures the error of that:

.. math::
    R = \frac{\sum_{u \in Q} \Delta(u | S)}{\Delta(Q | S)} , \quad
    \Delta(u | S) = |g_u|^2 + 2 g_u \cdot g_S , \quad
    \Delta(Q | S) = |g_Q|^2 + 2 g_Q \cdot g_S .

`dynamics_agreement` is Kendall's correlation of :math:`G_{MSE}(S \cup Q)` and :math:`A(S \cup Q)`
over random batches :math:`Q`: it shows how much of their agreement training leaves.

Kronecker rows (`labelwise.kernels.Factored`) represent last-layer gradients without multiplying
them out: ``O(n K d)``.

Reference: H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022, equations 13 and 14, Definition 1, Figure 2 and
Appendices A.3 and D.2 (150 batches of 250 items with 500 labelled items).
"""

import math
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance import embedding as factored
from labelwise.kernels.distance.embedding import Factored
from labelwise.theory.coverage import class_counts


def approximation_ratio(gradients: Array, labelled: Array = None) -> float:
    """``R``: the gain of a batch taken item by item, over the gain of the batch as a whole.

    ``gradients`` are ``(b, D)``, or `Factored` rows, of every pick at its (pseudo-)label;
    ``labelled`` is the summed gradient of the labelled items, ``(D,)`` or ``(K, d)``, or None where
    it is zero, as after training. 1 for orthogonal gradients, below 1 where picks repeat each
    other, NaN where the batch as a whole gains nothing.

    >>> import numpy as np
    >>> approximation_ratio(np.eye(3))
    1.0
    >>> approximation_ratio(np.array([[1.0, 0.0], [1.0, 0.0]]))
    0.5
    """
    if isinstance(gradients, Factored):
        rows = _convert_gradient_factors(gradients)
        norms = factored.squared_norms(rows)
        together = factored.weighted_sum(rows, np.ones(len(rows))).ravel()
    else:
        plain = _check_finite_matrix(gradients, "gradients")
        norms = np.vecdot(plain, plain)
        together = plain.sum(axis=0)
    cross = 0.0
    if labelled is not None:
        summed = np.asarray(to_numpy(labelled), dtype=np.float64).ravel()
        if summed.shape != together.shape:
            raise BadInput(
                f"the labelled gradient has {len(summed)} numbers but the picks' have "
                f"{len(together)}; give one sum over the labelled items"
            )
        if not np.isfinite(summed).all():
            raise BadInput("the labelled gradient holds NaN or infinity; remove it")
        cross = 2 * float(together @ summed)
    return _divide_gains(float(norms.sum()) + cross, float(together @ together) + cross)


def approximation_ratio_of_gram(gram: Array, products: Array = None) -> float:
    """`approximation_ratio` from products: of the picks' gradients with each other, ``(b, b)``.

    ``products`` ``(b,)`` are those with the summed gradient of the labelled items.

    >>> import numpy as np
    >>> approximation_ratio_of_gram(np.ones((4, 4)))
    0.25
    """
    matrix = check_tangent_kernel(gram, "gram")
    cross = 0.0
    if products is not None:
        found = np.asarray(to_numpy(products), dtype=np.float64)
        if found.shape != (len(matrix),) or not np.isfinite(found).all():
            raise BadInput(f"products must be {len(matrix)} finite numbers; got {found.shape}")
        cross = 2 * float(found.sum())
    return _divide_gains(float(np.trace(matrix)) + cross, float(matrix.sum()) + cross)


def _divide_gains(apart: float, together: float) -> float:
    return apart / together if together > 0 else math.nan


def last_layer_kernel(features: Array, *, bias: bool = True) -> Floats:
    """The tangent kernel of a linear head alone, ``(n, n)``: ``h . h' + 1``.

    It is the same for every output; between two different outputs it is zero. A head without
    ``bias`` does not add the 1.

    >>> import numpy as np
    >>> last_layer_kernel(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[6., 3.],
           [3., 2.]])
    """
    rows = _check_finite_matrix(features, "features")
    return np.asarray(rows @ rows.T + (1.0 if bias else 0.0))


def alignment(kernel: Array, targets: Array) -> float:
    r"""``A = Tr(Y^T Theta Y)``: how strongly the targets lie along the kernel's main directions.

    ``kernel`` is ``(n, n)``, or `Factored` rows ``g_i``, whose kernel is ``g_i . g_j``; plain rows
    ``G`` are ``Factored(np.ones((n, 1)), G)``. ``targets`` are ``(n, K)`` or ``(n,)``; one-hot for
    classes.

    >>> import numpy as np
    >>> alignment(np.diag([3.0, 1.0]), np.eye(2))
    4.0
    """
    if isinstance(kernel, Factored):
        rows = _convert_gradient_factors(kernel)
        y = check_kernel_targets(targets, len(rows))
        sums = (factored.weighted_sum(rows, column) for column in y.T)
        return float(sum(np.vdot(matrix, matrix) for matrix in sums))
    theta = check_tangent_kernel(kernel)
    y = check_kernel_targets(targets, len(theta))
    return float(np.vdot(y, theta @ y))


def training_dynamics(kernel: Array, outputs: Array, targets: Array) -> float:
    """``G_MSE = Tr((f - Y)^T Theta (f - Y))``: how fast the squared loss falls.

    The kernel is that of `alignment`; outputs and targets are ``(n, K)`` or ``(n,)``.

    >>> import numpy as np
    >>> training_dynamics(np.eye(2), np.array([1.0, 0.0]), np.array([0.0, 2.0]))
    5.0
    """
    f, y = (np.asarray(to_numpy(values), dtype=np.float64) for values in (outputs, targets))
    if f.shape != y.shape:
        raise BadInput(f"outputs have shape {f.shape} but targets {y.shape}; give the same")
    return alignment(kernel, f - y)


def one_hot(labels: Array, classes: int | None = None) -> Floats:
    """Classes as ``(n, K)`` rows with a single 1.

    >>> one_hot([1, 0])
    array([[0., 1.],
           [1., 0.]])
    """
    return np.eye(len(class_counts(labels, classes)))[np.asarray(to_numpy(labels), dtype=np.int64)]


def check_tangent_kernel(kernel: Array, name: str = "kernel") -> Floats:
    """A square, symmetric, finite matrix in float64."""
    theta = _check_finite_matrix(kernel, name)
    if theta.shape[0] != theta.shape[1]:
        raise BadInput(f"{name} must be square, one row and column per item; got {theta.shape}")
    slack = 1e-5 * float(np.max(np.abs(theta), initial=0.0))
    if np.max(np.abs(theta - theta.T), initial=0.0) > slack:
        raise BadInput(f"{name} must be symmetric; give the kernel of the items with themselves")
    return theta


def check_kernel_targets(targets: Array, n: int) -> Floats:
    """Targets as a finite ``(n, K)`` matrix in float64."""
    y = np.asarray(to_numpy(targets), dtype=np.float64)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) != n or not np.isfinite(y).all():
        raise BadInput(f"targets must be finite, one row for each of {n} items; got {y.shape}")
    return y


def _check_finite_matrix(values: Array, name: str) -> Floats:
    matrix = np.asarray(to_numpy(values), dtype=np.float64)
    if matrix.ndim != 2:
        raise BadInput(f"{name} must have two axes; got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise BadInput(f"{name} holds NaN or infinity; leave out these items")
    return matrix


def _convert_gradient_factors(rows: Factored) -> Factored:
    return Factored(_check_finite_matrix(rows.a, "a"), _check_finite_matrix(rows.h, "h"))


class Agreement(NamedTuple):
    """Kendall's correlation, in [-1, 1], and both quantities of every batch, ``(draws,)``."""

    correlation: float
    dynamics: Floats
    alignments: Floats


def dynamics_agreement(
    kernel: Array,
    outputs: Array,
    targets: Array,
    *,
    batch: int,
    labelled: int = 0,
    draws: int = 150,
    seed: int = 0,
) -> Agreement:
    """Kendall's correlation of training dynamics and alignment over random batches.

    ``kernel`` ``(n, n)``, ``outputs`` and ``targets`` are of all items; the ``labelled`` first ones
    are in every batch, with ``batch`` others.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(40, 5))
    >>> targets = np.sign(rows[:, 0])
    >>> dynamics_agreement(rows @ rows.T, 0 * targets, targets, batch=8).correlation
    1.0
    """
    from scipy.stats import kendalltau

    theta = check_tangent_kernel(kernel)
    n = len(theta)
    f, y = check_kernel_targets(outputs, n), check_kernel_targets(targets, n)
    if not (0 <= labelled < n and 0 < batch <= n - labelled and draws >= 2):
        raise BadInput(
            f"cannot draw {draws} batches of {batch} from {n - labelled} items; give 1 to "
            f"{n - labelled} items a batch, and 2 batches or more"
        )
    first, rest = np.arange(labelled), np.arange(labelled, n)
    dynamics, alignments = np.empty(draws), np.empty(draws)
    for number in range(draws):
        drawn = rest[np.argsort(row_noise(seed, rest, number))[:batch]]
        both = np.concatenate([first, drawn])
        part = theta[np.ix_(both, both)]
        dynamics[number] = training_dynamics(part, f[both], y[both])
        alignments[number] = alignment(part, y[both])
    found = float(kendalltau(dynamics, alignments).statistic)
    return Agreement(round(found, 12), dynamics, alignments)
