"""The scikit-learn learner against scikit-learn itself."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS
from labelwise.learners.linear_probe import LinearProbe
from labelwise.learners.sklearn_learner import SklearnLearner
from labelwise.learners.table_model import TableModel

IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = IMAGES[:300] / 16
DIGITS = DIGITS[:300]


def network(**changes):
    """A small network that trains in a moment."""
    settings = {"hidden_layer_sizes": (12, 7), "solver": "lbfgs", "max_iter": 30}
    return MLPClassifier(**(settings | changes))


def regression(**changes):
    return MLPRegressor(
        **({"hidden_layer_sizes": (4,), "solver": "lbfgs", "max_iter": 9} | changes)
    )


@pytest.mark.parametrize(
    "given",
    [
        network(max_iter=5),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
        LogisticRegression,
    ],
    ids=["instance", "pipeline", "class"],
)
def test_an_estimator_or_its_class_does_for_a_function_that_makes_it(given):
    learner = SklearnLearner(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(IMAGES, DIGITS, seed=3)
        expected = given() if isinstance(given, type) else clone(given)
        names = [name for name in expected.get_params() if name.endswith("random_state")]
        expected.set_params(**dict.fromkeys(names, 3)).fit(IMAGES, DIGITS)
    assert (learner.predict(IMAGES) == expected.predict(IMAGES)).all()
    assert learner.estimator is not given and not hasattr(given, "classes_")


def test_what_is_no_estimator_is_refused():
    with pytest.raises(BadInput, match="or a function that gives one; got str"):
        SklearnLearner("LogisticRegression")


def trained(estimator, inputs=IMAGES, targets=DIGITS, **arguments):
    learner = SklearnLearner(lambda: estimator)
    learner.fit(inputs, targets, seed=0, **arguments)
    return learner


@pytest.mark.parametrize("activation", ["identity", "relu", "tanh", "logistic"])
def test_probabilities_of_a_network_are_those_of_scikit_learn(activation):
    learner = trained(network(activation=activation))
    rows = learner.represent(IMAGES, ["probabilities"])
    np.testing.assert_allclose(
        rows["probabilities"], learner.estimator.predict_proba(IMAGES), rtol=1e-9, atol=1e-12
    )


def test_features_of_a_network_are_its_last_hidden_layer():
    learner = trained(network())
    rows = learner.represent(IMAGES, ["features", "logits"])
    assert rows["features"].shape == (300, 7)
    assert (rows["features"] >= 0).all()
    model = learner.estimator
    by_hand = rows["features"] @ model.coefs_[-1] + model.intercepts_[-1]
    np.testing.assert_allclose(rows["logits"], by_hand, rtol=1e-12)
    assert (model.classes_[by_hand.argmax(axis=1)] == model.predict(IMAGES)).all()


def test_two_classes_get_two_columns():
    learner = trained(network(), IMAGES, DIGITS % 2)
    rows = learner.represent(IMAGES, ["logits", "probabilities"])
    assert rows["logits"].shape == (300, 2)
    np.testing.assert_allclose(
        rows["probabilities"], learner.estimator.predict_proba(IMAGES), rtol=1e-9, atol=1e-12
    )


def test_outputs_of_a_regression_network_are_its_predictions():
    targets = np.stack([IMAGES.sum(axis=1), IMAGES[:, 20]], axis=1)
    learner = trained(regression(hidden_layer_sizes=(9,)), IMAGES, targets)
    rows = learner.represent(IMAGES, ["outputs", "features"])
    assert rows["features"].shape == (300, 9)
    np.testing.assert_allclose(rows["outputs"], learner.predict(IMAGES), rtol=1e-9)


def test_a_single_output_still_has_a_column():
    targets = IMAGES.sum(axis=1)
    for estimator in (LinearRegression(), regression(), regression(loss="poisson")):
        learner = trained(estimator, IMAGES, targets)
        outputs = learner.represent(IMAGES, ["outputs"])["outputs"]
        assert outputs.shape == (300, 1)
        np.testing.assert_allclose(outputs[:, 0], learner.predict(IMAGES), rtol=1e-9)


def test_features_of_other_models_are_what_reaches_their_last_step():
    inputs, targets = load_iris(return_X_y=True)
    plain = trained(LogisticRegression(max_iter=500), inputs, targets)
    np.testing.assert_array_equal(plain.represent(inputs, ["features"])["features"], inputs)
    piped = trained(make_pipeline(StandardScaler(), LogisticRegression()), inputs, targets)
    rows = piped.represent(inputs, ["features", "probabilities"])
    np.testing.assert_allclose(rows["features"], StandardScaler().fit_transform(inputs))
    np.testing.assert_allclose(rows["probabilities"], piped.estimator.predict_proba(inputs))


def test_a_network_in_a_pipeline_sees_scaled_inputs():
    learner = trained(make_pipeline(StandardScaler(), network()))
    rows = learner.represent(IMAGES, ["features", "probabilities"])
    assert rows["features"].shape == (300, 7)
    np.testing.assert_allclose(
        rows["probabilities"], learner.estimator.predict_proba(IMAGES), rtol=1e-9, atol=1e-12
    )


def test_own_features_replace_the_usual_ones():
    learner = SklearnLearner(network, features=lambda model, inputs: inputs[:, :3] + model.n_iter_)
    learner.fit(IMAGES, DIGITS, seed=0)
    features = learner.represent(IMAGES, ["features"])["features"]
    np.testing.assert_array_equal(features, IMAGES[:, :3] + learner.estimator.n_iter_)


def test_a_weight_of_two_equals_the_item_twice():
    twice = np.r_[0:40, 0:10]
    weights = np.r_[np.full(10, 2.0), np.ones(30)]
    make = lambda: network(alpha=0.0, max_iter=15)  # noqa: E731
    weighted = trained(make(), IMAGES[:40], DIGITS[:40], weights=weights)
    repeated = trained(make(), IMAGES[twice], DIGITS[twice])
    for ours, theirs in zip(weighted.estimator.coefs_, repeated.estimator.coefs_, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_scaling_all_weights_changes_nothing():
    weights = np.linspace(0, 3, 60)
    one = trained(network(), IMAGES[:60], DIGITS[:60], weights=weights)
    other = trained(network(), IMAGES[:60], DIGITS[:60], weights=64 * weights)
    for ours, theirs in zip(one.estimator.coefs_, other.estimator.coefs_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_weights_reach_the_last_step_of_a_pipeline():
    inputs, targets = load_iris(return_X_y=True)
    only_two = np.where(targets == 2, 0.0, 1.0)
    piped = make_pipeline(StandardScaler(), LogisticRegression())
    learner = trained(piped, inputs, targets, weights=only_two)
    assert (learner.predict(inputs) != 2).mean() > 0.9


def test_the_seed_decides_the_training():
    learner = SklearnLearner(network)
    answers = []
    for seed in (3, 3, 4):
        learner.fit(IMAGES, DIGITS, seed=seed)
        answers.append(learner.represent(IMAGES, ["features"])["features"])
    np.testing.assert_array_equal(answers[0], answers[1])
    assert not np.allclose(answers[0], answers[2])


def test_the_report_says_whether_training_ended_by_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # stopping at the limit is reported, not warned of
        short = SklearnLearner(lambda: network(max_iter=2)).fit(IMAGES, DIGITS, seed=0)
    whole = SklearnLearner(lambda: network(max_iter=5000)).fit(IMAGES, DIGITS, seed=0)
    assert not short.converged and short.steps == 2
    assert whole.converged and whole.steps > 2
    assert whole.loss < short.loss
    assert whole.seconds > 0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"300 items but weights of shape \(2,\)"),
        (np.r_[-1.0, np.ones(299)], "not negative; item 0 has -1.0"),
        (np.r_[np.nan, np.ones(299)], "finite and not negative; item 0 has nan"),
        (np.zeros(300), "all weights are zero"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(BadInput, match=message):
        trained(network(), weights=weights)


def test_a_model_without_weights_says_so():
    with pytest.raises(BadInput, match="KNeighborsClassifier cannot be trained with weights"):
        trained(KNeighborsClassifier(), weights=np.ones(300))


def test_names_that_cannot_be_given_are_refused():
    with pytest.raises(UnknownName, match="MLPClassifier cannot give outputs; it gives features"):
        trained(network()).represent(IMAGES, ["outputs"])
    with pytest.raises(UnknownName, match="Perceptron cannot give probabilities"):
        trained(Perceptron()).represent(IMAGES, ["probabilities"])
    with pytest.raises(UnknownName, match="no representation is called 'feature'"):
        trained(network()).represent(IMAGES, ["feature"])


def test_a_learner_that_is_not_trained_says_so():
    with pytest.raises(BadInput, match="not trained yet; call fit first"):
        SklearnLearner(network).represent(IMAGES, ["features"])


def test_several_classes_per_item_are_refused():
    with pytest.raises(BadInput, match=r"one class per item; got targets of shape \(300, 10\)"):
        trained(network(), IMAGES, np.eye(10)[DIGITS])


def test_what_is_given_has_the_axes_of_the_list():
    rows = trained(network()).represent(IMAGES, ["features", "probabilities", "logits"])
    for name, array in rows.items():
        assert array.ndim == len(REPRESENTATIONS[name].axes)
        assert len(array) == len(IMAGES)


def test_every_representation_is_written_with_its_shape():
    assert REPRESENTATIONS["features"].shape == "(n, d)"
    assert REPRESENTATIONS["duals"].shape == "(n,)"
    assert all(representation.axes[0] == "n" for representation in REPRESENTATIONS.values())


def test_a_model_that_counts_its_steps_by_pairs_of_classes_reports_the_most():
    inputs, targets = load_iris(return_X_y=True)
    learner = SklearnLearner(SVC())
    report = learner.fit(inputs, targets, seed=0)
    assert np.size(learner.estimator.n_iter_) > 1
    assert report.steps == np.max(learner.estimator.n_iter_) > 0


@pytest.mark.parametrize("form", [pd.DataFrame, lambda rows: rows.tolist()], ids=["frame", "lists"])
@pytest.mark.parametrize("estimator", [network(max_iter=5), LogisticRegression(max_iter=5)])
def test_frames_and_lists_are_represented_as_arrays(estimator, form):
    names = ["features", "probabilities"]
    names += ["logits"] if isinstance(estimator, MLPClassifier) else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = trained(clone(estimator), form(IMAGES))
        rows = learner.represent(form(IMAGES), names)
        wanted = trained(clone(estimator)).represent(IMAGES, names)
    for name in names:
        assert type(rows[name]) is np.ndarray
        np.testing.assert_allclose(rows[name], wanted[name], rtol=1e-9)


def test_sparse_inputs_stay_sparse_features():
    rows = sparse.csr_array(IMAGES)
    learner = trained(LogisticRegression(max_iter=500), rows)
    assert learner.represent(rows, ["features"])["features"] is rows
    found = trained(network(), rows).represent(rows, ["features", "logits"])
    assert found["features"].shape == (300, 7) and type(found["logits"]) is np.ndarray


def test_labels_of_one_class_are_refused():
    for estimator in (network(), LogisticRegression()):
        with pytest.raises(BadInput, match="all 5 labels are class cat; a classifier needs two"):
            trained(estimator, IMAGES[:5], ["cat"] * 5)


@pytest.mark.parametrize(
    ("inputs", "targets", "said"),
    [
        (IMAGES[:4], [0, 1, 0], "one target per item; got 4 items, 3 targets"),
        (IMAGES[:0], [], "one target per item; got 0 items, 0 targets"),
        (IMAGES[:3], [0.0, 1.0, np.nan], "LogisticRegression refused the data: Input y contains"),
        (np.full((3, 2), np.nan), [0, 1, 0], "LogisticRegression refused the data: Input X"),
    ],
)
def test_data_that_the_estimator_refuses_is_an_error_in_one_line(inputs, targets, said):
    with pytest.raises(BadInput, match=said) as caught:
        SklearnLearner(LogisticRegression()).fit(inputs, targets)
    assert "\n" not in str(caught.value)
    learner = trained(LogisticRegression(), IMAGES[:50], DIGITS[:50])
    for call in (learner.predict, lambda rows: learner.represent(rows, ["probabilities"])):
        with pytest.raises(BadInput, match="X has 3 features, but"):
            call(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "seed must be 0 or more; got -1"),
        (2**32, "seed must be below 4294967296; got 4294967296"),
        (0.5, "seed must be a whole number; got 0.5"),
    ],
)
def test_seeds_that_scikit_learn_cannot_take_are_refused(seed, message):
    with pytest.raises(BadInput, match=message):
        SklearnLearner(network).fit(IMAGES, DIGITS, seed=seed)


def test_large_weights_are_those_ratios():
    weights = np.linspace(1, 3, 60)
    one = trained(network(), IMAGES[:60], DIGITS[:60], weights=weights)
    other = trained(network(), IMAGES[:60], DIGITS[:60], weights=2.0**1020 * weights)
    for ours, theirs in zip(one.estimator.coefs_, other.estimator.coefs_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_it_follows_the_conventions_of_scikit_learn():
    learner = SklearnLearner(LogisticRegression(max_iter=500))
    learner.fit(IMAGES, DIGITS)
    assert learner.classes_.tolist() == list(range(10))
    assert learner.score(IMAGES, DIGITS) == learner.estimator.score(IMAGES, DIGITS)
    copy = clone(learner)
    assert copy.get_params()["estimator"].max_iter == 500
    copy.set_params(estimator=network()).fit(IMAGES, DIGITS)
    assert isinstance(copy.estimator, MLPClassifier)
    with pytest.raises(BadInput, match="no setting 'penalty'"):
        copy.set_params(penalty=1)


@pytest.mark.parametrize("learner", [SklearnLearner(SVC()), LinearProbe(), TableModel()])
def test_tools_of_scikit_learn_take_learners(learner):
    rows, kinds = load_iris(return_X_y=True)
    assert min(cross_val_score(make_pipeline(StandardScaler(), learner), rows, kinds, cv=3)) > 0.8


def test_a_search_changes_settings_of_the_estimator():
    rows, kinds = load_iris(return_X_y=True)
    search = GridSearchCV(SklearnLearner(SVC()), {"estimator__C": [1e-9, 1.0]}, cv=3)
    assert search.fit(rows, kinds).best_params_ == {"estimator__C": 1.0}
    assert is_regressor(LinearProbe(regression=True)) and is_classifier(TableModel())


def test_labels_for_early_stopping_are_reported_apart():
    stopped = network(solver="adam", early_stopping=True, validation_fraction=0.25, max_iter=300)
    report = SklearnLearner(stopped).fit(IMAGES, DIGITS)
    assert (report.training_labels, report.validation_labels) == (225, 75)
    report = SklearnLearner(LinearRegression()).fit(IMAGES, DIGITS)
    assert (report.training_labels, report.validation_labels) == (300, 0)
