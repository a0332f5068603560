"""The one sentence of advice, and the quality of a model that it is based on."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from labelwise import LinearProbe
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.evaluation import find_confused_classes, read_model_quality
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise_campaign
from labelwise.record.events import Started, Trained
from labelwise.record.ledger import replay
from labelwise.record.storage import MemoryStorage
from labelwise.rounds import measure_reliability, wilson_interval
from tests.campaign.toys import answer, make_campaign, make_pool

CONFUSED = {"classes": ["cat", "dog", "owl"], "confusions": [[60, 20, 0], [12, 70, 1], [0, 0, 50]]}


def trained(accuracies, labels, held=400, **metrics):
    """A ledger with one training per accuracy, on rising numbers of labels."""
    events = [Started(0.0, {}, 10_000)]
    for number, (value, count) in enumerate(zip(accuracies, labels, strict=True), start=1):
        ends = list(wilson_interval(value * held, held))
        own = {"accuracy": value, "interval": ends, "validation_labels": held, **metrics}
        events.append(Trained(1.0, number, count, 0.1, own))
    return replay(events)


RISING = trained([0.60, 0.70, 0.77, 0.82], [100, 150, 200, 250])


@pytest.mark.parametrize(
    ("ledger", "settings", "stop", "begins"),
    [
        (replay([Started(0.0, {}, 9)]), {}, False, "Keep labelling: there is no model yet."),
        (trained([0.6], [100]), {}, False, "Keep labelling: it is too early"),
        (RISING, {}, False, "Keep labelling: 50 more labels should add about"),
        (RISING, {"goal": 0.8}, True, "You can stop: 80 % reached (accuracy 82.0 %"),
        (RISING, {"goal": 0.9}, False, "Keep labelling: 50 more labels"),
    ],
)
def test_the_advice_is_one_sentence(ledger, settings, stop, begins):
    found = advise_campaign(ledger, Settings(batch=50, **settings))
    assert found.stop is stop and found.says.startswith(begins)
    assert found.says.endswith(".") and "\n" not in found.says


def test_the_gain_is_that_of_the_forecast():
    found = advise_campaign(RISING, Settings(batch=50))
    assert f"about {100 * found.forecast.gain:.0f} points" in found.says


def test_confused_classes_are_named_where_labels_help_little():
    ledger = trained(
        [0.90, 0.90, 0.90, 0.90, 0.90], [800, 900, 1000, 1100, 1200], 20_000, out_of_fold=CONFUSED
    )
    found = advise_campaign(ledger, Settings(batch=10))
    assert "cat and dog are often confused, clearer instructions may help" in found.says


def test_a_few_confusions_do_not_count():
    few = {"classes": ["cat", "dog"], "confusions": [[6, 2], [2, 6]]}
    ledger = trained([0.7], [16], out_of_fold=few)
    assert find_confused_classes(ledger) is None


def test_bins_of_confidence_match_a_slow_version():
    rng = np.random.default_rng(0)
    sure, right = rng.uniform(0.3, 1.0, 500), rng.integers(0, 2, 500)
    for low in np.arange(3, 10) / 10:
        own = (sure >= low) & (sure < low + 0.1)
        mean = (sure[own].mean(), right[own].mean(), own.sum())
        assert any(bin == pytest.approx(mean) for bin in measure_reliability(sure, right))


def test_the_quality_is_measured_out_of_fold_or_else_on_the_holdout():
    pool, truth = make_pool(120)
    probe = LinearProbe(classes=3)
    campaign = Campaign("p", pool, probe, MemoryStorage(), batch=60, classes=(0, 1, 2))
    campaign.ask()
    answer(campaign, truth)
    campaign.train()
    found = read_model_quality(campaign.ledger())
    held = probe.out_of_fold
    assert found.source == "cross-validation" and found.labels == 60
    expected = confusion_matrix(held.targets, held.logits.argmax(axis=1))
    assert np.array_equal(found.confusions, expected)
    assert sum(count for _, _, count in found.reliability) == 60

    other, truth = make_campaign(MemoryStorage(), n=120, batch=60, validation=0.3)
    other.ask()
    answer(other, truth)
    metrics = other.train().metrics
    found = read_model_quality(other.ledger())
    assert found.source == "holdout" and found.labels == metrics["validation_labels"]
    assert np.sum(found.confusions) == np.sum([row[2] for row in found.reliability])


@pytest.mark.parametrize(("rolling", "judged"), [(False, True), (True, False)])
def test_models_of_rolling_batches_are_compared_over_whole_batches(rolling, judged):
    settings = Settings(batch=50, rolling=rolling)
    events = [Started(0.0, settings.to_dict(), 10_000)]
    for number in range(1, 8):  # every model differs by 0.4 %, ten labels apart
        own = {"kappa": 0.996} if number > 1 else {}
        events.append(Trained(1.0, number, 100 + 10 * number, 0.1, own))
    stable = advise_campaign(replay(events), settings).rules[1]
    assert stable.rule == "stable" and stable.judged is judged
    assert stable.stop is (not rolling)
