"""Training in a campaign: what it learns from, what it measures, and how it comes back."""

import shutil

import numpy as np
import pytest
from scipy.stats import binomtest

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.training import is_tuning_due
from labelwise.errors import BadInput, LabelwiseWarning, StorageFailed
from labelwise.learner import FitReport, check_names
from labelwise.record.events import Asked, Trained, Training, TrainingFailed
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import Line, Nearest, SavingNearest, answer, make_campaign, make_pool


def told(storage, kind, name="toys"):
    return [event for event in storage.read(name) if isinstance(event, kind)]


@pytest.fixture
def memory():
    return MemoryStorage()


def test_weights_reach_the_learner_with_mean_1_in_every_batch(storage):
    campaign, truth = make_campaign(storage, n=40)
    ids = sorted(truth)
    first, second, plain = ids[:4], ids[4:6], ids[6:8]
    storage.append(
        "toys",
        [
            Asked(0.0, 1, tuple(first), weights=(10.0, 20.0, 30.0, 40.0), strategy="lewis"),
            Asked(0.0, 2, tuple(second), weights=(1.0, 3.0), strategy="lewis"),
            Asked(0.0, 3, tuple(plain), strategy="margin"),
        ],
    )
    answer(campaign, truth)
    campaign.tell({ids[9]: truth[ids[9]]}, anything=True)
    campaign.train()
    weights = campaign.learner.calls[0]["weights"]
    assert weights.tolist() == pytest.approx([0.4, 0.8, 1.2, 1.6, 0.5, 1.5, 1, 1, 1])


def test_the_weights_of_a_batch_do_not_depend_on_which_labels_are_in(memory):
    campaign, truth = make_campaign(memory, n=40)
    ids = sorted(truth)[:4]
    memory.append("toys", [Asked(0.0, 1, tuple(ids), weights=(10.0, 20.0, 30.0, 40.0))])
    answer(campaign, truth, ids[2:])
    campaign.train()
    assert campaign.learner.calls[0]["weights"].tolist() == pytest.approx([1.2, 1.6])


def test_without_weights_the_learner_gets_none(memory):
    campaign, truth = make_campaign(memory)
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    assert campaign.learner.calls[0]["weights"] is None


def test_weights_can_be_left_out_of_training(memory):
    campaign, truth = make_campaign(memory, first="lewis", weights=False)
    picks = campaign.ask()
    answer(campaign, truth)
    campaign.train()
    assert picks.weights is not None and campaign.learner.calls[0]["weights"] is None


def test_a_batch_asked_by_a_weighted_strategy_is_trained_on_with_its_weights(storage):
    campaign, truth = make_campaign(storage, first="lewis", validation=0.25)
    picks = campaign.ask()
    answer(campaign, truth)
    campaign.train()
    given = dict(zip(picks.ids.tolist(), picks.weights.tolist(), strict=True))
    apart = set(picks.info["validation"])
    assert len(apart) == 2 and all(given[item] == 0 for item in apart)
    kept = sorted(set(given) - apart)
    expected = np.array([given[item] for item in kept])
    assert campaign.learner.calls[0]["weights"].tolist() == pytest.approx(
        expected / expected.mean()
    )


def test_items_for_measuring_are_never_trained_on_but_measured(storage):
    campaign, truth = make_campaign(storage, n=80, batch=10, validation=0.3)
    for _ in range(3):
        campaign.ask()
        answer(campaign, truth)
        trained = campaign.train()
    rows = {
        item: row
        for item, row in zip(campaign.pool.ids.tolist(), campaign.pool.inputs, strict=True)
    }
    apart = sorted(campaign.ledger().validation)
    assert len(apart) == 9
    learned = {tuple(row) for row in campaign.learner.calls[-1]["inputs"]}
    assert len(learned) == 21 and not learned & {tuple(rows[item]) for item in apart}
    chances = campaign.learner.represent(np.array([rows[i] for i in apart]), ["probabilities"])
    guessed = campaign.learner.classes[chances["probabilities"].argmax(axis=1)]
    hits = int((guessed == [truth[item] for item in apart]).sum())
    interval = binomtest(hits, 9).proportion_ci(method="wilson")
    assert trained.metrics["accuracy"] == hits / 9
    assert trained.metrics["interval"] == pytest.approx([interval.low, interval.high])
    assert trained.metrics["validation_labels"] == 9 and trained.metrics["training_labels"] == 21
    assert trained.labels == 30


def test_items_for_measuring_are_a_random_sample_whatever_the_strategy_prefers():
    """The strategy takes the items far out first; those for measuring are as the pool is."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(4000, 1))
    campaign = Campaign(
        "far",
        labelwise.Pool(inputs),
        Nearest(),
        MemoryStorage(),
        first="k_center",
        batch=200,
        validation=0.2,
    )
    for _ in range(5):
        picks = campaign.ask()
        campaign.tell({int(item): 0 for item in picks.ids})
    apart = np.array(sorted(campaign.ledger().validation))
    assert len(apart) == 200
    deviation = inputs[apart, 0].std()
    assert 0.85 < deviation < 1.15  # four standard errors of 200 normal draws: 0.2
    others = np.setdiff1d(np.array(sorted(campaign.labels())), apart)
    assert inputs[others, 0].std() > 1.2


@pytest.mark.parametrize("share", [0.1, 0.15, 0.5])
def test_the_share_for_measuring_is_right_over_small_batches(share):
    campaign, truth = make_campaign(MemoryStorage(), n=300, batch=4, validation=share)
    for _ in range(20):
        campaign.ask()
        answer(campaign, truth)
    assert abs(len(campaign.ledger().validation) - share * 80) <= 1


def test_items_for_measuring_are_spread_over_the_batch(memory):
    campaign, _ = make_campaign(memory, batch=12, validation=0.25)
    picks = campaign.ask()
    apart = set(picks.info["validation"])
    places = [place for place, item in enumerate(picks.ids.tolist()) if item in apart]
    assert places == [2, 6, 10]


def test_agreement_and_prequential_are_those_of_the_model_before(memory):
    campaign, truth = make_campaign(memory, n=60, batch=9, strategy="margin")
    answer(campaign, truth, campaign.ask().ids)
    first = campaign.train()
    assert "agreement" not in first.metrics and "prequential" not in first.metrics
    old = campaign.learner.represent(campaign.pool.inputs, ["probabilities"])["probabilities"]
    old = campaign.learner.classes[old.argmax(axis=1)]
    picks = campaign.ask()
    answer(campaign, truth)
    second = campaign.train()
    new = campaign.learner.represent(campaign.pool.inputs, ["probabilities"])["probabilities"]
    new = campaign.learner.classes[new.argmax(axis=1)]
    by_id = dict(zip(campaign.pool.ids.tolist(), old.tolist(), strict=True))
    hits = [by_id[item] == truth[item] for item in picks.ids.tolist()]
    assert second.metrics["agreement"] == pytest.approx(np.mean(old == new))
    assert second.metrics["prequential"] == pytest.approx(np.mean(hits))
    assert second.metrics["prequential_labels"] == 9


def test_a_failed_training_is_recorded_and_loses_nothing(storage):
    learner = Nearest(fails=[ZeroDivisionError("no luck"), BadInput("all labels are class 0")])
    campaign, truth = make_campaign(storage, learner=learner)
    answer(campaign, truth, campaign.ask().ids)
    with pytest.raises(ZeroDivisionError, match="no luck"):
        campaign.train(by="ann")
    assert campaign.ledger().failure.error == "ZeroDivisionError: no luck"
    with pytest.raises(BadInput):
        campaign.train()
    assert campaign.ledger().failure.error == "all labels are class 0"
    assert campaign.ledger().training is None and len(campaign.labels()) == 8
    trained = campaign.train()
    assert trained.number == 3 and campaign.ledger().failure is None
    assert [event.number for event in told(storage, Training)] == [1, 2, 3]
    assert [event.number for event in told(storage, TrainingFailed)] == [1, 2]
    assert len(campaign.ask()) == 8


def test_after_a_failed_training_the_last_good_model_chooses(storage):
    campaign, truth = make_campaign(storage, learner=Nearest())
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    other, _ = make_campaign(storage)
    campaign.learner.fails = [ValueError("no luck")]
    with pytest.raises(ValueError, match="no luck"):
        campaign.train()
    picks = campaign.ask()
    assert picks.info["model"] == 1
    assert campaign.learner.calls[-1]["seed"] == campaign.learner.calls[0]["seed"]
    assert other.ask().ids.tolist() == picks.ids.tolist()


def test_a_training_that_is_interrupted_is_recorded_too(memory):
    campaign, truth = make_campaign(memory, learner=Nearest(fails=[KeyboardInterrupt()]))
    answer(campaign, truth, campaign.ask().ids)
    with pytest.raises(KeyboardInterrupt):
        campaign.train()
    assert campaign.ledger().failure.error == "KeyboardInterrupt: "


class Locked(MemoryStorage):
    """Refuses to write while `locked`; with `late`, it says so when all has been written."""

    locked = late = 0

    def transact(self, campaign, start, decide):
        if self.late:
            super().transact(campaign, start, decide)
        if self.locked or self.late:
            self.locked, self.late = max(0, self.locked - 1), 0
            raise StorageFailed("another process has been writing for too long")
        return super().transact(campaign, start, decide)


class Locking(Nearest):
    """The record cannot be written when it has been trained for the first time."""

    def __init__(self, storage, **facts):
        super().__init__()
        self.storage, self.facts = storage, facts

    def fit(self, *args, **more):
        report = super().fit(*args, **more)
        vars(self.storage).update(self.facts)
        self.facts = {}
        return report


def test_a_training_whose_end_cannot_be_recorded_has_failed():
    storage = Locked()
    campaign, truth = make_campaign(storage, learner=Locking(storage, locked=1))
    answer(campaign, truth, campaign.ask().ids)
    with pytest.raises(StorageFailed, match="writing for too long"):
        campaign.train()
    ledger = campaign.ledger()
    assert ledger.training is None and not ledger.trainings
    assert ledger.failure.number == 1 and "writing for too long" in ledger.failure.error


def test_a_training_whose_failure_cannot_be_recorded_either_says_so():
    storage = Locked()
    campaign, truth = make_campaign(storage, learner=Locking(storage, locked=2))
    answer(campaign, truth, campaign.ask().ids)
    with pytest.raises(StorageFailed, match="writing for too long") as caught:
        campaign.train()
    assert "the failure could not be recorded" in caught.value.__notes__[0]
    assert campaign.ledger().training.number == 1 and campaign.ledger().failure is None


def test_a_training_whose_end_was_recorded_after_all_has_not_failed():
    storage = Locked()
    campaign, truth = make_campaign(storage, learner=Locking(storage, late=1))
    answer(campaign, truth, campaign.ask().ids)
    with pytest.raises(StorageFailed, match="writing for too long"):
        campaign.train()
    assert [event.number for event in told(storage, Trained)] == [1]
    assert not told(storage, TrainingFailed) and campaign.ledger().training is None
    assert campaign.ask().info["model"] == 1


def test_there_must_be_something_to_train_on(memory):
    campaign, truth = make_campaign(memory, n=200, batch=4, validation=0.5)
    with pytest.raises(BadInput, match="there are no labels to train on; record some first"):
        campaign.train()
    apart = campaign.ask().info["validation"]
    answer(campaign, truth, apart)
    with pytest.raises(BadInput, match=r"\(all 2 are in the holdout\)"):
        campaign.train()
    assert not told(memory, Training) and not told(memory, TrainingFailed)


def second_batch_after_a_restart(storage, home, learner, between=None):
    """What a campaign asks next, and what it would have asked without a restart."""
    campaign, truth = make_campaign(storage, learner=type(learner)(), home=home)
    first = campaign.ask()
    answer(campaign, truth, first.ids)
    campaign.train()
    if between is not None:
        between(campaign)
    again, _ = make_campaign(storage, learner=learner, home=home)
    picks = again.ask()
    twin, truth = make_campaign(MemoryStorage())
    answer(twin, truth, twin.ask().ids)
    twin.train()
    return picks, twin.ask()


@pytest.mark.parametrize("kind", [Nearest, SavingNearest])
def test_the_model_of_a_restarted_campaign_chooses_as_before(storage, tmp_path, kind):
    learner = kind()
    picks, expected = second_batch_after_a_restart(storage, tmp_path, learner)
    assert picks.ids.tolist() == expected.ids.tolist()
    assert len(learner.calls) == (1 if kind is Nearest else 0)  # trained again, or read
    (trained,) = told(storage, Trained)
    assert trained.checkpoint == (None if kind is Nearest else "models/1")


def test_a_model_is_trained_again_on_the_labels_of_its_time(storage):
    def change_a_label(campaign):
        item = min(campaign.labels())
        campaign.tell({item: (campaign.labels()[item] + 1) % 3})
        campaign.change(seed=99, strategy="margin")
        campaign.change(seed=0, strategy="uherding")

    learner = Nearest()
    picks, expected = second_batch_after_a_restart(storage, None, learner, change_a_label)
    assert picks.ids.tolist() == expected.ids.tolist()


def test_a_lost_checkpoint_is_no_loss(memory, tmp_path):
    learner = SavingNearest()
    lose = lambda campaign: shutil.rmtree(tmp_path / "models")  # noqa: E731
    picks, expected = second_batch_after_a_restart(memory, tmp_path, learner, lose)
    assert picks.ids.tolist() == expected.ids.tolist() and len(learner.calls) == 1


def test_a_damaged_checkpoint_is_told_and_trained_again(memory, tmp_path):
    def damage(campaign):
        (tmp_path / "models" / "1" / "model.json").write_text("{")

    learner = SavingNearest()
    with pytest.warns(LabelwiseWarning, match="cannot be read .*; training again instead"):
        picks, expected = second_batch_after_a_restart(memory, tmp_path, learner, damage)
    assert picks.ids.tolist() == expected.ids.tolist()


def test_a_checkpoint_that_cannot_be_written_does_not_lose_the_training(memory, tmp_path):
    (tmp_path / "models").write_text("a file where the folder should be")
    campaign, truth = make_campaign(memory, learner=SavingNearest(), home=tmp_path)
    answer(campaign, truth, campaign.ask().ids)
    with pytest.warns(LabelwiseWarning, match="the model could not be saved"):
        trained = campaign.train()
    assert trained.checkpoint is None and len(campaign.ask()) == 8


def test_a_checkpoint_knows_the_names_of_its_classes(memory, tmp_path):
    pool, truth = make_pool()
    names = ("owl", "wren", "hawk")
    settings = {"strategy": "margin", "batch": 9}
    for kind in (SavingNearest, SavingNearest):
        campaign = Campaign("toys", pool, kind(), memory, home=tmp_path, **settings)
        picks = campaign.ask()
        if picks.info["model"] is None:
            campaign.tell({int(item): names[truth[int(item)]] for item in picks.ids})
            campaign.train()
            campaign.change(batch=9, price=0.1)
    assert not campaign.learner.calls
    guesses = told(memory, Asked)[-1].guesses
    right = [
        label == names[truth[item]] for (label, _), item in zip(guesses, picks.ids, strict=True)
    ]
    assert {label for label, _ in guesses} <= set(names)
    assert np.mean(right) > 0.5


def test_a_label_that_is_no_class_any_more_is_named(memory):
    campaign, truth = make_campaign(memory, classes=("a", "b", "c"))
    answer(campaign, truth, campaign.ask().ids)
    campaign.change(classes=("a", "b"))
    with pytest.raises(BadInput, match="label 'c' is not one of the classes any more"):
        campaign.train()
    assert "not one of the classes any more" in campaign.ledger().failure.error


def test_disagreements_are_not_trained_on_until_they_are_settled(memory):
    campaign, truth = make_campaign(memory, overlap=2)
    picks = campaign.ask().ids.tolist()
    answer(campaign, truth, picks, by="ann")
    answer(campaign, truth, picks[1:], by="bob")
    campaign.tell({picks[0]: (truth[picks[0]] + 1) % 3}, by="bob")
    assert campaign.train().labels == 7
    campaign.resolve({picks[0]: truth[picks[0]]}, by="cem")
    assert campaign.train().labels == 8


def test_a_torch_network_comes_back_from_its_checkpoint(tmp_path):
    from torch import nn

    pool, truth = make_pool(90)
    pool = labelwise.Pool(pool.inputs.astype(np.float32), pool.ids)
    make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))  # noqa: E731
    storage = MemoryStorage()

    def opened():
        learner = labelwise.TorchLearner(make, epochs=20)
        return Campaign("nets", pool, learner, storage, home=tmp_path, batch=15, validation=0.2)

    campaign = opened()
    answer(campaign, truth, campaign.ask().ids)
    trained = campaign.train()
    assert trained.checkpoint == "models/1" and (tmp_path / "models" / "1").is_dir()
    picks = campaign.ask("badge")
    storage._records["nets"].pop()  # as if it had never been asked
    again = opened()
    assert again.ask("badge").ids.tolist() == picks.ids.tolist()


class Silent:
    """A learner that cannot predict."""

    def fit(self, inputs, targets, weights=None, *, seed):
        return FitReport(0.0, 1, True, 0.0)

    def represent(self, inputs, names):
        check_names(names, ["features"], "a silent one")
        return {"features": np.asarray(inputs)}


class Voting(Silent):
    """A learner without probabilities, as a support vector machine is."""

    def predict(self, inputs):
        return np.ones(len(inputs), dtype=int)


def two_rounds(learner, storage, **settings):
    """Two batches of a campaign, and the metrics of the second training."""
    pool, truth = make_pool()
    campaign = Campaign("rounds", pool, learner, storage, strategy="k_center", batch=10, **settings)
    for _ in range(2):
        campaign.tell({int(item): truth[int(item)] for item in campaign.ask().ids})
        metrics = campaign.train().metrics
    return metrics, truth


def test_a_learner_that_cannot_predict_is_not_measured(memory):
    metrics, _ = two_rounds(Silent(), memory, validation=0.3)
    assert metrics["validation_labels"] == 6
    assert not {"accuracy", "agreement", "prequential"} & set(metrics)


def test_predictions_without_confidence_are_kept_for_the_next_measurement(memory):
    metrics, truth = two_rounds(Voting(), memory)
    second = told(memory, Asked, "rounds")[1]
    assert second.guesses is None and second.info["predicted"] == [1] * 10
    assert metrics["prequential"] == np.mean([truth[item] == 1 for item in second.ids])


def test_metrics_that_are_not_finite_are_recorded_as_none(memory):
    campaign, truth = make_campaign(memory, regression=True, learner=Line())
    campaign.tell({item: float(label) for item, label in truth.items()}, anything=True)
    assert campaign.train().metrics["loss"] is None


def test_cross_validation_is_repeated_after_a_quarter_more_labels(memory, monkeypatch):
    """In between the last choice is taken over; many labels are tuned in a training of its own."""
    rows = np.random.default_rng(0).normal(size=(80, 3))
    truth = {item: int(rows[item, 0] > 0) for item in range(80)}
    campaign = Campaign(
        "toys", labelwise.Pool(rows), labelwise.LinearProbe(), memory, strategy="random", batch=4
    )

    def train(count, **settings):
        campaign.tell({item: truth[item] for item in range(count)}, anything=True)
        return campaign.train(**settings).metrics

    assert train(20)["tuning"]["labels"] == 20
    assert "out_of_fold" not in train(24)
    last = train(25)
    assert last["tuning"]["labels"] == 25 and 0.5 < last["out_of_fold"]["accuracy"] <= 1
    monkeypatch.setattr("labelwise.campaign.training.TUNED_AT_ONCE", 30)
    postponed = train(40, postpone_tuning=True)
    assert postponed["tuning"] == last["tuning"]
    assert is_tuning_due(campaign.ledger().trainings[-1])
    assert train(40)["tuning"]["labels"] == 40
    # Another process without a checkpoint arrives at the same model.
    again = Campaign("toys", labelwise.Pool(rows), labelwise.LinearProbe(), memory)
    again.ask()
    np.testing.assert_allclose(
        again.learner.predict_proba(rows), campaign.learner.predict_proba(rows), atol=1e-9
    )


def test_a_regression_is_compared_with_predicting_the_mean(memory):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    campaign = Campaign(
        "toys",
        labelwise.Pool(rows),
        labelwise.LinearProbe(regression=True),
        memory,
        strategy="random",
        regression=True,
        batch=30,
        validation=0.3,
    )
    campaign.tell({int(item): float(rows[item, 0]) for item in campaign.ask().ids})
    metrics = campaign.train().metrics
    known = campaign.labels()
    held = [known[item] for item in campaign.ledger().validation]
    rest = set(known) - set(campaign.ledger().validation)
    mean = np.mean([known[item] for item in rest])
    assert metrics["baseline"] == pytest.approx(np.mean((np.array(held) - mean) ** 2))
    assert metrics["r2"] == pytest.approx(1 - metrics["mse"] / metrics["baseline"])
    assert metrics["out_of_fold"]["mse"] < metrics["out_of_fold"]["baseline"]
