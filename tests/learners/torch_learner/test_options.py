"""Options and calls that are refused, and the examples of the docstrings."""

import pytest
from torch import nn

from labelwise.errors import BadInput, UnknownName
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import NAMES, POOL, network, trained


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "crossentropy"}, UnknownName, "no loss is called 'crossentropy'; choose from cr"),
        ({"optimizer": "lion"}, UnknownName, "no optimizer is called 'lion'"),
        ({"schedule": "step"}, UnknownName, "no schedule is called 'step'"),
        ({"weighting": "both"}, BadInput, "weighting must be loss or sampler, never both"),
        ({"patience": 3}, BadInput, "patience is 3 but nothing is held out; set validation"),
        (
            {"monitor": "training_loss", "validation": 0.2},
            BadInput,
            "monitor is 'training_loss', which does not use validation; set it to 0",
        ),
        ({"validation": 1.0}, BadInput, "a share from 0 to below 1; got 1.0"),
        ({"represent_batch_size": 0}, BadInput, "represent_batch_size must be 1 or more; got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        TorchLearner(network, **options)


def test_a_head_that_is_not_there_is_refused():
    with pytest.raises(UnknownName, match="no layer 'classifier'; its linear layers: 0, 2"):
        trained(head="classifier")


def test_a_learner_that_is_not_trained_says_so():
    learner = TorchLearner(network)
    for use in (lambda: learner.represent(POOL, NAMES), lambda: learner.predict(POOL),
                lambda: learner.save("x"), lambda: learner.head):  # fmt: skip
        with pytest.raises(BadInput, match="not trained yet; call fit or load first"):
            use()


def test_an_unknown_kind_of_pseudo_label_is_refused():
    with pytest.raises(BadInput, match="pseudo must be argmax or sample; got 'max'"):
        TorchLearner(lambda: nn.Linear(2, 2), pseudo="max")
