"""Generation by gradient ascent on the predicted dual."""

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.primal_dual.generation import generate_items


@pytest.fixture(scope="module")
def learner():
    """A smooth network with batch norm and dropout, which must be in eval mode."""

    def make():
        return nn.Sequential(
            nn.Linear(3, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 2)
        )

    inputs = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    trained = PrimalDualLearner(make, epsilon=0.2, epochs=30, lr=0.01)
    trained.fit(inputs, (inputs[:, 0] > 0).astype(np.int64), seed=0)
    return trained


@pytest.fixture
def starts():
    """Items far from the border, on both sides."""
    values = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    values[:, 0] = [2, 2.5, 3, -2, -2.5, -3]
    return values


def test_the_predicted_dual_rises_at_every_small_step(learner, starts):
    way = generate_items(learner, starts, steps=60, step_size=0.003)
    assert way.inputs.shape == (61, 6, 3) and way.duals.shape == (61, 6)
    assert (np.diff(way.duals, axis=0) > 0).all()
    assert (way.duals[-1] > 1.05 * way.duals[0]).all()
    np.testing.assert_array_equal(way.inputs[0], starts)


def test_the_duals_are_those_that_the_learner_predicts(learner, starts):
    way = generate_items(learner, starts, steps=5)
    for inputs, duals in zip(way.inputs, way.duals, strict=True):
        predicted = learner.represent(inputs, ["duals"])["duals"]
        np.testing.assert_allclose(duals, predicted, rtol=1e-5)


def test_a_step_goes_uphill_by_its_share_of_the_norm(learner, starts):
    way = generate_items(learner, starts, steps=1, step_size=0.02)
    moved = way.inputs[1] - way.inputs[0]
    lengths, norms = np.linalg.norm(moved, axis=1), np.linalg.norm(starts, axis=1)
    np.testing.assert_allclose(lengths, 0.02 * norms, rtol=1e-4)
    gradient = np.empty_like(starts)
    for column in range(3):  # central differences
        step = 1e-2 * np.eye(3, dtype=np.float32)[column]
        above, below = (learner.represent(starts + s * step, ["duals"])["duals"] for s in (1, -1))
        gradient[:, column] = (above - below) / 2e-2
    gradient /= np.linalg.norm(gradient, axis=1, keepdims=True)
    np.testing.assert_allclose(moved / lengths[:, None], gradient, atol=2e-2)


def test_each_start_goes_its_own_way(learner, starts):
    together = generate_items(learner, starts, steps=10)
    alone = generate_items(learner, starts[2:3], steps=10)
    np.testing.assert_allclose(together.inputs[:, 2:3], alone.inputs, atol=1e-4)


def test_inputs_stay_in_the_box(learner, starts):
    way = generate_items(learner, starts, steps=9, step_size=1.5, box=(-3.0, 3.0))
    assert way.inputs.min() >= -3 and way.inputs.max() <= 3
    free = generate_items(learner, starts, steps=9, step_size=1.5)
    assert np.abs(free.inputs).max() > 3


def test_a_start_of_zeros_moves_too(learner, starts):
    starts[0] = 0
    way = generate_items(learner, starts, steps=1)
    assert np.linalg.norm(way.inputs[1, 0]) > 0
    lone = generate_items(learner, starts[:1], steps=1, step_size=0.05)
    assert np.linalg.norm(lone.inputs[1, 0]) == pytest.approx(0.05, rel=1e-4)


def test_images_keep_their_shape_and_zero_duals_stay_where_they_are():
    def make():
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 2))

    images = np.random.default_rng(0).random((20, 1, 3, 4)).astype(np.float32)
    flat = PrimalDualLearner(make, epsilon=100.0, epochs=1)
    with pytest.warns(LabelwiseWarning):
        flat.fit(images, np.arange(20) % 2, seed=0)
    way = generate_items(flat, images[:3], steps=4, box=(0, 1))
    assert way.inputs.shape == (5, 3, 1, 3, 4)
    assert (way.inputs == way.inputs[:1]).all() and (way.duals == 0).all()


def test_the_learner_is_left_as_it_was(learner, starts):
    before = {name: value.clone() for name, value in learner.module.state_dict().items()}
    modes = [layer.training for layer in learner.module.modules()]
    generate_items(learner, starts, steps=3)
    for name, value in learner.module.state_dict().items():
        assert torch.equal(before[name], value)
    assert modes == [layer.training for layer in learner.module.modules()]


def test_bad_input_gets_a_clear_error(learner, starts):
    with pytest.raises(BadInput, match="steps must be 0 or more; got -1"):
        generate_items(learner, starts, steps=-1)
    with pytest.raises(BadInput, match="step_size must be above 0; got 0"):
        generate_items(learner, starts, step_size=0)
    with pytest.raises(BadInput, match=r"out of box \(0, 1\)"):
        generate_items(learner, starts, box=(0, 1))
    with pytest.raises(BadInput, match=r"box must be \(smallest, largest\)"):
        generate_items(learner, starts, box=(1, 0))
    with pytest.raises(BadInput, match="starts must be one array of real numbers"):
        generate_items(learner, np.arange(6).reshape(2, 3))
    with pytest.raises(BadInput, match="starts must be finite"):
        generate_items(learner, starts * np.nan)
