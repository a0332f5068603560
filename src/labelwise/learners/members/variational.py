r"""A mean-field variational last layer, trained with the rest of the network.

Every weight of the head has an independent Gaussian :math:`q(w_{kj}) = N(\mu_{kj}, \sigma_{kj}^2)`
with the prior :math:`N(0, \sigma_0^2)`. Training minimises the negative evidence lower bound

.. math:: \sum_i w_i \, E_q[-\log p(y_i | h_i)] + KL(q \Vert p) , \qquad
    KL = \sum \log\frac{\sigma_0}{\sigma} + \frac{\sigma^2 + \mu^2}{2 \sigma_0^2} - \frac12 ,

with the expectation estimated by one draw per item of the *outputs*, which are Gaussian with mean
:math:`\mu^T h` and variance :math:`(\sigma^2)^T h^2`. This local reparametrisation has a lower
gradient variance than one draw of the weights per batch and costs two products instead of one. In
eval mode the head uses the means; members are draws of the weights, shared by all items.

For a regression with noise :math:`\sigma_y^2`, the squared error averaged over k outputs is
:math:`2 \sigma_y^2 / k` times the negative log-likelihood; the divergence gets the same factor.

References: C. Blundell, J. Cornebise, K. Kavukcuoglu, D. Wierstra, "Weight Uncertainty in Neural
Networks", ICML 2015. D. Kingma, T. Salimans, M. Welling, "Variational Dropout and the Local
Reparameterization Trick", NeurIPS 2015.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learners.inputs import Batch
from labelwise.learners.members.base import Members, TrainedModule, compute_head_outputs
from labelwise.learners.training import LabelledItems, PenalizedLayer

DRAWS = 5  # Random stream of the weights
SMALLEST_VARIANCE = 1e-16  # Minimum variance of an output: the square root has no derivative at 0


class VariationalLinear(nn.Linear, PenalizedLayer):
    """A linear layer whose ``weight`` and ``bias`` are the means of independent Gaussians.

    ``weight_spread`` and ``bias_spread`` are logarithms of their standard deviations relative to
    the prior's, so weight decay pulls them towards the prior.

    >>> layer = VariationalLinear(nn.Linear(3, 2), start=1.0)
    >>> mean, variance = layer.compute_output_moments(torch.ones(1, 3))
    >>> variance.tolist()  # three weights and a bias, each of variance 1
    [[4.0, 4.0]]
    """

    def __init__(
        self, layer: nn.Linear, *, prior_scale: float = 1.0, start: float = 0.1, factor: float = 1.0
    ) -> None:
        """Use the weights of a layer, whose parameter objects are shared, as means.

        ``start`` are the initial standard deviations relative to the prior's; ``factor`` multiplies
        the divergence in `penalty`.
        """
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.prior_scale, self.factor = prior_scale, factor
        value = math.log(start)
        self.weight_spread = nn.Parameter(torch.full_like(layer.weight, value))
        spread = None if layer.bias is None else torch.full_like(layer.bias, value)
        self.bias_spread = None if spread is None else nn.Parameter(spread)

    def forward(self, inputs: Tensor) -> Tensor:
        """One draw of every output, ``(b, K)``, in train mode; the means in eval mode."""
        if not self.training:
            return F.linear(inputs, self.weight, self.bias)
        mean, variance = self.compute_output_moments(inputs)
        return mean + variance.clamp_min(SMALLEST_VARIANCE).sqrt() * torch.randn_like(mean)

    def compute_output_moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the outputs, ``(b, K)`` each."""
        mean = F.linear(inputs, self.weight, self.bias)
        own = None if self.bias is None else self.compute_deviations()[1]
        spread = self.compute_deviations()[0].square()
        return mean, F.linear(inputs.square(), spread, None if own is None else own.square())

    def compute_deviations(self) -> tuple[Tensor, Tensor | None]:
        """Standard deviations of the weights ``(K, d)`` and of the biases ``(K,)``."""
        weight = self.prior_scale * self.weight_spread.exp()
        if self.bias_spread is None:
            return weight, None
        return weight, self.prior_scale * self.bias_spread.exp()

    def divergence(self) -> Tensor:
        """Kullback-Leibler divergence from the prior, a scalar."""
        total = self._divergence(self.weight, self.weight_spread)
        if self.bias_spread is None:
            return total
        return total + self._divergence(self.bias, self.bias_spread)

    def penalty(self) -> Tensor:
        """The divergence, in the units of the loss."""
        return self.factor * self.divergence()

    def draw_weights(self, count: int, seed: int) -> tuple[Tensor, Tensor | None]:
        """Weights ``(count, K, d)`` and biases ``(count, K)``, the same on any device."""
        rng = np.random.default_rng([seed, DRAWS])
        drawn: list[Tensor | None] = []
        for mean, scale in zip((self.weight, self.bias), self.compute_deviations(), strict=True):
            if scale is None:
                drawn.append(None)
                continue
            noise = torch.from_numpy(rng.standard_normal((count, *mean.shape))).to(mean)
            drawn.append((mean + scale * noise).detach())
        assert drawn[0] is not None
        return drawn[0], drawn[1]

    def _divergence(self, mean: Tensor, spread: Tensor) -> Tensor:
        squares = (2 * spread).exp() + (mean / self.prior_scale).square()
        return (0.5 * (squares - 1) - spread).sum()


class VariationalMembers(Members):
    """Draws from a variational last layer.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from labelwise.learners.torch_learner import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> learner = TorchLearner(make, epochs=20, members=VariationalMembers(count=30))
        >>> report = learner.fit(inputs, targets, seed=0)
        >>> learner.represent(inputs, ["member_probabilities"])["member_probabilities"].shape
        (60, 30, 2)
        >>> type(learner.head).__name__
        'VariationalLinear'
    """

    def __init__(
        self,
        *,
        count: int = 100,
        prior_scale: float = 1.0,
        start: float = 0.1,
        noise: float | None = None,
    ) -> None:
        """Store the settings; ``prior_scale`` is the deviation of the zero-mean prior of a weight.

        ``start`` are the initial standard deviations relative to it. A regression needs the
        ``noise`` variance of every output, classes have none.
        """
        if count < 1:
            raise BadInput(f"count must be 1 or more; got {count}")
        for name, value in (("prior_scale", prior_scale), ("start", start), ("noise", noise)):
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"{name} must be above 0 and finite; got {value}")
        self.count = count
        self._prior_scale, self._start, self._noise = prior_scale, start, noise
        self._seed: int | None = None
        self._draws: tuple[Tensor, Tensor | None] | None = None

    def adapt(self, module: nn.Module, head: str) -> None:
        """Replace the head by a `VariationalLinear`, unless it is one already."""
        layer = module.get_submodule(head)
        if isinstance(layer, VariationalLinear):
            return
        if not isinstance(layer, nn.Linear) or type(layer).forward is not nn.Linear.forward:
            kind = type(layer).__name__
            raise BadInput(f"only a plain nn.Linear can become variational; {head!r} is a {kind}")
        if layer is module:
            raise BadInput(
                "the module is its own head and cannot be exchanged; make nn.Sequential(nn.Linear)"
            )
        # The divergence in the units of the loss: those of the cross entropy need no factor.
        factor = 1.0 if self._noise is None else 2 * self._noise / layer.out_features
        new = VariationalLinear(
            layer, prior_scale=self._prior_scale, start=self._start, factor=factor
        )
        for parent in list(module.modules()):
            for name, child in list(parent._modules.items()):
                if child is layer:
                    setattr(parent, name, new)

    def begin(self, labelled: LabelledItems) -> None:
        """Reject a regression without noise, and classes with noise."""
        if labelled.targets.is_floating_point() != (self._noise is not None):
            task = "a regression needs" if self._noise is None else "classes have no"
            raise BadInput(f"{task} noise; got noise={self._noise}")

    def fitted(self, trained: TrainedModule) -> None:
        """Store the seed of the draws."""
        self._seed, self._draws = trained.seed, None

    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """Outputs of every draw of the head, ``(b, count, K)``."""
        if self._seed is None:
            raise BadInput("no weights are drawn yet; fit or load the learner first")
        if self._draws is None:
            layer = module.get_submodule(head)
            assert isinstance(layer, VariationalLinear)
            self._draws = layer.draw_weights(self.count, self._seed)
        return compute_head_outputs(features, *self._draws)

    def tensors(self) -> dict[str, Tensor]:
        """The seed; means and standard deviations are saved with the module."""
        return {} if self._seed is None else {"seed": torch.tensor(self._seed)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the seed."""
        self._seed, self._draws = int(tensors["seed"]), None
