"""Kendall's correlation of dynamics and alignment."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.theory.dynamics import alignment, dynamics_agreement, training_dynamics


def made_up(n=40):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(n, 6))
    targets = np.sign(rows[:, :2] + 0.3 * generator.normal(size=(n, 2)))
    return rows @ rows.T, targets, generator


def slow_kendall(first, second):
    """The pairs ordered alike less those ordered differently, over all pairs."""
    signs = [
        np.sign(first[i] - first[j]) * np.sign(second[i] - second[j])
        for i in range(len(first))
        for j in range(i)
    ]
    return np.mean(signs)


def test_zero_outputs_agree_wholly():
    theta, targets, _ = made_up()
    found = dynamics_agreement(theta, 0 * targets, targets, batch=10, draws=30)
    assert found.correlation == 1.0
    np.testing.assert_allclose(found.dynamics, found.alignments, rtol=1e-12)


def test_it_is_the_share_of_pairs_ordered_alike_less_the_others():
    theta, targets, generator = made_up()
    outputs = targets + generator.normal(size=targets.shape)
    found = dynamics_agreement(theta, outputs, targets, batch=10, draws=25, labelled=5)
    assert found.correlation == pytest.approx(slow_kendall(found.dynamics, found.alignments))
    assert -1 < found.correlation < 1


def test_the_labelled_items_are_in_every_batch():
    theta, targets, generator = made_up(12)
    outputs = generator.normal(size=targets.shape)
    found = dynamics_agreement(theta, outputs, targets, batch=2, draws=3, labelled=10)
    np.testing.assert_allclose(found.dynamics, training_dynamics(theta, outputs, targets))
    np.testing.assert_allclose(found.alignments, alignment(theta, targets))


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 41}, {"batch": 5, "draws": 1}])
def test_batches_that_cannot_be_drawn_are_refused(options):
    theta, targets, _ = made_up()
    with pytest.raises(BadInput, match="cannot draw"):
        dynamics_agreement(theta, targets, targets, **options)
