"""Information about members and about a linear layer, against sums written from the definitions."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labelwise.kernels.information.mutual_information import (
    Outcomes,
    PickedLabels,
    extend_outcomes,
    float32_error,
    group_outcomes,
    information_gains,
    information_gains_above,
    join_outcomes,
    prior_outcome,
)


def make_members(n, size, classes, seed=0, spread=0.5):
    return np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=(n, size))


def make_outcomes(count, size, seed=0, spread=0.3):
    generator = np.random.default_rng([seed, 1])
    posteriors = generator.dirichlet(np.full(size, spread), size=count)
    return Outcomes(generator.dirichlet(np.ones(count)), posteriors)


def listed(items):
    """Every outcome of the labels of ``(t, M, K)`` items: its probability under each member."""
    for labels in itertools.product(range(items.shape[2]), repeat=len(items)):
        of_members = np.ones(items.shape[1])
        for item, label in zip(items, labels, strict=True):
            of_members = of_members * item[:, label]
        yield of_members


def joint_entropy(items):
    """The entropy of the labels of all items together."""
    return stats.entropy([of_members.mean() for of_members in listed(items)])


def slow_gains(members, outcomes):
    weights, posteriors = outcomes
    gains = []
    for item in members:
        mixed, own = stats.entropy(posteriors @ item, axis=1), stats.entropy(item, axis=1)
        gains.append(sum(weights * (mixed - posteriors @ own)))
    return np.array(gains)


def after_picks(picks, most=10_000, seed=0):
    labels = PickedLabels(picks.shape[1], most, seed)
    for pick in picks:
        labels.add(pick)
    return labels


@pytest.mark.parametrize("count", [1, 5, 1500])
def test_gains_match_the_definition(count):
    members, outcomes = make_members(9, 6, 4), make_outcomes(count, 6)
    expected = slow_gains(members, outcomes)
    np.testing.assert_allclose(information_gains(members, outcomes), expected, atol=1e-12)
    tensor = torch.asarray(members)
    np.testing.assert_allclose(information_gains(tensor, outcomes), expected, atol=1e-12)


def test_gains_do_not_depend_on_how_many_items_are_measured_at_once(monkeypatch):
    members, outcomes = make_members(40, 6, 4), make_outcomes(30, 6)
    expected = information_gains(members, outcomes)
    monkeypatch.setattr("labelwise.kernels.information.mutual_information.NUMBERS_ON_PROCESSOR", 1)
    monkeypatch.setattr("labelwise.kernels.information.mutual_information.OUTCOMES_AT_ONCE", 7)
    np.testing.assert_allclose(information_gains(members, outcomes), expected, atol=1e-12)


@pytest.mark.parametrize(("size", "classes"), [(2, 2), (100, 10), (1000, 3), (20, 300)])
def test_float32_is_off_by_far_less_than_it_says(size, classes):
    members, outcomes = make_members(30, size, classes, spread=0.1), make_outcomes(600, size)
    rough = information_gains(members.astype(np.float32), outcomes, precise=False)
    exact = information_gains(members, outcomes)
    assert np.abs(rough - exact).max() < 0.2 * float32_error((size, classes))


def test_members_that_agree_tell_exactly_nothing():
    members = np.repeat(make_members(20, 1, 5), 7, axis=1)
    assert (information_gains(members, prior_outcome(7)) == 0).all()
    assert (information_gains(members, make_outcomes(40, 7)) == 0).all()


def test_certain_members_that_differ_tell_who_is_who():
    members = np.eye(4)[None]  # member m is sure of class m
    np.testing.assert_allclose(
        information_gains(members, prior_outcome(4)), [np.log(4)], atol=1e-12
    )


def test_probabilities_of_zero_and_vanishing_posteriors_stay_finite():
    members = make_members(10, 4, 3)
    members[:5, :, 0], members[:5, :, 1:] = 0.0, 0.5
    posteriors = np.array(
        [[1.0, 0, 0, 0], [1 - 1e-310, 1e-310, 0, 0], [0.5, 0.5 - 1e-40, 1e-40, 0]]
    )
    outcomes = Outcomes(np.full(3, 1 / 3), posteriors)
    for precise in (True, False):
        gains = information_gains(members, outcomes, precise=precise)
        np.testing.assert_allclose(gains, slow_gains(members, outcomes), atol=1e-6)


@pytest.mark.parametrize(("classes", "count"), [(2, 4), (3, 3)])
def test_listed_outcomes_are_all_outcomes(classes, count):
    picks = make_members(count, 5, classes)
    outcomes = after_picks(picks).outcomes
    expected = np.array(list(listed(picks)))
    np.testing.assert_allclose(outcomes.weights, expected.mean(axis=1), atol=1e-14)
    shares = expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outcomes.posteriors, shares, atol=1e-12)


@pytest.mark.parametrize(("classes", "count"), [(2, 1), (2, 4), (3, 3)])
def test_gains_are_differences_of_joint_entropies(classes, count):
    picks, members = make_members(count, 5, classes), make_members(6, 5, classes, seed=1)
    gains = information_gains(members, after_picks(picks).outcomes)
    for item, gain in zip(members, gains, strict=True):
        more = joint_entropy(np.concatenate([picks, item[None]])) - joint_entropy(picks)
        assert gain == pytest.approx(more - stats.entropy(item, axis=1).mean(), abs=1e-10)


def test_outcomes_that_cannot_happen_are_dropped():
    sure = np.tile([1.0, 0.0, 0.0], (4, 1))
    outcomes = extend_outcomes(prior_outcome(4), sure)
    assert outcomes.weights.tolist() == [1.0]
    np.testing.assert_array_equal(outcomes.posteriors, np.full((1, 4), 0.25))


def test_outcomes_are_drawn_once_there_are_too_many_to_list():
    picks = make_members(5, 10, 3)
    assert after_picks(picks[:4], most=81).exact
    labels = after_picks(picks, most=81)
    assert not labels.exact
    assert labels.outcomes.posteriors.shape == (80, 10)  # 8 for each member
    np.testing.assert_allclose(labels.outcomes.weights, 1 / 80)
    np.testing.assert_allclose(labels.outcomes.posteriors.sum(axis=1), 1)


def test_there_is_a_drawn_outcome_for_every_member_at_least():
    assert len(after_picks(make_members(3, 10, 3), most=4).outcomes.weights) == 10


def test_gains_of_drawn_outcomes_agree_with_those_of_all():
    picks, members = make_members(6, 8, 3), make_members(12, 8, 3, seed=1)
    exact = information_gains(members, after_picks(picks).outcomes)
    drawn = np.array(
        [
            information_gains(members, after_picks(picks, most=400, seed=seed).outcomes)
            for seed in range(40)
        ]
    )
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    assert error.max() < 0.003
    assert (np.abs(drawn.mean(axis=0) - exact) < 4 * error).all()


def test_weighting_entropies_by_the_outcomes_takes_out_noise():
    picks, members = make_members(6, 8, 3), make_members(12, 8, 3, seed=1)
    own = stats.entropy(members, axis=2)
    plain, ours = [], []
    for seed in range(40):
        outcomes = after_picks(picks, most=400, seed=seed).outcomes
        gains = information_gains(members, outcomes)
        ours.append(gains - gains.mean())
        mixed = gains + own @ (outcomes.weights @ outcomes.posteriors) - own.mean(axis=1)
        plain.append(mixed - mixed.mean())
    assert np.std(ours, axis=0).mean() < 0.8 * np.std(plain, axis=0).mean()


def test_the_mixed_entropy_is_the_importance_sampled_joint_entropy():
    picks, members = make_members(4, 6, 3), make_members(5, 6, 3, seed=1)
    generator = np.random.default_rng(0)
    rows = []  # P_sm: how likely each member finds outcome s
    for member in np.repeat(np.arange(6), 20):
        labels = [generator.choice(3, p=pick[member]) for pick in picks]
        rows.append(np.prod([pick[:, y] for pick, y in zip(picks, labels, strict=True)], axis=0))
    table = np.array(rows)
    q = table.mean(axis=1)
    outcomes = Outcomes(np.full(120, 1 / 120), table / table.sum(axis=1, keepdims=True))
    own = stats.entropy(members, axis=2) @ (outcomes.weights @ outcomes.posteriors)
    for item, gain, less in zip(members, information_gains(members, outcomes), own, strict=True):
        p = table @ item / 6
        joint = -np.sum(p / q[:, None] * np.log(p)) / 120
        assert gain == pytest.approx(joint + np.log(q).mean() - less, abs=1e-10)


def test_one_more_pick_leaves_drawn_labels_as_they_were():
    picks = make_members(7, 6, 4)
    sure = np.tile([0.0, 1.0, 0.0, 0.0], (6, 1))
    few = after_picks(picks, most=60).outcomes
    more = after_picks(np.concatenate([picks, sure[None]]), most=60).outcomes
    np.testing.assert_allclose(more.posteriors, few.posteriors, atol=1e-12)


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sampled_from([0.02, 0.5, 5.0]),
    st.integers(0, 1000),
)
def test_gains_of_groups_are_upper_bounds_part_by_part(size, classes, count, groups, spread, seed):
    members = make_members(8, size, classes, seed, spread)
    outcomes = make_outcomes(count, size, seed, spread)
    parts = group_outcomes(outcomes, groups, 4)
    assert 1 <= len(parts) <= 4
    assert sum(len(coarse.weights) for _, coarse in parts) <= groups
    total = 0.0
    for full, coarse in parts:
        assert coarse.weights.sum() == pytest.approx(full.weights.sum())
        gains, bounds = (information_gains(members, each) for each in (full, coarse))
        assert (gains <= bounds + 1e-12).all()
        total = total + gains
    np.testing.assert_allclose(total, information_gains(members, outcomes), atol=1e-11)


def test_joined_parts_are_all_outcomes_in_another_order():
    outcomes = make_outcomes(50, 6)
    again = join_outcomes([full for full, _ in group_outcomes(outcomes, 10, 3)])
    order, other = np.argsort(outcomes.weights), np.argsort(again.weights)
    np.testing.assert_array_equal(again.weights[other], outcomes.weights[order])
    np.testing.assert_array_equal(again.posteriors[other], outcomes.posteriors[order])


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 1.0])
def test_gains_above_a_mark_are_exact_and_others_are_left_out(quantile, library):
    members, outcomes = make_members(60, 10, 4), make_outcomes(400, 10)
    gains = information_gains(members, outcomes)
    least = np.quantile(gains, quantile) - 1e-9
    there = library.asarray(members)
    found = information_gains_above(there, group_outcomes(outcomes, 40, 5), least, precise=True)
    np.testing.assert_allclose(found[gains >= least], gains[gains >= least], atol=1e-12)
    measured = np.isfinite(found)
    np.testing.assert_allclose(found[measured], gains[measured], atol=1e-12)
    assert quantile < 0.9 or measured.sum() < 40
