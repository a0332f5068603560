"""The example that labels once for five networks, on real images."""

import numpy as np
import pytest

from examples import several_models as example


@pytest.fixture(scope="module")
def images():
    return example.digits()


@pytest.fixture(scope="module")
def learner(images):
    learner = example.committee(side=8, epochs=15)
    learner.fit(images.pool[:150], images.pool_labels[:150], seed=0)
    return learner


def test_the_five_networks_see_the_pool_in_five_ways(images, learner):
    features = learner.represent(images.pool[:50], ["features"])["features"]
    assert [part.shape for part in features] == [(50, 64), (50, 48), (50, 48), (50, 64), (50, 64)]
    assert min(example.accuracies(learner, images)) > 0.3  # guessing gives 0.1


def test_t_grows_far_slower_than_the_sum_of_ranks(images, learner):
    tops, ranks = example.growth(learner.represent(images.pool, ["features"])["features"])
    assert tops[0] == pytest.approx(ranks[0])  # one model: T is its rank
    assert (np.diff(tops) >= -1e-9).all()
    assert max(np.diff(ranks, prepend=0)) <= tops[-1] < 0.5 * ranks[-1]


def test_the_shared_picks_carry_weights_that_add_up_to_the_pool(images, learner):
    rows = learner.represent(images.pool, ["features", "member_probabilities"])
    labelled = np.arange(150)
    batch = example.pick("lewis", rows, labelled, 200, seed=0)
    assert not np.isin(batch.ids, labelled).any()
    assert batch.weights.sum() == pytest.approx(len(images.pool) - 150, rel=0.25)


def test_every_strategy_buys_labels_for_all_five_networks(images):
    found = example.run(images, seed=1, start=60, budget=40, epochs=2)
    assert set(found) == {"no batch", *example.STRATEGIES}
    for values in found.values():
        assert len(values) == 5 and all(0 <= value <= 1 for value in values)
    assert len({tuple(values) for values in found.values()}) > 2  # other labels, other networks
