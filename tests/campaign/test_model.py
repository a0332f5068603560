"""The campaign's learner: inputs by id, and predictions in the words of the campaign."""

import numpy as np
import pandas as pd
import pytest

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.coding import Coding
from labelwise.campaign.model import Model, Places, plain
from labelwise.campaign.training import TrainingSet
from labelwise.errors import UnknownName
from labelwise.learner import FitReport, check_names
from labelwise.record.events import Asked
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import IDS, Line, Nearest, make_pool


class Voting:
    """A learner without probabilities, as a support vector machine is."""

    def fit(self, inputs, targets, weights=None, *, seed):
        self.most = int(np.bincount(targets).argmax())
        return FitReport(0.0, 1, True, 0.0)

    def represent(self, inputs, names):
        check_names(names, ["features"], "a majority")
        return {"features": np.asarray(inputs)}

    def predict(self, inputs):
        return np.full(len(inputs), self.most)


class Silent(Voting):
    """One that does not even predict."""

    predict = None

    def __getattribute__(self, name):
        if name == "predict":
            raise AttributeError(name)
        return super().__getattribute__(name)


def held(learner, coding, labels, count=6):
    """A model trained on the first items of a pool."""
    pool = labelwise.Pool(np.arange(2.0 * count).reshape(count, 2), IDS[:count])
    model = Model(learner, Places(pool))
    data = TrainingSet(dict(zip(IDS.tolist(), labels, strict=False)), None, {})
    model.fit(1, data, coding, seed=0)
    return model


@pytest.mark.parametrize(
    "inputs",
    [
        np.arange(12).reshape(6, 2),
        [f"text {number}" for number in range(6)],
        pd.DataFrame({"a": np.arange(6), "b": np.arange(6) + 10}),
    ],
    ids=["array", "list", "frame"],
)
def test_inputs_are_found_by_id_in_the_form_they_have(inputs):
    places = Places(labelwise.Pool(inputs, IDS))
    wanted = [4, 0, 5]
    found = places.inputs(IDS[wanted])
    if isinstance(inputs, list):
        assert found == [inputs[position] for position in wanted]
    else:
        assert type(found) is type(inputs)
        assert np.array_equal(np.asarray(found), np.asarray(inputs)[wanted])


def test_inputs_in_a_tensor_stay_one():
    import torch

    places = Places(labelwise.Pool(torch.arange(6) * 10, IDS))
    assert places.inputs([IDS[3], IDS[1]]).tolist() == [30, 10]


def test_an_id_that_is_not_there_is_named():
    places = Places(labelwise.Pool(np.zeros((6, 1)), IDS))
    assert places.known([17, 18, 88, 10**18]).tolist() == [True, False, True, False]
    with pytest.raises(UnknownName, match="no item of the pool has id 18; check the ids"):
        places.inputs([17, 18])


def test_an_empty_pool_knows_nothing():
    assert Places(labelwise.Pool([])).known([0, 1]).tolist() == [False, False]


def test_classes_that_were_not_seen_shift_no_column():
    names = ("ant", "bee", "cat", "dog")
    model = held(Nearest(), Coding(False, names), ["bee", "dog", "bee", "dog"])
    assert model.columns == [1, 3]
    assert set(model.predict(IDS).labels) == {"bee", "dog"}


def test_a_learner_with_a_column_for_every_class_keeps_them_apart():
    class Whole(Nearest):
        """Has four classes, whatever it has seen."""

        def represent(self, inputs, names):
            found = super().represent(inputs, names)
            if "probabilities" in found:
                wide = np.zeros((len(inputs), 4))
                wide[:, self.classes] = found["probabilities"]
                found["probabilities"] = wide
            return found

    names = ("ant", "bee", "cat", "dog")
    model = held(Whole(), Coding(False, names), ["bee", "dog", "bee", "dog"])
    narrow = held(Nearest(), Coding(False, names), ["bee", "dog", "bee", "dog"])
    assert model.predict(IDS) == narrow.predict(IDS)


def test_a_learner_without_probabilities_predicts_without_confidence():
    model = held(Voting(), Coding(False, ("ant", "bee")), ["bee", "ant", "bee"])
    assert model.predict(IDS[:2]) == (["bee", "bee"], None)


def test_a_learner_that_cannot_predict_is_not_measured():
    model = held(Silent(), Coding(False, ("ant", "bee")), ["bee", "ant", "bee"])
    assert model.predict(IDS[:2]) is None
    pool, truth = make_pool()
    settings = {"strategy": "k_center", "batch": 10, "validation": 0.3}
    campaign = Campaign("silent", pool, Silent(), MemoryStorage(), **settings)
    for _ in range(2):
        campaign.tell({int(item): truth[int(item)] for item in campaign.ask().ids})
        metrics = campaign.train().metrics
    assert metrics["validation_labels"] == 6
    assert not {"accuracy", "agreement", "prequential"} & set(metrics)


def test_values_are_guessed_as_values():
    model = held(Line(), Coding(True, None), [1.0, 3.0, 5.0])
    assert model.predict(IDS[:3]).labels == pytest.approx([1.0, 3.0, 5.0])
    assert model.predict(IDS[:3]).confidence is None


def test_guesses_without_confidence_are_kept_for_the_next_measurement():
    pool, truth = make_pool()
    storage = MemoryStorage()
    campaign = Campaign("votes", pool, Voting(), storage, strategy="k_center", batch=10)
    for _ in range(2):
        campaign.tell({int(item): truth[int(item)] for item in campaign.ask().ids})
        trained = campaign.train()
    second = [event for event in storage.read("votes") if isinstance(event, Asked)][1]
    assert second.guesses is None
    hits = [
        label == truth[i] for i, label in zip(second.ids, second.info["predicted"], strict=True)
    ]
    assert trained.metrics["prequential"] == np.mean(hits)


def test_several_models_predict_by_the_mean_of_their_probabilities():
    class Two(Nearest):
        """Two models: one sure of itself, one that knows nothing."""

        def represent(self, inputs, names):
            found = super().represent(inputs, names)
            return {name: [rows, np.full_like(rows, 0.5)] for name, rows in found.items()}

    one = held(Nearest(), Coding(False, None), [0, 1, 0, 1]).predict(IDS)
    both = held(Two(), Coding(False, None), [0, 1, 0, 1]).predict(IDS)
    assert both.labels == one.labels
    assert both.confidence == pytest.approx([(share + 0.5) / 2 for share in one.confidence])


def test_what_json_cannot_hold_becomes_plain():
    given = {1: np.float32(0.5), "a": (np.int64(3), float("nan")), "b": np.arange(2), "c": {4}}
    assert plain(given) == {"1": 0.5, "a": [3, None], "b": [0, 1], "c": "{4}"}
    assert plain([True, None, "x"]) == [True, None, "x"]


class Wide(Voting):
    """A network with an output more than there are classes, and that one the largest."""

    def represent(self, inputs, names):
        check_names(names, ["probabilities"], "a wide one")
        return {"probabilities": np.tile([0.3, 0.7], (len(inputs), 1))}


def test_an_output_that_no_class_has_yet_is_never_predicted():
    model = held(Wide(), Coding(False, ("owl",)), ["owl", "owl"])
    assert model.predict(IDS[:3]) == (["owl"] * 3, [0.3] * 3)
