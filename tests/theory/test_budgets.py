"""Label budgets: their constants, and that they keep what they promise."""

import math

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels import randomized_bss
from labelwise.kernels.linear.bss import theory_gamma
from labelwise.theory.budgets import expected_distinct, label_budgets, pool_size


def by_method(**options):
    return {budget.method: budget for budget in label_budgets(**options)}


def test_the_numbers_are_those_of_the_formulas():
    found = by_method(rank=20, total=30.0, items=10**9, error=0.09, directions=40)
    gamma = 0.1  # sqrt(0.09) / 3
    assert found["rule of thumb"].draws == pytest.approx(30 / 0.09)
    assert found["bss"].draws == pytest.approx(1.56 * 40 * (1 - gamma**2) / gamma**2)
    rate = 1.25 * math.log(1.25) - 0.25
    assert found["lewis"].draws == pytest.approx(max(30 * math.log(400) / rate, 2 * 30 / 0.09))
    logs = math.log(20) ** 2 * math.log(20 * 30 / 0.09)
    assert found["lewis, 1/error^2"].draws == pytest.approx(30 * logs / 0.09**2)
    assert found["lewis, 1/error^4"].draws == pytest.approx(30 * logs / 0.09**4)


def test_other_norms_cost_a_power_of_the_rank_and_have_no_explicit_bound():
    options = {"rank": 16, "total": 16.0, "items": 10**9, "error": 0.1}
    cube, square, one = (by_method(p=p, **options) for p in (3.0, 2.0, 1.0))
    name = "lewis, 1/error^2"
    assert cube[name].draws == pytest.approx(4 * square[name].draws)
    assert one[name].draws == square[name].draws
    assert "lewis" not in cube and "lewis" not in one


def test_nobody_needs_more_labels_than_the_pool_has():
    law = np.random.default_rng(0).random(50)
    for options in ({}, {"law": law}):
        found = label_budgets(rank=10, total=10.0, items=50, error=0.01, **options)
        assert all(budget.labels <= 50 + 1e-9 for budget in found)


def test_the_labels_of_draws_are_those_of_the_sampler():
    law = np.random.default_rng(0).exponential(size=200)
    generator = np.random.default_rng(1)
    drawn = [len(set(generator.choice(200, 150, p=law / law.sum()))) for _ in range(400)]
    assert expected_distinct(law, 150) == pytest.approx(np.mean(drawn), rel=0.02)


@pytest.mark.parametrize("error", [0.1, 0.3])
def test_bss_ends_after_about_as_many_rounds(error):
    features = np.random.default_rng(0).normal(size=(2000, 6))
    _, _, info = randomized_bss(features, gamma=theory_gamma(error), seed=0)
    expected = by_method(rank=6, total=6.0, items=10**6, error=error)["bss"].draws
    assert info["rounds"] == pytest.approx(expected, rel=0.1)


def excess(features, targets, picks):
    """The excess of the fit on the picks over the least error, relative to that."""
    best, *_ = np.linalg.lstsq(features, targets, rcond=None)
    roots = np.sqrt(picks.weights)[:, None]
    rows, values = roots * features[picks.ids], roots[:, 0] * targets[picks.ids]
    found, *_ = np.linalg.lstsq(rows, values, rcond=None)
    least = np.mean((targets - features @ best) ** 2)
    return np.mean((features @ (found - best)) ** 2) / least


@pytest.mark.parametrize(("strategy", "slack"), [("bss", 1.3), ("lewis", 1.5)])
def test_the_rule_of_thumb_gives_about_the_error(strategy, slack):
    generator = np.random.default_rng(0)
    features = generator.standard_t(3, size=(3000, 8))
    budget = math.ceil(by_method(rank=8, total=8.0, items=3000, error=0.1)["rule of thumb"].labels)
    found = []
    for seed in range(30):
        targets = features @ generator.normal(size=8) + generator.normal(size=3000)
        options = {"bias": False} if strategy == "bss" else {}
        picks = labelwise.select(strategy, budget, features=features, seed=seed, **options)
        found.append(excess(features, targets, picks))
    assert 0.02 < np.mean(found) < slack * 0.1


def test_a_pool_of_the_proved_size_stands_for_its_law():
    # rows of length root d, uniform over +-1: K = d whatever the pool
    d, error = 4, 0.5
    printed, proved = pool_size(rank=d, condition=d, error=error)
    assert printed == pytest.approx(d * (math.log(d) + 2)) and proved > printed
    generator = np.random.default_rng(0)
    for _ in range(30):
        rows = generator.choice([-1.0, 1.0], size=(math.ceil(proved), d))
        values = np.linalg.eigvalsh(rows.T @ rows / len(rows))
        assert 0.75 <= values[0] and values[-1] <= 1.25


@pytest.mark.parametrize("error", [0, -0.1, 1.5, math.nan])
def test_an_error_out_of_range_is_refused(error):
    with pytest.raises(BadInput, match="error must be above 0 and at most 1"):
        label_budgets(rank=2, total=2.0, items=10, error=error)
    with pytest.raises(BadInput, match="error must be above 0 and at most 1"):
        pool_size(rank=2, condition=2.0, error=error)
