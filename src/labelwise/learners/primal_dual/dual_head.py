r"""The dual regression head: predicts dual variables of items from their features.

A small network :math:`h` is fitted to the dual variables of the labelled items, on frozen features
:math:`\phi`, by

.. math:: \min_{h \ge 0} \; \sum_i w_i \, (h(\phi(x_i)) - \lambda_i)^2 \Big/ \sum_i w_i ,

with :math:`w_i` the items' weights. There are two recipes:

``ROBUST``
    Standardised features, duals divided by their mean, smooth layers (SiLU) and a softplus output
    that starts at the mean, so that no part of it is stuck at zero; weight decay, and the epoch
    with the smallest error on held-out items.
``PAPER``
    Three blocks of linear layer, batch norm, ReLU and dropout, and a ReLU output; raw duals, a
    large learning rate, until the error is below 0.04. Unlike the authors' code it uses the last,
    incomplete batch, works with fewer items than a batch, and reports an output that has died.

Cost: an epoch is ``m (64 d + 2,600)`` multiplications and twice that backwards.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Section 4.2; recipe ``PAPER`` from the authors' code.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Ids
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.learners.inputs import ItemSubset, TensorItems
from labelwise.learners.preparation import hold_out_items, seed_torch
from labelwise.learners.settings import TrainingSettings, squared_error
from labelwise.learners.training import LabelledItems, train

FEWEST_TO_SPLIT = 20  # With fewer items none are held out


@dataclass(frozen=True)
class DualHeadRecipe:
    """The settings of a dual head."""

    hidden: tuple[int, ...] = (64, 32, 16)  # widths of the hidden layers
    dropout: tuple[float, ...] = ()  # one rate per hidden layer; empty for none
    # SiLU layers, a softplus output and standardised numbers; otherwise batch norm, ReLU, a ReLU
    # output and numbers as they are
    smooth: bool = True
    lr: float = 1e-2  # learning rate of Adam
    weight_decay: float = 1e-4  # decoupled from the gradient
    batch_size: int = 64  # items in a step
    epochs: int = 300  # maximum number of passes over the items
    # Stop when the mean squared error of an epoch is at most this; None for never. With ``smooth``,
    # errors are in units of the duals' mean
    goal: float | None = None
    # Share of the items to choose the best epoch by; none with fewer than 20 items
    held_out: float = 0.15
    patience: int = 40  # stop after this many epochs without a lower held-out error

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
)
RECIPES = {"robust": ROBUST, "paper": PAPER}


@dataclass(frozen=True)
class DualHeadReport:
    """Result of fitting a head."""

    error: float  # mean squared error over the items it was fitted to, in eval mode
    held_out_error: float | None  # the same over the held-out items; None without such items
    epochs: int
    # Standard deviation of the duals, the root mean squared error of predicting the mean
    spread: float


class DualHead:
    """Predict dual variables from features."""

    def __init__(self, recipe: str | DualHeadRecipe = "robust") -> None:
        """Store the recipe: ``"robust"``, ``"paper"``, or a `DualHeadRecipe`."""
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
        """Fit a new network to ``(m,)`` non-negative duals of frozen features ``(m, d)``."""
        features, duals = features.detach(), duals.detach().to(features)
        weights = torch.ones_like(duals) if weights is None else weights.to(features)
        _check_duals(features, duals, weights)
        self._scales = _compute_dual_scales(features, duals, weights, self._recipe.smooth)
        if not bool((duals > 0).any()):
            warnings.warn(
                "all dual variables are zero: no constraint was ever violated, so epsilon is too "
                "large; predicted duals are zero too: lower epsilon",
                LabelwiseWarning,
                stacklevel=2,
            )
            self._network = None
            return DualHeadReport(0.0, None, 0, 0.0)
        kept = (weights > 0).nonzero()[:, 0]
        features, duals, weights = features[kept], duals[kept], weights[kept]
        with seed_torch(seed, features.device), torch.enable_grad():
            self._network = _build_dual_head(features.shape[1], self._recipe).to(features)
            epochs, held = self._train_dual_head(features, duals, weights, seed)
        return self._make_dual_head_report(features, duals, weights, epochs, held)

    def __call__(self, features: Tensor) -> Tensor:
        """Predicted duals ``(b,)`` of features ``(b, d)``, in eval mode; gradients flow."""
        if not self._scales:
            raise BadInput("the dual head is not fitted yet; call fit first")
        if self._network is None:
            return (0 * features).sum(dim=1)
        answer: Tensor = (
            self._network(self._standardize_features(features))[:, 0] * self._scales["unit"]
        )
        return answer

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save."""
        own = {} if self._network is None else self._network.state_dict()
        return {**self._scales, **{f"network.{name}": value for name, value in own.items()}}

    def describe_state(self) -> dict[str, Any]:
        """The recipe in JSON types."""
        return asdict(self._recipe)

    @classmethod
    def restore_state(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "DualHead":
        """Restore a head from `tensors` and `describe_state`."""
        known = {field.name for field in fields(DualHeadRecipe)}
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in facts.items()
            if name in known
        }
        head = cls(DualHeadRecipe(**options))
        head._scales = {name: tensors[name] for name in ("middle", "width", "unit")}
        own = {n.removeprefix("network."): v for n, v in tensors.items() if n.startswith("network")}
        if own:
            middle = head._scales["middle"]
            head._network = _build_dual_head(len(middle), head._recipe).to(middle).eval()
            head._network.load_state_dict(own)
        return head

    def _standardize_features(self, features: Tensor) -> Tensor:
        middle = self._scales["middle"]
        return (features.to(middle) - middle) / self._scales["width"]

    def _train_dual_head(
        self, features: Tensor, duals: Tensor, weights: Tensor, seed: int
    ) -> tuple[int, Ids]:
        """Train the network; return the number of epochs and the positions held out."""
        recipe = self._recipe
        assert self._network is not None
        targets = (duals / self._scales["unit"])[:, None]
        items = TensorItems(self._standardize_features(features))
        whole = LabelledItems(items, targets, weights / weights.mean())
        share = recipe.held_out if len(duals) >= FEWEST_TO_SPLIT else 0.0
        labelled, held = hold_out_items(whole, False, share, "mse", seed)
        settings = TrainingSettings(
            loss=squared_error,
            optimizer="adamw",
            lr=recipe.lr,
            weight_decay=recipe.weight_decay,
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            patience=None if held is None else recipe.patience,
            stop_loss=recipe.goal,
        )
        outcome = train(
            self._network, labelled, settings, seed=seed, device=duals.device, validation=held
        )
        positions = np.empty(0, dtype=np.int64)
        if held is not None and isinstance(held.items, ItemSubset):
            positions = held.items.positions
        return outcome.epochs, positions

    def _make_dual_head_report(
        self, features: Tensor, duals: Tensor, weights: Tensor, epochs: int, held: Ids
    ) -> DualHeadReport:
        with torch.no_grad():
            predicted = self(features)
        if float(predicted.max() - predicted.min()) <= 1e-6 * float(duals.max()):
            warnings.warn(
                f"the dual head is dead: it predicts {float(predicted.max()):.3g} for every item, "
                "and picks would follow the ids; fit again with another seed, or the robust head",
                LabelwiseWarning,
                stacklevel=3,
            )
        squares = (predicted - duals).square().cpu().numpy().astype(np.float64)
        masses = weights.cpu().numpy().astype(np.float64)
        fitted = np.setdiff1d(np.arange(len(masses)), held)
        return DualHeadReport(
            float(np.average(squares[fitted], weights=masses[fitted])),
            float(np.average(squares[held], weights=masses[held])) if len(held) else None,
            epochs,
            float(duals.std()),
        )


def _compute_dual_scales(
    features: Tensor, duals: Tensor, weights: Tensor, smooth: bool
) -> dict[str, Tensor]:
    """Center and width of the features, ``(d,)`` each, and the unit of the duals."""
    columns, one = features[0], torch.ones_like(duals[0])
    if not smooth:
        return {"middle": torch.zeros_like(columns), "width": torch.ones_like(columns), "unit": one}
    shares = weights / weights.sum()
    middle = shares @ features
    width = (shares @ (features - middle).square()).sqrt()
    # A column that is constant up to rounding carries no information: it becomes 0.
    flat = width <= 1e-6 * middle.abs()
    unit = shares @ duals
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
            raise BadInput(f"{name} must be finite and not negative")
    if not bool(torch.isfinite(features).all()):
        raise BadInput("features of labelled items must be finite; check the inputs")


def _build_dual_head(columns: int, recipe: DualHeadRecipe) -> nn.Module:
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
        nn.init.constant_(last.bias, math.log(math.e - 1))  # softplus(bias) = 1, the mean
    return nn.Sequential(*layers, last, nn.Softplus() if recipe.smooth else nn.ReLU())
