"""Last layers against the gradient of what they minimise, and against scikit-learn."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from labelwise.benchmark.batched import (
    LastLayerLearner,
    TrainingTask,
    fit_batched_tasks,
    solve_last_layer_ridge,
)
from labelwise.benchmark.networks import make_linear_network


def problem(outputs=1, count=200, width=6):
    rng = np.random.default_rng(outputs)
    rows = rng.standard_t(2, size=(count, width)).astype(np.float32)
    values = rows @ rng.normal(size=(width, outputs)) + 3 + rng.normal(size=(count, outputs))
    return rows, values.astype(np.float32), rng.uniform(0.1, 5, size=count)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("decay", [0.1, 5.0])
def test_the_fit_is_where_the_gradient_of_training_vanishes(outputs, decay):
    rows, values, weights = problem(outputs)
    learner = LastLayerLearner(
        partial(make_linear_network, 6, outputs), kind=1, loss="mse", weight_decay=decay
    )
    learner.fit(rows, values, weights, seed=0)
    module = learner.module.double()
    squares = (module(torch.from_numpy(rows).double()) - torch.from_numpy(values)).square()
    loss = (squares.mean(dim=1) * torch.from_numpy(weights / weights.mean())).mean()
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        step = gradient + decay * parameter  # as torch.optim.SGD has it
        assert step.abs().max() < 1e-5 < gradient.abs().max()


def test_without_an_intercept_to_decay_it_is_scikit_learns_ridge():
    rows, values, weights = problem()
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1).astype(np.float64)
    twin = Ridge(alpha=0.05 * weights.sum(), fit_intercept=False)
    twin.fit(rows, values[:, 0], sample_weight=weights)
    np.testing.assert_allclose(
        solve_last_layer_ridge(rows[:, :-1], values, weights, 0.1)[:, 0], twin.coef_
    )


def test_rare_large_features_and_repeated_ones_do_no_harm():
    rows, values, _ = problem()
    rows = np.concatenate([rows, rows[:, :1], np.zeros((200, 2), np.float32)], axis=1)
    rows[7, -1] = 1e4
    learner = LastLayerLearner(partial(make_linear_network, 9, 1), kind=1, loss="mse")
    task = TrainingTask(learner, rows, values, None, 0)
    (report,) = fit_batched_tasks([task, task], on_cpu=True)[:1]
    assert report.loss == pytest.approx(np.square(learner.predict(rows) - values).mean(), rel=1e-3)
    assert report.loss < 0.1 * values.var()
