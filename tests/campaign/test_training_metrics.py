"""What a training records about itself, against its definition."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.metrics import (
    balanced_accuracy_score,
    cohen_kappa_score,
    confusion_matrix,
    f1_score,
)

from labelwise import LinearProbe
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.settings import Settings
from labelwise.campaign.training import find_reserved_items, plan_training
from labelwise.record.events import Asked, Started, Told, Trained, Training
from labelwise.record.ledger import replay
from labelwise.record.storage import MemoryStorage
from labelwise.rounds import estimate_accuracy, wilson_interval
from tests.campaign.toys import Nearest, answer, make_campaign, make_pool


def trained_twice(**settings):
    campaign, truth = make_campaign(MemoryStorage(), n=60, **settings)
    for _ in range(2):
        campaign.ask()
        answer(campaign, truth)
        campaign.train()
    return campaign


def test_kappa_is_that_of_the_predictions_of_both_models():
    campaign = trained_twice()
    pool = campaign.pool
    second = campaign.learner.represent(pool.inputs, ["probabilities"])["probabilities"]
    columns = campaign.learner.classes
    calls = campaign.learner.calls
    first = type(campaign.learner)()
    first.fit(**calls[0])
    before = first.represent(pool.inputs, ["probabilities"])["probabilities"]
    expected = cohen_kappa_score(first.classes[before.argmax(1)], columns[second.argmax(1)])
    assert campaign.ledger().trainings[-1].metrics["kappa"] == pytest.approx(expected)


def test_the_spectrum_is_that_of_the_labelled_rows_against_the_pool():
    campaign = trained_twice()
    rows = np.asarray(campaign.pool.inputs)
    labelled = rows[campaign.pool.find_positions(list(campaign.ledger().labels))]
    ours = labelled.T @ labelled / len(labelled)
    values = scipy.linalg.eigh(ours, rows.T @ rows / len(rows), eigvals_only=True)
    found = campaign.ledger().trainings[-1].metrics["spectrum"]
    assert found["rank"] == 4 and found["unseen"] == 0
    assert (found["lower"], found["upper"]) == pytest.approx((values[0], values[-1]))


def test_numbers_go_on_after_the_last_training_that_began_whichever_ended_last():
    ended = [Trained(3.0, 2, 2, 1.0, {}), Trained(4.0, 1, 2, 1.0, {})]
    events = [
        *(Started(0.0, Settings().to_dict(), 9), Asked(0.0, 1, (0, 1)), Told(1.0, 0, 1)),
        *(Told(1.0, 1, 0), Training(2.0, 1, 2), Training(2.0, 2, 2), *ended),
    ]
    assert plan_training(replay(events), Settings(), None).number == 3


def test_the_accuracy_is_estimated_with_the_reserved_items_without_a_label():
    pool, truth = make_pool(400)
    for item in list(truth)[::3]:  # a third of the labels is random, so that there are errors
        truth[item] = item % 3
    settings = {"batch": 100, "validation": 0.3}
    campaign = Campaign("toys", pool, Nearest(), MemoryStorage(), **settings)
    campaign.ask()
    answer(campaign, truth)
    metrics, ledger = campaign.train().metrics, campaign.ledger()
    held = sorted(ledger.validation)
    reserved = pool.ids[find_reserved_items(pool.ids, Settings(**settings))]
    assert set(held) <= set(reserved.tolist()) and len(reserved) > len(held)
    others = sorted(set(reserved.tolist()) - set(held))

    def predict(items):
        chances = campaign.learner.represent(pool.take(items), ["probabilities"])["probabilities"]
        return campaign.learner.classes[chances.argmax(axis=1)], chances.max(axis=1)

    mine, confidence = predict(held)
    labels = np.array([truth[item] for item in held])
    expected = estimate_accuracy(mine == labels, confidence, predict(others)[1])
    assert metrics["accuracy"] == pytest.approx(expected.value)
    assert metrics["interval"] == pytest.approx([expected.low, expected.high])
    assert metrics["effective_labels"] == pytest.approx(expected.effective_labels)
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, mine))
    assert metrics["macro_f1"] == pytest.approx(f1_score(labels, mine, average="macro"))


def test_a_test_set_of_the_user_is_evaluated_alone():
    campaign, truth = make_campaign(MemoryStorage(), n=200, validation=0.3)
    test = tuple(list(truth)[:40])
    campaign.commit(lambda ledger, now: ([Asked(now, 1, test, validation=test)], None))
    campaign.tell(
        {item: 0 for item in test} | {item: truth[item] for item in list(truth)[40:60]},
        anything=True,
    )
    metrics = campaign.train().metrics
    mine = campaign.learner.represent(campaign.pool.take(list(test)), ["probabilities"])
    hits = int((mine["probabilities"].argmax(axis=1) == 0).sum())
    assert 0 < hits < 40 and metrics["accuracy"] == hits / 40
    assert metrics["interval"] == list(wilson_interval(hits, 40))


def test_out_of_fold_predictions_give_confusions_and_suspicious_labels():
    pool, truth = make_pool(120)
    names = {item: "abc"[kind] for item, kind in truth.items()}
    learner = LinearProbe(classes=3)
    campaign = Campaign("toys", pool, learner, MemoryStorage(), classes=("a", "b", "c"))
    campaign.tell(names, anything=True)
    found = campaign.train().metrics["out_of_fold"]
    folded, items = learner.out_of_fold, sorted(truth)
    predicted = folded.logits.argmax(axis=1)
    labels = [truth[item] for item in items]
    assert found["classes"] == ["a", "b", "c"]
    assert found["confusions"] == confusion_matrix(labels, predicted).tolist()
    suspicious = {item: suggested for item, _, suggested in found["suspicious"]}
    assert suspicious == {
        item: "abc"[mine]
        for item, mine, label in zip(items, predicted, labels, strict=True)
        if mine != label
    }
