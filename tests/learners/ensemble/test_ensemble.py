"""Ensembles trained as one batched model against the same networks trained one by one."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import labelwise
from labelwise.errors import BadInput, NotConverged, UnknownName
from labelwise.learners.ensemble import EnsembleLearner, derive_member_seeds
from labelwise.learners.inputs import as_items
from labelwise.learners.preparation import place_labelled_items
from labelwise.learners.settings import LOSSES, TrainingSettings
from labelwise.learners.stacked_training import NetworkStack, train_together
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import PenalizedLayer, train

pytestmark = pytest.mark.usefixtures("double_precision")
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = IMAGES[:240] / 16
DIGITS = DIGITS[:240]
WEIGHTS = np.random.default_rng(0).uniform(0.1, 3, size=150)
HELD = (IMAGES[150:], DIGITS[150:])
NEW = IMAGES[150:]
CPU = torch.device("cpu")


def network():
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def normalised():
    # A bias before the normalisation has no gradient but rounding, which Adam would blow up.
    plain = nn.Linear(64, 24, bias=False)
    return nn.Sequential(plain, nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10))


def layered():
    return nn.Sequential(nn.Linear(64, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 10))


def fitted(make=network, members=3, weights=None, **options):
    options = {"epochs": 4, "lr": 0.01, "batch_size": 32} | options
    learner = EnsembleLearner(make, members=members, **options)
    learner.fit(IMAGES[:150], DIGITS[:150], weights, seed=5)
    return learner


def alone(number, make=network, weights=None, **options):
    """A member of the same ensemble, trained by itself."""
    options = {"epochs": 4, "lr": 0.01, "batch_size": 32} | options
    learner = TorchLearner(make, **options)
    seed = derive_member_seeds(5, number + 1)[number]
    report = learner.fit(IMAGES[:150], DIGITS[:150], weights, seed=seed)
    return learner, report


def same_state(module, other, atol=1e-8):
    for (name, ours), theirs in zip(
        module.state_dict().items(), other.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-7, msg=lambda m, n=name: n + m)


@pytest.mark.parametrize("make", [network, normalised, layered])
def test_members_are_the_networks_that_are_trained_one_by_one(make):
    learner = fitted(make)
    assert learner.batched
    for number in range(3):
        same_state(learner.members[number], alone(number, make)[0].module)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "weight_decay": 0.01},
        {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
        {"optimizer": lambda p, lr, decay: torch.optim.RMSprop(p, lr=lr), "schedule": "linear"},
        {"weights": WEIGHTS},
        {"weights": WEIGHTS, "weighting": "sampler"},
        {"augment": lambda batch: batch.flip(dims=[1])},
        {"batch_size": 150, "stop_accuracy": 0.5, "epochs": 30},
        {"epochs": 30, "patience": 2, "monitor": "training_loss", "min_epochs": 4},
        {"epochs": 8, "validation": HELD, "monitor": "validation_accuracy", "min_epochs": 3},
    ],
    ids=[
        *("sgd", "adamw", "rmsprop", "weights", "sampler", "augment", "stop_accuracy"),
        *("training_loss", "validation_accuracy"),
    ],
)
def test_all_ways_of_training_give_the_members_that_one_by_one_gives(options):
    learner = fitted(**options)
    assert learner.batched
    for number in range(3):
        same_state(learner.members[number], alone(number, **options)[0].module)


def test_every_member_stops_by_itself_and_keeps_its_own_best_epoch():
    held = (IMAGES[150:], DIGITS[150:])
    options = {"epochs": 60, "lr": 0.05, "patience": 2, "validation": held}
    learner = EnsembleLearner(network, members=4, **options)
    report = learner.fit(IMAGES[:150], DIGITS[:150], seed=5)
    reports = []
    for number in range(4):
        one, own = alone(number, **(options | {"batch_size": 64}))
        same_state(learner.members[number], one.module)
        reports.append(own)
    assert len({own.steps for own in reports}) > 1  # they did not stop together
    assert report.steps == max(own.steps for own in reports) < 60
    assert report.loss == pytest.approx(np.mean([own.loss for own in reports]), rel=1e-7)
    assert report.converged and report.validation_labels == 90 and report.training_labels == 150


def test_a_share_that_is_held_out_is_the_same_for_all_members():
    learner = EnsembleLearner(network, epochs=2, validation=0.2)
    report = learner.fit(IMAGES, DIGITS, seed=0)
    assert (report.training_labels, report.validation_labels) == (192, 48)
    assert not report.converged


def test_convolutions_with_batch_normalisation_train_together_as_well():
    def make():
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 10),
        )

    labelled = place_labelled_items(
        as_items(IMAGES), torch.from_numpy(DIGITS), torch.ones(len(DIGITS)), CPU
    )
    settings = TrainingSettings(loss=LOSSES["cross_entropy"], epochs=2, lr=0.01)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        together = [make() for _ in range(3)]
    single = [make() for _ in range(3)]
    for module, other in zip(single, together, strict=True):
        module.load_state_dict(other.state_dict())
    train_together(together, labelled, settings, seeds=[7, 8, 9], device=CPU)
    for seed, module, other in zip([7, 8, 9], single, together, strict=True):
        train(module, labelled, settings, seed=seed, device=CPU)
        same_state(other, module)
        assert not other.training


def test_members_differ_and_the_seed_decides_them():
    learner = fitted()
    rows = learner.represent(NEW, ["member_probabilities"])["member_probabilities"]
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert np.abs(rows[:, one] - rows[:, other]).max() > 0.05
    again = fitted().represent(NEW, ["member_probabilities"])["member_probabilities"]
    np.testing.assert_array_equal(rows, again)


class Branching(nn.Sequential):
    def forward(self, batch):
        hidden = super().forward(batch)
        return hidden if hidden.sum() < 1e9 else 2 * hidden


class Priored(nn.Linear, PenalizedLayer):
    def penalty(self):
        return self.weight.square().sum()


def branching():
    return Branching(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def penalised():
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), Priored(24, 10))


def cumulative():
    return nn.Sequential(nn.Linear(64, 9), nn.BatchNorm1d(9, momentum=None), nn.Linear(9, 10))


def convolution():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)
    )


class Foreign(torch.optim.SGD):
    """An optimizer of which nothing is known."""


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (branching, {}),
        (penalised, {}),
        (cumulative, {}),
        (convolution, {}),
        (network, {"optimizer": lambda parameters, lr, decay: Foreign(parameters, lr=lr)}),
    ],
    ids=["control flow", "penalty", "cumulative statistics", "convolution", "optimizer"],
)
def test_what_cannot_be_batched_is_trained_one_by_one(make, options):
    learner = fitted(make, members=2, **options)
    assert learner.batched is False
    rows = learner.represent(NEW, ["member_probabilities", "features"])
    for number in range(2):
        one, _ = alone(number, make, **options)
        same_state(learner.members[number], one.module, atol=0)
        expected = one.represent(NEW, ["probabilities"])["probabilities"]
        np.testing.assert_allclose(rows["member_probabilities"][:, number], expected, atol=1e-5)


def test_dropout_draws_for_every_member_and_stops_in_eval_mode():
    def make():
        return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, 10))

    learner = fitted(make)
    assert learner.batched
    rows = [learner.represent(NEW, ["probabilities"])["probabilities"] for _ in range(2)]
    np.testing.assert_array_equal(*rows)
    plain = fitted()
    assert not torch.allclose(learner.members[0][0].weight, plain.members[0][0].weight)


def test_representations_are_those_of_the_members_put_together():
    learner = fitted(represent_batch_size=17)
    rows = learner.represent(NEW, learner.offered())
    parts = [alone(j)[0].represent(NEW, ["features", "probabilities"]) for j in range(3)]
    features = np.hstack([part["features"] for part in parts])
    members = np.stack([part["probabilities"] for part in parts], axis=1)
    np.testing.assert_allclose(rows["features"], features, atol=1e-8)
    np.testing.assert_allclose(rows["member_probabilities"], members, atol=1e-8)
    np.testing.assert_allclose(rows["probabilities"], members.mean(axis=1), atol=1e-8)
    np.testing.assert_allclose(np.exp(rows["logits"]), rows["probabilities"], atol=1e-6)
    np.testing.assert_array_equal(rows["member_votes"], rows["member_probabilities"].argmax(axis=2))
    np.testing.assert_array_equal(learner.predict(NEW), rows["probabilities"].argmax(axis=1))
    given = learner.module(torch.from_numpy(NEW))
    np.testing.assert_allclose(given.detach().numpy(), rows["logits"], atol=1e-5)


def test_a_regression_gives_the_mean_and_the_votes():
    def make():
        return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 1))

    learner = EnsembleLearner(make, members=4, loss="mse", epochs=5)
    learner.fit(IMAGES[:150], IMAGES[:150, 20], seed=0)
    assert learner.offered() == ["features", "outputs", "member_votes"]
    rows = learner.represent(NEW, learner.offered())
    assert rows["member_votes"].shape == (90, 4)
    np.testing.assert_allclose(rows["outputs"][:, 0], rows["member_votes"].mean(axis=1), atol=1e-6)
    picks = labelwise.select("committee", 5, member_votes=rows["member_votes"])
    best = np.argsort(-rows["member_votes"].var(axis=1))[:5]
    assert set(picks.ids) == set(best)


def test_several_values_are_no_vote():
    make = lambda: nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 2))  # noqa: E731
    learner = EnsembleLearner(make, members=2, loss="mse", epochs=2)
    learner.fit(IMAGES[:150], IMAGES[:150, 20:22], seed=0)
    assert learner.offered() == ["features", "outputs"]
    with pytest.raises(UnknownName, match="this learner cannot give member_votes; it gives feat"):
        learner.represent(NEW, ["member_votes"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("make", [network, layered])
def test_features_of_mixed_precision_show_it(make):
    rows = fitted(make, device="cuda", amp=True).represent(NEW, ["features", "probabilities"])
    assert rows["features"].dtype == torch.bfloat16
    assert rows["probabilities"].dtype != torch.bfloat16


def test_inputs_by_keyword_are_trained_on_too():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.head = nn.Linear(32, 8), nn.Linear(40, 10)

        def forward(self, one, other):
            return self.head(torch.cat([self.left(one).relu(), other], dim=1))

    inputs = {"one": IMAGES[:150, :32], "other": IMAGES[:150, 32:]}
    learner = EnsembleLearner(Two, members=2, epochs=3)
    learner.fit(inputs, DIGITS[:150], seed=5)
    assert learner.batched
    single = TorchLearner(Two, epochs=3)
    single.fit(inputs, DIGITS[:150], seed=derive_member_seeds(5, 2)[1])
    same_state(learner.members[1], single.module)
    changed = EnsembleLearner(Two, members=2, epochs=3, augment=lambda batch: dict(batch))
    changed.fit(inputs, DIGITS[:150], seed=5)
    same_state(changed.members[1], single.module)


def test_a_warm_start_goes_on_with_the_same_members():
    learner = EnsembleLearner(network, members=2, epochs=2, warm_start=True)
    learner.fit(IMAGES, DIGITS, seed=0)
    modules = learner.members
    learner.fit(IMAGES, DIGITS, seed=1)
    assert learner.members[0] is modules[0]
    single = TorchLearner(network, epochs=2, warm_start=True)
    for seed in (0, 1):
        single.fit(IMAGES, DIGITS, seed=derive_member_seeds(seed, 2)[0])
    same_state(learner.members[0], single.module)


def test_saved_ensembles_come_back(tmp_path):
    learner = fitted()
    learner.save(tmp_path)
    other = EnsembleLearner(network, members=3)
    other.load(tmp_path)
    names = learner.offered()
    ours, theirs = learner.represent(NEW, names), other.represent(NEW, names)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name])
    with pytest.raises(BadInput, match="fits another module than make_module gives"):
        EnsembleLearner(network, members=2).load(tmp_path)


def test_frozen_parameters_stay(tmp_path):
    def make():
        module = network()
        module[0].requires_grad_(False)
        return module

    learner = fitted(make)
    with torch.random.fork_rng():
        torch.manual_seed(derive_member_seeds(5, 1)[0])
        fresh = make()
    assert learner.batched
    assert torch.equal(learner.members[0][0].weight, fresh[0].weight)
    assert not torch.equal(learner.members[0][2].weight, fresh[2].weight)


def test_training_leaves_the_randomness_of_torch_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    fitted()
    assert torch.equal(torch.rand(2), expected)


def test_progress_is_told_once_an_epoch():
    told = []
    fitted(progress=lambda *call: told.append(call))
    assert told == [("training", epoch, 4) for epoch in range(1, 5)]


def test_what_an_ensemble_has_not_is_refused():
    with pytest.raises(BadInput, match="members must be a whole number, 2 or more; got 1"):
        EnsembleLearner(network, members=1)
    with pytest.raises(BadInput, match=r"make_module must be a function .*; got list"):
        EnsembleLearner([network(), network()])
    with pytest.raises(BadInput, match="an ensemble gives no gradients"):
        EnsembleLearner(network, pseudo="sample")
    with pytest.raises(TypeError, match="epoch"):
        EnsembleLearner(network, epoch=3)
    learner = fitted()
    with pytest.raises(BadInput, match="one head per member"):
        learner.head  # noqa: B018
    with pytest.raises(UnknownName, match="cannot give gradient_norms"):
        learner.represent(NEW, ["gradient_norms"])


def test_modules_that_are_not_new_are_refused():
    module = network()
    with pytest.raises(BadInput, match="gave the same module twice"):
        fitted(lambda: module)
    with pytest.raises(BadInput, match="must give a torch module; got int"):
        fitted(lambda: 3)


def test_bad_labels_and_losses_are_refused():
    learner = EnsembleLearner(network, epochs=2)
    with pytest.raises(BadInput, match="label 10 of item 3 is out of range"):
        learner.fit(IMAGES[:5], np.array([0, 1, 2, 10, 4]), seed=0)
    values = EnsembleLearner(network, loss="mse", epochs=2, stop_accuracy=0.9)
    with pytest.raises(BadInput, match="stop_accuracy is for classes"):
        values.fit(IMAGES, IMAGES[:, :10], seed=0)
    wild = EnsembleLearner(network, loss="mse", optimizer="sgd", lr=1e12, epochs=9)
    with pytest.raises(NotConverged, match="the loss of network 0 in epoch"):
        wild.fit(IMAGES, IMAGES[:, :10], seed=0)


def test_a_stack_gives_what_its_modules_give():
    modules = [network().eval() for _ in range(3)]
    stack, batch = NetworkStack(modules), torch.from_numpy(NEW)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        outputs = stack.outputs(batch, shared=True)
        own = stack.outputs(torch.stack([batch, batch + 1, batch - 1]))
    expected = torch.stack([module(batch) for module in modules])
    torch.testing.assert_close(outputs, expected.detach())
    torch.testing.assert_close(own[1], modules[1](batch + 1).detach())


def test_validation_labels_out_of_range_are_refused():
    validation = (IMAGES[:5], DIGITS[:5] + 50)
    learner = EnsembleLearner(lambda: nn.Linear(64, 10), epochs=1, validation=validation)
    with pytest.raises(BadInput, match="out of range"):
        learner.fit(IMAGES, DIGITS, seed=0)
