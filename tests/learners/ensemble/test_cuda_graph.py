"""Recorded steps: where they may be used, and that they are the steps that Python would make."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.learners import stacked_training as recorded
from labelwise.learners.inputs import as_items
from labelwise.learners.preparation import place_labelled_items
from labelwise.learners.settings import LOSSES, TrainingSettings, make_optimizer
from labelwise.learners.stacked_training import CudaGraphStep, can_capture_graph, train_together

SETTINGS = TrainingSettings(
    loss=LOSSES["cross_entropy"], optimizer="adam", epochs=30, batch_size=16
)
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def capturable(optimizer):
    return [group["capturable"] for group in optimizer.param_groups]


@pytest.mark.parametrize(
    "changes", [{"schedule": "cosine"}, {"augment": lambda batch: batch}, {"amp": True}]
)
def test_nothing_is_recorded_where_steps_differ_in_more_than_their_items(changes):
    optimizer = make_optimizer(network(), SETTINGS)
    assert not can_capture_graph(optimizer, replace(SETTINGS, **changes), GPU, steps=1000)
    assert capturable(optimizer) == [False]


def test_nothing_is_recorded_on_a_cpu_or_for_few_steps():
    optimizer = make_optimizer(network(), SETTINGS)
    assert not can_capture_graph(optimizer, SETTINGS, CPU, steps=1000)
    assert not can_capture_graph(optimizer, SETTINGS, GPU, steps=recorded.WORTH - 1)
    assert capturable(optimizer) == [False]


def test_an_optimizer_with_counters_keeps_them_on_the_device():
    optimizer = make_optimizer(network(), SETTINGS)
    assert can_capture_graph(optimizer, SETTINGS, GPU, steps=1000)
    assert capturable(optimizer) == [True]


class OnCpu(CudaGraphStep):
    """Records by remembering the positions; replaying makes the step with what lies there."""

    def _capture_graph(self, positions, places):
        static = places.clone()

        class Graph:
            def replay(graph):
                self._step(positions, static)

        self._records[places.shape] = static, Graph()


def test_every_step_is_made_once_in_order_whatever_the_sizes():
    made = []
    step = OnCpu(lambda positions, places: made.append(places.tolist()))
    wanted = []
    for number in range(12):
        size = 3 if number % 3 else 2
        places = torch.full((2, size), number)
        wanted.append(places.tolist())
        step(places.numpy(), places)
    assert made == wanted


def test_a_size_is_recorded_only_after_steps_of_that_size():
    step = OnCpu(lambda positions, places: None)
    common, rare = torch.zeros((2, 3), dtype=torch.int64), torch.zeros((2, 2), dtype=torch.int64)
    for _ in range(recorded.FIRST + 2):
        step(common.numpy(), common)
    assert list(step._records) == [common.shape]
    for _ in range(recorded.FIRST):
        step(rare.numpy(), rare)
    assert list(step._records) == [common.shape]
    step(rare.numpy(), rare)
    assert list(step._records) == [common.shape, rare.shape]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_on_a_gpu_replayed_steps_give_the_same_networks(optimizer, monkeypatch):
    rng = np.random.default_rng(0)
    inputs = as_items(rng.normal(size=(70, 6)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(3, size=70))
    sets = [
        place_labelled_items(inputs, labels, torch.ones(70), GPU, dtype=torch.float32)
        for _ in range(3)
    ]
    settings = replace(SETTINGS, optimizer=optimizer, epochs=60)
    found = []
    for worth in (recorded.WORTH, 10**9):
        monkeypatch.setattr(recorded, "WORTH", worth)
        torch.manual_seed(0)
        modules = [network().to(GPU) for _ in range(3)]
        train_together(modules, sets, settings, seeds=[0, 1, 2], device=GPU)
        found.append(torch.cat([value.flatten() for m in modules for value in m.parameters()]))
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)
