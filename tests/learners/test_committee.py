"""A committee against its learners asked one by one, and in selections."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.neural_network import MLPClassifier
from torch import nn

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport
from labelwise.learners.committee import Committee, make_column_committee
from labelwise.learners.ensemble import EnsembleLearner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.sklearn_learner import SklearnLearner
from labelwise.learners.torch_learner import TorchLearner

IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = (IMAGES[:300] / 16).astype(np.float32)
DIGITS = DIGITS[:300]
NEW = IMAGES[200:]


def network(width=16, outputs=10):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, outputs))


def torch_learner(width=16, outputs=10, **options):
    return TorchLearner(lambda: network(width, outputs), **({"epochs": 4, "lr": 0.01} | options))


def sklearn_learner(**options):
    settings = {"hidden_layer_sizes": (12,), "solver": "lbfgs", "max_iter": 30}
    return SklearnLearner(lambda: MLPClassifier(**(settings | options)))


def trained(*learners, targets=DIGITS, **options):
    found = Committee(learners, **options)
    found.fit(IMAGES[:200], targets[:200], seed=3)
    return found


def test_representations_are_lists_of_what_every_learner_gives():
    group = trained(torch_learner(), sklearn_learner(), torch_learner(9))
    names = ["features", "probabilities", "logits"]
    rows = group.represent(NEW, names)
    for name in names:
        assert isinstance(rows[name], list) and len(rows[name]) == 3
        for array, learner in zip(rows[name], group.learners.values(), strict=True):
            np.testing.assert_array_equal(array, learner.represent(NEW, [name])[name])
    assert [array.shape[1] for array in rows["features"]] == [16, 12, 9]


def test_learners_are_trained_on_the_same_items_with_different_seeds():
    group = trained(torch_learner(), torch_learner())
    first, second = group.represent(NEW, ["probabilities"])["probabilities"]
    assert np.abs(first - second).max() > 0.05
    again = trained(torch_learner(), torch_learner()).represent(NEW, ["probabilities"])
    np.testing.assert_array_equal(first, again["probabilities"][0])


def test_weights_reach_every_learner():
    weights = np.where(DIGITS[:200] < 5, 1.0, 1e-6)
    group = Committee([torch_learner(epochs=40), SklearnLearner(LogisticRegression)])
    group.fit(IMAGES[:200], DIGITS[:200], weights, seed=0)
    for array in group.represent(NEW, ["probabilities"])["probabilities"]:
        assert (array.argmax(axis=1) < 5).mean() > 0.95


def test_the_report_sums_up_those_of_the_learners():
    class Told:
        def __init__(self, report):
            self.report = report

        def fit(self, inputs, targets, weights=None, *, seed):
            return self.report

        def represent(self, inputs, names):
            return {}

    reports = [FitReport(1.0, 5, True, 2.0, 80, 20), FitReport(3.0, 7, False, 1.0, 100, 0)]
    group = Committee([Told(report) for report in reports], names=["a", "b"])
    assert group.fit(IMAGES, DIGITS, seed=0) == FitReport(2.0, 7, False, 3.0, 100, 20)
    assert group.reports == dict(zip("ab", reports, strict=True))


def test_models_without_members_are_the_members():
    group = trained(torch_learner(), sklearn_learner())
    names = ["member_probabilities", "member_votes", "probabilities"]
    rows = group.represent(NEW, names)
    expected = np.stack(rows["probabilities"], axis=1)
    assert expected.shape == (100, 2, 10)
    np.testing.assert_array_equal(rows["member_probabilities"], expected)
    np.testing.assert_array_equal(rows["member_votes"], expected.argmax(axis=2))


def test_members_of_models_are_put_side_by_side():
    group = trained(
        torch_learner(members=SnapshotMembers(last=3)),
        sklearn_learner(),
        EnsembleLearner(network, members=2, epochs=2),
    )
    rows = group.represent(NEW, ["member_probabilities", "member_votes"])
    snapshots, plain, ensemble = group.learners.values()
    parts = [
        snapshots.represent(NEW, ["member_probabilities"])["member_probabilities"],
        plain.represent(NEW, ["probabilities"])["probabilities"][:, None],
        ensemble.represent(NEW, ["member_probabilities"])["member_probabilities"],
    ]
    np.testing.assert_array_equal(rows["member_probabilities"], np.concatenate(parts, axis=1))
    assert [votes.shape for votes in rows["member_votes"]] == [(100, 3), (100, 1), (100, 2)]
    for votes, part in zip(rows["member_votes"], parts, strict=True):
        np.testing.assert_array_equal(votes, part.argmax(axis=2))


def test_a_regression_votes_by_its_output():
    values = IMAGES[:, 20]
    models = (torch_learner(outputs=1, loss="mse"), SklearnLearner(LinearRegression))
    rows = trained(*models, targets=values).represent(NEW, ["outputs", "member_votes"])
    assert [array.shape for array in rows["outputs"]] == [(100, 1), (100, 1)]
    np.testing.assert_array_equal(rows["member_votes"], np.hstack(rows["outputs"]))
    picks = labelwise.select("committee", 5, outputs=rows["outputs"])
    by_votes = labelwise.select("committee", 5, member_votes=rows["member_votes"])
    np.testing.assert_array_equal(picks.ids, by_votes.ids)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        ("lewis", "features"),
        ("entropy", "probabilities"),
        ("margin", "probabilities"),
        ("committee", "probabilities"),
        ("committee", "member_probabilities"),
        ("committee", "member_votes"),
        ("bald", "member_probabilities"),
    ],
)
def test_selections_take_what_a_committee_gives(strategy, name):
    group = trained(torch_learner(), sklearn_learner(), torch_learner(9))
    rows = group.represent(NEW, [name])
    picks = labelwise.select(strategy, 10, **rows, seed=0)
    assert len(set(picks.ids)) == 10


def test_disagreement_reads_the_votes_of_the_later_epochs_of_every_model():
    models = [torch_learner(width, members=SnapshotMembers(), epochs=8) for width in (8, 16, 24)]
    votes = trained(*models).represent(NEW, ["member_votes"])["member_votes"]
    assert [array.shape for array in votes] == [(100, 4)] * 3
    wavering = sum((array != array[:, :1]).any(axis=1).astype(int) for array in votes)
    picks = labelwise.select("disagreement", 5, member_votes=votes, candidates=1)
    assert sorted(wavering[picks.ids]) == sorted(np.sort(wavering)[-5:])


def test_a_committee_in_a_committee_counts_all_models():
    inner = Committee([torch_learner(), torch_learner(9)])
    rows = trained(inner, sklearn_learner()).represent(NEW, ["features", "member_probabilities"])
    assert [array.shape[1] for array in rows["features"]] == [16, 9, 12]
    assert rows["member_probabilities"].shape == (100, 3, 10)


def test_arrays_of_different_libraries_meet_in_numpy():
    class Tensors:
        def __init__(self, learner):
            self.learner = learner

        def fit(self, *given, **named):
            return self.learner.fit(*given, **named)

        def represent(self, inputs, names):
            rows = self.learner.represent(inputs, names)
            return {name: torch.from_numpy(array) for name, array in rows.items()}

    same = trained(Tensors(torch_learner()), Tensors(torch_learner()))
    joined = same.represent(NEW, ["member_probabilities"])["member_probabilities"]
    assert isinstance(joined, torch.Tensor) and joined.shape == (100, 2, 10)
    mixed = trained(Tensors(torch_learner()), torch_learner())
    together = mixed.represent(NEW, ["member_probabilities"])["member_probabilities"]
    assert isinstance(together, np.ndarray)
    np.testing.assert_array_equal(together[:, 0], joined[:, 0].numpy())


def test_learners_that_know_other_classes_are_refused():
    without_nine = np.where(DIGITS == 9, 0, DIGITS)
    group = trained(torch_learner(), SklearnLearner(LogisticRegression), targets=without_nine)
    for name in ("probabilities", "member_probabilities", "member_votes"):
        with pytest.raises(BadInput, match=r"number of classes: \{'model_0': 10, 'model_1': 9\}"):
            group.represent(NEW, [name])
    assert len(group.represent(NEW, ["features"])["features"]) == 2


def test_a_name_that_a_learner_cannot_give_is_refused():
    group = trained(torch_learner(), SklearnLearner(Perceptron), names=["net", "perceptron"])
    with pytest.raises(
        UnknownName, match="perceptron cannot give logits to a committee: a learner"
    ):
        group.represent(NEW, ["logits"])
    with pytest.raises(UnknownName, match="perceptron cannot give member_votes to a committee"):
        group.represent(NEW, ["member_votes"])
    with pytest.raises(UnknownName, match="no representation is called 'feature'"):
        group.represent(NEW, ["feature"])


def test_votes_of_several_values_are_refused():
    models = (torch_learner(outputs=2, loss="mse"), SklearnLearner(LinearRegression))
    group = trained(*models, targets=IMAGES[:, 20:22])
    with pytest.raises(BadInput, match="model_0 gives 2 outputs, and a vote is one value"):
        group.represent(NEW, ["member_votes"])


def test_classes_and_values_do_not_vote_together():
    group = trained(torch_learner(), SklearnLearner(LinearRegression))
    with pytest.raises(BadInput, match="some learners vote for classes and some for values"):
        group.represent(NEW, ["member_votes"])


def test_learners_that_lose_items_are_refused():
    class Loses:
        def fit(self, inputs, targets, weights=None, *, seed):
            return FitReport(0.0, 0, True, 0.0)

        def represent(self, inputs, names):
            return {name: inputs[1:] for name in names}

    with pytest.raises(BadInput, match="different numbers of rows"):
        trained(torch_learner(), Loses()).represent(NEW, ["features"])


@pytest.mark.parametrize(
    ("count", "names", "message"),
    [
        (1, None, "two learners or more; got 1"),
        (2, ["one"], "give 2 different names"),
        (2, ["one", "one"], "give 2 different names"),
        (2, ["one", "../two"], "a name is made of letters, digits"),
    ],
)
def test_impossible_committees_are_refused(count, names, message):
    with pytest.raises(BadInput, match=message):
        Committee([torch_learner() for _ in range(count)], names=names)
    learner = torch_learner()
    with pytest.raises(BadInput, match="the same learner is given twice"):
        Committee([learner, learner])


def test_every_model_sees_its_own_columns():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(60, 7)), np.arange(60) % 3
    seen = []

    def make(rows):
        seen.append(rows)
        return LinearProbe(classes=3)

    committee = make_column_committee(make, inputs, [4, 2, 1])
    committee.fit(inputs[:30], targets[:30], seed=5)
    found = committee.represent(inputs, ["probabilities", "features"])
    parts = (slice(0, 4), slice(4, 6), slice(6, 7))
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(seen[number], inputs[:, part])
        seed = int(np.random.SeedSequence([5, number]).generate_state(1)[0])
        alone = LinearProbe(classes=3)
        alone.fit(inputs[:30, part], targets[:30], seed=seed)
        expected = alone.represent(inputs[:, part], ["probabilities", "features"])
        for name, rows in expected.items():
            np.testing.assert_allclose(found[name][number], rows, atol=1e-9)


def test_columns_must_add_up():
    with pytest.raises(BadInput, match="the inputs have 3 columns, not 4"):
        make_column_committee(lambda rows: LinearProbe(), np.ones((5, 3)), [2, 2])
