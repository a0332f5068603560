"""The next step of a campaign, from its state."""

from dataclasses import replace

from labelwise.rounds import ScheduleState, advance


def batch(labels, size=10, **more):
    """The state after the first ``labels`` items of the first batch are labelled."""
    waiting = size - labels
    known = {"open_items": waiting, "batch_size": size, "batch_open": waiting, "left": 50}
    return advance(ScheduleState(labels=labels, **{**known, **more}))


def test_a_new_campaign_asks_for_its_first_batch():
    assert advance(ScheduleState(left=9)) == "ask"
    assert advance(ScheduleState(left=0)) is None
    assert advance(ScheduleState(left=9, labels=4)) == "ask"


def test_labels_from_before_the_first_batch_are_trained_on_if_wanted():
    early = {"left": 9, "labels": 4, "train_first": True}
    assert advance(ScheduleState(**early)) == "train"
    assert advance(ScheduleState(**early, failed_labels=4)) is None
    assert advance(ScheduleState(**early, failed_labels=3)) == "train"
    assert advance(ScheduleState(**early, training=True)) is None
    assert advance(ScheduleState(**early, trained_model=1, trained_labels=4)) == "ask"


def test_training_waits_for_the_tail_of_the_batch():
    assert [batch(labels) for labels in (0, 7, 8, 10)] == [None, None, "train", "train"]


def test_the_next_batch_is_asked_for_while_the_tail_is_open():
    first = {"trained_model": 1, "trained_labels": 8}
    assert batch(8, **first) == "ask"
    second = {**first, "batch_model": 1, "open_items": 2}
    assert batch(8, **{**second, "batch_open": 10, "open_items": 12}) is None
    assert batch(18, **{**second, "batch_open": 2}) == "train"


def test_nothing_happens_while_a_training_runs():
    assert batch(10, training=True) is None


def test_a_model_trained_early_in_the_batch_is_trained_again_at_the_tail():
    assert batch(10, trained_model=1, trained_labels=2) == "train"


def test_the_last_tail_is_trained_on_when_nothing_is_left_to_ask():
    last = {"trained_model": 1, "trained_labels": 8, "left": 0}
    assert batch(8, **last) is None
    assert batch(10, **last) == "train"
    assert batch(10, **{**last, "trained_model": 2, "trained_labels": 10}) is None


def test_labels_of_one_class_are_not_trained_on_and_the_next_batch_is_asked_for():
    assert batch(10) == "train"
    assert batch(10, trainable=False) == "ask"
    assert batch(8, trainable=False) == "ask"  # nobody waits for a model
    assert batch(7, trainable=False) is None


def test_a_failed_training_is_not_repeated_on_the_same_labels():
    assert batch(8, failed=True, failed_labels=8) is None
    assert batch(8, failed=True) == "train"  # a new process tries once
    assert batch(9, failed=True, failed_labels=8) is None  # the tail is still open
    assert batch(10, failed=True, failed_labels=8) == "train"
    assert batch(10, failed=True, failed_labels=10) is None


def test_cross_validation_waits_until_nobody_does():
    waiting = ScheduleState(
        left=50, labels=100, open_items=9, batch_size=10, batch_open=9, trained_model=3,
        trained_labels=100, batch_model=3, tuning_due=True,
    )  # fmt: skip
    assert advance(waiting) == "tune"
    assert advance(replace(waiting, training=True)) is None
    assert advance(replace(waiting, failed=True)) is None
    assert advance(replace(waiting, batch_open=1, labels=108)) == "train"
