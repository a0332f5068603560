"""Rounds of buying labels for a head on fixed features."""

import numpy as np
import pytest

from labelwise.benchmark.labelling_run import (
    LabelledPool,
    OracleChooser,
    StrategyChooser,
    buy_label_batches,
    measure_head,
)
from labelwise.benchmark.protocol import Entrant
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.pool import Pool
from labelwise.rounds import Round


@pytest.fixture(name="pool")
def make_pool():
    """Three groups on a line; the ids have gaps."""
    rng = np.random.default_rng(0)
    targets = np.arange(90) % 3
    inputs = (10 * targets[:, None] + rng.normal(size=(90, 2))).astype(np.float32)
    return LabelledPool(10 * np.arange(60), inputs[:60], targets[:60], inputs[60:], targets[60:], 3)


def make_probe():
    return LinearProbe(classes=3)


def buy(pool, name, seed=0, **options):
    return list(
        buy_label_batches(
            pool,
            make_probe,
            StrategyChooser(Entrant(name)),
            batch=3,
            rounds=4,
            seed=seed,
            **options,
        )
    )


@pytest.mark.parametrize("name", ["random", "margin", "k_center", "lewis"])
def test_batches_are_new_items_of_the_pool_and_repeat_with_the_seed(pool, name):
    steps = buy(pool, name)
    picks = np.concatenate([step.picks for step in steps])
    assert [step.labels for step in steps] == [3, 6, 9, 12]
    assert len(set(picks.tolist())) == 12 and set(picks.tolist()) <= set(pool.ids.tolist())
    again = buy(pool, name)
    assert [step.picks.tolist() for step in again] == [step.picks.tolist() for step in steps]
    assert [step.measures for step in again] == [step.measures for step in steps]


def test_a_strategy_picks_the_first_batch_from_features_and_others_start_at_random(pool):
    """Farthest-first from nothing reaches all three groups; margin starts like random."""
    first = buy(pool, "k_center")[0]
    assert set(pool.labels_of(first.picks).values()) == {0, 1, 2}
    random, margin = (buy(pool, name)[0].picks for name in ("random", "margin"))
    assert random.tolist() == margin.tolist()


def test_weights_reach_the_training_only_on_request(pool):
    """Slow version: the head of the first batch is trained here with the same weights."""

    class RecordingProbe(LinearProbe):
        def fit(self, inputs, targets, weights=None, seed=0):
            given.append(weights)
            return super().fit(inputs, targets, weights, seed)

    for weighted in (False, True):
        given = []
        chooser = StrategyChooser(Entrant("lewis"))
        (step,) = buy_label_batches(
            pool,
            lambda: RecordingProbe(classes=3),
            chooser,
            batch=6,
            rounds=1,
            seed=0,
            weighted=weighted,
        )
        if weighted:
            np.testing.assert_allclose(given[0], step.weights / step.weights.mean())
        else:
            assert given == [None]


def test_the_oracle_takes_the_proposal_that_measures_best(pool):
    """Slow version: every proposal is fitted and measured by hand."""
    oracle = OracleChooser(pool, make_probe, ("random", "k_center"), 3, "accuracy", True)
    empty = Round(Pool(pool.inputs, pool.ids), make_probe())
    values = {}
    for picked in oracle.propose(empty, {}, 3, seed=1):
        places = np.searchsorted(pool.ids, picked.ids)
        probe = make_probe()
        probe.fit(pool.inputs[places], pool.targets[places], seed=1)
        right = probe.predict(pool.test_inputs) == pool.test_targets
        values[tuple(picked.ids.tolist())] = right.mean()
    assert len(values) == 6
    assert values[tuple(oracle(empty, {}, 3, seed=1).ids.tolist())] == max(values.values())


def test_measures_of_classes_follow_their_definitions():
    targets, predicted = np.array([0, 0, 0, 1, 3]), np.array([0, 0, 1, 1, 0])
    found = measure_head(predicted, targets, regression=False)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["macro_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)  # class 2 does not occur


def test_measures_of_values_follow_their_definitions():
    errors = np.arange(101.0)
    found = measure_head(errors, np.zeros(101), regression=True)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert (found["mae"], found["error_95"], found["error_max"]) == (50, 95, 100)
