"""Campaigns: the same batch for everyone, until its labels are in."""

from contextlib import closing
from multiprocessing import get_context

import numpy as np
import pytest

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.errors import BadInput, Conflict, LabelwiseError, UnknownName
from labelwise.record import open_storage
from labelwise.record.events import Asked
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import Interrupted, Line, Nearest, answer, make_campaign, make_pool
from tests.campaign.workers import ask_in_a_process


def batches(storage, name="toys"):
    return [event for event in storage.read(name) if isinstance(event, Asked)]


def same(one, other):
    """Whether two selections say the same in everything."""
    return (
        one.ids.tolist() == other.ids.tolist()
        and one.info == other.info
        and all(
            (a is None and b is None) or np.array_equal(a, b)
            for a, b in zip((one.weights, one.scores), (other.weights, other.scores), strict=True)
        )
    )


@pytest.fixture
def memory():
    return MemoryStorage()


def test_an_open_batch_is_given_again_until_its_last_label(storage):
    campaign, truth = make_campaign(storage)
    first = campaign.ask()
    answer(campaign, truth, first.ids[:-1])
    assert same(campaign.ask(), first)
    assert same(campaign.ask("margin", 3, seed=9), first)
    assert len(batches(storage)) == 1
    answer(campaign, truth, first.ids[-1:])
    assert not set(campaign.ask().ids) & set(first.ids)
    assert len(batches(storage)) == 2


def test_a_skipped_item_is_no_reason_to_wait_and_never_comes_back(storage):
    campaign, truth = make_campaign(storage, n=16)
    first = campaign.ask()
    answer(campaign, truth, first.ids[1:])
    campaign.skip(int(first.ids[0]), reason="blurred")
    second = campaign.ask()
    assert second.info["batch"] == 2 and first.ids[0] not in second.ids


def test_a_withdrawn_label_opens_the_batch_again(memory):
    campaign, truth = make_campaign(memory)
    first = campaign.ask()
    answer(campaign, truth)
    campaign.withdraw(int(first.ids[3]))
    assert same(campaign.ask(), first)
    assert list(campaign.ledger().waiting) == [first.ids[3]]


def test_a_restart_changes_nothing(storage_url):
    with closing(open_storage(storage_url)) as storage:
        campaign, truth = make_campaign(storage, strategy="lewis", validation=0.2)
        answer(campaign, truth, campaign.ask().ids)
        campaign.train()
        second = campaign.ask()
        assert second.weights is not None
    with closing(open_storage(storage_url)) as storage:
        again, _ = make_campaign(storage)  # settings come from the record
        assert same(again.ask(), second)
        assert len(batches(storage)) == 2


def test_two_processes_asking_at_once_get_the_same_batch(storage_url):
    context = get_context("spawn")
    ready, go, answers = context.Semaphore(0), context.Event(), context.Queue()
    arguments = (storage_url, ready, go, answers)
    processes = [context.Process(target=ask_in_a_process, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for _ in processes:
        assert ready.acquire(timeout=300)
    go.set()
    first, second = (answers.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    assert first == second and len(first) == 7
    with closing(open_storage(storage_url)) as storage:
        assert len(batches(storage)) == 1


def trained(storage):
    """A campaign with one batch labelled and trained on, and the answers."""
    campaign, truth = make_campaign(storage)
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    return campaign, truth


def test_who_chose_too_late_gets_the_batch_that_came_first(storage):
    other, _ = trained(storage)
    first = []
    late, _ = make_campaign(storage, learner=Interrupted(lambda: first.append(other.ask(seed=1))))
    assert same(late.ask(seed=2), first[0])
    assert [event.batch for event in batches(storage)] == [1, 2]


def test_a_batch_that_came_and_went_meanwhile_is_not_picked_from_again(storage):
    other, truth = trained(storage)
    late, _ = make_campaign(
        storage, learner=Interrupted(lambda: answer(other, truth, other.ask(seed=3).ids))
    )
    picks = late.ask()
    assert picks.info["batch"] == 3 and len(picks) == 8
    assert not set(picks.ids.tolist()) & set(batches(storage)[1].ids)


def test_expected_refuses_to_ask_after_someone_else_wrote(storage):
    campaign, _ = make_campaign(storage)
    length = campaign.ledger().length
    other, _ = make_campaign(storage)
    first = other.ask()
    with pytest.raises(Conflict, match=f"the record has {length + 1} events, not {length}"):
        campaign.ask(expected=length)
    assert same(campaign.ask(expected=campaign.ledger().length), first)


def test_expected_is_checked_again_when_the_batch_is_written(storage):
    other, _ = trained(storage)
    late, _ = make_campaign(storage, learner=Interrupted(lambda: other.change(batch=9)))
    with pytest.raises(Conflict, match="it was changed in the meantime"):
        late.ask(expected=late.ledger().length)
    assert len(batches(storage)) == 1


def test_ids_are_never_positions(storage):
    campaign, truth = make_campaign(storage, n=40, strategy="badge")
    for _ in range(3):
        picks = campaign.ask()
        assert set(picks.ids.tolist()) <= set(truth)
        answer(campaign, truth, picks.ids)
        campaign.train()
    call = campaign.learner.calls[-1]
    rows = dict(zip(campaign.pool.ids.tolist(), campaign.pool.inputs, strict=True))
    told = sorted(campaign.labels())
    assert len(told) == 24
    assert np.array_equal(call["inputs"], [rows[item] for item in told])
    assert call["targets"].tolist() == [truth[item] for item in told]


def test_the_order_of_the_pool_changes_nothing():
    def second_batch(order):
        pool, truth = make_pool()
        pool = labelwise.Pool(pool.inputs[order], pool.ids[order])
        campaign = Campaign("toys", pool, Nearest(), MemoryStorage(), batch=8, validation=0.25)
        answer(campaign, truth, campaign.ask().ids)
        campaign.train()
        return campaign.ask()

    plain = second_batch(np.arange(60))
    shuffled = second_batch(np.random.default_rng(1).permutation(60))
    assert plain.ids.tolist() == shuffled.ids.tolist()
    assert plain.info["validation"] == shuffled.info["validation"]


def test_the_seed_decides_everything():
    def run(seed):
        campaign, truth = make_campaign(MemoryStorage(), seed=seed)
        picks = []
        for _ in range(3):
            picks.append(campaign.ask().ids.tolist())
            answer(campaign, truth)
            campaign.train()
        return picks, campaign.learner.calls[-1]["seed"]

    assert run(0) == run(0)
    assert run(0)[0] != run(1)[0] and run(0)[1] != run(1)[1]


def test_the_first_batch_is_chosen_by_first_and_the_next_by_the_strategy(memory):
    campaign, truth = make_campaign(memory, strategy="margin", first="k_center", batch=5)
    first = campaign.ask()
    inputs = campaign.pool.inputs
    expected = labelwise.select("k_center", 5, features=inputs, ids=campaign.pool.ids)
    assert first.ids.tolist() == expected.ids.tolist()
    assert first.info["strategy"] == "k_center" and first.info["model"] is None
    answer(campaign, truth)
    assert campaign.ask().info["strategy"] == "k_center"  # not trained yet
    answer(campaign, truth)
    campaign.train()
    third = campaign.ask()
    assert third.info["strategy"] == "margin" and third.info["model"] == 1


def test_a_batch_is_what_the_strategy_picks_from_the_represented_pool(memory):
    campaign, truth = make_campaign(memory, strategy="margin", batch=6)
    first = campaign.ask()
    answer(campaign, truth)
    campaign.train()
    picks = campaign.ask(budget=4)
    rows = campaign.learner.represent(campaign.pool.inputs, ["probabilities"])
    expected = labelwise.select(
        "margin", 4, **rows, ids=campaign.pool.ids, labelled=first.ids, seed=picks.info["seed"]
    )
    assert picks.ids.tolist() == expected.ids.tolist()
    assert np.array_equal(picks.scores, expected.scores)


def test_skipped_items_are_no_context_for_the_strategy(memory):
    campaign, truth = make_campaign(memory, first="k_center", batch=4)
    first = campaign.ask()
    kept, skipped = first.ids[:2], first.ids[2:]
    answer(campaign, truth, kept)
    campaign.skip(skipped.tolist())
    free = ~np.isin(campaign.pool.ids, skipped)
    expected = labelwise.select(
        "k_center",
        4,
        features=campaign.pool.inputs[free],
        ids=campaign.pool.ids[free],
        labelled=kept,
    )
    assert campaign.ask().ids.tolist() == expected.ids.tolist()


def test_a_number_alone_is_the_budget(memory):
    campaign, _ = make_campaign(memory)
    assert len(campaign.ask(20)) == 20
    with pytest.raises(BadInput, match="the budget is given twice: 3 and 4"):
        campaign.ask(3, 4)


def test_a_budget_beyond_what_is_left_says_how_much_that_is(storage):
    campaign, truth = make_campaign(storage, n=20)
    with pytest.raises(BadInput, match="budget is 21 but only 20 unlabelled items are left"):
        campaign.ask(21)
    answer(campaign, truth, campaign.ask(15).ids)
    with pytest.raises(BadInput, match="budget is 6 but only 5 unlabelled items are left"):
        campaign.ask(6)
    assert campaign.count_left() == 5
    with pytest.raises(BadInput, match="one item or more; got a budget of 0"):
        campaign.ask(0)


def test_the_last_batch_is_what_is_left_and_then_nothing_is(storage):
    campaign, truth = make_campaign(storage, n=20, batch=8, validation=0.25)
    sizes = []
    for _ in range(3):
        sizes.append(len(campaign.ask()))
        answer(campaign, truth)
    assert sizes == [8, 8, 4] and campaign.count_left() == 0
    with pytest.raises(BadInput, match="all 20 items of the pool were asked for or labelled"):
        campaign.ask()
    assert set(campaign.labels()) == set(truth)


def test_labels_that_nobody_asked_for_are_context_and_never_picked(storage):
    campaign, truth = make_campaign(storage, n=12)
    known = list(truth)[:9]
    campaign.tell({item: truth[item] for item in known}, anything=True)
    assert campaign.count_left() == 3
    assert set(campaign.ask().ids.tolist()) == set(truth) - set(known)
    with pytest.raises(UnknownName, match="no item of the pool has id 5"):
        campaign.tell({5: 1}, anything=True)


def test_the_next_batch_opens_ahead_only_when_the_last_is_down_to_its_tail(storage):
    campaign, truth = make_campaign(storage, batch=10, tail=0.2)
    first = campaign.ask()
    answer(campaign, truth, first.ids[:7])
    assert same(campaign.ask(ahead=True), first)
    answer(campaign, truth, first.ids[7:8])
    campaign.train()
    second = campaign.ask(ahead=True)
    assert second.info["batch"] == 2 and not set(second.ids) & set(first.ids)
    assert same(campaign.ask(ahead=True), second)
    assert same(campaign.ask(), first)  # what is oldest is labelled first
    answer(campaign, truth, first.ids[8:])
    assert same(campaign.ask(), second)


def test_a_pool_that_grew_is_asked_from_and_one_that_lost_items_is_refused(storage):
    pool, truth = make_pool(30)
    small = labelwise.Pool(pool.inputs[:20], pool.ids[:20])
    campaign = Campaign("toys", small, Nearest(), storage, batch=20)
    answer(campaign, truth, campaign.ask().ids)
    grown = Campaign("toys", pool, Nearest(), storage)
    assert grown.ledger().items == 30
    assert set(grown.ask(10).ids) == set(pool.ids[20:])
    other = labelwise.Pool(pool.inputs, pool.ids + 1)
    with pytest.raises(UnknownName, match="which the pool does not have"):
        Campaign("toys", other, Nearest(), storage)


def test_a_strategy_that_needs_a_model_says_so_before_there_is_one(memory):
    campaign, _ = make_campaign(memory)
    with pytest.raises(BadInput, match="badge needs a model, and nothing is trained yet"):
        campaign.ask("badge")
    texts = labelwise.Pool(["a", "b", "c"])
    words = Campaign("texts", texts, Nearest(), memory, batch=2)
    with pytest.raises(BadInput, match="k_center needs inputs that are arrays of numbers"):
        words.ask("k_center")
    assert len(words.ask()) == 2


def test_a_strategy_that_the_learner_cannot_serve_says_what_is_missing(memory):
    campaign, truth = make_campaign(memory)
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    with pytest.raises(BadInput, match="bald needs member_probabilities, which Nearest does not"):
        campaign.ask("bald")
    with pytest.raises(UnknownName, match="lewis has no option 'power'"):
        campaign.ask("lewis", power=3)


def test_options_come_from_the_settings_unless_another_strategy_is_asked(memory):
    campaign, truth = make_campaign(memory, strategy="lewis", options={"p": 1.5})
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    assert campaign.ask().info["options"] == {"p": 1.5}
    answer(campaign, truth)
    assert campaign.ask("k_center").info["options"] == {}
    answer(campaign, truth)
    assert campaign.ask(p=1.0).info["options"] == {"p": 1.0}


def test_guesses_are_kept_by_the_name_of_the_class(memory):
    names = ("cat", "dog", "owl")
    campaign, truth = make_campaign(memory, classes=names, strategy="entropy")
    first = campaign.ask()
    rest = [int(item) for item in first.ids if truth[int(item)] != 0]
    campaign.skip([int(item) for item in first.ids if int(item) not in rest])
    answer(campaign, truth, rest)  # the model never sees a cat
    campaign.train()
    picks = campaign.ask()
    guesses = batches(memory)[-1].guesses
    chances = campaign.learner.represent(
        np.array([campaign.pool.take([item])[0] for item in picks.ids]), ["probabilities"]
    )["probabilities"]
    assert [label for label, _ in guesses] == [names[1 + best] for best in chances.argmax(axis=1)]
    assert [share for _, share in guesses] == chances.max(axis=1).tolist()


def test_a_regression_from_start_to_end(storage):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(50, 2))
    values = inputs @ [2.0, -1.0] + 3
    settings = {"strategy": "k_center", "batch": 10, "regression": True, "validation": 0.3}
    campaign = Campaign("values", labelwise.Pool(inputs), Line(), storage, **settings)
    for _ in range(2):
        campaign.tell({int(item): values[item] for item in campaign.ask().ids}, by="ann")
        trained = campaign.train()
    metrics = trained.metrics
    assert metrics["mse"] < 1e-20 and metrics["loss"] is None
    assert metrics["agreement"] == pytest.approx(1.0)
    assert metrics["prequential"] < 1e-20 and metrics["prequential_labels"] == 7
    with pytest.raises(BadInput, match="must be a number; got 'tall'"):
        campaign.tell({int(campaign.ask().ids[0]): "tall"})


def test_asking_leaves_the_record_as_it_is_when_it_fails(memory):
    campaign, truth = make_campaign(memory)
    answer(campaign, truth, campaign.ask().ids)
    campaign.train()
    length = memory.length("toys")
    campaign.pool.inputs[0] = np.nan
    with pytest.raises(BadInput, match="NaN"):
        campaign.ask()
    assert memory.length("toys") == length


@pytest.mark.parametrize(
    ("item", "said"),
    [
        *((missing, r"ids must be numbers.* got") for missing in (float("nan"), None)),
        *((large, "no item of the pool has id") for large in (2**70, -(2**64))),
    ],
)
def test_ids_that_are_none_are_refused_in_words_where_any_item_is_taken(memory, item, said):
    campaign, _ = make_campaign(memory)
    with pytest.raises(LabelwiseError, match=said):
        campaign.tell({item: 0}, anything=True)
