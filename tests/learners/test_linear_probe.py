"""LinearProbe: against scikit-learn at the same objective, and properties of its predictions."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import labelwise
from labelwise.errors import BadInput
from labelwise.learners.linear_models import fit_logistic, fit_ridge, span_rows
from labelwise.learners.linear_probe import CONFIDENT, PENALTIES, LinearProbe, ProbeTuning
from labelwise.learners.table_model import TableModel
from labelwise.learners.tuned_model import COLDEST, measure_loss, split_folds


def make_classes(seed, count=60, width=8, classes=3):
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes, size=count)
    targets[:classes] = np.arange(classes)
    centres = 2 * rng.normal(size=(classes, width))
    return centres[targets] + rng.normal(size=(count, width)), targets


def fit_slowly(rows, targets, classes, weights, penalty):
    """Scikit-learn on the rows and one observation of every class at their mean."""
    model = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000)
    more = np.concatenate([rows, np.zeros((classes, rows.shape[1]))])
    labels = np.concatenate([targets, np.arange(classes)])
    model.fit(more, labels, sample_weight=np.concatenate([weights, np.ones(classes)]))
    return model


@pytest.mark.parametrize(("count", "width", "largest"), [(40, 6, 99), (12, 30, 99), (40, 6, 3)])
def test_logistic_matches_scikit_learn(count, width, largest):
    rows, targets = make_classes(count, count, width)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=count)
    rows = rows - weights @ rows / weights.sum()
    span = span_rows(rows, largest)
    assert (span.basis is None) == (largest == 3)
    masked = np.stack([weights, weights * (np.arange(count) > 3)])  # and without the first items
    fitted = fit_logistic(span.coordinates, span.squares, targets, 3, masked, 0.7, tolerance=1e-14)
    for own, coefficients, offsets in zip(masked, fitted.coefficients, fitted.offsets, strict=True):
        mean = own @ rows / own.sum()
        slow = fit_slowly(rows - mean, targets, 3, own, 0.7)
        mine = rows @ span.expand_coefficients(coefficients.T) + offsets
        np.testing.assert_allclose(
            softmax(mine, axis=1), slow.predict_proba(rows - mean), atol=1e-5
        )


def test_ridge_errors_match_leaving_every_item_out():
    rng = np.random.default_rng(3)
    rows, values = rng.normal(size=(15, 4)), rng.normal(size=(15, 1))
    weights = rng.uniform(0.5, 2.0, size=15)
    roots = np.sqrt(weights)[:, None]
    centred = rows - weights @ rows / weights.sum()
    errors = fit_ridge(
        span_rows(centred * roots),
        (values - weights @ values / weights.sum()) * roots,
        weights,
        0.3,
    ).errors
    for item in range(15):
        rest = np.arange(15) != item
        slow = Ridge(alpha=0.3).fit(rows[rest], values[rest], sample_weight=weights[rest])
        expected = values[item] - slow.predict(rows[item : item + 1])
        np.testing.assert_allclose(errors[item] / roots[item], expected.ravel(), rtol=1e-8)


def test_probabilities_are_calibrated_softmax_of_logits():
    rows, targets = make_classes(0)
    probe = LinearProbe()
    probe.fit(rows, targets)
    found = probe.represent(rows, ["logits", "probabilities", "features"])
    np.testing.assert_allclose(softmax(found["logits"], axis=1), found["probabilities"])
    np.testing.assert_array_equal(found["features"], rows)


def test_tuning_of_an_earlier_training_gives_the_same_model():
    rows, targets = make_classes(1)
    first, second = LinearProbe(), LinearProbe()
    first.fit(rows, targets, seed=4)
    second.fit(rows, targets, seed=4, tuning=vars(first.tuning))
    np.testing.assert_array_equal(first.predict_proba(rows), second.predict_proba(rows))
    assert first.tuning.labels == len(rows) and second.tuning == first.tuning


def test_out_of_fold_matches_training_without_the_fold(monkeypatch):
    monkeypatch.setattr("labelwise.learners.linear_probe.FOLD_TOLERANCE", 1e-12)
    rows, targets = make_classes(2, count=30, width=4)
    rows -= rows.mean(axis=0)
    rows /= np.sqrt(np.mean(rows**2))
    probe = LinearProbe(penalty=0.05)
    probe.fit(rows, targets, seed=9)
    for part in split_folds(targets, 9):
        mean = rows[~part].mean(axis=0)
        ones = np.ones(int((~part).sum()))
        slow = fit_slowly(rows[~part] - mean, targets[~part], 3, ones, 0.05 * 4)
        found = softmax(probe.out_of_fold.logits[part] * probe.tuning.temperature, axis=1)
        np.testing.assert_allclose(found, slow.predict_proba(rows[part] - mean), atol=2e-4)
    probe.fit(rows[:5], [0, 1, 2, 0, 1])
    assert probe.out_of_fold is None  # fewer than two labels a class


def test_penalty_is_as_good_as_the_best_of_exact_fits():
    rows, targets = make_classes(13, count=60, width=20)
    rows = (rows - rows.mean(axis=0)) / np.sqrt(np.mean((rows - rows.mean(axis=0)) ** 2))
    probe = LinearProbe()
    probe.fit(rows, targets, seed=2)
    losses = {}
    for penalty in PENALTIES:
        found = np.empty((60, 3))
        for part in split_folds(targets, 2):
            mean, ones = rows[~part].mean(axis=0), np.ones(int((~part).sum()))
            slow = fit_slowly(rows[~part] - mean, targets[~part], 3, ones, penalty * 20)
            found[part] = slow.predict_log_proba(rows[part] - mean)
        losses[penalty] = measure_loss(found, targets, np.ones(60))
    assert losses[probe.tuning.penalty] < min(losses.values()) + 2e-3


def test_few_labels_hardly_sharpen_the_probabilities():
    rows = np.repeat(np.eye(4), 40, axis=0)  # every class at one point: nothing is uncertain
    targets = np.repeat(np.arange(4), 40)
    chosen = []
    for count in (3, 40):
        probe = LinearProbe(penalty=0.3)
        own = np.concatenate([np.flatnonzero(targets == n)[:count] for n in range(4)])
        probe.fit(rows[own], targets[own])
        chosen.append(probe.tuning.temperature)
    np.testing.assert_allclose(chosen, [COLDEST ** (3 / 13), COLDEST ** (40 / 50)])


def test_only_ratios_of_weights_matter():
    rows, targets = make_classes(5)
    weights = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 1.0)
    one, other, plain = LinearProbe(), LinearProbe(), LinearProbe()
    one.fit(rows, targets, weights)
    other.fit(rows, targets, weights * 7)
    plain.fit(rows, targets)
    np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-9)
    assert not np.allclose(one.predict_proba(rows), plain.predict_proba(rows))


@pytest.mark.parametrize("learner", [LinearProbe, TableModel])
@pytest.mark.parametrize("regression", [True, False])
def test_items_without_weight_are_left_out(learner, regression):
    rows, targets = make_classes(4)
    weights = np.where(np.arange(60) < 20, 1.0, 0.0)
    whole, part = (learner(classes=None if regression else 3, regression=regression) for _ in "ab")
    whole.fit(rows, targets, weights, 0)
    part.fit(rows[:20], targets[:20], None, 0)
    name = "outputs" if regression else "logits"
    np.testing.assert_allclose(
        whole.represent(rows, [name])[name], part.represent(rows, [name])[name]
    )
    np.testing.assert_allclose(whole.out_of_fold.logits, part.out_of_fold.logits)
    whole.fit(rows, targets, np.eye(60)[7], 0)  # no fold could be trained on
    assert np.isfinite(whole.represent(rows, [name])[name]).all()


def test_classes_without_labels_keep_probability():
    rows, targets = make_classes(6, classes=2)
    probe = LinearProbe(classes=4)
    probe.fit(rows, targets)
    chances = probe.predict_proba(rows)
    assert chances.shape == (len(rows), 4) and (chances > 0).all()
    assert (probe.predict_proba(rows.mean(axis=0)[None])[0, 2:] > 1 / len(rows)).all()
    assert (chances.argmax(axis=1) < 2).mean() > 0.9


def test_labels_of_one_class_train():
    rows, _ = make_classes(7)
    probe = LinearProbe(classes=["cat", "dog"])
    probe.fit(rows, ["dog"] * len(rows))
    assert set(probe.predict(rows)) == {"dog"}
    assert (probe.predict_proba(rows)[:, 0] > 0).all()


def test_names_are_classes_and_labels_outside_are_refused():
    rows, targets = make_classes(8)
    names = np.array(["b", "c", "a"])[targets]
    probe = LinearProbe()
    probe.fit(rows, names)
    assert probe.classes_.tolist() == ["a", "b", "c"] and probe.score(rows, names) > 0.8
    with pytest.raises(BadInput, match="'b' is not one of the 2 classes"):
        LinearProbe(classes=["a", "c"]).fit(rows, names)


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        (["a", None, "b"], r"^item 1 has no label \(None\); leave it out$"),
        ([0.0, 1.0, np.nan], r"^item 2 has no label \(nan\); leave it out$"),
        (np.array(["a", 1, "b"], object), r"^labels are of several types \(int, str\); use one$"),
    ],
)
def test_missing_and_mixed_labels_are_rejected(labels, error):
    with pytest.raises(BadInput, match=error):
        LinearProbe().fit(np.eye(3), labels)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_tables_and_columns_of_labels_give_the_model_of_arrays(package):
    library = pytest.importorskip(package)
    rows, targets = make_classes(5)
    names = np.array(["owl", "wren", "hawk"])[targets]
    expected = LinearProbe()
    expected.fit(rows, names)
    probe, table = LinearProbe(), library.DataFrame({f"c{j}": rows[:, j] for j in range(8)})
    probe.fit(table, library.Series(names.tolist()), weights=library.Series([2.0] * len(rows)))
    np.testing.assert_allclose(probe.predict_proba(table), expected.predict_proba(rows), atol=1e-9)
    assert probe.predict(table).tolist() == expected.predict(rows).tolist()


def test_regression_predicts_a_line_and_gives_leave_one_out_values():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3))
    values = rows @ np.array([1.0, -2.0, 0.5]) + 100 + 0.01 * rng.normal(size=80)
    probe = LinearProbe(regression=True)
    probe.fit(rows, values)
    np.testing.assert_allclose(probe.predict(rows), values, atol=0.05)
    errors = probe.out_of_fold.targets - probe.out_of_fold.logits
    assert errors.shape == (80, 1) and 0 < np.abs(errors).mean() < 0.1
    votes = probe.represent(rows, ["member_votes"])["member_votes"]
    np.testing.assert_allclose(votes.mean(axis=1), values, atol=0.1)


@pytest.mark.parametrize("largest", [3, 99])
def test_member_variance_matches_the_posterior(largest, monkeypatch):
    monkeypatch.setattr(
        "labelwise.learners.linear_probe.span_rows", lambda r: span_rows(r, largest)
    )
    rows, targets = make_classes(9, count=20, width=6)
    probe = LinearProbe(members=4000)
    probe.fit(rows, targets, tuning=ProbeTuning(0.01))
    state = probe.state
    basis = np.eye(6) if state.basis is None else state.basis
    new = (rows[:3] + 1 - state.mean) / state.scale
    inside = np.append(new @ basis, np.ones((3, 1)), axis=1) ** 2
    outside = np.sum(new**2, axis=1) - np.sum((new @ basis) ** 2, axis=1)
    expected = (inside @ state.variances.T) @ (state.rotation**2).T
    expected += state.prior * outside[:, None]
    drawn = probe._compute_member_logits(rows[:3] + 1)
    np.testing.assert_allclose(drawn.var(axis=1), expected, rtol=0.15)
    members = probe.represent(rows[:3], ["member_probabilities", "member_votes"])
    assert members["member_probabilities"].shape == (3, 4000, 3)
    np.testing.assert_array_equal(
        members["member_votes"], members["member_probabilities"].argmax(axis=2)
    )


def test_saved_model_predicts_the_same(tmp_path):
    rows, targets = make_classes(10)
    probe = LinearProbe(classes=5)
    probe.fit(rows, targets, seed=3)
    probe.save(tmp_path / "model")
    loaded = LinearProbe()
    loaded.load(tmp_path / "model")
    names = ["logits", "member_probabilities"]
    for name, values in probe.represent(rows, names).items():
        np.testing.assert_array_equal(values, loaded.represent(rows, names)[name])
    np.testing.assert_array_equal(loaded.out_of_fold.logits, probe.out_of_fold.logits)
    assert loaded.tuning == probe.tuning
    (tmp_path / "model" / "arrays.npz").write_bytes(b"PK")
    with pytest.raises(BadInput, match="cannot be read"):
        loaded.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("classes", "labels", "given", "trained"),
    [
        (3, 12, None, True),
        (2, 12, None, False),
        (3, 8, None, False),
        (2, 12, True, True),
        (3, 8, True, True),
        (3, 5, True, False),
    ],
)
def test_self_training_needs_three_classes_and_three_labels_of_each_or_a_wish_and_two(
    classes, labels, given, trained
):
    rows, targets = make_classes(11, count=400, classes=classes)
    plain, more = LinearProbe(), LinearProbe(self_training=given, unlabelled=rows)
    for probe in (plain, more):
        probe.fit(rows[:labels], targets[:labels])
    chances = plain.predict_proba(rows)
    assert (chances.max(axis=1) > CONFIDENT).any()
    found = more.predict_proba(rows)
    assert trained != np.allclose(chances, found)
    means = [own.max(axis=1).mean() for own in (chances, found)]
    assert means[0] == pytest.approx(means[1], abs=1e-3)  # its own predictions make it no surer


def test_bad_input_is_named():
    rows, targets = make_classes(12)
    with pytest.raises(BadInput, match="not trained yet"):
        LinearProbe().predict(rows)
    broken = rows.copy()
    broken[4, 2] = np.nan
    with pytest.raises(BadInput, match="features of item 4"):
        LinearProbe().fit(broken, targets)
    probe = LinearProbe()
    probe.fit(rows, targets)
    with pytest.raises(BadInput, match="trained on 8 features; got 3"):
        probe.predict(rows[:, :3])
    with pytest.raises(BadInput, match="features are a sparse matrix"):
        probe.predict(csr_array(rows))


def test_scikit_learn_can_clone_it_and_the_package_exports_it():
    probe = clone(labelwise.LinearProbe(classes=4, penalty=0.2))
    assert probe.get_params()["classes"] == 4 and probe.set_params(penalty=1.0).penalty == 1.0
    with pytest.raises(BadInput, match="no setting 'depth'"):
        probe.set_params(depth=3)
