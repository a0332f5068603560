"""Rolling batches: a new model selects the items again that nobody works on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from labelwise.campaign import batches
from labelwise.campaign.batches import CampaignState
from labelwise.campaign.export import label_rows
from labelwise.campaign.labels import make_training_set
from labelwise.campaign.runner import CampaignRunner, read_schedule_state
from labelwise.record.events import Asked, Released
from labelwise.record.ledger import replay
from labelwise.record.snapshots import decode_ledger, encode_ledger
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import answer, make_campaign

SETTINGS = {"strategy": "margin", "validation": 0.25, "batch": 20, "rolling": True}


class Memory:
    """What a runner needs of a campaign's folder."""

    def __init__(self, campaign: Any) -> None:
        self.items, self._campaign = range(len(campaign.pool)), campaign

    def open_record(self) -> Any:
        return self._campaign

    def campaign(self, **options: Any) -> Any:
        return self._campaign


def start(n=200, **settings):
    campaign, truth = make_campaign(MemoryStorage(), n=n, **{**SETTINGS, **settings})
    project: Any = Memory(campaign)
    return campaign, truth, CampaignRunner(project)


def work(runner):
    """Run all steps that are due; their names."""
    steps = []
    while (step := runner.choose_step()) is not None:
        steps.append(step)
        runner.run_step(step)
    return steps


def label(campaign, truth, count):
    for _ in range(count):
        (item,) = campaign.lend("ann", 1)
        answer(campaign, truth, [item], "ann")


def test_a_new_model_replaces_the_waiting_picks():
    campaign, truth, runner = start()
    assert work(runner) == ["ask"]
    label(campaign, truth, 16)
    assert work(runner) == ["train", "ask"]
    label(campaign, truth, 5)
    held = campaign.lend("bob", 2)
    before = set(campaign.ledger().waiting)
    assert work(runner) == ["train", "ask"]
    ledger = campaign.ledger()
    assert len(ledger.waiting) == 20 and set(held) <= set(ledger.waiting)
    gone = before - set(ledger.waiting)
    assert gone and not gone & ledger.validation  # random items stay
    last = ledger.batches[-1]
    assert last.asked.model == ledger.trainings[-1].number
    assert last.size == len(set(last.asked.ids))
    waiting_holdout = [item for item in ledger.waiting if item in ledger.validation]
    assert set(waiting_holdout) <= {*last.asked.validation, *held}


def test_the_holdout_keeps_its_share_and_is_a_random_sample():
    campaign, truth, runner = start(n=400)
    shares = []
    for _ in range(120):
        work(runner)
        label(campaign, truth, 1)
        ledger = campaign.ledger()
        shares.append(sum(item in ledger.validation for item in ledger.labels) / len(ledger.labels))
    assert all(0.15 <= share <= 0.4 for share in shares[20:])
    reserved = batches.find_reserved_items(np.array(list(ledger.validation)), campaign.settings)
    assert reserved.all()


def test_labels_and_leases_made_during_the_selection_are_kept():
    campaign, truth, runner = start()
    work(runner)
    label(campaign, truth, 16)
    runner.run_step("train")
    ledger = campaign.ledger()
    settings = campaign.settings
    rolling = batches.list_rolling_items(ledger, settings, 2000.0)
    state = CampaignState.from_ledger(ledger, settings, rolling)
    request = batches.make_batch_request(campaign.pool, state, None, 20, None, {})
    new = batches.select_batch(campaign.load_model(), state, request, None)
    taken = campaign.lend("bob", 3)
    back = [item for item in state.released.tolist() if item not in taken]
    asked = replace(new, ids=(*taken, *[i for i in new.ids if i not in taken]), scores=None)
    asked = replace(asked, guesses=None, weights=None)
    campaign.commit(lambda ledger, now: batches.roll_batch(ledger, now, asked, state.released))
    ledger = campaign.ledger()
    released = campaign.storage.read(campaign.name)[-2]
    assert isinstance(released, Released) and set(released.ids) == set(back)
    assert not set(taken) & set(ledger.batches[-1].asked.ids)
    assert set(taken) <= set(ledger.waiting)


def test_a_label_of_a_released_item_is_accepted():
    campaign, truth, runner = start()
    work(runner)
    label(campaign, truth, 16)
    shown = set(campaign.ledger().waiting)  # on a page whose leases have expired
    work(runner)
    item = min(shown - set(campaign.ledger().waiting))
    campaign.tell({item: truth[item]}, by="bob")
    assert campaign.ledger().labels[item] == truth[item]
    assert item in make_training_set(campaign.ledger(), campaign.settings).labels


def test_batches_with_used_weights_do_not_roll():
    campaign, truth, runner = start(strategy="bss", first="random", validation=0.0)
    work(runner)
    label(campaign, truth, 16)
    assert work(runner) == ["train", "ask"]
    assert campaign.ledger().batches[-1].asked.weights is not None
    label(campaign, truth, 5)
    assert work(runner) == []
    ledger = campaign.ledger()
    assert read_schedule_state(ledger, campaign.settings).rolling == 0
    other = replace(campaign.settings, weights=False)
    assert read_schedule_state(ledger, other).rolling > 0


def test_a_replayed_record_and_a_snapshot_give_the_same_campaign():
    campaign, truth, runner = start()
    for _ in range(4):
        work(runner)
        label(campaign, truth, 8)
    ledger = campaign.ledger()
    events = campaign.storage.read(campaign.name)
    assert sum(isinstance(event, Released) for event in events) >= 2
    for again in (replay(events), decode_ledger(encode_ledger(ledger))):
        assert list(again.waiting) == list(ledger.waiting)
        assert again.asked_ids == ledger.asked_ids
        assert [batch.size for batch in again.batches] == [batch.size for batch in ledger.batches]
    rows = label_rows(ledger, ledger.labels, events, str)
    batch_of = {item: one.number for one in ledger.batches for item in one.asked.ids}
    assert all(row["batch"] == batch_of[row["id"]] for row in rows)
    assert not make_training_set(ledger, campaign.settings).weights


def test_the_budget_is_kept():
    campaign, truth, runner = start(budget_labels=50)
    for _ in range(50):
        work(runner)
        label(campaign, truth, 1)
    work(runner)
    assert not campaign.ledger().waiting and len(campaign.ledger().labels) == 50


@pytest.mark.parametrize("rolling", [False, True])
def test_every_item_is_labelled_in_the_end(rolling):
    campaign, truth, runner = start(n=60, rolling=rolling)
    for _ in range(60):
        work(runner)
        label(campaign, truth, 1)
    asked = [e for e in campaign.storage.read(campaign.name) if isinstance(e, Asked)]
    assert len(campaign.ledger().labels) == 60
    assert rolling == (sum(len(event.ids) for event in asked) > 60)
