"""Forecasts on curves whose answer is known."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.campaign.evaluation import ModelScore, learning_curve
from labelwise.campaign.forecast import FEWEST, forecast_batch, forecast_gain
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.rounds import wilson_interval as wilson


def law(now, rest, rate, last):
    """The error with x labels."""
    return lambda x: now * (rest + (1 - rest) * (x / last) ** -rate)


def measured(error, sizes, items):
    """A curve without noise: the interval is that of so many items."""
    points = []
    for labels in sizes:
        accuracy = 1 - error(labels)
        low, high = wilson(accuracy * items, items)
        points.append(ModelScore(labels, accuracy, low, high))
    return points


def drawn(generator, *, shared):
    """A law drawn at random, its curve on drawn items, and the true gain of 50 more labels."""
    while True:
        count, items = int(generator.integers(4, 12)), int(generator.choice([100, 300, 1000]))
        sizes = 50 * np.arange(1, count + 1)
        rate = math.exp(generator.uniform(math.log(0.1), math.log(1.5)))
        error = law(generator.uniform(0.03, 0.5), generator.uniform(), rate, sizes[-1])
        if error(50) < 0.9:
            break
    hard = generator.uniform(size=items)  # a model errs on the items that are too hard for it
    points = []
    for labels in sizes.tolist():
        here = hard if shared else generator.uniform(size=items)
        hits = int(np.count_nonzero(here >= error(labels)))
        points.append(ModelScore(labels, hits / items, *wilson(hits, items)))
    return points, error(sizes[-1]) - error(sizes[-1] + 50)


@pytest.mark.parametrize("rate", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("rest", [0.0, 0.2, 0.5])
def test_a_long_exact_curve_gives_the_gain_of_its_law(rate, rest):
    error = law(0.1, rest, rate, 1000)
    points = measured(error, range(100, 1001, 50), 1_000_000)
    found = forecast_gain(points, 200)
    gain = error(1000) - error(1200)
    assert found.gain == pytest.approx(gain, rel=0.1)
    assert found.reaches == pytest.approx(1 - error(1200), abs=0.002)
    if rest > 0:  # no law of the grid is below one without a rest, so that is no middle of any
        assert found.low <= gain <= found.high


@pytest.mark.parametrize("shared", [False, True])
def test_nine_of_ten_intervals_hold_the_true_gain(shared):
    generator = np.random.default_rng(5)
    held = []
    for _ in range(100):
        points, gain = drawn(generator, shared=shared)
        found = forecast_gain(points, 50)
        held.append(found.low <= gain <= found.high)
    assert np.mean(held) > 0.84  # two standard errors below 0.9


def test_intervals_narrow_with_more_items_to_measure_on():
    error, sizes = law(0.2, 0.3, 0.5, 400), (100, 200, 300, 400)
    widths = [
        forecast_gain(measured(error, sizes, items), 100) for items in (100, 1_000, 10_000, 100_000)
    ]
    found = [one.high - one.low for one in widths]
    assert found == sorted(found, reverse=True) and found[0] > 2 * found[-1]


def test_a_flat_curve_promises_next_to_nothing():
    points = measured(lambda x: 0.1, range(100, 1001, 100), 20_000)
    found = forecast_gain(points, 100)
    assert 0 <= found.low <= found.gain < 0.001 and found.high < 0.003


def test_a_falling_curve_promises_no_loss():
    points = [ModelScore(n, 0.9 - n / 10_000, 0.8, 0.95) for n in (100, 200, 300, 400)]
    found = forecast_gain(points, 100)
    assert 0 <= found.low <= found.gain <= found.high < 0.03


def test_more_labels_bring_more():
    points = measured(law(0.2, 0.3, 0.5, 400), (100, 200, 300, 400), 1000)
    gains = [forecast_gain(points, labels).gain for labels in (10, 50, 200, 1000)]
    assert gains == sorted(gains) and gains[0] < gains[-1]


def test_the_start_of_a_long_curve_does_not_count():
    late = measured(law(0.1, 0.0, 0.5, 1000), (300, 400, 600, 800, 1000), 1000)
    early = [ModelScore(20, 0.10, 0.05, 0.15), ModelScore(50, 0.10, 0.05, 0.15)]
    assert forecast_gain(early + late, 100) == forecast_gain(late, 100)


@pytest.mark.parametrize("count", range(FEWEST))
def test_too_few_models_are_said_to_be_too_few(count):
    points = measured(law(0.2, 0.3, 0.5, 100), range(50, 50 + 50 * count, 50), 100)
    found = forecast_gain(points, 50)
    assert found.gain is None and found.low is None and found.reaches is None
    assert f"available after 3 models with 30 held-out labels or more ({count}" in found.says


def test_models_with_the_same_labels_are_not_a_curve():
    assert forecast_gain([ModelScore(50, 0.8, 0.7, 0.9)] * 5, 50).gain is None


def test_entries_that_are_not_finite_are_left_out():
    points = measured(law(0.2, 0.3, 0.5, 200), (50, 100, 150, 200), 500)
    spoilt = [ModelScore(120, math.nan, None, None), *points, ModelScore(0, 0.1, 0.0, 0.2)]
    assert forecast_gain(spoilt, 50) == forecast_gain(points, 50)


def test_without_a_number_the_last_step_is_repeated():
    points = measured(law(0.2, 0.3, 0.5, 200), (50, 100, 200), 500)
    assert forecast_gain(points).labels == 100


def test_mean_squared_errors_are_forecast_too():
    error = law(40.0, 0.25, 0.8, 800)
    points = [ModelScore(n, error(n), None, None, "mse") for n in range(100, 801, 50)]
    found = forecast_gain(points, 200)
    gain = error(800) - error(1000)
    assert found.low <= gain <= found.high and found.gain == pytest.approx(gain, rel=0.25)
    assert found.reaches == pytest.approx(error(1000), rel=0.02)
    assert "200 more labels should lower the mean squared error by" in found.says


def test_a_curve_of_two_metrics_and_a_step_of_nothing_are_refused():
    with pytest.raises(BadInput, match="one metric; got accuracy, mse"):
        forecast_gain([ModelScore(50, 0.8), ModelScore(60, 3.0, metric="mse")], 10)
    with pytest.raises(BadInput, match="labels must be 1 or more"):
        forecast_gain([], 0)


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 30), st.integers(0, 30)), max_size=12),
    st.integers(1, 10**6),
)
def test_any_curve_gives_a_gain_from_nothing_to_the_whole_error(entries, step):
    points = []
    for labels, hits, misses in entries:
        items = hits + misses or 1
        points.append(ModelScore(labels, hits / items, *wilson(hits, items)))
    found = forecast_gain(points, step)
    if found.gain is not None:
        assert 0 <= found.low <= found.gain <= found.high <= 1.5
        assert found.reaches <= 1 and math.isfinite(found.reaches)


# From a record.


def record(*metrics, regression=False):
    trainings = [SimpleNamespace(labels=n, metrics=values) for n, values in metrics]
    return SimpleNamespace(trainings=trainings, settings={"regression": regression})


def test_a_curve_keeps_the_last_model_of_each_number_of_labels():
    ledger = record(
        (50, {"accuracy": 0.7, "interval": [0.6, 0.8]}),
        (50, {"accuracy": 0.8, "interval": [0.7, 0.9]}),
        (100, {"loss": 0.1}),
        (150, {"accuracy": 0.9, "interval": None}),
    )
    assert learning_curve(ledger) == [
        ModelScore(50, 0.8, 0.7, 0.9),
        ModelScore(150, 0.9, None, None),
    ]


def test_without_items_set_aside_the_batches_themselves_make_a_curve_and_no_forecast():
    ledger = record(*[(n, {"prequential": n / 1000}) for n in (100, 200, 300, 400)])
    assert [point.metric for point in learning_curve(ledger)] == ["prequential"] * 4
    assert [point.low for point in learning_curve(ledger)] == [None] * 4
    assert forecast_batch(ledger, Settings()).gain is None


def test_scores_from_few_held_out_labels_are_not_shown():
    few = {"accuracy": 1.0, "interval": [0.2, 1.0], "validation_labels": 1, "prequential": 0.5}
    enough = {"accuracy": 0.8, "interval": [0.6, 0.9], "validation_labels": 30}
    assert learning_curve(record((7, few))) == []  # not the accuracy on the batches either
    assert learning_curve(record((7, few), (90, enough))) == [
        ModelScore(90, 0.8, 0.6, 0.9, evaluated=30)
    ]


@pytest.mark.parametrize("last", [0.30, 0.412, 0.55])
def test_the_forecast_continues_from_the_measured_value(last):
    points = [ModelScore(n, v, v - 0.1, v + 0.1) for n, v in ((50, 0.30), (100, 0.38), (150, last))]
    found = forecast_gain(points, 50)
    assert found.gain >= 0 and found.reaches == last + found.gain
    errors = [ModelScore(n, v, metric="mse") for n, v in ((50, 0.9), (100, 0.8), (150, last))]
    found = forecast_gain(errors, 50)
    assert found.reaches == last - found.gain <= last


def test_squared_errors_of_batches_are_no_accuracies():
    ledger = record((100, {"prequential": 17.0}), regression=True)
    assert learning_curve(ledger) == []


def test_the_forecast_of_a_campaign_is_for_its_next_batch():
    error = law(0.2, 0.3, 0.5, 200)
    points = measured(error, (50, 100, 150, 200), 500)
    metrics = [(p.labels, {"accuracy": p.value, "interval": [p.low, p.high]}) for p in points]
    assert forecast_batch(record(*metrics), Settings(batch=40)) == forecast_gain(points, 40)
