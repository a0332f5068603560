"""Confidence, margin and entropy against their formulas, for one and for several models."""

import numpy as np
import pytest
import torch
from scipy import stats

import labelwise
from labelwise.kernels.information import uncertainty as module
from labelwise.kernels.information.uncertainty import vote_entropy
from tests.conftest import make_probabilities


def confidence(p):
    return 1 - p.max(axis=1)


def margin(p):
    ordered = np.sort(p, axis=1)
    return ordered[:, -2] - ordered[:, -1]


def entropy(p):
    return -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)


@pytest.fixture(params=[confidence, margin, entropy], ids=lambda formula: formula.__name__)
def formula(request):
    return request.param


def select(formula, budget, **rows):
    return labelwise.select(formula.__name__, budget, **rows)


def test_picks_the_highest_by_the_formula(formula):
    probabilities = make_probabilities(300, 5)
    picks = select(formula, 40, probabilities=probabilities)
    scores = formula(probabilities)
    assert picks.ids.tolist() == np.argsort(-scores, kind="stable")[:40].tolist()
    np.testing.assert_allclose(picks.scores, scores[picks.ids])


def test_equal_items_go_by_their_id(formula):
    probabilities = np.tile([0.2, 0.5, 0.3], (50, 1)).astype(np.float32)
    assert select(formula, 7, probabilities=probabilities).ids.tolist() == list(range(7))


def test_several_models_count_by_their_mean_each_scaled_over_the_pool(formula):
    models = [make_probabilities(100, 4, seed) for seed in range(3)]
    scaled = []
    for probabilities in models:
        scores = formula(probabilities)
        scaled.append((scores - scores.min()) / (scores.max() - scores.min()))
    expected = np.argsort(-np.mean(scaled, axis=0), kind="stable")[:10].tolist()
    assert select(formula, 10, probabilities=models).ids.tolist() == expected
    members = np.stack(models, axis=1)
    assert select(formula, 10, member_probabilities=members).ids.tolist() == expected


def test_a_model_that_scores_all_items_alike_does_not_count(formula):
    sharp, flat = make_probabilities(50, 3), np.tile([0.2, 0.5, 0.3], (50, 1))
    both = select(formula, 9, probabilities=[sharp, flat])
    assert both.ids.tolist() == select(formula, 9, probabilities=sharp).ids.tolist()


@pytest.mark.parametrize("models", [2, 5])
def test_a_planted_block_of_undecided_items_wins(formula, models):
    """The scores of several models must decide: scaling each to [0, 1] must not wipe them out."""
    generator = np.random.default_rng(models)
    many = [generator.dirichlet([8.0, 0.3, 0.3], size=200) for _ in range(models)]
    planted = generator.choice(200, size=15, replace=False)
    for probabilities in many:
        probabilities[planted] = generator.dirichlet([400.0, 400.0, 400.0], size=15)
    picks = select(formula, 15, probabilities=many)
    if formula is entropy:
        assert sorted(picks.ids.tolist()) == sorted(planted.tolist())
    else:
        assert len(set(picks.ids.tolist()) & set(planted.tolist())) >= 12


def test_rows_are_measured_a_few_at_a_time(formula, monkeypatch):
    probabilities = make_probabilities(1000, 5).astype(np.float32)
    whole = select(formula, 40, probabilities=probabilities)
    monkeypatch.setattr("labelwise.kernels.float64_blocks.HOST_CHUNK", 64 * 5)
    pieces = select(formula, 40, probabilities=probabilities)
    assert pieces.ids.tolist() == whole.ids.tolist()
    expected = formula(probabilities.astype(np.float64))
    np.testing.assert_allclose(pieces.scores, expected[pieces.ids], rtol=1e-12)
    assert pieces.ids.tolist() == np.lexsort((np.arange(1000), -expected))[:40].tolist()


def test_entropy_is_that_of_scipy_and_zeros_add_nothing():
    p = np.random.default_rng(0).dirichlet(np.full(4, 0.5), size=(7, 3))
    p[0, 0] = [0, 1, 0, 0]
    p[1, 1] = [0.5, 0, 0.5, 0]
    np.testing.assert_allclose(module.entropy(p), stats.entropy(p, axis=2), atol=1e-14)
    np.testing.assert_allclose(
        module.entropy(torch.asarray(p)), stats.entropy(p, axis=2), atol=1e-14
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("size", [1, 2, 13])
def test_vote_entropy_is_the_entropy_of_the_counts(size, dtype):
    given = np.random.default_rng(size).integers(5, size=(80, size)).astype(dtype)
    expected = [stats.entropy(np.unique(row, return_counts=True)[1]) for row in given]
    np.testing.assert_allclose(vote_entropy(given), expected, atol=1e-14)


def test_vote_entropy_does_not_depend_on_the_order_or_the_names_of_the_classes():
    given = np.random.default_rng(0).integers(4, size=(50, 9))
    renamed = np.array([900, -3, 17, 5])[given][:, ::-1]
    np.testing.assert_allclose(vote_entropy(renamed), vote_entropy(given), atol=1e-14)
