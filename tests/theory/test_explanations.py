"""All diagnostics of a selection together."""

import json

import numpy as np
import pytest

import labelwise
from labelwise import LocalShards, Selection, Shard
from labelwise.errors import BadInput
from labelwise.kernels import lewis_weights
from labelwise.theory import explanations
from labelwise.theory.alignment_bounds import generalisation_bound
from labelwise.theory.coverage import model_coverage
from labelwise.theory.dynamics import alignment, approximation_ratio, last_layer_kernel
from labelwise.theory.explanations import explain
from labelwise.theory.mmd import subset_mmd
from tests.conftest import make_features, make_probabilities

N, K = 300, 3
FEATURES = make_features(N, 6)
PROBABILITIES = make_probabilities(N, K)
LABELS = np.random.default_rng(5).integers(K, size=N)
PICKS = labelwise.select("lewis", 60, features=FEATURES, seed=1)


def names(found):
    return [finding.name for finding in found.findings]


def test_what_is_given_decides_what_is_measured():
    features = ["effective size", "spectrum", "embedding", "mmd"]
    assert names(explain(PICKS, FEATURES)) == features
    with_labels = explain(PICKS, FEATURES, labels=LABELS[PICKS.ids])
    assert names(with_labels) == [*features, "class imbalance", "alignment", "bound B"]
    with_both = explain(PICKS, FEATURES, labels=LABELS, probabilities=PROBABILITIES)
    last = ["class imbalance", "approximation ratio", "alignment", "bound B", "agreement"]
    assert names(with_both) == features + last


def test_several_models_are_told_apart_and_compared():
    second = make_features(N, 4, seed=1)
    found = explain(PICKS, [FEATURES, second], p=1.0)
    assert names(found)[1:6] == [
        "spectrum, model 1",
        "embedding, model 1",
        "spectrum, model 2",
        "embedding, model 2",
        "coverage",
    ]
    weights = [lewis_weights(rows, 1.0, tol=1e-4) for rows in (FEATURES, second)]
    assert found["coverage"]["10"] == pytest.approx(model_coverage(weights, 10), abs=0.04)
    assert not found["embedding, model 2"]["exact"]


def test_the_effective_size_is_that_of_the_selection():
    found = explain(PICKS, FEATURES)["effective size"]
    assert found["effective_size"] == pytest.approx(PICKS.effective_size(), rel=1e-12)


def test_gradients_are_those_of_the_last_layer_at_predicted_labels():
    labelled = {"features": FEATURES[:9], "probabilities": PROBABILITIES[:9], "labels": LABELS[:9]}
    found = explain(PICKS, FEATURES, probabilities=PROBABILITIES, labelled=labelled)
    rows = PROBABILITIES[PICKS.ids]
    residuals = rows - np.eye(K)[rows.argmax(axis=1)]
    gradients = np.einsum("ik,id->ikd", residuals, FEATURES[PICKS.ids]).reshape(len(PICKS), -1)
    before = PROBABILITIES[:9] - np.eye(K)[LABELS[:9]]
    summed = (before.T @ FEATURES[:9]).ravel()
    expected = approximation_ratio(gradients, summed)
    assert found["approximation ratio"]["ratio"] == pytest.approx(expected, rel=1e-9)
    rows = np.concatenate([FEATURES[:9], FEATURES[PICKS.ids]])
    expected = subset_mmd(rows @ rows.T, 9).squared
    assert found["mmd of the labelled items"]["squared"] == pytest.approx(expected, rel=1e-9)


def test_labels_of_the_pool_and_of_the_picks_say_the_same():
    whole = explain(PICKS, FEATURES, labels=LABELS)
    own = explain(PICKS, FEATURES, labels=LABELS[PICKS.ids])
    targets = np.eye(K)[LABELS[PICKS.ids]]
    expected = alignment(last_layer_kernel(FEATURES[PICKS.ids]), targets)
    for found in (whole, own):
        assert found["alignment"]["alignment"] == pytest.approx(expected, rel=1e-9)
        assert found["bound B"]["singular"]
        assert found["class imbalance"]["ratio"] == own["class imbalance"]["ratio"]
    counts = np.bincount(LABELS)
    assert whole["class imbalance"]["pool_ratio"] == counts.max() / counts.min()


def test_a_kernel_of_the_whole_network_replaces_that_of_the_last_layer():
    root = np.random.default_rng(0).normal(size=(len(PICKS), len(PICKS)))
    kernel = root @ root.T + np.eye(len(PICKS))
    own = LABELS[PICKS.ids]
    found = explain(PICKS, FEATURES, labels=own, kernel=kernel)["bound B"]
    assert found["bound"] == pytest.approx(generalisation_bound(kernel, np.eye(K)[own]))
    assert not found["singular"]
    with pytest.raises(BadInput, match="kernel has 3 rows but there are 60 picks"):
        explain(PICKS, FEATURES, labels=own, kernel=np.eye(3))


def test_a_kernel_of_labelled_items_and_picks_serves_both():
    root = np.random.default_rng(0).normal(size=(70, 80))
    kernel, own = root @ root.T, LABELS[PICKS.ids]
    labelled = {"features": FEATURES[:10]}
    found = explain(PICKS, FEATURES, labels=own, labelled=labelled, kernel=kernel)
    assert found["mmd of the labelled items"]["squared"] == subset_mmd(kernel, 10).squared
    expected = alignment(kernel[10:, 10:], np.eye(K)[own])
    assert found["alignment"]["alignment"] == pytest.approx(expected, rel=1e-12)


def test_more_picks_than_a_kernel_can_hold_have_an_alignment_but_no_bound(monkeypatch):
    monkeypatch.setattr(explanations, "MOST_PICKS", 50)
    found = explain(PICKS, FEATURES, labels=LABELS)
    targets = np.eye(K)[LABELS[PICKS.ids]]
    expected = alignment(last_layer_kernel(FEATURES[PICKS.ids]), targets)
    assert found["alignment"]["alignment"] == pytest.approx(expected, rel=1e-9)
    assert np.isnan(found["bound B"]["bound"])
    assert "not computed" in found.findings[-1].reading


def test_torch_tensors_say_the_same():
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(values) for values in (FEATURES, PROBABILITIES, LABELS)]
    options = [{"probabilities": p, "labels": y} for p, y in ((PROBABILITIES, LABELS), tensors[1:])]
    plain = explain(PICKS, FEATURES, p=1.5, **options[0])
    found = explain(PICKS, tensors[0], p=1.5, **options[1])
    for name in names(plain):
        for key, value in plain[name].items():
            assert key == "singular" or found[name][key] == pytest.approx(value, rel=1e-6, abs=1e-9)


def test_a_planted_imbalance_and_a_missing_class_show():
    picks = Selection(np.array([0, 1, 2, 3]))
    labels = np.array([0, 0, 0, 1])
    found = explain(picks, FEATURES, labels=labels)["class imbalance"]
    assert (found["ratio"], found["missing"]) == (3.0, 0)
    found = explain(picks, FEATURES, labels=labels, classes=3)["class imbalance"]
    assert (found["ratio"], found["missing"]) == (np.inf, 1)
    predicted = explain(picks, FEATURES, probabilities=np.tile([0.9, 0.1], (N, 1)))
    assert predicted["class imbalance"]["counts"] == [4, 0]


def test_blocks_with_ids_of_their_own_say_the_same():
    ids = 1000 - np.arange(N)
    cuts = [slice(0, 100), slice(100, N)]
    shards = LocalShards(
        [Shard(ids[c], {"features": FEATURES[c], "probabilities": PROBABILITIES[c]}) for c in cuts]
    )
    moved = Selection(ids[PICKS.ids], PICKS.weights)
    plain = explain(PICKS, FEATURES, probabilities=PROBABILITIES, labels=LABELS)
    split = explain(moved, shards, labels=LABELS)
    for name in names(plain)[:-1]:  # the agreement is over batches drawn by id
        for key, value in plain[name].items():
            expected = pytest.approx(value, rel=1e-6, abs=1e-9)
            assert key == "singular" or split[name][key] == expected


def test_it_is_ready_for_json_with_infinities_left_out():
    found = explain(PICKS, FEATURES, labels=np.zeros(60, int), classes=2)
    entries = json.loads(json.dumps(found.to_dict(), allow_nan=False))["findings"]
    ratio = next(entry for entry in entries if entry["name"] == "class imbalance")
    assert ratio["values"]["ratio"] is None
    assert all(entry["formula"] and entry["reading"] for entry in entries)


def test_one_pick_is_explained_as_far_as_it_goes():
    found = explain(Selection(np.array([4])), FEATURES, labels=np.array([1]))
    assert "mmd" not in names(found)
    assert found["spectrum"]["unseen"] == 5


def test_labels_of_another_number_are_refused():
    with pytest.raises(BadInput, match="there are 7 labels; give 300, one per item"):
        explain(PICKS, FEATURES, labels=np.zeros(7, int))


def test_an_unknown_finding_is_a_key_error():
    with pytest.raises(KeyError, match="nothing"):
        explain(PICKS, FEATURES)["nothing"]
