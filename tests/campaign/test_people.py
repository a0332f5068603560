"""People of a campaign: removal, reserved names; and ids of any type in what they say."""

from uuid import UUID

import numpy as np
import pytest

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Renamed
from labelwise.record.storage import MemoryStorage
from tests.campaign.toys import Nearest, answer, make_campaign


def test_a_removed_annotator_is_kept_out_and_their_labels_stay():
    campaign, truth = make_campaign(MemoryStorage())
    campaign.ask()
    first, second, third = campaign.lend("ann", 3)
    campaign.tell({first: truth[first]}, by="ann")
    campaign.remove_annotator("ann", by="eve")
    ledger = campaign.ledger()
    assert ledger.labels == {first: truth[first]} and not ledger.leases
    for act in (
        lambda: campaign.tell({second: 0}, by="ann"),
        lambda: campaign.lend("ann"),
        lambda: campaign.skip(second, by="ann"),
        lambda: campaign.undo("ann"),
        lambda: campaign.resolve({first: 1}, by="ann"),
    ):
        with pytest.raises(BadInput, match="'ann' was removed from this campaign"):
            act()
    assert campaign.lend("bob", 2) == [second, third]
    campaign.remove_annotator("ann")  # once more changes nothing
    campaign.admit_annotator("ann")
    assert campaign.undo("ann") == first


def test_only_people_of_the_campaign_can_be_removed():
    campaign, _ = make_campaign(MemoryStorage())
    with pytest.raises(UnknownName, match="nobody called 'ann'"):
        campaign.remove_annotator("ann")
    with pytest.raises(BadInput, match="not removed"):
        campaign.admit_annotator("ann")


def test_nobody_takes_the_name_of_the_program():
    campaign, truth = make_campaign(MemoryStorage())
    item = int(campaign.ask().ids[0])
    with pytest.raises(BadInput, match="'labelwise' is that of the program"):
        campaign.tell({item: truth[item]}, by="labelwise")


def test_a_renamed_class_does_not_change_the_order_of_undo():
    record = CampaignRecord("birds", MemoryStorage())
    record.start(10, classes=("owl", "wren", "crow"))
    for item, label in ((1, "owl"), (2, "wren"), (3, "owl"), (4, "wren")):
        record.tell({item: label}, by="ann", anything=True)
    record.tell({1: "wren"}, by="bob", anything=True)
    record.commit(lambda ledger, now: ([Renamed(now, "owl", "crow", "eve")], None))
    assert record.labels() == {2: "wren", 3: "crow", 4: "wren"}
    assert dict(record.ledger().votes[1]) == {"ann": "crow", "bob": "wren"}
    assert [record.undo("ann") for _ in range(5)] == [4, 3, 2, 1, None]


KEYS = [*(f"photo {number}.png" for number in range(20)), UUID(int=7), 12, 13.5]


def test_items_go_by_their_own_keys():
    rows = np.random.default_rng(0).normal(size=(len(KEYS), 4))
    pool = labelwise.Pool(rows, ids=KEYS)
    campaign = Campaign("keys", pool, Nearest(), MemoryStorage(), batch=10, seed=3)
    picked = campaign.ask().keys
    assert len(picked) == 10 and set(picked) <= set(KEYS)
    campaign.tell({key: n % 2 for n, key in enumerate(picked)}, seconds=dict.fromkeys(picked, 2.0))
    assert campaign.labels() == {key: n % 2 for n, key in enumerate(picked)}
    assert {row["id"] for row in campaign.labelled()} == set(picked)
    campaign.withdraw(picked[0])
    assert picked[0] not in campaign.labels()
    campaign.train()
    assert len(campaign.predict(picked).labels) == 10
    for act in (campaign.tell, campaign.resolve):
        with pytest.raises(UnknownName, match=r"'photo 99\.png'"):
            act({"photo 99.png": 1})
    with pytest.raises(UnknownName, match=r"no item of the pool has id 'photo 99\.png'"):
        campaign.tell({"photo 99.png": 1}, anything=True)


def test_the_holdout_does_not_grow_after_a_strategy_has_picked():
    campaign, truth = make_campaign(MemoryStorage(), strategy="margin", validation=0.2)
    campaign.change(validation=0.3)  # nothing was picked yet
    for _ in range(2):
        campaign.ask()
        answer(campaign, truth)
        campaign.train()
    campaign.ask()
    with pytest.raises(BadInput, match="the strategy has picked the hardest already"):
        campaign.change(validation=0.4)
    assert campaign.change(validation=0.1).validation == 0.1


def test_the_holdout_may_grow_after_random_batches():
    campaign, truth = make_campaign(MemoryStorage(), strategy="random", validation=0.0)
    campaign.ask()
    answer(campaign, truth)
    assert campaign.change(validation=0.5).validation == 0.5
