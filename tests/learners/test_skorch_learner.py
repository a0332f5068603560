"""The skorch learner against skorch itself, and against the torch learner."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.learners.skorch_learner import SkorchLearner
from labelwise.learners.torch_learner import TorchLearner

skorch = pytest.importorskip("skorch", reason="skorch is not installed")
from skorch.callbacks import Callback, EarlyStopping, LRScheduler  # noqa: E402
from skorch.dataset import ValidSplit  # noqa: E402

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0) + (INPUTS[:, 1] > 0.3).astype(np.int64)
VALUES = np.stack([INPUTS[:, 0] * INPUTS[:, 1], INPUTS.sum(axis=1)], axis=1)
POOL = RNG.normal(size=(47, 5)).astype(np.float32)


def network(outputs=3):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))


def with_softmax():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3), nn.Softmax(dim=1))


def net(module=network, kind="NeuralNetClassifier", **changes):
    settings = {
        "criterion": nn.CrossEntropyLoss, "optimizer": torch.optim.Adam, "lr": 0.01,
        "max_epochs": 20, "batch_size": -1, "train_split": None, "verbose": 0,
    }  # fmt: skip
    return getattr(skorch, kind)(module, **(settings | changes))


def trained(model, inputs=INPUTS, targets=LABELS, weights=None, seed=0, **options):
    learner = SkorchLearner(model, **options)
    learner.fit(inputs, targets, weights, seed=seed)
    return learner


def assert_same(one, other, **tolerance):
    pairs = zip(one.module.state_dict().values(), other.module.state_dict().values(), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, **tolerance)


NETS = {
    "cross entropy": (lambda: net(), LABELS),
    "likelihood": (lambda: net(with_softmax, criterion=nn.NLLLoss), LABELS),
    "values": (
        lambda: net(lambda: network(2), "NeuralNetRegressor", criterion=nn.MSELoss), VALUES
    ),
    "criterion made before": (
        lambda: net(criterion=nn.CrossEntropyLoss(label_smoothing=0.1)), LABELS
    ),
    "plain net": (lambda: net(kind="NeuralNet"), LABELS),
}  # fmt: skip


@pytest.mark.parametrize(("make", "targets"), NETS.values(), ids=NETS.keys())
def test_a_weight_of_two_equals_the_item_twice(make, targets):
    weights, twice = np.r_[np.full(9, 2.0), np.ones(51)], np.r_[0:60, 0:9]
    weighted = trained(make(), targets=targets, weights=weights)
    repeated = trained(make(), INPUTS[twice], targets[twice])
    assert_same(weighted, repeated, rtol=1e-4, atol=1e-4)
    plain = trained(make(), targets=targets)
    assert not torch.allclose(plain.head.weight, weighted.head.weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("make", "targets"), NETS.values(), ids=NETS.keys())
def test_without_weights_it_is_what_skorch_trains(make, targets):
    learner, alone = trained(make(), targets=targets), make()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        alone.fit(INPUTS, targets)
    for ours, theirs in zip(
        learner.net.module_.parameters(), alone.module_.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        learner.net.history[:, "train_loss"], alone.history[:, "train_loss"], rtol=1e-4
    )


def test_scaling_all_weights_changes_nothing():
    weights = np.linspace(0, 3, 60)
    one, other = (trained(net(), weights=scaled) for scaled in (weights, 64 * weights))
    assert_same(one, other, rtol=0, atol=0)


def test_weights_keep_to_their_items_through_splits_and_shuffles():
    weights = np.where(LABELS == 2, 0.0, 1.0)
    model = net(
        train_split=ValidSplit(4, stratified=True), batch_size=7, iterator_train__shuffle=True,
        max_epochs=60,
    )  # fmt: skip
    learner = trained(model, weights=weights)
    assert (learner.predict(INPUTS) != 2).mean() > 0.9
    last = learner.net.history[-1]
    valid = [row for row in last["batches"] if "valid_batch_size" in row]
    assert sum(row["valid_batch_size"] for row in valid) == 15
    assert {"train_loss", "valid_loss", "valid_acc"} <= set(last)


def test_the_report_counts_what_was_held_out():
    learner = SkorchLearner(net(train_split=ValidSplit(0.25)))
    report = learner.fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (45, 15)
    assert report.steps == 20 and not report.converged and report.seconds > 0
    assert report.loss == pytest.approx(learner.net.history[-1, "train_loss"])


def test_callbacks_of_skorch_work():
    class Count(Callback):
        def on_epoch_end(self, net, **named):
            net.count_ = getattr(net, "count_", 0) + 1

    callbacks = [
        Count(),
        EarlyStopping(patience=3, threshold=0, load_best=True),
        LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.9, step_every="epoch"),
    ]
    model = net(callbacks=callbacks, max_epochs=500, lr=0.05, train_split=ValidSplit(0.3))
    learner = SkorchLearner(model)
    report = learner.fit(INPUTS, np.roll(LABELS, 7), seed=0)
    assert report.converged and report.steps == learner.net.count_ < 500
    rate = learner.net.optimizer_.param_groups[0]["lr"]
    assert rate == pytest.approx(0.05 * 0.9 ** (report.steps - 1))  # stopped before the last one


def test_the_seed_decides_everything_and_global_generators_stay_as_they_are():
    model = net(train_split=ValidSplit(0.25), iterator_train__shuffle=True, batch_size=7)
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, second, other = (trained(model, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    assert_same(first, second, rtol=0, atol=0)
    assert not torch.allclose(first.head.weight, other.head.weight)


def test_the_net_given_is_never_trained_and_every_fit_starts_afresh():
    model = net()
    learner = trained(model)
    before = learner.head.weight.detach().clone()
    learner.fit(INPUTS, LABELS, seed=1)
    learner.fit(INPUTS, LABELS, seed=0)
    assert torch.equal(learner.head.weight, before)
    assert not getattr(model, "initialized_", False)


def test_a_function_may_give_the_net():
    assert_same(trained(lambda: net()), trained(net()), rtol=0, atol=0)


def test_representations_are_those_of_the_module():
    learner = trained(net())
    rows = learner.represent(POOL, ["features", "logits", "probabilities"])
    module, pool = learner.net.module_, torch.from_numpy(POOL)
    with torch.no_grad():
        np.testing.assert_allclose(rows["features"], module[:2](pool), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rows["logits"], module(pool), rtol=1e-5, atol=1e-6)
    probabilities = learner.net.predict_proba(POOL)
    np.testing.assert_allclose(rows["probabilities"], probabilities, rtol=1e-5)
    assert learner.predict(POOL).tolist() == learner.net.predict(POOL).tolist()


def test_a_module_that_gives_probabilities_is_not_normalised_twice():
    learner = trained(net(with_softmax, criterion=nn.NLLLoss))
    rows = learner.represent(POOL, ["features", "logits", "probabilities"])
    module = learner.net.module_
    np.testing.assert_allclose(rows["probabilities"], learner.net.predict_proba(POOL), rtol=1e-4)
    with torch.no_grad():
        scores = module[:3](torch.from_numpy(POOL))
        np.testing.assert_allclose(rows["features"], module[:2](torch.from_numpy(POOL)), rtol=1e-5)
    np.testing.assert_allclose(rows["logits"], scores.log_softmax(dim=1), rtol=1e-4, atol=1e-5)
    assert learner.head is module[2]


@pytest.mark.parametrize("name", ["cross entropy", "likelihood", "criterion made before"])
def test_gradients_are_those_of_autograd(name):
    learner = trained(NETS[name][0]())
    smoothing = 0.1 if name == "criterion made before" else 0
    module, pool = learner.net.module_, torch.from_numpy(POOL[:5])
    expected = []
    for row in pool:
        scores = module[:3](row[None])
        loss = F.cross_entropy(scores, scores.argmax(dim=1), label_smoothing=smoothing)
        parts = torch.autograd.grad(loss, list(module.parameters()))
        expected.append(sum(float(part.square().sum()) for part in parts))
    found = learner.represent(POOL[:5], ["gradient_norms"])["gradient_norms"]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_gradients_of_the_labelled_items_leave_out_what_was_held_out():
    learner = trained(net(train_split=ValidSplit(4)))
    kept = learner.net.trained_on_.indices
    alone = TorchLearner(network, epochs=1)
    alone.fit(INPUTS[kept], LABELS[kept], seed=0)
    alone.module.load_state_dict(learner.module.state_dict())
    names = ["gradient_products"]
    ours, theirs = (one.represent(POOL, names)["gradient_products"] for one in (learner, alone))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, left, right):
        return self.out(torch.cat([left, right], dim=1))


def test_inputs_may_be_a_mapping_or_float64_or_a_file(tmp_path):
    parts = {"right": INPUTS[:, 2:].astype(float), "left": INPUTS[:, :2]}
    learner = trained(net(TwoInputs), parts)
    whole = INPUTS @ learner.head.weight.detach().numpy().T + learner.head.bias.detach().numpy()
    np.testing.assert_allclose(learner.represent(parts, ["logits"])["logits"], whole, rtol=1e-4)
    np.save(tmp_path / "inputs.npy", INPUTS.astype(float))
    assert_same(trained(net(), tmp_path / "inputs.npy"), trained(net()), rtol=0, atol=0)


def test_a_saved_learner_gives_the_same_rows(tmp_path):
    for make in (lambda: net(), lambda: net(with_softmax, criterion=nn.NLLLoss)):
        learner = trained(make())
        learner.save(tmp_path)
        loaded = SkorchLearner(make())
        loaded.load(tmp_path)
        names = ["features", "probabilities"]
        for name, rows in learner.represent(POOL, names).items():
            np.testing.assert_array_equal(loaded.represent(POOL, names)[name], rows)


def test_digits_are_learnt():
    images, digits = load_digits(return_X_y=True)
    make = lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))  # noqa: E731
    learner = trained(net(make, max_epochs=40), images[:300] / 16, digits[:300])
    assert (learner.predict(images[1000:] / 16) == digits[1000:]).mean() > 0.6


def averaged(outputs, targets):
    return F.cross_entropy(outputs, targets)


class Averaged(nn.Module):
    def forward(self, outputs, targets):
        return averaged(outputs, targets)


class Stubborn(Averaged):
    reduction = "none"


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (lambda: "net", {}, "a skorch net is needed; got str"),
        (lambda: net(kind="NeuralNetBinaryClassifier"), {}, "one output for two classes; use"),
        (lambda: net(criterion=Averaged), {}, "the criterion Averaged has no reduction"),
        (lambda: net(criterion=Stubborn), {}, r"one loss per item, \(60, ...\); got \(\)"),
        (lambda: net(), {"targets": LABELS + 1}, "label 3 of item"),
        (lambda: net(), {"targets": VALUES}, "cross_entropy needs one class per item"),
        (lambda: net(), {"weights": -np.ones(60)}, "not negative; item 0 has -1.0"),
        (lambda: net(), {"inputs": np.full((60, 5), np.nan)}, "inputs of item 0 are not finite"),
        (lambda: net(with_softmax), {}, "is that of no linear layer; name the head"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(make, changes, message):
    with pytest.raises(BadInput, match=message):
        trained(make, **changes)


def test_a_learner_that_is_not_trained_says_so():
    with pytest.raises(BadInput, match="not trained yet; call fit first"):
        _ = SkorchLearner(net()).net
    with pytest.raises(UnknownName, match="the module has no layer 'top'"):
        trained(net(), head="top")


def test_without_skorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "skorch", None)
    with pytest.raises(MissingDependency, match=r"run pip install .labelwise\[skorch\]"):
        SkorchLearner(network)


def test_the_adapters_can_be_imported_without_what_they_adapt():
    block = "import sys; sys.modules.update(skorch=None, transformers=None); "
    load = "import labelwise.learners.skorch_learner, labelwise.learners.hugging_face"
    subprocess.run([sys.executable, "-c", block + load], check=True)
