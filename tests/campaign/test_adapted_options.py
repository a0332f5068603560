"""Options that a campaign works out from its past."""

import numpy as np
import pytest

from labelwise.kernels.bandit import importance_weighted_accuracy
from labelwise.kernels.calibration import calibrate_temperature
from labelwise.learner import check_names
from labelwise.record.events import Asked
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import Nearest, answer, make_campaign


class Logits(Nearest):
    """The same model, which tells its logits too; they are twice too large."""

    def represent(self, inputs, names):
        check_names(names, ["features", "probabilities", "logits"], "a nearest mean")
        others = [name for name in names if name != "logits"]
        found = super().represent(inputs, [*others, "probabilities"])
        found["logits"] = 2 * np.log(found["probabilities"] + 1e-12)
        return {name: found[name] for name in names}


def test_a_bandit_learns_from_its_past_rounds():
    storage = MemoryStorage()
    campaign, truth = make_campaign(storage, strategy="bandit", options={"arms": "k_center,margin"})
    for _ in range(4):
        campaign.ask()
        answer(campaign, truth)
        campaign.train()
    asked = [event for event in storage.read("toys") if isinstance(event, Asked)]
    assert [len(event.options.get("rounds", [])) for event in asked] == [0, 0, 1, 2]
    past = asked[3].options["rounds"]
    assert past[:1] == asked[2].options["rounds"]
    assert [one["arm"] for one in past] == [event.info["arm"] for event in asked[1:3]]
    assert [one["probability"] for one in past] == [e.info["probability"] for e in asked[1:3]]


def test_the_reward_of_a_round_is_the_weighted_accuracy_of_the_model_after_it():
    storage = MemoryStorage()
    campaign, truth = make_campaign(storage, strategy="bandit", batch=12)
    for _ in range(2):
        campaign.ask()
        answer(campaign, truth)
        campaign.train()
    campaign.ask()
    first, second, third = (event for event in storage.read("toys") if isinstance(event, Asked))
    rows = dict(zip(campaign.pool.ids.tolist(), campaign.pool.inputs, strict=True))
    ids = [*first.ids, *second.ids]
    inputs = np.array([rows[item] for item in ids])
    chances = campaign.learner.represent(inputs, ["probabilities"])["probabilities"]
    hits = campaign.learner.classes[chances.argmax(axis=1)] == [truth[item] for item in ids]
    weights = [1.0] * 12 + [second.info["probability"]] * 12
    expected = importance_weighted_accuracy(hits, weights)
    assert third.options["rounds"][-1]["reward"] == pytest.approx(expected)


@pytest.mark.parametrize("strategy", ["sparse_greedy", "sparse_iht"])
def test_sparse_strategies_get_the_temperature_of_the_items_for_measuring(strategy):
    settings = {"strategy": strategy, "batch": 60, "validation": 0.5}
    campaign, truth = make_campaign(MemoryStorage(), 200, learner=Logits(), **settings)
    campaign.ask()
    answer(campaign, truth)
    campaign.train()
    apart = sorted(campaign.ledger().validation)
    rows = dict(zip(campaign.pool.ids.tolist(), campaign.pool.inputs, strict=True))
    logits = campaign.learner.represent(np.array([rows[i] for i in apart]), ["logits"])["logits"]
    expected = calibrate_temperature(logits, [truth[item] for item in apart])
    assert campaign.ask(8).info["options"]["temperature"] == pytest.approx(expected)


def test_sparse_strategies_take_a_fixed_temperature_where_nothing_is_measured():
    campaign, truth = make_campaign(MemoryStorage(), learner=Logits(), strategy="sparse_iht")
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    picks = campaign.ask()
    assert picks.info["options"] == {"temperature": 1.1}
    assert picks.weights is not None


def test_an_option_that_is_given_is_left_alone():
    campaign, truth = make_campaign(MemoryStorage(), learner=Logits(), strategy="sparse_iht")
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    assert campaign.ask(temperature=2.5).info["options"] == {"temperature": 2.5}
