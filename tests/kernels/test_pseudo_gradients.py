"""Last-layer gradients against torch.autograd, item by item."""

import numpy as np
import pytest
import torch
from scipy import stats

from labelwise.errors import BadInput
from labelwise.kernels.distance.embedding import Factored, concat_embeddings
from labelwise.kernels.pseudo_gradients import (
    PseudoLabels,
    check_gradient_labels,
    labelled_gradient,
    pseudo_gradients,
)


def make_layer(n=12, d=5, k=4, seed=0):
    """Inputs of a linear layer, its weights and bias."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)), generator.normal(size=(k, d)), generator.normal(size=k)


def autograd_rows(h, weight, offset, targets, loss):
    """The gradient of every item's loss, ``(n, K (d + 1))``: weights with the bias at the end."""
    rows = []
    for item, target in zip(h, targets, strict=True):
        w, c = (torch.tensor(value, requires_grad=True) for value in (weight, offset))
        loss(w @ torch.tensor(item) + c, torch.tensor(target)).backward()
        rows.append(torch.cat([w.grad, c.grad[:, None]], dim=1).numpy().ravel())
    return np.array(rows)


def half_square(prediction, target):
    return 0.5 * ((prediction - target) ** 2).sum()


def joined(rows, ids, pseudo):
    return concat_embeddings(list(pseudo_gradients(rows, ids, pseudo)))


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("bias", [True, False])
def test_classification_is_the_gradient_at_the_likeliest_class(bias, library):
    h, weight, offset = make_layer()
    logits = h @ weight.T + offset
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = autograd_rows(
        h, weight, offset, logits.argmax(axis=1), torch.nn.functional.cross_entropy
    )
    if not bias:
        expected = expected.reshape(12, 4, 6)[:, :, :5].reshape(12, -1)
    rows = {"features": library.asarray(h), "probabilities": library.asarray(probabilities)}
    found = joined(rows, np.arange(12), PseudoLabels(bias=bias))
    assert isinstance(found, Factored)
    np.testing.assert_allclose(np.asarray(found.dense()), expected, atol=1e-14)
    labels = np.arange(12) % 4
    total = autograd_rows(h, weight, offset, labels, torch.nn.functional.cross_entropy).sum(axis=0)
    pull = labelled_gradient(rows, labels, bias=True)
    np.testing.assert_allclose(pull.ravel(), total, atol=1e-13)


def test_regression_is_the_gradient_at_the_other_models_mean():
    h, weight, offset = make_layer(k=2)
    outputs = h @ weight.T + offset
    others = [outputs + np.random.default_rng(j).normal(size=(12, 2)) for j in range(3)]
    rows = {"features": h, "outputs": [outputs, *others]}
    expected = autograd_rows(h, weight, offset, np.mean(others, axis=0), half_square)
    found = joined(rows, np.arange(12), PseudoLabels(bias=True))
    np.testing.assert_allclose(found.dense(), expected, atol=1e-13)
    targets = np.random.default_rng(9).normal(size=(12, 2))
    total = autograd_rows(h, weight, offset, targets, half_square).sum(axis=0)
    np.testing.assert_allclose(labelled_gradient(rows, targets, True).ravel(), total, atol=1e-13)


def test_drawn_classes_follow_the_probabilities():
    law = np.array([0.5, 0.0, 0.3, 0.2])
    n = 4000
    rows = {"features": np.ones((n, 1)), "probabilities": np.tile(law, (n, 1))}
    residuals = joined(rows, np.arange(n), PseudoLabels("sample", seed=3)).a
    drawn = np.round(law - residuals).argmax(axis=1)
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], n * law[[0, 2, 3]]).pvalue > 1e-3


@pytest.mark.parametrize("name", ["probabilities", "outputs"])
def test_drawn_labels_are_a_function_of_the_id(name):
    generator = np.random.default_rng(0)
    given = generator.dirichlet(np.ones(4), size=30)
    value = given if name == "probabilities" else [given, *generator.normal(size=(3, 30, 4))]
    rows = {"features": np.ones((30, 2)), name: value}
    whole = joined(rows, np.arange(30), PseudoLabels("sample", seed=1)).a
    some = np.array([17, 4, 22])
    few = value[some] if name == "probabilities" else [part[some] for part in value]
    part = joined({"features": np.ones((3, 2)), name: few}, some, PseudoLabels("sample", seed=1)).a
    np.testing.assert_array_equal(part, whole[some])
    assert (joined(rows, np.arange(30), PseudoLabels("sample", seed=2)).a != whole).any()


def test_a_drawn_value_is_one_of_the_other_models():
    generator = np.random.default_rng(0)
    outputs = list(generator.normal(size=(4, 200, 2)))
    rows = {"features": np.ones((200, 1)), "outputs": outputs}
    residuals = joined(rows, np.arange(200), PseudoLabels("sample")).a
    matches = [
        np.abs(residuals - (outputs[0] - other)).max(axis=1) < 1e-14 for other in outputs[1:]
    ]
    assert (np.sum(matches, axis=0) == 1).all()
    assert min(np.sum(matches, axis=1)) > 40


@pytest.mark.parametrize("name", ["features", "probabilities"])
def test_several_models_are_refused(name):
    rows = {"features": np.ones((3, 2)), "probabilities": np.full((3, 2), 0.5)}
    rows[name] = [rows[name]] * 2
    with pytest.raises(BadInput, match=f"one array of {name} is needed; got a list of 2"):
        joined(rows, np.arange(3), PseudoLabels())


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, "labels of the 3 labelled items are needed; give labels in the order of labelled"),
        ([0, 1], r"labels must have shape \(3,\), one per labelled item; got \(2,\)"),
        ([0, 1, 2], "labels must be classes, whole numbers from 0 to 1; got 0 to 2"),
        ([0, -1, 1], "labels must be classes, whole numbers from 0 to 1; got -1 to 1"),
        ([0.0, 1.0, 1.0], "labels must be classes, whole numbers from 0 to 1; got float64"),
        (["a", "b", "b"], "labels must be classes, whole numbers from 0 to 1; got <U1"),
    ],
)
def test_refuses_labels_that_are_no_classes_of_the_labelled_items(labels, words):
    with pytest.raises(BadInput, match=words):
        check_gradient_labels(labels, 3, 2, regression=False)


def test_refuses_settings_that_make_no_sense():
    with pytest.raises(BadInput, match="pseudo must be one of argmax, sample; got 'max'"):
        PseudoLabels("max").check()
    with pytest.raises(BadInput, match="bias must be True or False; got 'yes'"):
        PseudoLabels(bias="yes").check()
