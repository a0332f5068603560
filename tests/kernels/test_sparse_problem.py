"""The sparse approximation problem against its dense twin."""

import numpy as np
import pytest

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import (
    ObjectiveTerms,
    build_choice,
    compute_vectors,
    find_largest_variances,
    pose_sparse_problem,
    warn_degenerate_problem,
)
from tests.kernels.sparse_twin import (
    last_layer_vectors,
    make_members,
    make_rows,
    shards_of,
    twin_of,
)

DEFAULTS = {"last_layer": (0.5, 0.25), "bayesian": (2.0, 1.0)}
LAW = LabelLaw(temperature=2.0)


@pytest.mark.parametrize("make", [make_rows, make_members])
@pytest.mark.parametrize("blocks", [1, 3, 7])
def test_the_target_is_the_mean_vector(make, blocks):
    rows = make(50, 6, 4)
    problem = pose_sparse_problem(shards_of(rows, blocks), 5, LAW, ObjectiveTerms(), DEFAULTS)
    np.testing.assert_allclose(problem.target.ravel(), twin_of(rows, 5, 1.0, 0.1).v, atol=1e-14)
    assert (problem.n, problem.budget, problem.degenerate) == (50, 5, "")


@pytest.mark.parametrize(("make", "mode"), [(make_rows, "last_layer"), (make_members, "bayesian")])
def test_defaults_follow_the_kind_of_vectors(make, mode):
    problem = pose_sparse_problem(shards_of(make(20, 4, 3)), 5, LAW, ObjectiveTerms(), DEFAULTS)
    assert (problem.mode, problem.alpha, problem.beta) == (mode, *DEFAULTS[mode])


def test_given_terms_override_the_defaults():
    shards = shards_of(make_rows(20, 4, 3))
    problem = pose_sparse_problem(
        shards, 5, LAW, ObjectiveTerms(alpha=3.0, beta=0.0, sigma_scale="paper"), DEFAULTS
    )
    assert (problem.alpha, problem.beta) == (3.0 / 20**2, 0.0)


@pytest.mark.parametrize("scale", ["none", "paper"])
def test_relative_alpha_is_free_of_the_unit_of_the_features(scale):
    rows = make_rows(40, 4, 3)
    rewards = []
    for unit in (1.0, 100.0):
        scaled = {**rows, "features": unit * rows["features"]}
        shards = shards_of(scaled, 3)
        problem = pose_sparse_problem(
            shards, 5, LAW, ObjectiveTerms(relative_alpha=0.2, sigma_scale=scale), DEFAULTS
        )
        best = np.sort(last_layer_vectors(scaled, 2.0)[1] ** 2)[-5:]
        rewards.append(problem.alpha * best.mean() / np.vdot(problem.target, problem.target))
    np.testing.assert_allclose(rewards, 0.2, rtol=1e-9)


def test_relative_alpha_is_zero_where_there_is_no_variance():
    rows = {"features": np.zeros((6, 2)), "logits": make_rows(6, 2, 3)["logits"]}
    assert (
        pose_sparse_problem(
            shards_of(rows), 2, LAW, ObjectiveTerms(relative_alpha=1.0), DEFAULTS
        ).alpha
        == 0
    )


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (ObjectiveTerms(alpha=-1.0), "alpha must be 0 or more; got -1.0"),
        (ObjectiveTerms(beta=float("nan")), "beta must be 0 or more"),
        (ObjectiveTerms(alpha=1.0, relative_alpha=1.0), "give one of them"),
        (ObjectiveTerms(sigma_scale="n"), "sigma_scale must be one of none, paper; got 'n'"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms, message):
    with pytest.raises(BadInput, match=message):
        pose_sparse_problem(shards_of(make_rows(6, 2, 2)), 2, LAW, terms, DEFAULTS)


@pytest.mark.parametrize(
    ("rows", "law"),
    [
        (make_rows(9, 3, 4), LabelLaw(temperature=1.0)),
        (make_rows(9, 3, 4), LabelLaw(temperature=1.0009)),
        (make_rows(9, 3, 1), LAW),
        (make_rows(9, 3, 4), LabelLaw("label_smoothing", rho=0.0)),
        ({"features": np.ones((9, 3)), "logits": np.zeros((9, 4))}, LAW),
        ({"member_probabilities": np.full((9, 3, 2), 0.5)}, LAW),
    ],
    ids=["temperature", "nearly", "one class", "no smoothing", "even odds", "equal members"],
)
def test_vectors_that_are_all_zero_are_noticed(rows, law):
    problem = pose_sparse_problem(shards_of(rows, 2), 2, law, ObjectiveTerms(), DEFAULTS)
    assert "zero" in problem.degenerate
    with pytest.warns(LabelwiseWarning, match="a_strategy: .* largest variance"):
        warn_degenerate_problem(problem, "a_strategy")


def test_small_vectors_are_not_taken_for_zero():
    rows = make_rows(9, 3, 4)
    rows["features"] *= 1e-20
    assert not pose_sparse_problem(
        shards_of(rows), 2, LabelLaw(temperature=1.002), ObjectiveTerms(), DEFAULTS
    ).degenerate


@pytest.mark.parametrize("blocks", [1, 4])
def test_items_of_largest_variance_come_in_order_with_ties_by_id(blocks):
    rows = make_rows(30, 3, 4)
    for array in rows.values():
        array[20:25] = array[:5]
    ids, variances = find_largest_variances(shards_of(rows, blocks), LAW, 12)
    spread = last_layer_vectors(rows, 2.0)[1] ** 2
    assert ids.tolist() == np.argsort(-np.round(spread, 9), kind="stable")[:12].tolist()
    np.testing.assert_allclose(variances, spread[ids], rtol=1e-8)


@pytest.mark.parametrize("make", [make_rows, make_members])
def test_an_answer_reports_the_objective_and_weights_that_stand_for_the_pool(make):
    rows = make(40, 4, 3)
    shards, ids = shards_of(rows, 2), np.array([7, 3, 30, 12])
    problem = pose_sparse_problem(shards, 4, LAW, ObjectiveTerms(alpha=0.3, beta=0.2), DEFAULTS)
    weights = np.array([0.5, 0.0, 2.0, 1.0])
    choice = build_choice(
        problem,
        ids,
        compute_vectors(shards.rows(ids), LAW, np.empty(0)),
        weights,
        {"more": 1},
    )
    twin, whole = twin_of(rows, 4, 0.3, 0.2), np.zeros(40)
    whole[ids] = weights
    assert choice.info["f"] == pytest.approx(twin.f(whole, ids), abs=1e-12)
    assert choice.info["f1"] == pytest.approx(twin.f1(whole, ids), abs=1e-12)
    assert choice.info["f2"] == pytest.approx(-twin.c[ids].sum(), abs=1e-12)
    np.testing.assert_allclose(choice.weights, 40 * weights / 4)
    assert choice.info["raw_weights"] == {"smallest": 0, "mean": 0.875, "largest": 2, "zero": 1}
    assert choice.info["more"] == 1
