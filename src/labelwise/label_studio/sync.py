"""Synchronization of a campaign with a project of Label Studio.

The tasks of a project become the items of a campaign. `sync_project` imports new tasks and votes,
trains and selects when it is time to, and writes the order of the picks as predictions, so that
*Uncertainty sampling* serves them in that order. It can be called at any time: without news it
changes nothing, and after an interruption it continues.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.project import SUFFIX, Project
from labelwise.campaign.runner import CampaignRunner
from labelwise.errors import BadInput, Conflict, LabelwiseWarning
from labelwise.files import JsonObject
from labelwise.label_studio.client import BULK_TIMEOUT, LabelStudioClient
from labelwise.label_studio.formats import (
    ProjectLayout,
    TaskVotes,
    make_prediction,
    read_annotations,
    read_layout,
)
from labelwise.label_studio.tasks import (
    LabelStudioProject,
    ServingOrder,
    TaskFolder,
    TaskIndex,
    find_newest_version,
    lock_tasks,
)
from labelwise.label_studio.votes import ImportedVotes, import_votes
from labelwise.learner import Label
from labelwise.pool.blocks import Progress
from labelwise.record.events import Trained
from labelwise.record.ledger import Ledger

QUEUE = "Uncertainty sampling"  # Label Studio's queue that serves the lowest score first


@dataclass(frozen=True)
class SyncOptions:
    """Options of a sync."""

    strategy: str | None = None  # Selection strategy from now on; None for that of the campaign
    batch: int | None = None  # Tasks per batch from now on; None for that of the campaign
    guesses: bool = False  # Whether annotators see the model's guesses
    skip_broken: bool = False  # Leave out tasks that cannot be used instead of rejecting all


@dataclass
class SyncResult:
    """Results of a sync."""

    home: Path  # Folder of the campaign
    title: str = ""  # Title of the project
    kind: str = ""  # ``"images"`` or ``"texts"``
    started: bool = False  # Whether the campaign was created
    new: int = 0  # Number of new tasks
    gone: int = 0  # Number of deleted tasks
    left_out: int = 0  # Number of tasks that cannot be used, in all
    # Number of ``new`` and ``changed`` labels, ``withdrawn`` votes and ``skipped`` items
    words: Counter[str] = field(default_factory=Counter)
    # Number of annotations that are not labels, by reason
    unread: Counter[str] = field(default_factory=Counter)
    trained: list[Trained] = field(default_factory=list)  # Trainings
    asked: list[int] = field(default_factory=list)  # Numbers of the new batches
    waiting: int = 0  # Number of open tasks
    version: str = ""  # Model version whose order Label Studio serves now
    written: bool = False  # Whether this sync wrote it
    failure: Exception | None = None  # Error of a training or selection; everything else was done

    @property
    def changed(self) -> bool:
        """Whether anything changed, in the campaign or in the project."""
        moved = self.started or self.written or self.new or self.gone
        return bool(moved or any(self.words.values()) or self.trained or self.asked)


def sync_project(
    client: LabelStudioClient,
    number: int,
    *,
    home: Path | None = None,
    options: SyncOptions | None = None,
    progress: Progress | None = None,
) -> SyncResult:
    """Synchronize a campaign and a project once.

    The folder of the campaign is created if needed; by default ``label-studio-NUMBER`` in the
    current folder.
    """
    sync = ProjectSync(client, number, home, options=options, progress=progress)
    try:
        return sync.run()
    finally:
        sync.close()


class ProjectSync:
    """A project of Label Studio and its campaign; keeps the model in memory between syncs."""

    def __init__(
        self,
        client: LabelStudioClient,
        number: int,
        home: Path | None = None,
        *,
        options: SyncOptions | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._client, self._number = client, number
        home = home or Path(f"label-studio-{number}")
        self.home = home.with_name(home.name.removesuffix(SUFFIX) + SUFFIX)
        self._options, self._progress = options or SyncOptions(), progress
        self._runner: CampaignRunner | None = None

    def run(self, only: Sequence[int] | None = None) -> SyncResult:
        """Synchronize once.

        With ``only``, only the annotations of these tasks are read.
        """
        server = self._client.read_project(self._number)
        layout = read_layout(str(server["label_config"]))
        folder, exists = make_task_folder_path(self.home), self.home.exists()
        if exists:
            TaskFolder.open(folder)  # rejects other campaigns before a file is created
        with lock_tasks(folder):
            facts = LabelStudioProject(self._client.url, self._number, layout.kind, layout.field)
            tasks = TaskFolder.open(folder) if exists else TaskFolder.create(folder, facts)
            tasks.check_project(facts)
            result = SyncResult(self.home, str(server.get("title", "")), layout.kind)
            run = _SyncRun(
                self._client, self._options, server, layout, tasks, result, self._progress
            )
            if self._runner is None:
                project = Project.open(self.home) if exists else run.start_campaign(self.home)
                self._runner = CampaignRunner(project, progress=self._progress, train_first=True)
            if exists:
                run.add_new_tasks(self._runner.project)
                run.update_settings(self._runner.record)
            run.exchange_votes(self._runner, only)
            return result

    def close(self) -> None:
        """Close the record."""
        if self._runner is not None:
            self._runner.project.storage().close()
            self._runner = None


@dataclass
class _SyncRun:
    """One run of a sync: the state of the project, and the steps."""

    client: LabelStudioClient
    options: SyncOptions
    server: JsonObject  # the project as the server describes it
    layout: ProjectLayout
    tasks: TaskFolder
    result: SyncResult
    progress: Progress | None

    @property
    def number(self) -> int:
        """Number of the project."""
        return self.tasks.facts.project

    def start_campaign(self, home: Path) -> Project:
        """Download all tasks and create a campaign; tasks stored already are kept."""
        options, tasks = self.options, self.tasks
        new = list(self.client.list_tasks_after(self.number, 0))
        tasks.add_tasks(self.client, new, skip_broken=options.skip_broken, progress=self.progress)
        if not tasks.list_stored_tasks():
            why = "none of its tasks can be used" if new else "it has no tasks"
            raise BadInput(f"project {self.number} cannot be labelled: {why}; import some there")
        project = Project.start(
            tasks.source,
            home=home,
            name=home.name.removesuffix(SUFFIX),
            classes=self.layout.classes,
            text="text" if self.layout.kind == "texts" else None,
            strategy=options.strategy,
            batch=options.batch or 50,
            overlap=count_annotators_per_task(self.server),
            rolling=False,  # every new order is written to the server
            skip_broken=options.skip_broken,
            progress=self.progress,
        )
        assert project.ingested is not None
        tasks.drop_images(project.ingested.broken)
        self.result.started, self.result.new = True, len(project.items)
        return project

    def add_new_tasks(self, project: Project) -> None:
        """Add tasks with higher numbers than those of the campaign, which gets all or none."""
        skip, tasks = self.options.skip_broken, self.tasks
        left_out, gone = tasks.facts.left_out, tasks.facts.gone
        last = max([*tasks.index_tasks(project.items).tasks, *left_out, *gone])
        new = list(self.client.list_tasks_after(self.number, last))
        if skip and left_out:  # try the tasks again that were left out before
            again = [task for task in left_out if task not in gone]
            new = self.client.export_tasks(self.number, again) + new
        if new:
            tasks.add_tasks(self.client, new, skip_broken=skip, progress=self.progress)
        if len(tasks.list_stored_tasks()) > len(project.items):
            ingested = project.refresh(skip_broken=skip, progress=self.progress)
            tasks.drop_images(ingested.broken)
            self.result.new = ingested.new

    def update_settings(self, record: CampaignRecord) -> None:
        """Take over classes and overlap from the project, and the options."""
        now = record.settings
        classes = now.classes or ()
        known = {str(name) for name in classes}
        wanted: JsonObject = {
            "classes": (*classes, *(name for name in self.layout.classes if name not in known)),
            "overlap": count_annotators_per_task(self.server),
            "strategy": self.options.strategy or now.strategy,
            "batch": self.options.batch or now.batch,
        }
        different = {name: value for name, value in wanted.items() if getattr(now, name) != value}
        if different:
            record.change(**different)

    def exchange_votes(self, runner: CampaignRunner, only: Sequence[int] | None) -> None:
        """Import deletions and votes, train and select, and write the order."""
        index = self.tasks.index_tasks(runner.project.items)
        imported = ImportedVotes(self.tasks.folder)
        self._remove_deleted_tasks(runner.record, index, imported)
        self._import_votes(runner.record, index, imported, only)
        _run_campaign_steps(runner, self.result)
        self._write_order(runner.record, index)
        self.result.left_out = len(self.tasks.facts.left_out)

    def _remove_deleted_tasks(
        self, record: CampaignRecord, index: TaskIndex, imported: ImportedVotes
    ) -> None:
        """Remove items whose tasks were deleted; tasks are listed only if their number differs."""
        facts = self.tasks.facts
        known = (index.items.keys() | facts.left_out.keys()) - set(facts.gone)
        if self.server.get("task_number") == len(known):
            return
        present = self.client.list_tasks_after(self.number, 0, data=False)
        gone = sorted(known - {int(task["id"]) for task in present})
        if not gone:
            return
        items = [index.items[task] for task in gone if task in index.items]
        self.result.words += import_votes(record, dict.fromkeys(items), imported)
        self.result.gone = len(gone)
        self.tasks.save_facts(replace(facts, gone=(*facts.gone, *gone)))

    def _import_votes(
        self,
        record: CampaignRecord,
        index: TaskIndex,
        imported: ImportedVotes,
        only: Sequence[int] | None,
    ) -> None:
        if only is not None:
            only = [task for task in only if task in index.items]
        people = self.client.list_users()
        # Earlier votes are withdrawn unless they are still listed.
        votes = {} if only is not None else dict.fromkeys(imported.items, TaskVotes())
        for task in self.client.export_tasks(self.number, only):
            item = index.items.get(int(task["id"]))
            if item is not None:
                votes[item] = read_annotations(task.get("annotations") or (), self.layout, people)
                self.result.unread.update(votes[item].unread)
        for gone in self.tasks.facts.gone:
            votes.pop(index.items.get(gone, -1), None)
        self.result.words += import_votes(record, votes, imported)
        if self.result.unread:
            some = ", ".join(f"{count} with {why}" for why, count in self.result.unread.items())
            words = f"some annotations are not labels and were ignored: {some}"
            warnings.warn(words, LabelwiseWarning, stacklevel=3)

    def _write_order(self, record: CampaignRecord, index: TaskIndex) -> None:
        """Make the project serve all open tasks in the order of picking, unless it does already."""
        client, folder, result = self.client, self.tasks.folder, self.result
        waiting = record.look(lambda ledger: list(ledger.waiting))
        wanted = tuple(index.tasks[item] for item in waiting)
        order, guesses = ServingOrder.load(folder), self.options.guesses
        result.waiting, result.version = len(wanted), order.version
        if not wanted:
            return
        versions = client.count_predictions(self.number)
        whole = order.done and versions.get(order.version, 0) == len(order.tasks)
        if whole and order.guesses == guesses and order.serves_tasks(wanted):
            result.written = self._use_order(order)
            return
        if not order.done and order.version in versions:  # an interruption left a part of it
            path = f"/api/projects/{self.number}/model-versions/"
            client.request("DELETE", path, {"model_version": order.version}, timeout=BULK_TIMEOUT)
        number = max(order.number, find_newest_version(versions)) + 1
        order = ServingOrder(number, wanted, guesses, done=False)
        order.save(folder)
        found = record.look(lambda ledger: find_task_guesses(ledger, waiting)) if guesses else {}
        predictions = [
            make_prediction(
                task, order.score_task(task), order.version, self.layout, found.get(item)
            )
            for task, item in zip(wanted, waiting, strict=True)
        ]
        client.add_predictions(self.number, predictions)
        self._use_order(order)
        replace(order, done=True).save(folder)
        result.version, result.written = order.version, True

    def _use_order(self, order: ServingOrder) -> bool:
        """Make the project serve an order; return whether that was a change."""
        wanted = {"model_version": order.version, "sampling": QUEUE}
        different = {name: v for name, v in wanted.items() if self.server.get(name) != v}
        if different:
            self.client.request("PATCH", f"/api/projects/{self.number}/", different)
        return bool(different)


def _run_campaign_steps(runner: CampaignRunner, result: SyncResult) -> None:
    """Train and select when it is time to; an error does not stop the sync."""
    runner.stuck_batches = None
    runner.record_lost_training()
    try:
        while (step := runner.choose_step()) and (done := runner.run_step(step)) is not None:
            if isinstance(done, Trained):
                result.trained.append(done)
            else:
                result.asked.append(int(done.info["batch"]))
    except Conflict:  # another process does it; the next sync writes its order
        return
    except Exception as error:
        result.failure = error


def find_task_guesses(ledger: Ledger, items: Sequence[int]) -> dict[int, tuple[Label, float]]:
    """Find the model's prediction and confidence for items when they were picked."""
    picks = {item: ledger.pick_of(item) for item in items}
    found = {item: pick and pick.entry(pick.asked.guesses) for item, pick in picks.items()}
    return {item: guess for item, guess in found.items() if guess is not None}


def count_annotators_per_task(server: JsonObject) -> int:
    """Read how many annotators a project wants for each task.

    >>> count_annotators_per_task({"maximum_annotations": 3, "overlap_cohort_percentage": 100})
    3
    """
    most, share = server.get("maximum_annotations"), server.get("overlap_cohort_percentage", 100)
    return int(most) if isinstance(most, int) and most > 1 and share == 100 else 1


def make_task_folder_path(home: Path) -> Path:
    """Make the path of the tasks that belong to a campaign folder.

    >>> str(make_task_folder_path(Path("reviews.labelwise")))
    'reviews.tasks'
    """
    return home.with_name(home.name.removesuffix(SUFFIX) + ".tasks")
