"""What a training records about itself, against its definition."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.metrics import cohen_kappa_score

from labelwise.campaign.settings import Settings
from labelwise.campaign.training import plan_training
from labelwise.record.events import Asked, Started, Told, Trained, Training
from labelwise.record.ledger import replay
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import answer, make_campaign


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
