"""The bridge to Label Studio: its tasks, its annotations, and the order in which it serves tasks.

==========  ====================================================================================
bridge      one sync of a campaign and a project, from its steps
client      the calls of Label Studio's API, over `http`, which knows tokens, errors and redirects
formats     what labelling configurations, annotations and predictions mean
tasks       the tasks as items of a campaign; `intake` brings them in
follow      labels and skips that people give, change and withdraw
order       the order in which tasks are to be served, as scores
visit       what the steps of one sync share
serve       the ML backend: `backend` answers, `worker` syncs, `connect` tells a project of it
==========  ====================================================================================
"""

from labelwise.label_studio.bridge import (
    QUEUE,
    Bridge,
    guesses_of,
    pull,
    sync,
    write_order,
)
from labelwise.label_studio.client import Client
from labelwise.label_studio.visit import Synced, Wishes

__all__ = [
    "QUEUE",
    "Bridge",
    "Client",
    "Synced",
    "Wishes",
    "guesses_of",
    "pull",
    "sync",
    "write_order",
]
