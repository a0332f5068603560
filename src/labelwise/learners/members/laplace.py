r"""Laplace approximation of the posterior of the last layer around the trained weights.

The head maps features :math:`h` to :math:`W (h, 1)`. With :math:`\tilde h = (h, 1)`, class
probabilities :math:`p_i` and weights :math:`w_i`, the negative log posterior has the Hessian

.. math:: \sum_i w_i \, (\mathrm{diag}\, p_i - p_i p_i^T) \otimes \tilde h_i \tilde h_i^T + \tau I ,

and the posterior is the Gaussian around the trained :math:`W` with its inverse as covariance. For a
regression with squared error the Hessian is
:math:`\mathrm{diag}(1 / \sigma_k^2) \otimes \sum_i w_i \tilde h_i \tilde h_i^T + \tau I`, the
precision of Bayesian linear regression, with the noise of output :math:`k` estimated by the mean
squared residual :math:`\sigma_k^2 = \sum_i w_i r_{ik}^2 / \sum_i w_i`. The trained weights
serve as the mode of the posterior; training to convergence with the cross entropy and a weight
decay of :math:`\tau / m` (m labelled items) reaches that mode.

==============  ==================================================  ========================
structure       precision                                           cost
==============  ==================================================  ========================
``full``        as above                                            ``m K^2 d^2 + K^3 d^3``
``kronecker``   sum of the left factors x mean of the right ones    ``m (K^2 + d^2) + d^3``
``diagonal``    the diagonal of ``full``                            ``m K d``
==============  ==================================================  ========================

``auto`` is ``full`` up to 3,000 weights and ``kronecker`` above; for a regression the Kronecker
form is exact and ``full`` uses it. Prediction: one product of the pool's features with all draws.

References: D. MacKay, "A Practical Bayesian Framework for Backpropagation Networks", Neural
Computation 1992. H. Ritter, A. Botev, D. Barber, "A Scalable Laplace Approximation for Neural
Networks", ICLR 2018. A. Kristiadi, M. Hein, P. Hennig, "Being Bayesian, Even Just a Bit, Fixes
Overconfidence in ReLU Networks", ICML 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learners.inputs import Batch
from labelwise.learners.members.base import Members, TrainedModule, compute_head_outputs
from labelwise.learners.network import get_linear_layer

DRAWS = 4  # Random stream of the weights
FULL_UP_TO = 3000  # Largest number of weights with a full posterior when ``structure="auto"``
STRUCTURES = ("auto", "full", "kronecker", "diagonal")


@dataclass(frozen=True)
class FullPosterior:
    """A Gaussian over the ``(K, e)`` weights of the head, in float64.

    A bias is the last column: ``e`` is ``d + 1`` with a bias and ``d`` without. ``factor`` is the
    lower Cholesky factor of the precision, ``(K e, K e)``.
    """

    mean: Tensor
    factor: Tensor

    def covariance(self) -> Tensor:
        """``(K e, K e)`` in the order of ``mean.flatten()``."""
        return torch.cholesky_inverse(self.factor)

    def transform_noise(self, noise: Tensor) -> Tensor:
        """``L^-T z``, whose covariance is the inverse of ``L L^T``."""
        flat = noise.flatten(1).T
        solved: Tensor = torch.linalg.solve_triangular(self.factor.T, flat, upper=True)
        return solved.T.reshape(noise.shape)


@dataclass(frozen=True)
class KroneckerPosterior:
    """Independent weights ``(K, e)`` in the rotated basis ``left`` x ``right``."""

    mean: Tensor
    variances: Tensor
    left: Tensor
    right: Tensor

    def covariance(self) -> Tensor:
        """``(K e, K e)``."""
        basis = torch.kron(self.left, self.right)
        return (basis * self.variances.flatten()) @ basis.T

    def transform_noise(self, noise: Tensor) -> Tensor:
        """Scale noise in the rotated basis and rotate it back."""
        return self.left @ (noise * self.variances.sqrt()) @ self.right.T


HeadPosterior = FullPosterior | KroneckerPosterior


class LaplaceMembers(Members):
    """Draws of the last layer from its Laplace posterior.

    The likelihood is softmax for classes and Gaussian for a regression.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from labelwise.learners.torch_learner import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> members = LaplaceMembers(count=30)
        >>> learner = TorchLearner(make, epochs=10, members=members)
        >>> report = learner.fit(inputs, targets, seed=0)
        >>> learner.represent(inputs, ["member_probabilities"])["member_probabilities"].shape
        (60, 30, 2)
        >>> tuple(members.posterior.covariance().shape)  # 2 classes, 8 features and a bias
        (18, 18)
    """

    def __init__(
        self,
        *,
        count: int = 100,
        prior_precision: float = 1.0,
        structure: str = "auto",
        noise: float | None = None,
    ) -> None:
        r"""Store the settings: precision of the prior, and structure, as in the table above.

        The ``noise`` variance of a regression's targets is estimated from the residuals if None,
        which is too small if the network overfits.
        """
        if count < 1:
            raise BadInput(f"count must be 1 or more; got {count}")
        if not 0 < prior_precision < float("inf"):
            raise BadInput(f"prior_precision must be above 0 and finite; got {prior_precision}")
        if structure not in STRUCTURES:
            raise BadInput(f"structure must be one of {', '.join(STRUCTURES)}; got {structure!r}")
        if noise is not None and not noise > 0:
            raise BadInput(f"noise must be above 0; got {noise}")
        self.count = count
        self._prior, self._structure, self._noise = prior_precision, structure, noise
        self._posterior: HeadPosterior | None = None
        self._draws: tuple[Tensor, Tensor | None] | None = None
        self._facts = torch.zeros(2, dtype=torch.int64)  # seed; 1 if there is a bias

    @property
    def posterior(self) -> HeadPosterior:
        """The posterior of the head's weights, after `fit`."""
        if self._posterior is None:
            raise BadInput("the learner is not trained yet; call fit or load first")
        return self._posterior

    def fitted(self, trained: TrainedModule) -> None:
        """Compute the posterior and draw weights."""
        layer, labelled = get_linear_layer(trained.module, trained.head), trained.labelled
        rows, mean = trained.features().double(), layer.weight.detach().double()
        if layer.bias is not None:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
            mean = torch.cat([mean, layer.bias.detach().double()[:, None]], dim=1)
        weights = labelled.weights.double().to(rows.device)
        if labelled.targets.is_floating_point():
            self._posterior = self._approximate_value_posterior(
                mean, rows, weights, labelled.targets
            )
        else:
            self._posterior = self._approximate_class_posterior(mean, rows, weights)
        self._facts = torch.tensor([trained.seed, layer.bias is not None])
        self._draw_head_weights(layer.weight.dtype)

    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """Outputs of every draw of the head, ``(b, count, K)``."""
        if self._draws is None:
            raise BadInput("no weights are drawn yet; fit or load the learner first")
        return compute_head_outputs(features, *self._draws)

    def tensors(self) -> dict[str, Tensor]:
        """The posterior and the seed, which determine the draws."""
        if self._draws is None:
            return {}
        facts = {"facts": self._facts, "like": self._draws[0].new_empty(0)}
        return {**vars(self.posterior), **facts}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the posterior and draw weights."""
        given = dict(tensors)
        self._facts, like = given.pop("facts"), given.pop("like")
        kind: type[HeadPosterior] = FullPosterior if "factor" in given else KroneckerPosterior
        self._posterior = kind(**given)
        self._draw_head_weights(like.dtype)

    def _draw_head_weights(self, dtype: torch.dtype) -> None:
        """Draw weights from the seed; the same on any device."""
        mean = self.posterior.mean
        rng = np.random.default_rng([int(self._facts[0]), DRAWS])
        noise = torch.from_numpy(rng.standard_normal((self.count, *mean.shape))).to(mean.device)
        drawn = (mean + self.posterior.transform_noise(noise)).to(dtype)
        has_bias = bool(self._facts[1])
        self._draws = (drawn[..., :-1], drawn[..., -1]) if has_bias else (drawn, None)

    def _approximate_class_posterior(
        self, mean: Tensor, rows: Tensor, weights: Tensor
    ) -> HeadPosterior:
        probabilities = (rows @ mean.T).softmax(dim=1)
        structure = self._structure
        if structure == "auto":
            structure = "full" if mean.numel() <= FULL_UP_TO else "kronecker"
        if structure == "full":
            hessian = classes_hessian(probabilities, rows, weights)
            hessian.diagonal().add_(self._prior)
            return FullPosterior(mean, torch.linalg.cholesky(hessian))
        if structure == "diagonal":
            curvature = weights[:, None] * probabilities * (1 - probabilities)
            return self._fit_diagonal_posterior(mean, curvature.T @ rows.square())
        # The left factor is summed over the items, the right one is their mean.
        scaled = weights[:, None] * probabilities
        left = torch.diag(scaled.sum(dim=0)) - scaled.T @ probabilities
        return self._fit_kronecker_posterior(
            mean, left, rows.T @ (weights[:, None] * rows) / weights.sum()
        )

    def _approximate_value_posterior(
        self, mean: Tensor, rows: Tensor, weights: Tensor, targets: Tensor
    ) -> HeadPosterior:
        # The noise of every output, from the residuals of the training items.
        errors = (targets.double() - rows @ mean.T).square()
        noise = weights @ errors / weights.sum()
        if self._noise is not None:
            noise = torch.full_like(noise, self._noise)
        if not bool((noise > 0).all()):
            raise BadInput("the residuals of an output are all 0; give the noise of its targets")
        if self._structure == "diagonal":
            return self._fit_diagonal_posterior(
                mean, torch.outer(1 / noise, weights @ rows.square())
            )
        return self._fit_kronecker_posterior(
            mean, torch.diag(1 / noise), rows.T @ (weights[:, None] * rows)
        )

    def _fit_diagonal_posterior(self, mean: Tensor, curvature: Tensor) -> HeadPosterior:
        rows, columns = (torch.eye(size, dtype=mean.dtype).to(mean) for size in mean.shape)
        return KroneckerPosterior(mean, 1 / (curvature + self._prior), rows, columns)

    def _fit_kronecker_posterior(self, mean: Tensor, left: Tensor, right: Tensor) -> HeadPosterior:
        """The posterior with precision ``left x right + prior``; both factors semi-definite."""
        ours, basis = torch.linalg.eigh(left)
        theirs, other = torch.linalg.eigh(right)
        curvature = torch.outer(ours.clamp_min(0), theirs.clamp_min(0))
        return KroneckerPosterior(mean, 1 / (curvature + self._prior), basis, other)


def classes_hessian(probabilities: Tensor, features: Tensor, weights: Tensor) -> Tensor:
    """Hessian of the weighted cross entropy with respect to the weights of a linear layer.

    ``probabilities`` ``(m, K)``, ``features`` ``(m, e)``; the result ``(K e, K e)`` is in the order
    of the flattened ``(K, e)`` weights.

    >>> certain = torch.tensor([[1.0, 0.0]])
    >>> classes_hessian(certain, torch.ones(1, 1), torch.ones(1)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    classes, size = probabilities.shape[1], features.shape[1]
    hessian = features.new_empty(classes, size, classes, size)
    for k in range(classes):
        for j in range(k + 1):
            curvature = (float(j == k) - probabilities[:, j]) * probabilities[:, k] * weights
            block = features.T @ (curvature[:, None] * features)
            hessian[k, :, j], hessian[j, :, k] = block, block.T
    return hessian.reshape(classes * size, classes * size)
