"""Seeds, fresh starts, warm starts, and modules that were made only once."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    INPUTS,
    LABELS,
    NAMES,
    POOL,
    assert_states,
    network,
    normed,
    state,
    trained,
)


@pytest.mark.parametrize("make", [network, normed])
@pytest.mark.parametrize("options", [{}, {"validation": 0.2}, {"weighting": "sampler"}])
def test_the_seed_decides_everything(make, options):
    options = {"batch_size": 16, **options}
    first, second = trained(make, seed=3, **options), trained(make, seed=3, **options)
    other = trained(make, seed=4, **options)
    assert_states(state(first), state(second), rtol=0, atol=0)
    assert not torch.allclose(first.head.weight, other.head.weight)
    second.fit(INPUTS, LABELS, seed=3, weights=None)  # what went before does not matter
    assert_states(state(first), state(second), rtol=0, atol=0)


def test_the_global_generators_stay_as_they_are():
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    learner = trained(normed, validation=0.2)
    learner.represent(POOL, NAMES)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    expected = state(learner)
    torch.rand(5)  # and what they were does not matter
    assert_states(state(trained(normed, validation=0.2)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_first_parameters_are_those_that_torch_draws_from_the_seed(seed):
    learner = trained(seed=seed, optimizer="sgd", lr=1e-30)  # stays where it is
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = network().state_dict()
    assert_states(state(learner), dict(expected), rtol=0, atol=0)


def test_a_seed_may_be_a_number_of_numpy_but_not_below_zero():
    assert_states(state(trained(seed=np.int64(3))), state(trained(seed=3)), rtol=0, atol=0)
    with pytest.raises(BadInput, match="seed must be 0 or more; got -1"):
        trained(seed=-1)


def test_every_fit_starts_afresh_with_statistics_and_all():
    learner = trained(normed)
    learner.fit(INPUTS * 9, LABELS, seed=1)
    again = trained(normed)
    learner.fit(INPUTS, LABELS, seed=0)
    assert_states(state(learner), state(again), rtol=0, atol=0)
    norm = learner.module[1]
    assert norm.num_batches_tracked == 5 and not torch.equal(norm.weight, torch.ones(8))


def test_a_warm_start_goes_on_from_all_that_was_learnt_with_a_new_optimizer():
    learner = trained(normed, warm_start=True, batch_size=99)
    module, before = learner.module, copy.deepcopy(learner.module)
    learner.fit(INPUTS, LABELS, seed=7)
    assert learner.module is module
    assert module[1].num_batches_tracked == 10
    cold = TorchLearner(lambda: copy.deepcopy(before), epochs=5, batch_size=99)
    cold.fit(INPUTS, LABELS, seed=7)  # from the same parameters, by another way
    assert_states(state(learner), state(cold), rtol=0, atol=0)


def test_a_module_that_is_made_only_once_is_refused():
    module = network()
    learner = trained(lambda: module)
    with pytest.raises(BadInput, match="gave the module of the last training again; make a new"):
        learner.fit(INPUTS, LABELS, seed=0)


def test_a_part_that_is_trained_and_made_only_once_is_refused():
    body = nn.Linear(5, 8)
    learner = trained(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(8, 3)))
    with pytest.raises(BadInput, match=r"gave the tensor '0\.weight' of the last training"):
        learner.fit(INPUTS, LABELS, seed=0)
    norm = nn.BatchNorm1d(5, affine=False)
    learner = trained(lambda: nn.Sequential(norm, nn.Linear(5, 3)))
    with pytest.raises(BadInput, match=r"gave the tensor '0\.running_mean' of the last"):
        learner.fit(INPUTS, LABELS, seed=0)


def test_a_frozen_part_may_be_shared_by_all_trainings():
    body = nn.Linear(5, 8).requires_grad_(False)
    before = body.weight.clone()
    learner = trained(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(8, 3)))
    learner.fit(INPUTS, LABELS, seed=0)
    assert torch.equal(body.weight, before)
