"""What a strategy is given to choose by: of members, of several models, or nothing."""

import numpy as np
import pytest

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.errors import BadInput
from labelwise.learner import check_names
from labelwise.learners.committee import Committee
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import Line, answer, make_campaign

INPUTS = np.random.default_rng(0).normal(size=(40, 2))


class Bent(Line):
    """A line that is bent the more, the larger its first input is."""

    def represent(self, inputs, names):
        found = super().represent(inputs, names)
        if "outputs" in found:
            found["outputs"] = found["outputs"] + np.asarray(inputs)[:, :1] ** 2
        return found


class WithMembers(Line):
    """A line with three members, which disagree the more, the larger the second input is."""

    def represent(self, inputs, names):
        check_names(names, ["features", "outputs", "member_votes"], "lines")
        found = super().represent(inputs, ["features", "outputs"])
        apart = np.asarray(inputs)[:, 1:] * [-1.0, 0.0, 2.0]
        found["member_votes"] = found["outputs"] + apart
        return {name: found[name] for name in names}


def trained(learner):
    """A regression in which six items are labelled, and their ids."""
    pool = labelwise.Pool(INPUTS)
    campaign = Campaign("values", pool, learner, MemoryStorage(), batch=6, regression=True)
    first = campaign.ask().ids
    campaign.tell({int(item): float(INPUTS[item, 0]) for item in first})
    campaign.train()
    return campaign, first


def largest(values, taken, count=5):
    values = np.where(np.isin(np.arange(len(values)), taken), -1.0, values)
    return set(np.argsort(-values)[:count].tolist())


def test_a_regression_compares_the_votes_of_one_models_members():
    campaign, taken = trained(WithMembers())
    picks = campaign.ask("committee", 5)
    assert set(picks.ids.tolist()) == largest(np.abs(INPUTS[:, 1]), taken)


def test_a_regression_compares_the_outputs_of_several_models():
    campaign, taken = trained(Committee([Line(), Bent()]))
    picks = campaign.ask("committee", 5)
    assert set(picks.ids.tolist()) == largest(np.abs(INPUTS[:, 0]), taken)


def test_a_model_without_members_cannot_be_compared_with_itself():
    campaign, _ = trained(Line())
    with pytest.raises(BadInput, match=r"committee needs .*, or outputs of several models, or "):
        campaign.ask("committee", 5)
    classes, truth = make_campaign(MemoryStorage())
    answer(classes, truth, classes.ask().ids)
    classes.train()
    with pytest.raises(BadInput, match=r"or probabilities of several models,.*which Nearest does"):
        classes.ask("committee", 5)
    assert len(classes.ask("entropy", 5)) == 5
