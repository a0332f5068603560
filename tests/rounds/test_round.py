"""A round: predictions in the terms of the labels, representations, options and selection."""

from dataclasses import replace

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.learner import FitReport, check_names
from labelwise.rounds import Holdout, LabelEncoding, Round, adapt_options, scale_weights
from labelwise.strategies import get
from labelwise.strategy import PastBatch
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


class Silent:
    """A learner that cannot predict."""

    fit, represent = Voting.fit, Voting.represent


class WithLogits(Nearest):
    """Class means with logits, which are twice too large."""

    def represent(self, inputs, names):
        check_names(names, ["features", "probabilities", "logits"], "a nearest mean")
        found = super().represent(inputs, ["features", "probabilities"])
        found["logits"] = 2 * np.log(found["probabilities"] + 1e-12)
        return {name: found[name] for name in names}


def fit_round(learner, encoding, labels, count=6):
    """A round whose learner is trained on the first items of a pool."""
    pool = labelwise.Pool(np.arange(2.0 * count).reshape(count, 2), IDS[:count])
    held = Round(pool, learner)
    held.fit(dict(zip(IDS.tolist(), labels, strict=False)), seed=0, encoding=encoding)
    return held


def test_unseen_classes_do_not_shift_columns():
    names = ("ant", "bee", "cat", "dog")
    held = fit_round(Nearest(), LabelEncoding(False, names), ["bee", "dog", "bee", "dog"])
    assert held.columns == [1, 3]
    assert set(held.predict(IDS).labels) == {"bee", "dog"}


def test_a_learner_with_a_column_for_every_class_predicts_the_same():
    class Whole(Nearest):
        """Has four classes, whatever it has seen."""

        def represent(self, inputs, names):
            found = super().represent(inputs, names)
            if "probabilities" in found:
                wide = np.zeros((len(inputs), 4))
                wide[:, self.classes] = found["probabilities"]
                found["probabilities"] = wide
            return found

    encoding = LabelEncoding(False, ("ant", "bee", "cat", "dog"))
    whole, narrow = (
        fit_round(learner, encoding, ["bee", "dog", "bee", "dog"])
        for learner in (Whole(), Nearest())
    )
    assert whole.predict(IDS) == narrow.predict(IDS)


def test_an_output_without_a_class_is_never_predicted():
    class Wide(Voting):
        """A network with one more output than there are classes, and that one is the largest."""

        def represent(self, inputs, names):
            check_names(names, ["probabilities"], "a wide one")
            return {"probabilities": np.tile([0.3, 0.7], (len(inputs), 1))}

    held = fit_round(Wide(), LabelEncoding(False, ("owl",)), ["owl", "owl"])
    assert held.predict(IDS[:3]) == (["owl"] * 3, [0.3] * 3)


def test_a_learner_without_probabilities_predicts_without_confidence():
    held = fit_round(Voting(), LabelEncoding(False, ("ant", "bee")), ["bee", "ant", "bee"])
    assert held.predict(IDS[:2]) == (["bee", "bee"], None)


def test_a_learner_that_cannot_predict_is_not_measured():
    held = fit_round(Silent(), LabelEncoding(False, ("ant", "bee")), ["bee", "ant", "bee"])
    assert held.predict(IDS[:2]) is None
    assert held.measure({int(IDS[0]): "ant"}) == {}
    assert held.make_history(labels={int(IDS[0]): "ant"}).evaluate_labelled() is None


def test_a_regression_predicts_values():
    held = fit_round(Line(), LabelEncoding(regression=True), [1.0, 3.0, 5.0])
    assert held.predict(IDS[:3]).labels == pytest.approx([1.0, 3.0, 5.0])
    assert held.predict(IDS[:3]).confidence is None
    assert held.measure({int(IDS[0]): 2.0})["mse"] == pytest.approx(1.0)


def test_several_models_predict_by_the_mean_of_their_probabilities():
    class Two(Nearest):
        """Two models: one that knows, and one that knows nothing."""

        def represent(self, inputs, names):
            found = super().represent(inputs, names)
            return {name: [rows, np.full_like(rows, 0.5)] for name, rows in found.items()}

    one = fit_round(Nearest(), LabelEncoding(), [0, 1, 0, 1]).predict(IDS)
    both = fit_round(Two(), LabelEncoding(), [0, 1, 0, 1]).predict(IDS)
    assert both.labels == one.labels
    assert both.confidence == pytest.approx([(share + 0.5) / 2 for share in one.confidence])


def test_a_failed_training_leaves_no_model():
    held = fit_round(Nearest(fails=[None, ValueError("no")]), LabelEncoding(), [0, 1])
    assert held.trained
    with pytest.raises(ValueError, match="no"):
        held.fit({int(IDS[0]): 1}, seed=0)
    assert not held.trained


def test_inputs_serve_as_features_before_there_is_a_model():
    pool, _ = make_pool()
    picks = Round(pool, Nearest()).select_batch("k_center", 5, seed=0)
    direct = labelwise.select("k_center", 5, features=pool.inputs, ids=pool.ids, seed=0)
    assert picks.ids.tolist() == direct.ids.tolist()
    with pytest.raises(BadInput, match="margin needs a model, and nothing is trained yet"):
        Round(pool, Nearest()).select_batch("margin", 5, seed=0)


def test_only_candidates_are_picked_and_labelled_items_count_as_context():
    pool, _ = make_pool()
    candidates = np.arange(60) % 2 == 0
    labelled = pool.ids[1:7:2]
    chosen = Round(pool, Nearest())
    picks = chosen.select_batch("k_center", 5, candidates=candidates, labelled=labelled, seed=0)
    kept = candidates | np.isin(pool.ids, labelled)
    direct = labelwise.select(
        "k_center", 5, features=pool.inputs[kept], ids=pool.ids[kept], labelled=labelled, seed=0
    )
    assert picks.ids.tolist() == direct.ids.tolist()
    assert set(picks.ids.tolist()) <= set(pool.ids[candidates].tolist())


def test_given_representations_are_used():
    pool, _ = make_pool()
    rows = {"features": np.arange(60.0)[:, None]}
    picks = Round(pool, Nearest()).select_batch("k_center", 2, rows=rows, seed=0)
    assert set(picks.ids.tolist()) == {int(pool.ids[0]), int(pool.ids[59])}


def test_a_strategy_sets_options_from_the_history_but_none_that_are_given():
    seen = []

    def adapt(history):
        seen.append(history)
        return {"power": len(history.batches), "rounds": 7}

    strategy = replace(get("margin"), adapt=adapt)
    pool, truth = make_pool()
    held = Round(pool, Nearest())
    past = [PastBatch("margin", {}, (1, 2), {})]
    assert adapt_options(strategy, {"rounds": 3}, held.make_history(past)) == {"rounds": 3}
    held.fit(dict(list(truth.items())[:20]), seed=0)
    history = held.make_history(past, truth)
    assert adapt_options(strategy, {"rounds": 3}, history) == {"power": 1, "rounds": 3}
    assert len(seen) == 1 and seen[0].options == {"rounds": 3}


def test_the_history_evaluates_labelled_and_held_out_items():
    pool, truth = make_pool()
    held = Round(pool, WithLogits())
    some = dict(list(truth.items())[:20])
    held.fit(some, seed=0)
    history = held.make_history(labels=some, holdout=truth)
    guessed = held.predict(list(some)).labels
    assert history.evaluate_labelled() == [
        a == b for a, b in zip(guessed, some.values(), strict=True)
    ]
    logits, targets = history.evaluate_holdout()
    own = held.learner.represent(pool.take(list(truth)), ["logits"])["logits"]
    np.testing.assert_array_equal(logits, own)
    assert targets.tolist() == list(truth.values())
    apart = held.make_history(holdout=Holdout(pool.take(list(truth)), list(truth.values())))
    np.testing.assert_array_equal(apart.evaluate_holdout()[0], own)


def test_held_out_items_of_unseen_classes_are_left_out():
    pool, truth = make_pool()
    held = Round(pool, WithLogits())
    held.fit({item: label for item, label in truth.items() if label != 1}, seed=0)
    logits, targets = held.make_history(holdout=truth).evaluate_holdout()
    assert logits.shape == (sum(label != 1 for label in truth.values()), 2)
    assert targets.tolist() == [label // 2 for label in truth.values() if label != 1]


def test_weights_of_a_batch_are_scaled_to_mean_1():
    assert scale_weights({4: 10.0, 2: 30.0}) == {4: 0.5, 2: 1.5}
    assert scale_weights({4: 0.0}) == {}


def test_history_gives_out_of_fold_logits_of_a_learner_that_cross_validates():
    rows = np.random.default_rng(0).normal(size=(40, 3))
    labels = {item: int(rows[item, 0] > 0) for item in range(20)}
    one = Round(labelwise.Pool(rows), labelwise.LinearProbe())
    assert one.make_history(labels=labels).evaluate_out_of_fold() is None
    one.fit(labels, seed=0)
    logits, targets = one.make_history(labels=labels).evaluate_out_of_fold()
    assert logits.shape == (20, 2) and targets.tolist() == list(labels.values())
