r"""Bounds on convergence and generalisation from the kernel-target alignment.

With :math:`\lambda_i, v_i` the eigenvalues and eigenvectors of the kernel :math:`\Theta` of ``n``
items, and targets :math:`Y`, the training error after ``t`` steps of gradient descent with rate
:math:`\eta` is :math:`E_t`, and the generalisation error is bounded by :math:`B` up to terms
independent of :math:`Y`:

.. math::
    E_t^2 = \sum_{k, i} (1 - \eta \lambda_i)^{2t} (v_i \cdot Y^k)^2 , \qquad
    B = \sqrt{2 \operatorname{Tr}(Y^\top \Theta^{-1} Y) / n} .

The alignment :math:`A = \operatorname{Tr}(Y^\top \Theta Y)` bounds both, with
:math:`c = \operatorname{Tr}(Y^\top Y)`:

.. math::
    c - 2 t \eta A \le E_t^2 \le c - \eta A \quad (t \ge 1, \; \eta \lambda_{\max} \le 1) , \qquad
    \frac{c^2}{A} \le \frac n2 B^2 \le
    \frac{(\lambda_{\max} + \lambda_{\min})^2}{4 \lambda_{\max} \lambda_{\min}} \frac{c^2}{A} .

The last constant is from the Kantorovich inequality; the paper's constant,
:math:`\lambda_{\max} / \lambda_{\min}`, is up to four times as large.

Cost: one eigendecomposition or Cholesky factorisation of the kernel, ``O(n^3)``.

Reference: H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022, Theorems 1 and 2.
"""

import math

import numpy as np

from labelwise.arrays import Array
from labelwise.errors import BadInput
from labelwise.theory.dynamics import alignment, check_kernel_targets, check_tangent_kernel

JITTER = 1e-8
"""Added to the kernel's diagonal before factorisation, relative to the diagonal's mean."""


def convergence_error(kernel: Array, targets: Array, *, rate: float, steps: int) -> float:
    """``E_t``: the training error after ``steps`` steps of gradient descent from zero outputs.

    ``kernel`` is ``(n, n)``, ``targets`` ``(n, K)`` or ``(n,)``; ``rate`` is at most 1 / largest
    eigenvalue.

    >>> import numpy as np
    >>> convergence_error(np.eye(2), np.array([3.0, 4.0]), rate=0.5, steps=1)
    2.5
    """
    theta = check_tangent_kernel(kernel)
    y = check_kernel_targets(targets, len(theta))
    values, vectors = np.linalg.eigh(theta)
    _check_gradient_descent(values, rate, steps)
    left = (1 - rate * values)[:, None] ** steps * (vectors.T @ y)
    return float(np.linalg.norm(left))


def convergence_bounds(
    kernel: Array, targets: Array, *, rate: float, steps: int
) -> tuple[float, float]:
    """Lower and upper bound on ``E_t^2`` by Theorem 1; ``steps`` is 1 or more.

    >>> import numpy as np
    >>> convergence_bounds(np.eye(2), np.array([3.0, 4.0]), rate=0.5, steps=1)
    (0.0, 12.5)
    """
    theta = check_tangent_kernel(kernel)
    y = check_kernel_targets(targets, len(theta))
    _check_gradient_descent(np.linalg.eigvalsh(theta), rate, steps)
    if steps < 1:
        raise BadInput(f"the bounds need at least one step; got {steps}")
    size, aligned = float(np.vdot(y, y)), alignment(theta, y)
    return size - 2 * steps * rate * aligned, size - rate * aligned


def _check_gradient_descent(values: Array, rate: float, steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise BadInput(f"steps must be a whole number, 0 or more; got {steps!r}")
    top, low = float(np.max(values, initial=0.0)), float(np.min(values, initial=0.0))
    if low < -1e-5 * top:
        raise BadInput(
            f"the kernel has the eigenvalue {low:.3g}; one of gradients has none below 0"
        )
    if not (rate > 0 and rate * top <= 1 + 1e-12):
        most = 1 / top if top > 0 else math.inf
        raise BadInput(f"rate must be above 0 and at most 1 / largest eigenvalue = {most:.3g}")


def generalisation_bound(kernel: Array, targets: Array, *, jitter: float = JITTER) -> float:
    """``B = sqrt(2 Tr(Y^T Theta^-1 Y) / n)``, by a Cholesky factorisation.

    ``kernel`` is ``(n, n)``, positive semi-definite; ``targets`` are ``(n, K)`` or ``(n,)``.
    ``jitter`` is added to the diagonal, relative to its mean, and determines the result if the
    kernel is singular and the targets are outside its range.

    >>> import numpy as np
    >>> generalisation_bound(4 * np.eye(2), np.eye(2), jitter=0.0)
    0.7071067811865476
    """
    theta = check_tangent_kernel(kernel)
    n = len(theta)
    y = check_kernel_targets(targets, n)
    if not (math.isfinite(jitter) and jitter >= 0):
        raise BadInput(f"jitter must be zero or a positive number; got {jitter}")
    steadied = theta + jitter * np.trace(theta) / n * np.eye(n)
    try:
        factor = np.linalg.cholesky(steadied)
    except np.linalg.LinAlgError:
        raise BadInput(
            f"the kernel is not positive definite with a jitter of {jitter:g}; raise it"
        ) from None
    solved = np.linalg.solve(factor, y)
    return float(math.sqrt(2 * float(np.vdot(solved, solved)) / n))


def generalisation_bounds(
    kernel: Array, targets: Array, *, kantorovich: bool = True
) -> tuple[float, float]:
    """Lower and upper bound on ``B`` by Theorem 2, from alignment and extreme eigenvalues.

    The upper bound is infinite unless the kernel is positive definite. ``kantorovich`` uses the
    sharp constant instead of the paper's.

    >>> import numpy as np
    >>> generalisation_bounds(4 * np.eye(2), np.eye(2))
    (0.7071067811865476, 0.7071067811865476)
    """
    theta = check_tangent_kernel(kernel)
    n = len(theta)
    y = check_kernel_targets(targets, n)
    values = np.linalg.eigvalsh(theta)
    low, high = float(values[0]), float(values[-1])
    size, aligned = float(np.vdot(y, y)), alignment(theta, y)
    if not size:
        return 0.0, 0.0
    if not aligned > 0:
        return math.inf, math.inf
    least = size**2 / aligned
    if low <= 0:
        factor = math.inf
    else:
        factor = (high + low) ** 2 / (4 * high * low) if kantorovich else high / low
    return math.sqrt(2 / n * least), math.sqrt(2 / n * least * factor)
