"""DynamicAL against brute force: the rate at which the training loss falls, before and after."""

import numpy as np
import pytest
import torch

import labelwise
from labelwise.errors import BadInput
from labelwise.pool.blocks import LocalShards, Shard, open_shards
from labelwise.pool.representations import open_sources
from labelwise.pool.rows import take_rows
from labelwise.selection.run import select
from labelwise.strategies.dynamics import STRATEGY
from tests.conftest import make_features, make_probabilities

CROSS_ENTROPY = torch.nn.functional.cross_entropy


def half_square(prediction, target):
    return 0.5 * ((prediction - target) ** 2).sum()


def make_network(hidden, outputs=3, inputs=4, bias=True, seed=0):
    """A tiny network in float64; a single linear layer where nothing is hidden."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not hidden:
            return torch.nn.Linear(inputs, outputs, bias=bias).double()
        last = torch.nn.Linear(hidden, outputs, bias=bias)
        return torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), last).double()


def gradient(network, inputs, targets, loss):
    """The gradient of the summed loss over all parameters, as one vector."""
    total = sum(
        loss(network(torch.tensor(x)), torch.tensor(y))
        for x, y in zip(inputs, targets, strict=True)
    )
    parts = torch.autograd.grad(total, list(network.parameters()))
    return torch.cat([part.ravel() for part in parts]).numpy()


def slow_gains(network, items, pseudo, labelled, labels, loss):
    """``G(S + u) - G(S)`` for every item u, from the definition."""
    before = gradient(network, labelled, labels, loss)
    gains = []
    for item, label in zip(items, pseudo, strict=True):
        inputs, targets = [*labelled, item], [*labels, label]
        after = gradient(network, inputs, targets, loss)
        gains.append(after @ after - before @ before)
    return np.array(gains)


def predict(network, inputs):
    with torch.no_grad():
        return network(torch.tensor(inputs)).numpy()


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def all_scores(n, **arguments):
    """The scores of all items that are not labelled, by id."""
    left = n - len(arguments.get("labelled", ()))
    picks = labelwise.select("dynamics", left, **arguments)
    scores = np.full(n, np.nan)
    scores[picks.ids] = picks.scores
    return scores


def test_the_score_is_the_change_of_the_rate_for_a_whole_network():
    generator = np.random.default_rng(0)
    items, labelled = generator.normal(size=(20, 4)), generator.normal(size=(6, 4))
    network, labels = make_network(hidden=7), generator.integers(3, size=6)
    pseudo = predict(network, items).argmax(axis=1)
    expected = slow_gains(network, items, pseudo, labelled, labels, CROSS_ENTROPY)
    rows = np.array(
        [gradient(network, items[i : i + 1], pseudo[i : i + 1], CROSS_ENTROPY) for i in range(20)]
    )
    products = rows @ gradient(network, labelled, labels, CROSS_ENTROPY)
    given = {"gradient_norms": (rows**2).sum(axis=1), "gradient_products": products}
    np.testing.assert_allclose(all_scores(20, **given), expected, rtol=0, atol=1e-10)
    picks = labelwise.select("dynamics", 5, **given)
    assert picks.ids.tolist() == np.argsort(-expected)[:5].tolist()


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("bias", [True, False])
def test_the_last_layer_is_the_whole_network_for_a_linear_model(bias, library):
    generator = np.random.default_rng(1)
    inputs, labelled = generator.normal(size=(26, 4)), np.array([20, 3, 11, 8, 25, 0])
    network, labels = make_network(hidden=0, bias=bias), generator.integers(3, size=6)
    logits = predict(network, inputs)
    expected = slow_gains(
        network, inputs, logits.argmax(axis=1), inputs[labelled], labels, CROSS_ENTROPY
    )
    found = all_scores(
        26,
        features=library.asarray(inputs),
        probabilities=library.asarray(softmax(logits)),
        labelled=labelled,
        labels=labels,
        bias=bias,
    )
    free = np.setdiff1d(np.arange(26), labelled)
    np.testing.assert_allclose(found[free], expected[free], rtol=0, atol=1e-10)


def test_regression_is_the_change_of_the_rate_of_the_squared_error():
    generator = np.random.default_rng(2)
    inputs, labelled = generator.normal(size=(20, 4)), np.array([7, 2, 19])
    network, labels = make_network(hidden=0, outputs=2), generator.normal(size=(3, 2))
    outputs = predict(network, inputs)
    others = [outputs + generator.normal(size=(20, 2)) for _ in range(3)]
    pseudo = np.mean(others, axis=0)
    expected = slow_gains(network, inputs, pseudo, inputs[labelled], labels, half_square)
    found = all_scores(
        20, features=inputs, outputs=[outputs, *others], labelled=labelled, labels=labels, bias=True
    )
    free = np.setdiff1d(np.arange(20), labelled)
    np.testing.assert_allclose(found[free], expected[free], rtol=0, atol=1e-10)


@pytest.mark.parametrize("gamma", [0, 1, 2, 3.5, float("inf")])
def test_gamma_weighs_the_product_with_the_labelled_gradient(gamma):
    generator = np.random.default_rng(3)
    norms, products = generator.exponential(size=30), generator.normal(size=30)
    expected = products if gamma == float("inf") else norms + gamma * products
    given = {"gradient_norms": norms, "gradient_products": products}
    np.testing.assert_allclose(all_scores(30, gamma=gamma, **given), expected, rtol=1e-14)


def last_layer(n=40, d=5, k=4, m=6, seed=0):
    generator = np.random.default_rng(seed)
    labelled = generator.permutation(n)[:m]
    rows = {"features": make_features(n, d, seed), "probabilities": make_probabilities(n, k, seed)}
    return rows, labelled, generator.integers(k, size=m)


def dense_gradients(rows, classes):
    residuals = rows["probabilities"] - np.eye(rows["probabilities"].shape[1])[classes]
    return (residuals[:, :, None] * rows["features"][:, None, :]).reshape(len(residuals), -1)


@pytest.mark.parametrize("gamma", [0, 1, 2, float("inf")])
def test_last_layer_scores_for_every_gamma(gamma):
    rows, labelled, labels = last_layer()
    own = dense_gradients(rows, rows["probabilities"].argmax(axis=1))
    pull = dense_gradients(take_rows(rows, labelled), labels).sum(axis=0)
    factor, cross = (0, 1) if gamma == float("inf") else (1, gamma)
    expected = factor * (own**2).sum(axis=1) + cross * own @ pull
    found = all_scores(40, **rows, labelled=labelled, labels=labels, gamma=gamma)
    free = np.setdiff1d(np.arange(40), labelled)
    np.testing.assert_allclose(found[free], expected[free], rtol=1e-10, atol=1e-10)


def test_labels_belong_to_the_labelled_ids_in_the_order_given():
    rows, labelled, labels = last_layer(600, m=50)
    ids = np.random.default_rng(5).permutation(5000)[:600]
    plain = labelwise.select("dynamics", 30, **rows, labelled=labelled, labels=labels)
    for order in (np.argsort(labelled), np.random.default_rng(1).permutation(50)):
        picks = labelwise.select(
            "dynamics", 30, **rows, ids=ids, labelled=ids[labelled[order]], labels=labels[order]
        )
        np.testing.assert_allclose(picks.scores, plain.scores, rtol=1e-9)
        assert picks.ids.tolist() == ids[plain.ids].tolist()
        sources = open_sources(rows)  # small blocks, so that labelled rows come from several
        shards, context = open_shards(
            sources, ids=ids, labelled=ids[labelled[order]], block_bytes=1
        )
        small = select(STRATEGY.with_options(labels=labels[order]), shards, 30, labelled=context)
        assert small.ids.tolist() == picks.ids.tolist()
    wrong = labelwise.select("dynamics", 30, **rows, labelled=labelled, labels=labels[::-1])
    assert wrong.ids.tolist() != plain.ids.tolist()


def test_without_labelled_items_or_gamma_no_labels_are_needed():
    rows, labelled, _ = last_layer()
    own = dense_gradients(rows, rows["probabilities"].argmax(axis=1))
    norms = (own**2).sum(axis=1)
    np.testing.assert_allclose(all_scores(40, **rows), norms, rtol=1e-10)
    free = np.setdiff1d(np.arange(40), labelled)
    found = all_scores(40, **rows, labelled=labelled, gamma=0)
    np.testing.assert_allclose(found[free], norms[free], rtol=1e-10)


def test_gradient_norms_alone_do_for_gamma_zero():
    norms = np.random.default_rng(0).exponential(size=20)
    picks = labelwise.select("dynamics", 4, gradient_norms=norms, gamma=0)
    assert picks.ids.tolist() == np.argsort(-norms)[:4].tolist()
    with pytest.raises(BadInput, match="needs gradient_products too unless gamma is 0"):
        labelwise.select("dynamics", 4, gradient_norms=norms)


def slow_greedy(own, pull, budget):
    """The item that raises ``|g_S + g_Q + g_u|^2`` most, one after the other."""
    total, picks = pull.copy(), []
    for _ in range(budget):
        gains = ((total + own) ** 2).sum(axis=1) - total @ total
        gains[picks] = -np.inf
        picks.append(int(np.argmax(gains)))
        total += own[picks[-1]]
    return picks


@pytest.mark.parametrize("blocks", [1, 4])
def test_the_exact_redundancy_is_the_greedy_maximum_of_the_rate(blocks):
    rows, labelled, labels = last_layer(n=60)
    own = dense_gradients(rows, rows["probabilities"].argmax(axis=1))
    context = take_rows(rows, labelled)
    pull = dense_gradients(context, labels).sum(axis=0)
    free = np.setdiff1d(np.arange(60), labelled)
    expected = free[slow_greedy(own[free], pull, 12)].tolist()
    exact = {"step": 1, "coef": 2.0, "normalize": "sum"}
    strategy = STRATEGY.with_options(labels=labels, redundancy=exact)
    parts = np.array_split(free, blocks)
    shards = LocalShards(Shard(part, take_rows(rows, part)) for part in parts)
    picks = select(strategy, shards, 12, labelled=context)
    assert picks.ids.tolist() == expected
    chosen = own[picks.ids].sum(axis=0) + pull
    assert picks.scores.sum() == pytest.approx(chosen @ chosen - pull @ pull, rel=1e-9)


def slow_steps(own, scores, budget, step, coef, mean):
    scores, picks = scores.copy(), []
    while len(picks) < budget:
        best = np.argsort(-scores, kind="stable")[: min(step, budget - len(picks))]
        picks += best.tolist()
        total = own[best].mean(axis=0) if mean else own[best].sum(axis=0)
        scores += coef * own @ total
        scores[picks] = -np.inf
    return picks


@pytest.mark.parametrize("step", [1, 3, 7, 100])
@pytest.mark.parametrize("normalize", ["mean", "sum"])
@pytest.mark.parametrize("library", [np, torch])
def test_redundancy_changes_scores_after_every_step(step, normalize, library):
    rows, _, _ = last_layer(n=80, d=3)
    own = dense_gradients(rows, rows["probabilities"].argmax(axis=1))
    expected = slow_steps(own, (own**2).sum(axis=1), 20, step, -0.7, normalize == "mean")
    given = {name: library.asarray(value) for name, value in rows.items()}
    picks = labelwise.select(
        "dynamics", 20, **given, redundancy={"step": step, "coef": -0.7, "normalize": normalize}
    )
    assert picks.ids.tolist() == expected


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("library", [np, torch])
def test_redundancy_of_a_whole_network_reads_its_gradients(step, library):
    """With the gradients themselves as their sketch, the result is that of the definition."""
    network, inputs = make_network(5), make_features(60, 4, seed=3).astype(np.float64)
    pseudo = predict(network, inputs).argmax(axis=1)
    pairs = zip(inputs, pseudo, strict=True)
    own = np.stack([gradient(network, [x], [y], CROSS_ENTROPY) for x, y in pairs])
    products = own @ own[:7].sum(axis=0)
    scores = (own**2).sum(axis=1) + 2 * products
    expected = slow_steps(own, scores, 12, step, -0.7, mean=True)
    given = {"gradient_sketch": own, "gradient_products": products}
    picks = labelwise.select(
        "dynamics",
        12,
        **{name: library.asarray(value) for name, value in given.items()},
        redundancy={"step": step, "coef": -0.7},
    )
    assert picks.ids.tolist() == expected
    with pytest.raises(BadInput, match="redundancy needs products of gradients"):
        labelwise.select(
            "dynamics",
            2,
            gradient_norms=scores - 2 * products,
            gradient_products=products,
            redundancy={},
        )


def test_redundancy_may_be_given_in_numbers_of_numpy():
    rows, _, _ = last_layer(n=80, d=3)
    expected, found = (
        labelwise.select("dynamics", 20, **rows, redundancy={"step": step, "coef": coef})
        for step, coef in ((3, -0.5), (np.int64(3), np.float32(-0.5)))
    )
    assert found.ids.tolist() == expected.ids.tolist()


def test_a_penalty_spreads_the_batch_and_a_reward_aligns_it():
    rows, _, _ = last_layer(n=300, d=8)
    own = dense_gradients(rows, rows["probabilities"].argmax(axis=1))

    def alignment(coef):
        redundancy = {"step": 1, "coef": coef, "normalize": "sum"}
        ids = labelwise.select("dynamics", 20, **rows, redundancy=redundancy).ids
        unit = own[ids] / np.linalg.norm(own[ids], axis=1, keepdims=True)
        return (unit @ unit.T).mean()

    assert alignment(-1.0) < alignment(0.0) < alignment(2.0)


def test_sampled_pseudo_labels_depend_on_the_seed_and_not_on_the_split():
    rows, _, _ = last_layer(n=60)
    strategy = STRATEGY.with_options(pseudo="sample", redundancy={"step": 4})
    whole = select(strategy, LocalShards.of(**rows), 15, seed=4).ids.tolist()
    order = np.random.default_rng(0).permutation(60)
    shards = LocalShards(Shard(part, take_rows(rows, part)) for part in np.array_split(order, 5))
    assert select(strategy, shards, 15, seed=4).ids.tolist() == whole
    assert select(strategy, LocalShards.of(**rows), 15, seed=5).ids.tolist() != whole


@pytest.mark.parametrize("d", [100, 200, 301, 515])
@pytest.mark.parametrize("likeliest", [0.6, 0.5001])
def test_scores_that_cancel_are_still_ties(likeliest, d):
    """Matrix products round the same row differently from one place in a block to the next."""
    h = np.random.default_rng(d).normal(size=d)
    features = np.concatenate([-0.5 * h[None], np.tile(h, (1500, 1))])
    probabilities = np.tile([likeliest, 1 - likeliest], (1501, 1))
    # g_u = a h^T and g_S = -0.5 a h^T, so |g_u|^2 + 2 g_u . g_S is 0 but for rounding.
    picks = labelwise.select(
        "dynamics", 1500, features=features, probabilities=probabilities, labelled=[0], labels=[0]
    )
    assert picks.ids.tolist() == list(range(1, 1501))
    assert np.abs(picks.scores).max() < 1e-9


@pytest.mark.parametrize("name", ["dynamics", "badge"])
def test_a_hundred_classes_are_no_obstacle(name):
    """Gradients of 101 x 256 numbers for each of 3,000 items would take 600 MB."""
    n, d, k = 3000, 256, 101
    rows = {"features": make_features(n, d), "probabilities": make_probabilities(n, k)}
    rows = {key: value.astype(np.float32) for key, value in rows.items()}
    options = {"labelled": [5, 1], "labels": [100, 3]} if name == "dynamics" else {}
    picks = labelwise.select(name, 40, **rows, **options)
    assert len(set(picks.ids.tolist())) == 40
    if name == "dynamics":
        own = dense_gradients(
            take_rows(rows, picks.ids), rows["probabilities"][picks.ids].argmax(1)
        )
        pull = dense_gradients(take_rows(rows, np.array([5, 1])), [100, 3]).sum(axis=0)
        expected = (own**2).sum(axis=1) + 2 * own @ pull
        np.testing.assert_allclose(picks.scores, expected, rtol=1e-5)


def test_refuses_labels_or_products_alone_where_nothing_is_labelled():
    rows, _, _ = last_layer()
    with pytest.raises(BadInput, match="labels are given but no item is labelled"):
        labelwise.select("dynamics", 3, **rows, labels=[1])
    with pytest.raises(BadInput, match="gamma is infinite but no item is labelled"):
        labelwise.select("dynamics", 3, **rows, gamma=float("inf"))


def test_a_block_without_unlabelled_items_is_no_obstacle():
    rows, _, _ = last_layer(n=600)
    labelled = np.arange(300)
    labels = np.random.default_rng(0).integers(4, size=300)
    shards, context = open_shards(open_sources(rows), labelled=labelled, block_bytes=1)
    options = {"labels": labels, "pseudo": "sample", "redundancy": {"step": 3}}
    picks = select(STRATEGY.with_options(**options), shards, 10, labelled=context)
    whole = labelwise.select("dynamics", 10, **rows, labelled=labelled, **options)
    assert picks.ids.tolist() == whole.ids.tolist()


def test_refuses_gradients_of_several_models():
    norms = [np.ones(4), np.ones(4)]
    with pytest.raises(BadInput, match="one array of gradient_norms is needed; got a list of 2"):
        labelwise.select("dynamics", 1, gradient_norms=norms, gamma=0)


def test_refuses_a_squared_norm_below_zero():
    norms = np.array([1.0, -2.0, 3.0])
    with pytest.raises(BadInput, match="gradient_norms are squared norms, but item 1 has -2"):
        labelwise.select("dynamics", 1, gradient_norms=norms, gradient_products=norms)
