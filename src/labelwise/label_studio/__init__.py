"""Label Studio: select the tasks that its annotators label next.

=========  ====================================================================================
client     HTTP API of Label Studio
formats    labelling configurations, annotations and predictions
tasks      tasks as items of a campaign, and the order in which they are served
votes      labels and skips of annotators in the record
sync       one synchronization of a campaign with a project
backend    ML backend that Label Studio calls; `worker` is its background process
=========  ====================================================================================
"""

from labelwise.label_studio.client import LabelStudioClient
from labelwise.label_studio.sync import ProjectSync, SyncOptions, SyncResult, sync_project

__all__ = ["LabelStudioClient", "ProjectSync", "SyncOptions", "SyncResult", "sync_project"]
