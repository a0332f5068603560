r"""How fast a set of items trains a network: training dynamics, alignment, approximation ratio.

With :math:`g_u` the gradient of the loss of item :math:`u` and :math:`g_S = \sum_{u \in S} g_u`,
the training loss of :math:`S` falls at the rate :math:`G(S) = |g_S|^2`. For the squared loss and a
kernel :math:`\Theta` that stays as it is during training (the neural tangent kernel of a very wide
network), with :math:`f` the outputs and :math:`Y` the targets,

.. math::
    G_{MSE} = \operatorname{Tr}\,(f - Y)^\top \Theta (f - Y) , \qquad
    A = \operatorname{Tr}\, Y^\top \Theta Y .

The alignment :math:`A` is :math:`G_{MSE}` of a network whose outputs are zero.

A batch :math:`Q` is picked as if its items did not touch each other. What that leaves out is
measured by the approximation ratio

.. math::
    R = \frac{\sum_{u \in Q} \Delta(u | S)}{\Delta(Q | S)} , \quad
    \Delta(u | S) = |g_u|^2 + 2 g_u \cdot g_S , \quad
    \Delta(Q | S) = |g_Q|^2 + 2 g_Q \cdot g_S .

Kronecker rows (`labelwise.kernels.Factored`) stand for last-layer gradients everywhere and are
never multiplied out: ``O(n K d)``.

Reference: H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022, equations 13 and 14, Definition 1 and Appendix A.3.
"""

import math
from typing import Any

import numpy as np

from labelwise.arrays import Floats, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance import factored
from labelwise.kernels.distance.factored import Factored
from labelwise.theory.imbalance import class_counts


def approximation_ratio(gradients: Any, labelled: Any = None) -> float:
    """``R``: the gain of a batch taken item by item, over the gain of the batch as a whole.

    Args:
        gradients: ``(b, D)``, or `Factored` rows: the gradient of every pick at its (pseudo-)label.
        labelled: the summed gradient of the labelled items, ``(D,)``, or ``(K, d)`` for `Factored`
            rows; None where it is zero, as after training.

    Returns:
        1 for orthogonal gradients, below 1 where picks repeat each other, NaN where the batch as a
        whole gains nothing (the denominator is not positive).

    >>> import numpy as np
    >>> approximation_ratio(np.eye(3))
    1.0
    >>> approximation_ratio(np.array([[1.0, 0.0], [1.0, 0.0]]))
    0.5
    """
    if isinstance(gradients, Factored):
        rows = _doubles(gradients)
        norms = factored.squared_norms(rows)
        together = factored.weighted_sum(rows, np.ones(len(rows))).ravel()
    else:
        plain = _matrix(gradients, "gradients")
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
            raise BadInput("the labelled gradient holds NaN or infinity; mend it")
        cross = 2 * float(together @ summed)
    return _ratio(float(norms.sum()) + cross, float(together @ together) + cross)


def approximation_ratio_of_gram(gram: Any, products: Any = None) -> float:
    """`approximation_ratio` where only products of gradients are known.

    Args:
        gram: ``(b, b)``, the products of the picks' gradients with each other.
        products: ``(b,)``, their products with the summed gradient of the labelled items.

    >>> import numpy as np
    >>> approximation_ratio_of_gram(np.ones((4, 4)))
    0.25
    """
    matrix = check_kernel(gram, "gram")
    cross = 0.0
    if products is not None:
        found = np.asarray(to_numpy(products), dtype=np.float64)
        if found.shape != (len(matrix),) or not np.isfinite(found).all():
            raise BadInput(f"products must be {len(matrix)} finite numbers; got {found.shape}")
        cross = 2 * float(found.sum())
    return _ratio(float(np.trace(matrix)) + cross, float(matrix.sum()) + cross)


def _ratio(apart: float, together: float) -> float:
    return apart / together if together > 0 else math.nan


def last_layer_kernel(features: Any, others: Any = None, *, bias: bool = True) -> Floats:
    """The tangent kernel of a linear head alone, ``(n, m)``: ``h . h' + 1``.

    It is the same for every output; between two different outputs it is zero.

    Args:
        features: ``(n, d)``, what the head reads.
        others: ``(m, d)``; the features themselves if None.
        bias: whether the head has a bias, which is what adds the 1.

    >>> import numpy as np
    >>> last_layer_kernel(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[6., 3.],
           [3., 2.]])
    """
    left = _matrix(features, "features")
    right = left if others is None else _matrix(others, "others")
    return np.asarray(left @ right.T + (1.0 if bias else 0.0))


def alignment(kernel: Any, targets: Any) -> float:
    r"""``A = Tr(Y^T Theta Y)``: how strongly the targets lie along the kernel's main directions.

    Args:
        kernel: ``(n, n)``; or `Factored` rows ``g_i``, whose kernel is ``g_i . g_j``. Plain rows
            ``G`` are ``Factored(np.ones((n, 1)), G)``.
        targets: ``(n, K)``, or ``(n,)`` for one output; one-hot for classes.

    >>> import numpy as np
    >>> alignment(np.diag([3.0, 1.0]), np.eye(2))
    4.0
    """
    if isinstance(kernel, Factored):
        rows = _doubles(kernel)
        y = check_targets(targets, len(rows))
        sums = (factored.weighted_sum(rows, column) for column in y.T)
        return float(sum(np.vdot(matrix, matrix) for matrix in sums))
    theta = check_kernel(kernel)
    y = check_targets(targets, len(theta))
    return float(np.vdot(y, theta @ y))


def training_dynamics(kernel: Any, outputs: Any, targets: Any) -> float:
    """``G_MSE = Tr((f - Y)^T Theta (f - Y))``: how fast the squared loss falls.

    Args:
        kernel: as in `alignment`.
        outputs: ``(n, K)``, or ``(n,)``.
        targets: the same shape.

    >>> import numpy as np
    >>> training_dynamics(np.eye(2), np.array([1.0, 0.0]), np.array([0.0, 2.0]))
    5.0
    """
    f, y = (np.asarray(to_numpy(values), dtype=np.float64) for values in (outputs, targets))
    if f.shape != y.shape:
        raise BadInput(f"outputs have shape {f.shape} but targets {y.shape}; give the same")
    return alignment(kernel, f - y)


def one_hot(labels: Any, classes: int | None = None) -> Floats:
    """Classes as ``(n, K)`` rows with a single 1.

    >>> one_hot([1, 0])
    array([[0., 1.],
           [1., 0.]])
    """
    return np.eye(len(class_counts(labels, classes)))[np.asarray(to_numpy(labels), dtype=np.int64)]


def check_kernel(kernel: Any, name: str = "kernel") -> Floats:
    """A square, symmetric, finite matrix in float64."""
    theta = _matrix(kernel, name)
    if theta.shape[0] != theta.shape[1]:
        raise BadInput(f"{name} must be square, one row and column per item; got {theta.shape}")
    slack = 1e-5 * float(np.max(np.abs(theta), initial=0.0))
    if np.max(np.abs(theta - theta.T), initial=0.0) > slack:
        raise BadInput(f"{name} must be symmetric; give the kernel of the items with themselves")
    return theta


def check_targets(targets: Any, n: int) -> Floats:
    """Targets as a finite ``(n, K)`` matrix in float64."""
    y = np.asarray(to_numpy(targets), dtype=np.float64)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) != n or not np.isfinite(y).all():
        raise BadInput(f"targets must be finite, one row for each of {n} items; got {y.shape}")
    return y


def _matrix(values: Any, name: str) -> Floats:
    matrix = np.asarray(to_numpy(values), dtype=np.float64)
    if matrix.ndim != 2:
        raise BadInput(f"{name} must have two axes; got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise BadInput(f"{name} holds NaN or infinity; mend or leave out these items")
    return matrix


def _doubles(rows: Factored) -> Factored:
    return Factored(_matrix(rows.a, "a"), _matrix(rows.h, "h"))
