r"""The dual regression head: predicts dual variables of items from their features.

A small network :math:`h` is fitted to the dual variables of the labelled items, over frozen
features :math:`\phi`, by

.. math:: \min_{h \ge 0} \; \sum_i w_i \, (h(\phi(x_i)) - \lambda_i)^2 \Big/ \sum_i w_i ,

with :math:`w_i` the items' weights. There are two recipes:

``ROBUST``
    Features standardised, duals divided by their mean, smooth layers (SiLU) and a softplus output
    that starts at the mean, so that no part of it is stuck at zero; shuffled batches, weight
    decay, and the epoch with the smallest error on held out items.
``PAPER``
    Three blocks of linear layer, batch norm, ReLU and dropout, and a ReLU output; raw duals, a
    large learning rate, items in their order, until the error is below 0.04. What the authors'
    code does wrong is put right: the last, incomplete batch counts, fewer items than a batch will
    do, and an output that has died is reported.

Cost: an epoch is ``m (64 d + 2,600)`` multiplications and twice that backwards.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Section 4.2; recipe ``PAPER`` from the authors' code.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.learners.inputs import split_evenly
from labelwise.learners.preparation import seed_torch

FEWEST_TO_SPLIT = 20
"""With fewer items none are held out."""


@dataclass(frozen=True)
class DualHeadRecipe:
    """How a dual head is built and fitted.

    Attributes:
        hidden: widths of the hidden layers.
        dropout: one rate per hidden layer; empty for none.
        smooth: SiLU layers, a softplus output and standardised numbers; otherwise batch norm,
            ReLU, a ReLU output and numbers as they are.
        lr: learning rate of Adam.
        weight_decay: decoupled from the gradient.
        batch_size: items in a step.
        epochs: passes over the items, at most.
        goal: end when the mean squared error of an epoch is below this; None for never. Where
            ``smooth``, errors are in units of the duals' mean.
        held_out: share of the items to choose the best epoch by; with fewer than 20 items, none.
        patience: stop after this many epochs without a lower held-out error.
        shuffle: new batches in every epoch.
    """

    hidden: tuple[int, ...] = (64, 32, 16)
    dropout: tuple[float, ...] = ()
    smooth: bool = True
    lr: float = 1e-2
    weight_decay: float = 1e-4
    batch_size: int = 64
    epochs: int = 300
    goal: float | None = None
    held_out: float = 0.15
    patience: int = 40
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.dropout and len(self.dropout) != len(self.hidden):
            raise BadInput(
                f"there are {len(self.hidden)} hidden layers but {len(self.dropout)} dropout rates"
            )
        if not 0 <= self.held_out < 1:
            raise BadInput(f"held_out must be a share from 0 to below 1; got {self.held_out}")
        for name in ("batch_size", "epochs", "patience", "lr"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} must be above 0; got {getattr(self, name)}")
        if not self.smooth and self.batch_size < 3:  # batch norm needs two items or more
            raise BadInput(f"batch_size must be 3 or more with batch norm; got {self.batch_size}")


ROBUST = DualHeadRecipe()
PAPER = DualHeadRecipe(
    dropout=(0.3, 0.25, 0.25),
    smooth=False,
    lr=0.05,
    weight_decay=0.0,
    epochs=70,
    goal=0.04,
    held_out=0.0,
    shuffle=False,
)
RECIPES = {"robust": ROBUST, "paper": PAPER}


@dataclass(frozen=True)
class DualHeadReport:
    """What came of fitting a head.

    Attributes:
        error: mean squared error over the items it was fitted to, in eval mode.
        held_out_error: the same over those held out; None where none were.
        epochs: how many were made.
        spread: standard deviation of the duals; an error of its square is that of guessing the
            mean.
    """

    error: float
    held_out_error: float | None
    epochs: int
    spread: float


class DualHead:
    """Predict dual variables from features.

    Example:
        >>> import torch
        >>> from labelwise.learners.primal_dual.dual_head import DualHead
        >>> features = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
        >>> head = DualHead("robust")
        >>> report = head.fit(features, features[:, 0].square(), seed=0)
        >>> far, near = head(torch.tensor([[0.9], [0.0]], dtype=torch.float64)).tolist()
        >>> far > 0.5 > near >= 0
        True
    """

    def __init__(self, recipe: str | DualHeadRecipe = "robust") -> None:
        """Remember how to fit: ``"robust"``, ``"paper"``, or a `DualHeadRecipe`."""
        if isinstance(recipe, str):
            if recipe not in RECIPES:
                known = ", ".join(RECIPES)
                raise UnknownName(f"no dual head is called {recipe!r}; choose from {known}")
            recipe = RECIPES[recipe]
        self._recipe = recipe
        self._network: nn.Module | None = None
        self._scales: dict[str, Tensor] = {}

    def fit(
        self, features: Tensor, duals: Tensor, weights: Tensor | None = None, *, seed: int
    ) -> DualHeadReport:
        """Fit a new network.

        Args:
            features: ``(m, d)``, frozen.
            duals: ``(m,)``, not negative.
            weights: ``(m,)`` of the items; None counts all alike.
            seed: decides all that is random.
        """
        features, duals = features.detach(), duals.detach().to(features)
        weights = torch.ones_like(duals) if weights is None else weights.to(features)
        _check_duals(features, duals, weights)
        known = _KnownDuals(features, duals, weights / weights.sum())
        self._scales = _feature_scales(known, self._recipe.smooth)
        if not bool((duals > 0).any()):
            warnings.warn(
                "all dual variables are zero: no constraint was ever violated, so epsilon is too "
                "large; predicted duals are zero too: lower epsilon",
                LabelwiseWarning,
                stacklevel=2,
            )
            self._network = None
            return DualHeadReport(0.0, None, 0, 0.0)
        with seed_torch(seed, features.device), torch.enable_grad():
            self._network = _build_head(features.shape[1], self._recipe).to(features)
            epochs, held = self._train_head(known, self._network, np.random.default_rng([seed, 3]))
        return self._make_report(known, epochs, held)

    def __call__(self, features: Tensor) -> Tensor:
        """Predicted duals ``(b,)`` of features ``(b, d)``, in eval mode; gradients flow."""
        if not self._scales:
            raise BadInput("the dual head is not fitted yet; call fit first")
        if self._network is None:
            return (0 * features).sum(dim=1)
        middle, width, unit = (self._scales[name] for name in ("middle", "width", "unit"))
        answer: Tensor = self._network((features.to(middle) - middle) / width)[:, 0] * unit
        return answer

    def tensors(self) -> dict[str, Tensor]:
        """All that must be saved."""
        own = {} if self._network is None else self._network.state_dict()
        return {**self._scales, **{f"network.{name}": value for name, value in own.items()}}

    def describe_state(self) -> dict[str, Any]:
        """The recipe, as JSON can hold it."""
        return asdict(self._recipe)

    @classmethod
    def restore_state(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "DualHead":
        """The head that `tensors` and `facts` describe."""
        pairs: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in facts.items()
        }
        head = cls(DualHeadRecipe(**pairs))
        head._scales = {name: tensors[name] for name in ("middle", "width", "unit")}
        own = {n.removeprefix("network."): v for n, v in tensors.items() if n.startswith("network")}
        if own:
            middle = head._scales["middle"]
            head._network = _build_head(len(middle), head._recipe).to(middle).eval()
            head._network.load_state_dict(own)
        return head

    def _train_head(
        self, known: "_KnownDuals", network: nn.Module, rng: np.random.Generator
    ) -> tuple[int, NDArray[np.int64]]:
        """Fit the network; return how many epochs it took, and which items were held out."""
        recipe = self._recipe
        order = rng.permutation(np.flatnonzero(known.shares.cpu().numpy()))
        count = len(order)
        wanted = round(recipe.held_out * count) if count >= FEWEST_TO_SPLIT else 0
        held, kept = np.sort(order[:wanted]), np.sort(order[wanted:])
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay
        )
        best, best_epoch, state = math.inf, 0, network.state_dict()
        for epoch in range(1, recipe.epochs + 1):
            error = self._run_epoch(known, network, optimizer, kept, rng)
            if recipe.goal is not None and error < recipe.goal:
                break
            if not len(held):
                continue
            network.eval()
            with torch.no_grad():
                error = float(self._measure_errors(known, held).sum())
            if error < best:
                best, best_epoch = error, epoch
                state = {name: value.clone() for name, value in network.state_dict().items()}
            elif epoch - best_epoch >= recipe.patience:
                break
        if len(held):
            network.load_state_dict(state)
        network.eval()
        return epoch, held

    def _run_epoch(
        self,
        known: "_KnownDuals",
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        kept: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> float:
        """One pass; return its mean squared error, in units of the duals' mean."""
        network.train()
        order = rng.permutation(kept) if self._recipe.shuffle else kept
        total, share = 0.0, float(known.shares.cpu()[kept].sum())
        for batch in split_evenly(order, self._recipe.batch_size):
            # A batch's mean, with weights that are 1 on average.
            error = self._measure_errors(known, batch).sum() * (len(kept) / len(batch) / share)
            optimizer.zero_grad(set_to_none=True)
            error.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(error.detach()) * len(batch) / len(kept)
        return total

    def _measure_errors(self, known: "_KnownDuals", batch: NDArray[np.int64]) -> Tensor:
        """Squared errors of some items, in units of the duals' mean, times their shares."""
        places = torch.from_numpy(batch).to(known.duals.device)
        difference = (self(known.features[places]) - known.duals[places]) / self._scales["unit"]
        return known.shares[places] * difference.square()

    def _make_report(
        self, known: "_KnownDuals", epochs: int, held: NDArray[np.int64]
    ) -> DualHeadReport:
        with torch.no_grad():
            predicted = self(known.features)
        if float(predicted.max() - predicted.min()) <= 1e-6 * float(known.duals.max()):
            warnings.warn(
                f"the dual head is dead: it predicts {float(predicted.max()):.3g} for every item, "
                "and picks would follow the ids; fit again with another seed, or the robust head",
                LabelwiseWarning,
                stacklevel=3,
            )
        squares = (predicted - known.duals).square().cpu().numpy().astype(np.float64)
        shares = known.shares.cpu().numpy().astype(np.float64)
        fitted = np.setdiff1d(np.arange(len(shares)), held)
        outside = np.average(squares[held], weights=shares[held]) if shares[held].any() else None
        return DualHeadReport(
            float(np.average(squares[fitted], weights=shares[fitted])),
            None if outside is None else float(outside),
            epochs,
            float(known.duals.std()),
        )


class _KnownDuals(NamedTuple):
    """Features ``(m, d)``, duals ``(m,)`` and shares of the weight ``(m,)`` of the items."""

    features: Tensor
    duals: Tensor
    shares: Tensor


def _feature_scales(known: _KnownDuals, smooth: bool) -> dict[str, Tensor]:
    """What features are centred and divided by, ``(d,)`` each, and the unit of the duals."""
    columns, one = known.features[0], torch.ones_like(known.duals[0])
    if not smooth:
        return {"middle": torch.zeros_like(columns), "width": torch.ones_like(columns), "unit": one}
    middle = known.shares @ known.features
    width = (known.shares @ (known.features - middle).square()).sqrt()
    # Nothing is known of a column that is constant up to rounding: it is divided away.
    flat = width <= 1e-6 * middle.abs()
    unit = known.shares @ known.duals
    return {
        "middle": middle,
        "width": torch.where(flat, torch.inf, width),
        "unit": torch.where(unit > 0, unit, one),
    }


def _check_duals(features: Tensor, duals: Tensor, weights: Tensor) -> None:
    if features.ndim != 2 or not duals.shape == weights.shape == features.shape[:1]:
        raise BadInput(
            "a dual head needs features (m, d), duals (m,) and weights (m,); got "
            f"{tuple(features.shape)}, {tuple(duals.shape)} and {tuple(weights.shape)}"
        )
    if int((weights > 0).sum()) < 2:
        raise BadInput(f"a dual head needs 2 labelled items or more; got {len(duals)}")
    for name, values in (("duals", duals), ("weights", weights)):
        if not bool((torch.isfinite(values) & (values >= 0)).all()):
            raise BadInput(f"{name} must be finite and not negative; look where they come from")
    if not bool(torch.isfinite(features).all()):
        raise BadInput("features of labelled items must be finite; look at the inputs")


def _build_head(columns: int, recipe: DualHeadRecipe) -> nn.Module:
    """The network, ``(b, d)`` to ``(b, 1)``."""
    layers: list[nn.Module] = []
    for index, width in enumerate(recipe.hidden):
        layers.append(nn.Linear(columns, width))
        layers += [nn.SiLU()] if recipe.smooth else [nn.BatchNorm1d(width), nn.ReLU()]
        if recipe.dropout:
            layers.append(nn.Dropout(recipe.dropout[index]))
        columns = width
    last = nn.Linear(columns, 1)
    if recipe.smooth:
        nn.init.constant_(last.bias, math.log(math.e - 1))  # softplus makes it 1, the mean
    return nn.Sequential(*layers, last, nn.Softplus() if recipe.smooth else nn.ReLU())
