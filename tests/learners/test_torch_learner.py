"""The torch learner: weights, fresh starts, held-out labels, representations, saving, errors."""

import copy
import doctest
import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import labelwise
from labelwise.errors import BadInput, NotConverged, UnknownName
from labelwise.learner import REPRESENTATIONS
from labelwise.learners import torch_learner
from labelwise.learners.labels import split
from labelwise.learners.network_rows import pseudo_labels
from labelwise.learners.torch_learner import TorchLearner

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0) + (INPUTS[:, 1] > 0.3).astype(np.int64)
VALUES = np.stack([INPUTS[:, 0] * INPUTS[:, 1], INPUTS.sum(axis=1)], axis=1)
POOL = RNG.normal(size=(47, 5)).astype(np.float32)
NAMES = ["features", "logits", "probabilities"]


def network(outputs=3):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))


def normed():
    """A network with layers that behave differently in training."""
    return nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def trained(make=network, inputs=INPUTS, targets=LABELS, weights=None, seed=0, **options):
    learner = TorchLearner(make, **({"epochs": 5} | options))
    learner.fit(inputs, targets, weights, seed=seed)
    return learner


def state(learner):
    return {name: value.clone() for name, value in learner.module.state_dict().items()}


def assert_states(one, other, **tolerance):
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(one[name], other[name], **tolerance)


def huber(outputs, targets):
    return F.huber_loss(outputs, targets, reduction="none").sum(dim=1)


# Weights

LOSSES = {
    "cross_entropy": (3, LABELS, "cross_entropy"),
    "mse, one output": (1, VALUES[:, 0], "mse"),
    "mse, two outputs": (2, VALUES, "mse"),
    "of the user's": (2, VALUES, huber),
}


@pytest.mark.parametrize(("outputs", "targets", "loss"), LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_weight_of_two_equals_the_item_twice(outputs, targets, loss, optimizer):
    options = {"loss": loss, "optimizer": optimizer, "lr": 0.01, "epochs": 30, "batch_size": 99}
    weights, twice = np.r_[np.full(9, 2.0), np.ones(51)], np.r_[0:60, 0:9]
    make = lambda: network(outputs)  # noqa: E731
    weighted = trained(make, weights=weights, targets=targets, **options)
    repeated = trained(make, INPUTS[twice], targets[twice], **options)
    plain = trained(make, targets=targets, **options)
    assert_states(state(weighted), state(repeated), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain.head.weight, weighted.head.weight, rtol=1e-3, atol=1e-3)


def test_the_report_of_weighted_items_is_that_of_the_items_repeated():
    weights, twice = np.r_[np.full(9, 2.0), np.ones(51)], np.r_[0:60, 0:9]
    learner = TorchLearner(network, epochs=3, batch_size=99)
    weighted = learner.fit(INPUTS, LABELS, weights, seed=0)
    repeated = learner.fit(INPUTS[twice], LABELS[twice], seed=0)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-4)


@pytest.mark.parametrize("weighting", ["loss", "sampler"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_scaling_all_weights_changes_nothing(weighting, validation):
    weights = np.linspace(0, 3, 60)
    one, other = (
        trained(weights=scaled, weighting=weighting, validation=validation)
        for scaled in (weights, 64 * weights)
    )
    assert_states(state(one), state(other), rtol=0, atol=0)


@pytest.mark.parametrize("weighting", ["loss", "sampler"])
def test_items_without_weight_are_not_learnt_from(weighting):
    weights = np.where(LABELS == 2, 0.0, 1.0)
    learner = trained(weights=weights, weighting=weighting, epochs=150, lr=0.02)
    assert (learner.predict(INPUTS) != 2).mean() > 0.9


def test_weights_are_of_mean_one_among_the_items_trained_on():
    """A step of gradient descent shows the scale of the loss: items held out do not change it."""
    kept, held = split(torch.from_numpy(LABELS), True, 0.5, np.random.default_rng([0, 2]))
    weights = np.ones(60)
    weights[held] = 50
    options = {"optimizer": "sgd", "lr": 0.1, "epochs": 1, "batch_size": 99}
    some = trained(weights=weights, validation=0.5, **options)
    alone = trained(inputs=INPUTS[kept], targets=LABELS[kept], **options)
    assert_states(state(some), state(alone), rtol=1e-5, atol=1e-6)


# Seeds and fresh starts


@pytest.mark.parametrize("make", [network, normed])
@pytest.mark.parametrize("options", [{}, {"validation": 0.2}, {"weighting": "sampler"}])
def test_the_seed_decides_everything(make, options):
    options = {"batch_size": 16, **options}
    first, second = trained(make, seed=3, **options), trained(make, seed=3, **options)
    other = trained(make, seed=4, **options)
    assert_states(state(first), state(second), rtol=0, atol=0)
    assert not torch.allclose(first.head.weight, other.head.weight)
    second.fit(INPUTS, LABELS, seed=3, weights=None)  # what went before does not matter
    assert_states(state(first), state(second), rtol=0, atol=0)


def test_the_global_generators_stay_as_they_are():
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    learner = trained(normed, validation=0.2)
    learner.represent(POOL, NAMES)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    expected = state(learner)
    torch.rand(5)  # and what they were does not matter
    assert_states(state(trained(normed, validation=0.2)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_first_parameters_are_those_that_torch_draws_from_the_seed(seed):
    learner = trained(seed=seed, optimizer="sgd", lr=1e-30)  # stays where it is
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = network().state_dict()
    assert_states(state(learner), dict(expected), rtol=0, atol=0)


def test_a_seed_may_be_a_number_of_numpy_but_not_below_zero():
    assert_states(state(trained(seed=np.int64(3))), state(trained(seed=3)), rtol=0, atol=0)
    with pytest.raises(BadInput, match="seed must be 0 or more; got -1"):
        trained(seed=-1)


def test_every_fit_starts_afresh_with_statistics_and_all():
    learner = trained(normed)
    learner.fit(INPUTS * 9, LABELS, seed=1)
    again = trained(normed)
    learner.fit(INPUTS, LABELS, seed=0)
    assert_states(state(learner), state(again), rtol=0, atol=0)
    norm = learner.module[1]
    assert norm.num_batches_tracked == 5 and not torch.equal(norm.weight, torch.ones(8))


def test_a_warm_start_goes_on_from_all_that_was_learnt_with_a_new_optimizer():
    learner = trained(normed, warm_start=True, batch_size=99)
    module, before = learner.module, copy.deepcopy(learner.module)
    learner.fit(INPUTS, LABELS, seed=7)
    assert learner.module is module
    assert module[1].num_batches_tracked == 10
    cold = TorchLearner(lambda: copy.deepcopy(before), epochs=5, batch_size=99)
    cold.fit(INPUTS, LABELS, seed=7)  # from the same parameters, by another way
    assert_states(state(learner), state(cold), rtol=0, atol=0)


def test_a_module_that_is_made_only_once_is_refused():
    module = network()
    learner = trained(lambda: module)
    with pytest.raises(BadInput, match="gave the module of the last training again; make a new"):
        learner.fit(INPUTS, LABELS, seed=0)


def test_a_part_that_is_trained_and_made_only_once_is_refused():
    body = nn.Linear(5, 8)
    learner = trained(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(8, 3)))
    with pytest.raises(BadInput, match=r"gave the tensor '0\.weight' of the last training"):
        learner.fit(INPUTS, LABELS, seed=0)
    norm = nn.BatchNorm1d(5, affine=False)
    learner = trained(lambda: nn.Sequential(norm, nn.Linear(5, 3)))
    with pytest.raises(BadInput, match=r"gave the tensor '0\.running_mean' of the last"):
        learner.fit(INPUTS, LABELS, seed=0)


def test_a_frozen_part_may_be_shared_by_all_trainings():
    body = nn.Linear(5, 8).requires_grad_(False)
    before = body.weight.clone()
    learner = trained(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(8, 3)))
    learner.fit(INPUTS, LABELS, seed=0)
    assert torch.equal(body.weight, before)


# Held-out labels


def test_labels_held_out_are_counted():
    report = TorchLearner(network, epochs=2, validation=0.25).fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (45, 15)
    report = TorchLearner(network, epochs=2).fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (60, 0)
    assert report.seconds > 0 and report.steps == 2 and not report.converged


def test_held_out_items_can_be_given_and_the_epoch_that_is_best_for_them_is_kept():
    held = (POOL, np.zeros(47, dtype=int))
    shorter = [trained(epochs=epochs, lr=0.05) for epochs in range(1, 9)]
    losses = [-np.log(one.represent(POOL, NAMES)["probabilities"][:, 0]).mean() for one in shorter]
    best = int(np.argmin(losses))
    learner = TorchLearner(network, epochs=8, lr=0.05, validation=held)
    report = learner.fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (60, 47)
    assert_states(state(learner), state(shorter[best]), rtol=0, atol=0)
    assert 0 < best < 7  # the case is not trivial


def test_patience_ends_a_training():
    learner = TorchLearner(network, epochs=2000, lr=0.05, patience=3, validation=0.3)
    report = learner.fit(INPUTS, np.roll(LABELS, 7), seed=0)
    assert report.converged and report.steps < 2000


def test_items_held_out_are_not_trained_on():
    """What is in the held-out items cannot reach the parameters of the only epoch."""
    _, held = split(torch.from_numpy(LABELS), True, 0.5, np.random.default_rng([5, 2]))
    other = INPUTS.copy()
    other[held] = 100.0
    one, two = (trained(inputs=x, validation=0.5, epochs=1, seed=5) for x in (INPUTS, other))
    assert_states(state(one), state(two), rtol=0, atol=0)


# Representations


def test_features_times_the_head_are_the_logits_and_their_softmax_the_probabilities():
    learner = trained()
    rows = learner.represent(POOL, NAMES)
    module = learner.module
    hidden = torch.tanh(module[0](torch.from_numpy(POOL))).detach()
    logits = hidden @ learner.head.weight.detach().T + learner.head.bias.detach()
    np.testing.assert_allclose(rows["features"], hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["logits"], logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["probabilities"], logits.softmax(dim=1), rtol=1e-5, atol=1e-6)
    assert learner.predict(POOL).tolist() == logits.argmax(dim=1).tolist()


def test_one_pass_gives_what_separate_calls_give_and_each_has_its_axes():
    learner = trained()
    names = [*NAMES, "gradient_norms", "gradient_products"]
    together = learner.represent(POOL, names)
    assert list(together) == names
    for name in names:
        alone = learner.represent(POOL, [name])
        assert list(alone) == [name]
        np.testing.assert_array_equal(alone[name], together[name])
        assert alone[name].ndim == len(REPRESENTATIONS[name].axes) and len(alone[name]) == 47


@pytest.mark.parametrize("size", [1, 7, 47, 1000])
def test_the_batch_size_does_not_matter(size):
    names = [*NAMES, "gradient_norms", "gradient_products"]
    expected = trained(normed).represent(POOL, names)
    found = trained(normed, represent_batch_size=size).represent(POOL, names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_items_are_seen_in_eval_mode_and_alone():
    learner = trained(normed)
    module = learner.module
    with torch.no_grad():
        expected = torch.cat([module.eval()(row[None]) for row in torch.from_numpy(POOL)])
    module.train()
    module[1].eval()  # a mixture of modes, as the user left it
    logits = learner.represent(POOL, ["logits"])["logits"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert [layer.training for layer in module] == [True, False, True, True, True]
    assert module[1].num_batches_tracked == 5


def test_one_pass_over_the_items_reads_each_once_and_batch_by_batch():
    class Counting:
        """Gives items, and says which were asked for."""

        def __init__(self):
            self.asked, self.told = [], []

        def __len__(self):
            return len(POOL)

        def __getitem__(self, position):
            self.asked.append(position)
            return POOL[position]

    items, asked = Counting(), []
    learner = trained(represent_batch_size=10)
    learner._progress = lambda *where: asked.append((where, len(items.asked)))
    rows = learner.represent(items, NAMES)
    assert items.asked == list(range(47))
    assert [counts for _, counts in asked] == [10, 20, 29, 38, 47]  # none before its batch
    assert asked[-1][0] == ("representing", 47, 47)
    np.testing.assert_array_equal(rows["logits"], learner.represent(POOL, ["logits"])["logits"])


def test_every_form_of_the_pool_gives_the_same_rows(tmp_path):
    learner = trained()
    np.save(tmp_path / "pool.npy", POOL)
    expected = learner.represent(POOL, NAMES)
    forms = {
        "float64": POOL.astype(np.float64),
        "tensor": torch.from_numpy(POOL),
        "path": tmp_path / "pool.npy",
        "memory map": np.load(tmp_path / "pool.npy", mmap_mode="r"),
        "data set": TensorDataset(torch.from_numpy(POOL), torch.zeros(47)),
        "list of arrays": list(POOL),
    }
    for form, pool in forms.items():
        found = learner.represent(pool, NAMES)
        for name in NAMES:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=form)


def test_every_form_of_the_labelled_items_trains_the_same(tmp_path):
    np.save(tmp_path / "inputs.npy", INPUTS)
    expected = state(trained(validation=0.2))
    forms = [torch.from_numpy(INPUTS), tmp_path / "inputs.npy", list(INPUTS), INPUTS.astype(float)]
    for form in forms:
        assert_states(state(trained(inputs=form, validation=0.2)), expected, rtol=0, atol=0)


class Words(nn.Module):
    """Takes whole numbers and a mask, by keyword."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(11, 6), nn.Linear(6, 2)

    def forward(self, words, mask):
        vectors = self.embedding(words) * mask[:, :, None]
        return self.out(vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True))


def test_inputs_by_keyword_reach_an_embedding_as_whole_numbers():
    words = np.random.default_rng(0).integers(11, size=(40, 4))
    mask = np.ones((40, 4))
    mask[:, 3] = 0
    targets = (words[:, :3] > 7).any(axis=1).astype(int)
    learner = trained(Words, {"words": words, "mask": mask}, targets, epochs=200, lr=0.05)
    assert (learner.predict({"mask": mask, "words": words}) == targets).mean() > 0.95
    changed = words.copy()
    changed[:, 3] = 0  # behind the mask
    np.testing.assert_array_equal(
        learner.represent({"words": changed, "mask": mask}, ["logits"])["logits"],
        learner.represent({"words": words, "mask": mask}, ["logits"])["logits"],
    )


def test_rows_streamed_to_files_are_those_in_memory(tmp_path):
    learner = trained(represent_batch_size=9)
    names = [*NAMES, "gradient_norms"]
    kept = learner.represent(POOL, names)
    streamed = learner.represent(POOL, names, folder=tmp_path / "rows")
    assert sorted(p.name for p in (tmp_path / "rows").iterdir()) == sorted(
        f"{n}.npy" for n in names
    )
    for name in names:
        assert isinstance(streamed[name], np.memmap) and streamed[name].dtype == kept[name].dtype
        np.testing.assert_array_equal(streamed[name], kept[name])
        np.testing.assert_array_equal(np.load(tmp_path / "rows" / f"{name}.npy"), kept[name])
    files = {name: str(tmp_path / "rows" / f"{name}.npy") for name in ("features", "probabilities")}
    from_files = labelwise.select("badge", 5, **files, seed=0)
    in_memory = {name: kept[name] for name in files}
    assert from_files.ids.tolist() == labelwise.select("badge", 5, **in_memory, seed=0).ids.tolist()


def test_an_exception_on_the_way_leaves_no_file(tmp_path):
    learner = trained(represent_batch_size=10)
    broken = [*POOL[:30], np.zeros(4, dtype=np.float32), *POOL[30:]]
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        learner.represent(broken, NAMES, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_item_that_is_not_finite_spoils_no_other():
    learner, pool = trained(normed), POOL.copy()
    pool[11, 2] = np.nan
    clean, found = learner.represent(POOL, ["logits"]), learner.represent(pool, ["logits"])
    assert np.isnan(found["logits"][11]).all()
    others = np.arange(47) != 11
    np.testing.assert_allclose(found["logits"][others], clean["logits"][others], rtol=1e-5)


def test_a_module_that_works_in_place_changes_no_items_of_the_user():
    make = lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3))  # noqa: E731
    inputs, pool = torch.from_numpy(INPUTS.copy()), torch.from_numpy(POOL.copy())
    learner = trained(make, inputs, batch_size=1, epochs=1)
    learner.represent(pool, NAMES)
    np.testing.assert_array_equal(inputs, INPUTS)
    np.testing.assert_array_equal(pool, POOL)


def test_layers_may_take_their_width_from_the_first_items(tmp_path):
    make = lambda: nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))  # noqa: E731
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Lazy modules", UserWarning)
        learner = trained(make)
        assert_states(state(learner), state(trained(make)), rtol=0, atol=0)
        assert learner.represent(POOL, NAMES)["features"].shape == (47, 8)
        learner.save(tmp_path)
        loaded = TorchLearner(make)
        loaded.load(tmp_path)
    assert loaded.predict(POOL).tolist() == learner.predict(POOL).tolist()


# Gradients


def slow_gradients(learner, loss, part):
    """The gradient of every pool item at its predicted class, and the sum over labelled items."""
    module = learner.module
    parameters = list(module[-1].parameters() if part == "head" else module.parameters())

    def gradient(row, label):
        value = loss(module(row[None]), label[None]).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)]).double()

    pool, inputs = torch.from_numpy(POOL), torch.from_numpy(INPUTS)
    guesses = module(pool).argmax(dim=1)
    rows = torch.stack([gradient(*pair) for pair in zip(pool, guesses, strict=True)])
    total = sum(gradient(*pair) for pair in zip(inputs, torch.from_numpy(LABELS), strict=True))
    return rows, total


@pytest.mark.parametrize("part", ["head", "network"])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_autograd_item_by_item(part, bias):
    make = lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3, bias=bias))  # noqa: E731
    learner = trained(make, gradients=part)
    found = learner.represent(POOL, ["gradient_norms", "gradient_products"])
    loss = lambda o, t: F.cross_entropy(o, t, reduction="none")  # noqa: E731
    rows, total = slow_gradients(learner, loss, part)
    np.testing.assert_allclose(found["gradient_norms"], rows.square().sum(dim=1), rtol=1e-4)
    scale = float(rows.norm(dim=1).max() * total.norm())
    np.testing.assert_allclose(found["gradient_products"], rows @ total, atol=1e-5 * scale)


# Regression


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_learns_its_values(outputs):
    targets = VALUES[:, 1] if outputs == 1 else INPUTS[:, :2] @ np.array([[1.0, 2], [0, -1]])
    learner = trained(
        lambda: nn.Linear(5, outputs), targets=targets, loss="mse", epochs=300, lr=0.05
    )
    found = learner.represent(INPUTS, ["features", "outputs"])
    np.testing.assert_allclose(found["outputs"], targets.reshape(60, -1), atol=0.05)
    np.testing.assert_array_equal(found["features"], INPUTS)
    assert learner.predict(INPUTS).shape == (60, outputs)


def test_a_regression_in_float64_is_the_weighted_least_squares_fit():
    rng = np.random.default_rng(1)
    inputs, targets, weights = rng.normal(size=(60, 5)), rng.normal(size=60), rng.uniform(0, 2, 60)
    learner = trained(
        lambda: nn.Linear(5, 1).double(),
        inputs,
        targets,
        weights,
        loss="mse",
        optimizer="sgd",
        epochs=800,
        lr=0.05,
        batch_size=60,
    )
    columns, root = np.c_[inputs, np.ones(60)], np.sqrt(weights)
    exact = np.linalg.lstsq(columns * root[:, None], targets * root, rcond=None)[0]
    found = torch.cat([learner.module.weight[0], learner.module.bias]).detach().numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-6)  # weights are kept in float32


# Saving


@pytest.mark.parametrize("make", [network, normed])
def test_a_saved_learner_gives_the_same_rows(make, tmp_path):
    learner = trained(make)
    learner.save(tmp_path / "learner")
    names = sorted(path.name for path in (tmp_path / "learner").iterdir())
    assert names == ["learner.json", "tensors.safetensors"]
    loaded = TorchLearner(make)
    loaded.load(tmp_path / "learner")
    for name, rows in learner.represent(POOL, NAMES).items():
        np.testing.assert_array_equal(loaded.represent(POOL, NAMES)[name], rows)
    assert loaded.predict(POOL).tolist() == learner.predict(POOL).tolist()
    with pytest.raises(BadInput, match="a loaded learner has no labelled items; fit it for"):
        loaded.represent(POOL, ["gradient_products"])


def test_a_saved_regression_stays_one(tmp_path):
    learner = trained(lambda: network(2), targets=VALUES, loss="mse")
    learner.save(tmp_path)
    loaded = TorchLearner(lambda: network(2), loss="mse")
    loaded.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(POOL), learner.predict(POOL))


class Tied(nn.Module):
    """Two layers with the same weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(self.second(self.first(x).relu()).relu())


def test_tied_weights_are_saved_and_stay_tied(tmp_path):
    learner = trained(Tied)
    learner.save(tmp_path)
    loaded = TorchLearner(Tied)
    loaded.load(tmp_path)
    assert loaded.module.first.weight is loaded.module.second.weight
    np.testing.assert_array_equal(
        loaded.represent(POOL, ["logits"])["logits"], learner.represent(POOL, ["logits"])["logits"]
    )


def test_a_warm_start_goes_on_from_a_saved_learner(tmp_path):
    learner = trained(warm_start=True)
    learner.save(tmp_path)
    loaded = TorchLearner(network, epochs=5, warm_start=True)
    loaded.load(tmp_path)
    for one in (learner, loaded):
        one.fit(INPUTS, LABELS, seed=2)
    assert_states(state(learner), state(loaded), rtol=0, atol=0)


def test_loading_into_another_module_is_refused(tmp_path):
    trained().save(tmp_path)
    with pytest.raises(
        BadInput, match=r"fits another module than make_module gives: size mismatch"
    ):
        TorchLearner(lambda: network(4)).load(tmp_path)
    with pytest.raises(BadInput, match="no saved learner in"):
        TorchLearner(network).load(tmp_path / "elsewhere")


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": LABELS + 1}, r"label 3 of item \d+ is out of range: the module has 3 classes"),
        ({"targets": LABELS - 1}, "label -1 of item"),
        ({"targets": np.ones(60, dtype=int)}, "all 60 labels are class 1; a classifier needs two"),
        ({"targets": LABELS[:50]}, r"60 items but targets of shape \(50,\)"),
        ({"targets": LABELS.astype(float)}, "cross_entropy needs one class per item"),
        ({"inputs": INPUTS[:0], "targets": LABELS[:0]}, "nothing to train on"),
        ({"weights": np.ones(59)}, r"60 items but weights of shape \(59,\)"),
        ({"weights": -np.ones(60)}, "not negative; item 0 has -1.0"),
        ({"weights": np.zeros(60)}, "all weights are zero"),
        ({"inputs": np.full((60, 5), np.nan)}, "the inputs of item 0 are not finite"),
        ({"head": "1"}, "the head must be a linear layer; '1' is Tanh, linear: 0, 2"),
        ({"make": lambda: nn.Sequential(network(), nn.Softmax(1))}, "name the head, one of: 0.0"),
        ({"make": lambda: "network"}, "make_module must give a torch module; got str"),
        ({"make": lambda: nn.Sequential(network(), nn.Unflatten(0, (-1, 2)))}, "one row per item"),
        ({"loss": F.cross_entropy}, "do not reduce it"),
        ({"loss": "mse", "targets": VALUES}, "targets have 2 values but the module gives 3"),
        ({"validation": (INPUTS, LABELS[:9])}, "60 items but targets of shape"),
        ({"validation": (INPUTS, LABELS + 1)}, "label 3 of item"),
        ({"validation": (INPUTS, VALUES[:, 0])}, "cross_entropy needs one class per item"),
        ({"validation": 0.2, "weights": np.r_[1.0, np.zeros(59)]}, "all have weight zero"),
    ],
)  # fmt: skip
def test_a_training_that_cannot_work_is_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        trained(**changes)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "crossentropy"}, UnknownName, "no loss is called 'crossentropy'; choose from cr"),
        ({"optimizer": "lion"}, UnknownName, "no optimizer is called 'lion'"),
        ({"schedule": "step"}, UnknownName, "no schedule is called 'step'"),
        ({"weighting": "both"}, BadInput, "weighting must be loss or sampler, never both"),
        ({"patience": 3}, BadInput, "patience is 3 but nothing is held out; give validation"),
        ({"validation": 1.0}, BadInput, "a share from 0 to below 1; got 1.0"),
        ({"gradients": "body"}, BadInput, "gradients must be of the network or the head; got 'bo"),
        ({"represent_batch_size": 0}, BadInput, "represent_batch_size must be 1 or more; got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        TorchLearner(network, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="there is no GPU here; use device='cpu'"):
        TorchLearner(network, device="cuda")
    assert trained(device="auto", amp=True).head.weight.device.type == "cpu"


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def normalised():
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 3))


@GPU
def test_a_gpu_trains_and_represents_as_a_cpu_does():
    names = [*NAMES, "gradient_norms", "gradient_products"]
    near = trained(device="cuda", batch_size=99).represent(POOL, names)
    expected = trained(batch_size=99).represent(POOL, names)
    for name in names:
        assert near[name].device.type == "cuda"
        np.testing.assert_allclose(near[name].cpu(), expected[name], rtol=1e-2, atol=1e-3)


@GPU
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_generators_and_settings_of_gpus_stay_as_they_are(device):
    cudnn = torch.backends.cudnn
    before = torch.cuda.get_rng_state(), cudnn.deterministic, cudnn.benchmark
    first, second = (trained(normed, device=device, seed=3) for _ in range(2))
    assert torch.equal(torch.cuda.get_rng_state(), before[0])
    assert (cudnn.deterministic, cudnn.benchmark) == before[1:]
    assert_states(state(first), state(second), rtol=0, atol=0)


@GPU
@pytest.mark.parametrize("make", [network, normalised])
def test_features_of_mixed_precision_show_it(make, tmp_path):
    learner = trained(make, device="cuda", amp=True)
    rows = learner.represent(POOL, NAMES)
    assert rows["features"].dtype == torch.bfloat16
    assert rows["logits"].dtype == rows["probabilities"].dtype == torch.float32
    files = learner.represent(POOL, NAMES, folder=tmp_path)
    assert files["features"].dtype == np.float16
    plain = learner.module.float()[:2](torch.from_numpy(POOL).cuda()).detach().cpu()
    np.testing.assert_allclose(files["features"].astype(float), plain, atol=0.05)


def test_a_head_that_is_not_there_is_refused():
    with pytest.raises(UnknownName, match="no layer 'classifier'; its linear layers: 0, 2"):
        trained(head="classifier")


def test_a_training_that_diverges_says_so():
    with pytest.raises(NotConverged, match=r"the loss in epoch \d+ is (inf|nan); lower lr"):
        trained(loss="mse", targets=1e18 * np.c_[VALUES, VALUES[:, 0]], lr=1e9, optimizer="sgd")


def test_names_that_cannot_be_given_are_refused():
    learner = trained()
    with pytest.raises(UnknownName, match="no representation is called 'embeddings'; choose from"):
        learner.represent(POOL, ["embeddings"])
    with pytest.raises(UnknownName, match="cannot give outputs; it gives features, logits"):
        learner.represent(POOL, ["outputs"])
    with pytest.raises(UnknownName, match="cannot give member_probabilities"):
        learner.represent(POOL, ["member_probabilities"])


def test_a_learner_that_is_not_trained_says_so():
    learner = TorchLearner(network)
    for use in (lambda: learner.represent(POOL, NAMES), lambda: learner.predict(POOL),
                lambda: learner.save("x"), lambda: learner.head):  # fmt: skip
        with pytest.raises(BadInput, match="not trained yet; call fit or load first"):
            use()


def test_no_items_at_all_are_refused():
    with pytest.raises(BadInput, match="no items to represent"):
        trained().represent(POOL[:0], NAMES)


# Real images


def small_image_network(side, classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(side // 4),
        nn.Flatten(), nn.Linear(8 * 16, classes),
    )  # fmt: skip


@pytest.mark.parametrize("strategy", ["margin", "badge"])
def test_digits_train_and_select(strategy):
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8) / 16
    learner = TorchLearner(lambda: small_image_network(8, 10), epochs=25, lr=0.01)
    labelled = np.arange(60)
    accuracies = []
    for seed in range(3):
        learner.fit(images[labelled], digits[labelled], seed=seed)
        accuracies.append((learner.predict(images[1000:]) == digits[1000:]).mean())
        rows = learner.represent(images[:1000], ["features", "probabilities"])
        needs = {name: rows[name] for name in labelwise.strategies()[strategy].needs}
        picks = labelwise.select(strategy, 40, **needs, labelled=labelled, seed=seed)
        labelled = np.r_[labelled, picks.ids]
    assert len(np.unique(labelled)) == 180
    assert accuracies[0] > 0.6 and accuracies[2] > max(accuracies[0], 0.8)


FASHION = Path("/usr/share/datasets/fashion-mnist")


def idx(path):
    """An IDX file as an array."""
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def test_fashion_images_train_and_select():
    if not FASHION.exists():
        pytest.skip(f"Fashion-MNIST is not installed: no folder {FASHION}")
    images = idx(FASHION / "t10k-images-idx3-ubyte.gz")[:2000, None] / np.float32(255)
    labels = idx(FASHION / "t10k-labels-idx1-ubyte.gz")[:2000]
    learner = TorchLearner(lambda: small_image_network(28, 10), epochs=20, lr=0.01)
    learner.fit(images[:200], labels[:200], seed=0)
    assert (learner.predict(images[1000:]) == labels[1000:]).mean() > 0.6
    rows = learner.represent(images[:1000], ["features", "probabilities"])
    picks = labelwise.select("badge", 50, **rows, labelled=np.arange(200), seed=0)
    assert len(picks.ids) == 50 and (picks.ids >= 200).all()


def test_the_examples_in_the_docstrings_run():
    found = doctest.testmod(torch_learner)
    assert found.attempted > 0 and found.failed == 0


def test_sampled_pseudo_labels_follow_the_probabilities():
    outputs = torch.log(torch.tensor([[0.2, 0.5, 0.3]])).repeat(6000, 1)
    noise = torch.from_numpy(np.random.default_rng(0).random(6000))
    drawn = pseudo_labels(outputs, None, True, noise)
    shares = torch.bincount(drawn, minlength=3) / 6000
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.5, 0.3]), atol=0.02, rtol=0)
    assert pseudo_labels(outputs, None, True).unique().tolist() == [1]


@pytest.mark.parametrize("gradients", ["network", "head"])
def test_gradients_at_sampled_labels_are_the_same_in_every_pass_and_batch(gradients):
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    found = []
    for size in (512, 37):
        learner = TorchLearner(
            lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
            epochs=3,
            gradients=gradients,
            pseudo="sample",
            represent_batch_size=size,
        )
        learner.fit(images[:100], digits[:100], seed=4)
        found += [learner.represent(images[:200], ["gradient_norms"])["gradient_norms"]] * 2
        found.append(learner.represent(images[:200], ["gradient_norms"])["gradient_norms"])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4)
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)),
        epochs=3,
        gradients=gradients,
    )
    learner.fit(images[:100], digits[:100], seed=4)
    certain = learner.represent(images[:200], ["gradient_norms"])["gradient_norms"]
    assert (found[0] != certain).mean() > 0.3
    if gradients == "head":  # the residual is shortest at the predicted class
        assert (found[0] >= certain * (1 - 1e-4)).all()


def test_an_unknown_kind_of_pseudo_label_is_refused():
    with pytest.raises(BadInput, match="pseudo must be argmax or sample; got 'max'"):
        TorchLearner(lambda: nn.Linear(2, 2), pseudo="max")
