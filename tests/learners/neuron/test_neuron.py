"""One neuron against grids, SciPy, and what weights must mean."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.neuron import NeuronLearner, fit_neuron

ACTIVATIONS = {"identity": lambda z: z, "relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}
NORMS = [1, 1.5, 2, 3]


def make_problem(activation, m=40, d=2, noise=0.3, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(m, d))
    clean = ACTIVATIONS[activation](rows @ generator.normal(size=d))
    return rows, clean + noise * generator.normal(size=m), generator.exponential(size=m)


def losses(thetas, rows, targets, weights, p, activation):
    """The loss of every row of ``(c, d)`` thetas."""
    errors = np.abs(ACTIVATIONS[activation](rows @ np.atleast_2d(thetas).T) - targets[:, None])
    return weights @ errors**p


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("p", NORMS)
def test_nothing_on_a_fine_grid_is_better(activation, p):
    axis = np.linspace(-4, 4, 161)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    for seed in range(2):
        problem = make_problem(activation, seed=seed)
        found = fit_neuron(*problem, p=p, activation=activation)
        assert found.loss <= losses(grid, *problem, p, activation).min()
        assert found.loss == pytest.approx(losses(found.theta, *problem, p, activation)[0])
        assert found.exact == (activation == "identity")


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("p", [1.5, 2])
def test_many_starts_of_a_general_solver_find_nothing_better(activation, p):
    problem = make_problem(activation, m=60, d=5)
    found = fit_neuron(*problem, p=p, activation=activation)
    generator = np.random.default_rng(1)
    for start in generator.normal(size=(12, 5)):
        other = minimize(
            lambda theta: losses(theta, *problem, p, activation)[0], start, method="BFGS"
        )
        assert found.loss <= other.fun * (1 + 1e-7)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("p", NORMS)
def test_a_planted_neuron_is_found(activation, p):
    generator = np.random.default_rng(3)
    rows, theta = generator.normal(size=(120, 8)), generator.normal(size=8)
    targets = ACTIVATIONS[activation](rows @ theta)
    found = fit_neuron(rows, targets, p=p, activation=activation)
    np.testing.assert_allclose(found.theta, theta, atol=2e-3)
    assert found.loss < 1e-4


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("p", NORMS)
def test_a_weight_of_two_equals_the_item_twice(activation, p):
    rows, targets, _ = make_problem(activation, d=3)
    weights = np.where(np.arange(40) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(40), weights.astype(int))
    options = {"p": p, "activation": activation, "starts": 1}
    weighted = fit_neuron(rows, targets, weights, **options)
    repeated = fit_neuron(rows[twice], targets[twice], **options)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-5)
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("p", NORMS)
def test_only_the_ratios_of_weights_matter(activation, p):
    rows, targets, weights = make_problem(activation, d=3)
    plain = fit_neuron(rows, targets, weights, p=p, activation=activation, starts=1)
    scaled = fit_neuron(rows, targets, 64 * weights, p=p, activation=activation, starts=1)
    np.testing.assert_allclose(scaled.theta, plain.theta, rtol=1e-9)
    assert scaled.loss == pytest.approx(64 * plain.loss, rel=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_items_without_weight_and_rows_of_zeros_change_nothing(activation):
    rows, targets, weights = make_problem(activation)
    plain = fit_neuron(rows, targets, weights, p=1.5, activation=activation)
    more = np.vstack([rows, [[1e6, -1e6]], np.zeros((2, 2))])
    found = fit_neuron(
        more,
        np.concatenate([targets, [5.0, 1.0, -2.0]]),
        np.concatenate([weights, [0.0, 1.0, 1.0]]),
        p=1.5,
        activation=activation,
    )
    np.testing.assert_allclose(found.theta, plain.theta, atol=1e-4)
    assert found.loss == pytest.approx(plain.loss + 1 + 2**1.5, rel=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("p", [1, 2])
def test_dependent_columns_leave_a_theta_in_the_span_of_the_rows(activation, p):
    rows, targets, weights = make_problem(activation)
    wide = np.hstack([rows, rows[:, :1] - rows[:, 1:], np.zeros((40, 1))])
    plain = fit_neuron(rows, targets, weights, p=p, activation=activation)
    found = fit_neuron(wide, targets, weights, p=p, activation=activation)
    assert found.loss == pytest.approx(plain.loss, rel=1e-4)
    np.testing.assert_allclose(np.linalg.pinv(wide) @ (wide @ found.theta), found.theta, atol=1e-10)


def test_a_relu_that_can_only_hurt_stays_at_zero():
    rows = np.random.default_rng(0).normal(size=(30, 3))
    found = fit_neuron(rows, -np.ones(30), activation="relu", p=1)
    assert found.loss == 30 and (ACTIVATIONS["relu"](rows @ found.theta) == 0).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("rows", "targets"),
    [(np.zeros((4, 2)), np.ones(4)), (np.ones((4, 2)), np.zeros(4)), (np.ones((1, 3)), np.ones(1))],
)
def test_survives_rows_of_zeros_targets_of_zeros_and_a_single_item(activation, rows, targets):
    for p in NORMS:
        found = fit_neuron(rows, targets, p=p, activation=activation)
        assert np.isfinite(found.theta).all()
        assert found.loss <= np.sum(np.abs(targets) ** p) + 1e-12


def test_a_seed_decides_the_result():
    problem = make_problem("tanh", d=4)
    first, again = (fit_neuron(*problem, activation="tanh", seed=5) for _ in range(2))
    assert first.theta.tolist() == again.theta.tolist()


def test_more_starts_never_make_it_worse_and_sometimes_better():
    gains = []
    for seed in range(5):
        problem = make_problem("relu", m=25, d=6, noise=1.0, seed=seed)
        few, many = (fit_neuron(*problem, activation="relu", starts=s).loss for s in (0, 12))
        gains.append(few - many)
    assert min(gains) >= 0 and max(gains) > 1


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_every_model_learns_from_one_lewis_selection_nearly_what_the_pool_teaches(p):
    generator = np.random.default_rng(0)
    base = generator.standard_t(3, size=(3000, 4))
    pools = [base @ generator.normal(size=(4, 5)), base[:, :3]]
    targets = base @ generator.normal(size=4) + 0.3 * generator.normal(size=3000)
    picks = labelwise.select("lewis", 400, features=pools, p=p, seed=0)
    for rows in pools:
        learner = NeuronLearner(p=p)
        learner.fit(rows[picks.ids], targets[picks.ids], picks.weights, seed=0)
        best = fit_neuron(rows, targets, p=p).loss
        assert np.sum(np.abs(learner.predict(rows) - targets) ** p) < 1.1 * best


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_several_outputs_are_fitted_like_one_at_a_time(activation, bias):
    rows, first, weights = make_problem(activation, d=3)
    targets = np.stack([first, np.random.default_rng(9).normal(size=40)], axis=1)
    options = {"activation": activation, "p": 1.5, "bias": bias, "starts": 1}
    both = fit_neuron(rows, targets, weights, **options)
    alone = [fit_neuron(rows, y, weights, **options) for y in targets.T]
    together = np.stack([fit.theta for fit in alone], axis=1)
    np.testing.assert_allclose(both.theta, together, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(both.bias, [fit.bias for fit in alone], rtol=1e-9, atol=1e-12)
    assert both.loss == pytest.approx(sum(fit.loss for fit in alone))
    learner = NeuronLearner(**options)
    report = learner.fit(rows, targets, weights, seed=0)
    np.testing.assert_array_equal(learner.theta, both.theta)
    assert report.loss == pytest.approx(both.loss / weights.sum())
    assert report.steps == both.steps and report.seconds > 0
    expected = ACTIVATIONS[activation](rows @ both.theta + both.bias)
    np.testing.assert_allclose(learner.predict(rows), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("p", NORMS)
def test_a_bias_equals_a_column_of_ones(activation, p):
    rows, targets, weights = make_problem(activation, d=2)
    found = fit_neuron(rows, targets + 1, weights, p=p, activation=activation, bias=True)
    ones = np.hstack([rows, np.ones((40, 1))])
    column = fit_neuron(ones, targets + 1, weights, p=p, activation=activation)
    np.testing.assert_array_equal(np.append(found.theta, found.bias), column.theta)
    assert found.loss == pytest.approx(column.loss)
    plain = fit_neuron(rows, targets + 1, weights, p=p, activation=activation)
    assert plain.bias == 0 and found.loss <= plain.loss * (1 + 1e-9)


def test_a_learner_gives_features_and_outputs_of_arrays_and_tensors():
    rows, targets, weights = make_problem("identity", d=3)
    learner = NeuronLearner()
    tensors = [torch.asarray(value) for value in (rows, targets, weights)]
    learner.fit(*tensors, seed=0)
    found = learner.represent(rows, ["outputs", "features"])
    assert found["features"] is rows and found["outputs"].shape == (40, 1)
    np.testing.assert_array_equal(found["outputs"][:, 0], learner.predict(tensors[0]))
    with pytest.raises(UnknownName, match="a neuron cannot give logits"):
        learner.represent(rows, ["logits"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"activation": "sigmoid"},
            "sigmoid is 1/2 at 0, but the fit needs an activation that is 0",
        ),
        ({"activation": "gelu"}, "activation must be one of identity, relu, tanh; got 'gelu'"),
        ({"p": 0.5}, "p must be 1 or more; got 0.5"),
        ({"p": float("nan")}, "p must be 1 or more; got nan"),
        ({"starts": -1}, "starts must be a whole number from 0; got -1"),
        ({"weights": [1.0]}, r"3 items but weights of shape \(1,\)"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights must be finite and not negative; item 1 has -1"),
        ({"weights": np.zeros(3)}, "all weights are zero"),
        ({"targets": ["1", "2", "3"]}, "targets must be numbers; got <U1"),
        ({"features": sparse.csr_array(np.eye(3))}, r"sparse matrix of \(3, 3\); give toarray"),
        ({"seed": -1, "activation": "relu"}, "seed must be 0 or more; got -1"),
        ({"targets": np.ones((2, 3))}, r"3 rows of features but targets of \(2, 3\)"),
        ({"targets": np.ones((3, 0))}, r"targets must be \(m,\) or \(m, k\); got shape \(3, 0\)"),
        ({"bias": 1}, "bias must be True or False; got 1"),
        ({"targets": [0.0, np.nan, 1.0]}, "targets of row 1 are NaN or infinite"),
        ({"features": np.array([[1.0], [2.0], [np.inf]])}, "features of row 2 are NaN or infinite"),
        ({"features": np.ones(3)}, r"features must be \(m, d\) with one row or more"),
    ],
)
def test_refuses_what_cannot_be_fitted(changes, words):
    given = {"features": np.ones((3, 1)), "targets": np.ones(3), "weights": None}
    with pytest.raises(BadInput, match=words):
        fit_neuron(**(given | changes))


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_weights_of_any_size_count_by_their_ratios(p, activation):
    rng = np.random.default_rng(0)
    features, targets, weights = rng.normal(size=(9, 2)), rng.normal(size=9), rng.random(9)
    plain = fit_neuron(features, targets, weights, p=p, activation=activation)
    for scale in (2.0**1023, 2.0**-900):  # the sum of the first is beyond all numbers
        scaled = fit_neuron(features, targets, scale * weights, p=p, activation=activation)
        np.testing.assert_array_equal(scaled.theta, plain.theta)
        assert scaled.loss == pytest.approx(scale * plain.loss)
    learner = NeuronLearner(p=p, activation=activation)
    report = learner.fit(features, targets, 2.0**1023 * weights, seed=0)
    assert report.loss == pytest.approx(plain.loss / weights.sum())


def test_frames_and_lists_are_represented_as_arrays():
    rows = np.random.default_rng(0).normal(size=(6, 2))
    learner = NeuronLearner()
    learner.fit(pd.DataFrame(rows), pd.Series(rows[:, 0]), seed=0)
    for form in (pd.DataFrame(rows), rows.tolist()):
        found = learner.represent(form, ["features", "outputs"])
        assert type(found["features"]) is np.ndarray
        np.testing.assert_array_equal(found["features"], rows)
        np.testing.assert_allclose(found["outputs"][:, 0], rows[:, 0])


def test_refuses_what_a_learner_cannot_do():
    with pytest.raises(BadInput, match="not trained yet"):
        NeuronLearner().predict(np.ones((2, 2)))
    with pytest.raises(BadInput, match="logistic is 1/2 at 0"):
        NeuronLearner(activation="logistic")
    learner = NeuronLearner()
    with pytest.raises(BadInput, match=r"targets must be \(m,\) or \(m, k\)"):
        learner.fit(np.ones((2, 2)), np.float64(3.0), seed=0)
    learner.fit(np.eye(2), np.ones(2), seed=0)
    with pytest.raises(BadInput, match=r"inputs must be \(n, 2\); got shape \(1, 3\)"):
        learner.predict(np.ones((1, 3)))
