r"""Linear probe: a linear model on frozen features, trained within a second and without torch.

Features are centred at the mean of the labelled items and divided by one number, the root mean
square of what remains; columns of an embedding are comparable, and a scale per column would be
noise with few labels. Classes get a multinomial logistic regression and values a ridge regression,
see `labelwise.learners.linear_models`.

=====================  ============================================================================
choice                 rule
=====================  ============================================================================
penalty                smallest out-of-fold loss of `PENALTIES`, from `LEAST_TUNED` labels a class
                       on; `PENALTY` before. A ridge takes the smallest leave-one-out error.
temperature            calibrated on the same out-of-fold logits, from `LEAST_FOLDED` labels a class
                       on; with few labels hardly below 1
self-training          once the penalty is chosen: training again on labels and on predictions
                       of unlabelled items above `CONFIDENT`, which count at most half as much
members                draws from the Laplace approximation with a Kronecker-factored precision
=====================  ============================================================================

A penalty of 1 is one per feature: :math:`\lambda = q d`. The prior precision of the members is
matched to the spread of the trained logits, because the penalty that predicts best is far weaker
than a prior: with it, members would disagree at random wherever there are no labels yet.

Cost: milliseconds for 50 labels, below half a second for 2,000 labels with 1,280 features and 10
classes; cross-validation takes about three times as long and can be left out by giving ``tuning``.

Reference: D. MacKay, "The Evidence Framework Applied to Classification Networks", Neural
Computation 1992, for the members.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, HostArray, Ids, row_noise
from labelwise.errors import BadInput
from labelwise.kernels.calibration import softmax
from labelwise.learner import FitReport, check_seed
from labelwise.learners.linear_models import (
    LARGEST_BASIS,
    RowSpan,
    fit_logistic,
    fit_ridge,
    span_rows,
)
from labelwise.learners.tuned_model import (
    COLDEST,
    HOTTEST,
    LEAST_FOLDED,
    OutOfFold,
    TrainingRows,
    TunedModel,
    check_features,
    choose_temperature,
    measure_loss,
    split_folds,
)
from labelwise.learners.weights import convert_numbers

PENALTY = 0.003  # Penalty per feature before there are enough labels to choose it
PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
RIDGE_PENALTIES = tuple(10.0**power for power in np.arange(3.0, -3.5, -0.5))

LEAST_TUNED = 3  # Labels per class from which on the penalty is chosen
FOLD_TOLERANCE = 3e-5  # Tolerance of the fits of folds
WARM_LABELS = 10  # Labels per class from which on a temperature below 1 counts by half or more
MEMBERS = 50

SELF_TRAINING_ROUNDS, CONFIDENT, MOST_PSEUDO = 3, 0.9, 2000
"""Rounds of self-training, least confidence, and how many unlabelled items are looked at."""
LEAST_CLASSES, MOST_LABELS = 3, 1000
"""Where self-training is on by default: of two classes, confident predictions are wrong more often;
with many labels it gains less, and takes two more seconds with 2,000."""

_MEMBER_STREAM, _PSEUDO_STREAM = 62, 63
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class ProbeTuning:
    """The result of cross-validation; a later training can reuse it."""

    penalty: float = PENALTY  # per feature
    temperature: float = 1.0  # that the logits are divided by
    labels: int = 0  # number of labels that it was chosen with; 0 if there were too few


@dataclass(frozen=True)
class _ProbeState:
    """A trained model: arrays that `LinearProbe.save` writes."""

    mean: Floats
    coefficients: Floats  # ``(d, K)``, of centred features in their own units
    offsets: Floats
    basis: Floats | None  # ``(d, r)`` orthonormal directions of the posterior; None for the axes
    # ``(K, r + 1)`` of the posterior in rotated outputs; the last is the offset's
    variances: Floats
    rotation: Floats  # ``(K, K)`` of the outputs
    prior: float  # variance of the coefficients outside the basis
    scale: float  # of the features: members' coefficients are for standardised ones


class LinearProbe(TunedModel):
    """A linear model of classes or values on features; a learner without torch.

    Logits and probabilities have a column per class and are calibrated:
    ``softmax(logits) == probabilities``. Features are the inputs themselves, so that strategies see
    the same features in every round. It also follows scikit-learn's conventions (``get_params``,
    ``classes_``, ``predict_proba``, ``score``).

    Attributes:
        classes_: the classes of the columns, in order; None for a regression.
        tuning: penalty and temperature of the last training.
        out_of_fold: out-of-fold predictions of the labelled items; None if there were too few.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> images, digits = load_digits(return_X_y=True)
        >>> probe = LinearProbe()
        >>> report = probe.fit(images[::6], digits[::6])
        >>> bool(probe.score(images, digits) > 0.9)
        True
        >>> probe.represent(images[:3], ["probabilities"])["probabilities"].shape
        (3, 10)
    """

    def __init__(
        self,
        *,
        classes: int | Sequence[Any] | None = None,
        regression: bool = False,
        penalty: float | None = None,
        self_training: bool | None = None,
        unlabelled: Array = None,
        members: int = MEMBERS,
    ) -> None:
        """Remember the settings; `fit` checks them.

        Args:
            classes: all classes, or their number if they are 0, 1, ... (labels may need more);
                those among the labels if None. Classes without labels get a small probability.
            regression: whether labels are values.
            penalty: per feature; chosen by cross-validation if None.
            self_training: whether to train also on confident predictions of ``unlabelled`` items,
                from `LEAST_FOLDED` labels a class on; None for `LEAST_CLASSES` classes or more,
                from `LEAST_TUNED` labels a class on, and at most `MOST_LABELS` labels.
            unlabelled: ``(n, d)`` features; used by ``self_training`` only.
            members: number of draws of the members.
        """
        self.classes, self.regression, self.penalty = classes, regression, penalty
        self.self_training, self.unlabelled, self.members = self_training, unlabelled, members
        self.tuning = ProbeTuning()
        self._state: _ProbeState | None = None

    # Training.

    def fit(
        self,
        inputs: Array,
        targets: Array,
        weights: Array = None,
        seed: int = 0,
        *,
        tuning: ProbeTuning | Mapping[str, Any] | None = None,
    ) -> FitReport:
        """Train on labelled items; an item of weight 2 counts like the same item twice.

        ``inputs`` are ``(m, d)`` features, ``targets`` ``(m,)`` classes, or ``(m,)`` or ``(m, k)``
        values; of the weights only the ratios matter. Without the ``tuning`` of an earlier
        training, penalty and temperature are chosen by cross-validation.
        """
        begin = time.perf_counter()
        self._seed = check_seed(seed)
        labelled = self._read_labelled(inputs, targets, weights)
        if isinstance(tuning, Mapping):
            tuning = ProbeTuning(**tuning)
        if tuning is None:
            self.out_of_fold = None
        if self.regression:
            report = self._fit_values(labelled, tuning)
        else:
            report = self._fit_classes(labelled, tuning)
            if self._is_self_trained(len(labelled.rows)):
                report = self._train_on_confident(labelled)
        seconds = time.perf_counter() - begin
        return replace(report, seconds=seconds, training_labels=len(targets))

    def _is_self_trained(self, count: int) -> bool:
        """Whether to train on confident predictions too, after a training on ``count`` labels."""
        if self.unlabelled is None or not len(self.unlabelled) or not self.tuning.labels:
            return False
        if self.self_training is not None:
            return self.self_training
        known = len(self.state.offsets)
        return known >= LEAST_CLASSES and LEAST_TUNED * known <= count <= MOST_LABELS

    def _fit_classes(self, labelled: TrainingRows, tuning: ProbeTuning | None) -> FitReport:
        assert self.classes_ is not None
        rows, targets, weights = labelled
        classes, width = len(self.classes_), rows.shape[1]
        mean = weights @ rows / weights.sum()
        scaled, scale = _scale_probe_rows(rows - mean, weights)
        span = span_rows(scaled)
        if tuning is None:
            tuning, logits = self._tune_classes(span, targets, weights, width)
            if logits is not None:
                self.out_of_fold = OutOfFold(logits / tuning.temperature, targets)
        penalty = tuning.penalty * width
        fitted = fit_logistic(
            span.coordinates, span.squares, targets, classes, weights[None], penalty
        )
        self.tuning = tuning
        own, offsets = fitted.coefficients[0].T, fitted.offsets[0]
        heat = tuning.temperature
        self._state = _ProbeState(
            mean=mean,
            coefficients=span.expand_coefficients(own) / (scale * heat),
            offsets=offsets / heat,
            scale=scale * heat,
            basis=span.basis,
            **_factor_probe_curvature(span, own, offsets, weights),
        )
        return FitReport(fitted.loss, fitted.iterations, fitted.converged, 0.0)

    def _tune_classes(
        self, span: RowSpan, targets: Ids, weights: Floats, width: int
    ) -> tuple[ProbeTuning, Floats | None]:
        """Penalty, temperature and out-of-fold logits ``(m, K)``, by cross-validation."""
        assert self.classes_ is not None
        classes, count = len(self.classes_), len(targets)
        fixed = PENALTY if self.penalty is None else self.penalty
        if classes < 2 or count < LEAST_FOLDED * classes:
            return ProbeTuning(fixed), None
        chosen = self.penalty is None and count >= LEAST_TUNED * classes
        rows = span.coordinates.astype(np.float32)  # precise enough for the tolerance
        parts = split_folds(targets, self._seed)
        # Held-out rows have no weight; their mean would place them too centrally.
        masked = np.where(parts, 0.0, weights)
        fitted, best, lowest, logits = None, fixed, np.inf, np.empty((count, classes))
        for penalty in PENALTIES if chosen else (fixed,):
            # Every fit starts from that of the next larger penalty, which is close to it.
            fitted = fit_logistic(
                rows,
                span.squares,
                targets,
                classes,
                masked,
                penalty * width,
                start=fitted,
                tolerance=FOLD_TOLERANCE,
            )
            found = np.empty((count, classes))
            for part, own, offsets in zip(parts, fitted.coefficients, fitted.offsets, strict=True):
                found[part] = rows[part] @ own.T + offsets
            loss = measure_loss(found, targets, weights)
            if loss < lowest:
                best, lowest, logits = penalty, loss, found
        heat = choose_temperature(logits, targets)
        if heat < 1:  # the models of the folds saw fewer labels and are less sure than the last one
            heat **= count / (count + WARM_LABELS * classes)
        return ProbeTuning(best, heat, count), logits

    def _train_on_confident(self, labelled: TrainingRows) -> FitReport:
        """Train again on labels and confident predictions, `SELF_TRAINING_ROUNDS` times.

        The result is as sure of the unlabelled items, on average, as the calibrated model of the
        labels: its own predictions, learnt as if they were true, would make it surer.
        """
        rows, targets, weights = labelled
        pool = convert_numbers(self.unlabelled, "unlabelled items")
        noise = row_noise(self._seed, np.arange(len(pool)), _PSEUDO_STREAM)
        kept = check_features(pool[noise < MOST_PSEUDO / max(len(pool), 1)], rows.shape[1])
        wanted = softmax(self._compute_logits(kept)).max(axis=1).mean()
        for _ in range(SELF_TRAINING_ROUNDS):
            chances = softmax(self._compute_logits(kept))
            sure = chances.max(axis=1) > CONFIDENT
            share = min(1.0, weights.sum() / 2 / max(int(sure.sum()), 1))
            pseudo = TrainingRows(
                np.concatenate([rows, kept[sure]]),
                np.concatenate([targets, chances[sure].argmax(axis=1)]),
                np.concatenate([weights, np.full(int(sure.sum()), share)]),
            )
            report = self._fit_classes(pseudo, self.tuning)
        heat = match_confidence(self._compute_logits(kept), wanted)
        state = self.state
        self._state = replace(
            state,
            coefficients=state.coefficients / heat,
            offsets=state.offsets / heat,
            scale=state.scale * heat,
        )
        return report

    def _fit_values(self, labelled: TrainingRows, tuning: ProbeTuning | None) -> FitReport:
        rows, values, weights = labelled
        count, width = rows.shape
        mean, centre = weights @ rows / weights.sum(), weights @ values / weights.sum()
        scaled, scale = _scale_probe_rows(rows - mean, weights)
        roots = np.sqrt(weights)[:, None]
        # Rows and values times the roots of their weights: the ridge is an unweighted one of these.
        left, right = scaled * roots, (values - centre) * roots
        spread = float(np.mean(right**2)) or 1.0
        span = span_rows(left, largest=max(width, LARGEST_BASIS))
        if tuning is None:
            fixed = 1.0 if self.penalty is None else self.penalty
            choices = RIDGE_PENALTIES if self.penalty is None and count > 2 else (fixed,)
            fits = [fit_ridge(span, right, weights, penalty * width) for penalty in choices]
            best = int(np.argmin([np.mean(fit.errors**2) for fit in fits]))
            tuning = ProbeTuning(choices[best], 1.0, count if len(choices) > 1 else 0)
        # Leave-one-out errors of the chosen penalty, in the units of the values.
        fitted = fit_ridge(span, right, weights, tuning.penalty * width)
        self.tuning = tuning
        self.out_of_fold = OutOfFold(values - fitted.errors / roots, values)
        noise = max(float(np.mean(fitted.errors**2)), 1e-12 * spread)
        self._state = _ProbeState(
            mean=mean,
            coefficients=span.expand_coefficients(fitted.coefficients) / scale,
            offsets=centre,
            scale=scale,
            basis=span.basis,
            # The posterior of a linear regression with this noise, the same for all outputs.
            variances=np.tile(
                np.append(noise / (span.squares + tuning.penalty * width), noise / count),
                (values.shape[1], 1),
            ),
            rotation=np.eye(values.shape[1]),
            prior=noise / (tuning.penalty * width),
        )
        residuals = right - span.coordinates @ fitted.coefficients
        return FitReport(float(np.mean(residuals**2)), 1, True, 0.0)

    # Predictions.

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the probe is trained."""
        return self._state is not None

    @property
    def state(self) -> "_ProbeState":
        """The trained model."""
        if self._state is None:
            raise BadInput("the probe is not trained yet; call fit first")
        return self._state

    @property
    def _columns(self) -> int:
        return len(self.state.mean)

    def _compute_logits(self, rows: HostArray) -> Floats:
        """Logits or values, ``(n, K)``, in blocks of rows."""
        state = self.state
        found = np.empty((len(rows), len(state.offsets)))
        shift = state.offsets - state.mean @ state.coefficients
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            block = rows[first : first + _ROWS_AT_ONCE]
            found[first : first + _ROWS_AT_ONCE] = block @ state.coefficients + shift
        return found

    def _represent_members(self, rows: HostArray, names: Sequence[str]) -> dict[str, Array]:
        drawn = self._compute_member_logits(rows)
        if self.regression:
            return {"member_votes": drawn[:, :, 0]}
        found = {"member_votes": drawn.argmax(axis=2)}
        if "member_probabilities" in names:
            found["member_probabilities"] = softmax(drawn)
        return found

    def _compute_member_logits(self, rows: HostArray) -> Floats:
        """Logits or values under every member, ``(n, members, K)``."""
        state = self.state
        outputs, width = len(state.offsets), len(state.mean)
        # The same draws for every block of rows, so that a member is one model.
        rng = np.random.default_rng([self._seed, _MEMBER_STREAM])
        noise = rng.standard_normal((self.members, outputs, width + 1))
        spread, offset = np.sqrt(state.variances[:, :-1]), np.sqrt(state.variances[:, -1])
        rotation = state.rotation
        if state.basis is None:
            shifts = np.einsum("kl,mlr->mkr", rotation, noise[:, :, :-1] * spread)
        else:  # the prior outside of the basis, the posterior in it
            inside = noise[:, :, :-1] @ state.basis
            own = np.einsum("kl,mlr->mkr", rotation, inside * spread)
            outside = np.sqrt(state.prior) * (noise[:, :, :-1] - inside @ state.basis.T)
            shifts = own @ state.basis.T + outside
        offsets = np.einsum("kl,ml->mk", rotation, noise[:, :, -1] * offset)
        flat = shifts.reshape(-1, width).T / state.scale
        found: Floats = self._compute_logits(rows)[:, None, :] + offsets
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            moved = (rows[part] - state.mean) @ flat
            found[part] += moved.reshape(-1, self.members, outputs)
        return found

    # Files.

    def save(self, folder: str | Path) -> None:
        """Write the trained model as .npz and JSON."""
        arrays = {
            name: np.asarray(value) for name, value in vars(self.state).items() if value is not None
        }
        facts = {"members": self.members, "tuning": vars(self.tuning)}
        self._save_model(folder, arrays, facts)

    def load(self, folder: str | Path) -> None:
        """Take the model that `save` wrote."""
        arrays, facts = self._load_model(folder)
        try:
            scalars = {name: float(arrays.pop(name)) for name in ("prior", "scale")}
            values: dict[str, Any] = {"basis": None, **arrays, **scalars}
            self._state = _ProbeState(**values)
            self.tuning = ProbeTuning(**facts["tuning"])
            self.members, self._seed = facts["members"], facts["seed"]
        except (KeyError, TypeError) as error:
            raise BadInput(f"{folder} does not hold a linear probe ({error})") from error
        self.classes_ = None if facts["classes"] is None else np.array(facts["classes"])


def _scale_probe_rows(centred: Floats, weights: Floats) -> tuple[Floats, float]:
    """Rows divided by their root mean square, and that number; 1 if all rows are equal."""
    scale = float(np.sqrt(weights @ np.mean(centred**2, axis=1) / weights.sum()))
    scale = scale if scale > 0 else 1.0
    return centred / scale, scale


def match_confidence(logits: Floats, wanted: float) -> float:
    """The temperature at which the largest probabilities have a mean, as far as its limits allow.

    >>> logits = np.array([[0.0, np.log(3.0)], [0.0, np.log(3.0)]])
    >>> round(match_confidence(logits, 0.9), 2), round(match_confidence(logits, 0.75), 2)
    (0.5, 1.0)
    """
    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(20):  # the mean falls with the temperature
        middle = (low + high) / 2
        sure = softmax(logits / np.exp(middle)).max(axis=1).mean()
        low, high = (middle, high) if sure > wanted else (low, middle)
    return float(np.exp((low + high) / 2))


def _factor_probe_curvature(
    span: RowSpan, coefficients: Floats, offsets: Floats, weights: Floats
) -> dict[str, Any]:
    """Variances of the Laplace posterior with Kronecker-factored precision.

    The precision is the mean over items of ``diag(p) - p p^T``, times the Gram matrix of the rows,
    plus a prior whose logits vary as much as the trained ones.
    """
    logits = span.coordinates @ coefficients
    chances = softmax(logits + offsets)
    scaled = weights[:, None] * chances
    left = (np.diag(scaled.sum(axis=0)) - scaled.T @ chances) / weights.sum()
    # Outputs are rotated so that the curvature is diagonal in them as it is in the rows.
    own, rotation = np.linalg.eigh(left)
    width = span.squares.sum() / len(weights)  # mean squared norm of a row
    precision = max(width, 1e-12) / max(float(np.mean(logits**2)), 1e-12)
    squares = np.append(span.squares, weights.sum())  # the offset is a column of ones
    variances = 1 / (np.outer(np.maximum(own, 0.0), squares) + precision)
    return {"variances": variances, "rotation": rotation, "prior": 1 / precision}
