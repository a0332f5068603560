"""What other processes do in the tests; it imports little, since every process waits for it."""

from contextlib import closing

from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.record import open_storage


def label_all(record, person):
    """Label whatever is lent until nothing is; the items that this person got."""
    got = []
    while items := record.lend(person, 3):
        got += items
        record.tell(dict.fromkeys(items, "owl"), by=person)
    return got


def label_in_a_process(url, person):
    """The same at a record of its own."""
    with closing(open_storage(url)) as storage:
        return label_all(CampaignRecord("birds", storage), person)


def ask_in_a_process(url, ready, go, answers):
    """Ask for a batch at the same moment as others do."""
    from tests.campaign.toys import make_campaign

    with closing(open_storage(url)) as storage:
        campaign, _ = make_campaign(storage, batch=7)
        ready.release()
        go.wait()
        answers.put(campaign.ask().ids.tolist())
