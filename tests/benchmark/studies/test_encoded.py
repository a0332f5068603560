"""Linear layers on several encoders, as the models of one selection."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

from labelwise.benchmark.datasets import load
from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.encoders import COUNTS, encode_dataset_items
from labelwise.benchmark.protocol import Entrant
from labelwise.benchmark.protocols import get_experiment, read_experiments
from labelwise.benchmark.splits import move_split_to_device
from labelwise.benchmark.studies import STUDIES, growth
from labelwise.benchmark.studies.encoded import (
    combine_encoders,
    make_encoder_heads,
    split_encoded_dataset,
    study_encoder_heads,
)
from labelwise.benchmark.studies.growth import study_encoder_growth
from labelwise.errors import BadInput
from tests.benchmark.toy_encoders import NAMES

CPU = find_benchmark_device("cpu")


@pytest.fixture
def encoded(tmp_path, monkeypatch):
    """An empty cache folder, and small numbers of items."""
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path))
    monkeypatch.setitem(COUNTS, "images", (400, 150))
    for cached in (combine_encoders, growth._compute_encoder_weights):
        cached.cache_clear()
    yield
    for cached in (combine_encoders, growth._compute_encoder_weights):
        cached.cache_clear()


def tiny(name, **changes):
    """An experiment on the toy encoders."""
    found = get_experiment(name)
    settings, learner = {"encoders": NAMES}, {**found.learner, "lr": 0.03}
    changes = {"settings": settings, "learner": learner, **changes}
    return replace(found, dataset="digits_encoded", **changes)


HEADS = {"start": 30, "batch": 20, "rounds": 2}


@pytest.mark.parametrize("name", [name for name in read_experiments() if "encoders" in name])
def test_the_experiments_can_be_run_by_name(name):
    found = get_experiment(name)
    assert STUDIES[found.study].count_rounds(found) == (
        found.rounds + 1 if found.study == "encoder_heads" else len(found.settings["encoders"])
    )


def test_features_stand_side_by_side_centred_and_scaled(encoded):
    data = combine_encoders("digits", NAMES)
    assert data.ends == (6, 18, 38) and data.inputs.shape == (400, 38)
    for number, width in enumerate((6, 12, 20)):
        part = data.inputs[:, data.find_columns(number)]
        assert part.shape[1] == width
        np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-5)
        assert np.square(part).mean() == pytest.approx(1, abs=1e-4)
    np.testing.assert_array_equal(data.targets, load("digits").targets[data.rows])


def test_few_directions_are_the_principal_ones(encoded):
    data = combine_encoders("digits", NAMES[2:], 5)
    found = encode_dataset_items(NAMES[2], "digits")
    wanted = PCA(5).fit(found.features).transform(found.test_features)
    wanted /= np.sqrt(np.square(PCA(5).fit_transform(found.features)).mean())
    np.testing.assert_allclose(np.abs(data.test_inputs), np.abs(wanted), atol=1e-3)


def test_the_items_of_a_seed_are_divided_without_overlap(encoded):
    protocol = tiny("lewis-fig2-encoders-cifar10", **HEADS, pool=200)
    split, again, other = (split_encoded_dataset(protocol, seed) for seed in (0, 0, 1))
    assert len(split.ids) == 200 and len(np.unique(split.first)) == 30
    np.testing.assert_array_equal(split.first, again.first)
    assert split.first.tolist() != other.first.tolist()
    data = load("digits")
    np.testing.assert_array_equal(split.targets, data.targets[split.ids])
    with pytest.raises(BadInput, match="buys 230 labels from a pool of 200"):
        split_encoded_dataset(replace(protocol, batch=100), 0)


def test_a_model_sees_only_its_encoder(encoded):
    protocol = tiny("lewis-fig2-encoders-cifar10", **HEADS)
    split = split_encoded_dataset(protocol, 0)
    models = make_encoder_heads(
        protocol, Entrant("random"), split, CPU, move_split_to_device(split, CPU)
    )
    for task in models.make_tasks(split.find_positions(split.first), split.targets[:30], None, 0):
        task.fit()
    data = combine_encoders("digits", NAMES)
    given = models.reader.represent(split.inputs, ["features"])["features"]
    for number in range(3):
        np.testing.assert_array_equal(given[number], split.inputs[:, data.find_columns(number)])


@pytest.mark.parametrize("entrant", get_experiment("lewis-fig2-encoders-cifar10").entrants, ids=str)
def test_every_strategy_buys_labels_for_all_encoders(encoded, entrant):
    protocol = tiny("lewis-fig2-encoders-cifar10", **HEADS)
    lines = list(study_encoder_heads(protocol, entrant, 0, CPU))
    assert [line.labels for line in lines] == [30, 50, 70]
    assert all(len(line.values) == 3 for line in lines)
    assert lines[0].value == pytest.approx(np.mean(lines[0].values))
    assert lines[-1].value > 0.3 and lines[0].network == "3 encoders"
    bought = [pick for line in lines for pick in line.picks]
    assert len(set(bought)) == 40 and set(bought) <= set(
        combine_encoders("digits", NAMES).rows.tolist()
    )


def test_all_strategies_of_a_seed_begin_alike(encoded):
    protocol = tiny("lewis-fig2-encoders-cifar10", **HEADS)
    values = {
        next(study_encoder_heads(protocol, Entrant(name), 3, CPU)).values
        for name in ("random", "k_center", "lewis")
    }
    assert len(values) == 1


def test_the_growth_begins_at_a_rank_and_stays_under_the_sum(encoded):
    protocol = tiny("lewis-fig1-growth-encoders")
    total, ranks, other = (
        list(dict(study_encoder_growth(protocol, entrant, 0, CPU)).values())
        for entrant in protocol.entrants
    )
    assert total[0] == pytest.approx(ranks[0]) and round(total[0]) in (6, 12, 20)
    assert ranks[-1] == pytest.approx(38)
    assert (np.diff(total) > 0).all() and total[-1] < ranks[-1]
    assert other[0] == pytest.approx(total[0], rel=1e-3)  # the sum of Lewis weights is the rank


def test_the_growth_is_the_sum_of_the_largest_leverages(encoded):
    protocol = tiny("lewis-fig1-growth-encoders")
    data = combine_encoders("digits", NAMES)
    largest = np.zeros(400)
    for number in range(3):
        basis = np.linalg.qr(data.inputs[:, data.find_columns(number)].astype(np.float64))[0]
        largest = np.maximum(largest, np.square(basis).sum(axis=1))
    for seed in range(3):  # whatever their order
        totals = dict(study_encoder_growth(protocol, Entrant("lewis", {"p": 2.0}), seed, CPU))
        assert totals[3] == pytest.approx(largest.sum())
