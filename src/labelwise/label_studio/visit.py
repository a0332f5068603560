"""What the steps of one sync with Label Studio share: what is wished for, known, and done."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelwise.campaign.project import SUFFIX, Project
from labelwise.label_studio.client import Client
from labelwise.label_studio.formats import Layout
from labelwise.label_studio.tasks import Tasks
from labelwise.pool.blocks import Progress
from labelwise.record.events import Trained


@dataclass(frozen=True)
class Wishes:
    """How to sync.

    Attributes:
        strategy: What chooses, from now on; the campaign's own if None.
        batch: How many tasks at a time, from now on.
        guesses: Whether to write the model's guesses with the order, for annotators to see.
        skip_broken: Leave out tasks that cannot be used, in place of refusing all.
    """

    strategy: str | None = None
    batch: int | None = None
    guesses: bool = False
    skip_broken: bool = False


@dataclass
class Synced:
    """What a sync found and did.

    Attributes:
        home: The campaign's folder.
        title: Of the project.
        kind: ``"images"`` or ``"texts"``.
        started: Whether the campaign was made.
        new: How many tasks came in.
        gone: How many were deleted.
        left_out: How many cannot be used, now and before.
        words: How many labels are ``new`` and ``changed``, of how many items words were
            ``withdrawn``, and how many items were ``skipped``.
        unread: Annotations that are no labels, by what is wrong with them.
        trained: The trainings.
        asked: The numbers of the batches that were chosen.
        waiting: How many tasks want labels.
        version: The model version whose order Label Studio serves now.
        written: Whether it was written now.
        failure: What went wrong with a training or a choice; everything else was done.
    """

    home: Path
    title: str = ""
    kind: str = ""
    started: bool = False
    new: int = 0
    gone: int = 0
    left_out: int = 0
    words: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    trained: list[Trained] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    waiting: int = 0
    version: str = ""
    written: bool = False
    failure: Exception | None = None

    @property
    def changed(self) -> bool:
        """Whether anything did, here or there."""
        moved = self.started or self.written or self.new or self.gone
        return bool(moved or any(self.words.values()) or self.trained or self.asked)


@dataclass
class Visit:
    """One sync, as its steps see it.

    Attributes:
        client: Of the server.
        number: Of the project there.
        held: What the server says of the project.
        layout: What the project asks.
        wishes: How to sync.
        home: The campaign's folder.
        tasks: The folder of the tasks.
        done: What was found and done so far.
        progress: Called as ``progress(stage, done, total)``.
    """

    client: Client
    number: int
    held: Mapping[str, Any]
    layout: Layout
    wishes: Wishes
    home: Path
    tasks: Tasks
    done: Synced
    progress: Progress | None = None


@dataclass(frozen=True)
class Places:
    """Which item is which task.

    Attributes:
        tasks: The number of the task of every item, by the item's id.
        items: The id of the item of every task.
    """

    tasks: Sequence[int]
    items: Mapping[int, int]

    @classmethod
    def of(cls, tasks: Tasks, project: Project) -> "Places":
        """Of a campaign."""
        found = tasks.of_items(project.items)
        return cls(found, {task: item for item, task in enumerate(found)})


def campaign_folder(home: Path) -> Path:
    """The campaign's folder, with its ending.

    >>> str(campaign_folder(Path("reviews")))
    'reviews.labelwise'
    """
    return home if home.name.endswith(SUFFIX) else home.with_name(home.name + SUFFIX)


def tasks_folder(home: Path) -> Path:
    """Where the tasks of a campaign are: beside its folder.

    >>> str(tasks_folder(Path("reviews.labelwise")))
    'reviews.tasks'
    """
    return home.with_name(home.name.removesuffix(SUFFIX) + ".tasks")
