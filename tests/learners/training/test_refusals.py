"""Items, losses and settings that no training can work with."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelwise.errors import BadInput, NotConverged, UnknownName
from labelwise.learners.inputs import ItemSubset
from labelwise.learners.settings import LOSSES, TrainingSettings
from labelwise.learners.training import LabelledItems
from tests.learners.training.loops import make, network, trained


def test_an_item_that_is_not_finite_is_named():
    labelled = make()
    labelled.items.rows[17, 2] = math.nan
    message = "the loss in epoch 1 is nan: the inputs of item 17 are not finite"
    with pytest.raises(BadInput, match=message):
        trained(labelled, batch_size=5)
    part = LabelledItems(
        ItemSubset(labelled.items, np.arange(10, 24)), labelled.targets[10:], torch.ones(14)
    )
    with pytest.raises(BadInput, match=message):
        trained(part)
    with pytest.raises(BadInput, match=r"the validation loss in epoch 1 is nan: .* item 17 are"):
        trained(make(), validation=labelled)


def test_a_module_that_can_do_with_nan_is_left_alone():
    labelled = make()
    labelled.items.rows[17, 2] = math.nan

    class Filled(nn.Sequential):
        def forward(self, x):
            return super().forward(x.nan_to_num())

    _, outcome = trained(labelled, Filled(*network()))
    assert math.isfinite(outcome.loss)


def test_a_loss_that_grows_without_bound_says_what_to_do():
    targets = torch.full((24, 3), 1e30)
    with pytest.raises(NotConverged, match=r"the loss in epoch 1 is inf; lower lr \(it is 100.0\)"):
        trained(LabelledItems(make().items, targets, torch.ones(24)), loss=LOSSES["mse"], lr=100.0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (F.cross_entropy, r"one number per item, \(24,\); got \(\): do not reduce it"),
        (lambda outputs, targets: outputs, r"got \(24, 3\): do not reduce"),
    ],
)
def test_a_loss_that_is_not_one_number_per_item_is_refused(loss, message):
    with pytest.raises(BadInput, match=message):
        trained(make(), loss=loss)


def test_accuracy_cannot_stop_a_regression():
    values = LabelledItems(make().items, torch.zeros(24, 3), torch.ones(24))
    with pytest.raises(BadInput, match="stop_accuracy is for classes, and the targets are values"):
        trained(values, loss=LOSSES["mse"], stop_accuracy=0.9)


def test_a_module_without_parameters_is_refused():
    with pytest.raises(BadInput, match="the module has no parameters to train"):
        trained(make(), nn.Identity())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"epochs": 0}, BadInput, "epochs must be 1 or more; got 0"),
        ({"batch_size": 0}, BadInput, "batch_size must be 1 or more; got 0"),
        ({"patience": 0}, BadInput, "patience must be 1 or more; got 0"),
        ({"min_epochs": 9, "epochs": 5}, BadInput, "min_epochs is 9 but there are 5 epochs"),
        ({"monitor": "f1"}, UnknownName, "no monitor is called 'f1'; choose from validation_loss"),
        ({"lr": 0.0}, BadInput, "lr must be above 0 and finite; got 0.0"),
        ({"lr": math.inf}, BadInput, "lr must be above 0 and finite; got inf"),
        ({"epochs": 2.5}, BadInput, "epochs must be a whole number; got 2.5"),
        ({"batch_size": 2.5}, BadInput, "batch_size must be a whole number; got 2.5"),
        ({"lr": math.nan}, BadInput, "lr must be above 0 and finite; got nan"),
        ({"weight_decay": -1.0}, BadInput, "weight_decay must be 0 or more and finite; got -1.0"),
        ({"stop_accuracy": 99.0}, BadInput, "above 0 and up to 1; got 99.0"),
        ({"weighting": "both"}, BadInput, "weighting must be loss or sampler, never both; got 'bo"),
        ({"optimizer": "adm"}, UnknownName, "no optimizer is called 'adm'; choose from adam, ada"),
        ({"schedule": "step"}, UnknownName, "no schedule is called 'step'; choose from cosine, l"),
    ],
)
def test_settings_out_of_range_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        TrainingSettings(loss=LOSSES["mse"], **changes)
