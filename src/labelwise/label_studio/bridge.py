"""One sync of a campaign here with a project of Label Studio: the bridge between them.

A project there becomes a campaign here, whose items are its tasks. `sync` brings in new tasks and
what people said, trains and chooses when it is time to, and writes back the order of the picks, so
that *Uncertainty sampling* serves them in that order. It may be called at any time and as often as
one likes: without news it changes nothing, and after an interruption it goes on where it was.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelwise.campaign.project import Project
from labelwise.campaign.runner import CampaignRunner
from labelwise.errors import Conflict, LabelwiseWarning
from labelwise.label_studio import intake
from labelwise.label_studio.client import Client
from labelwise.label_studio.follow import Owned, follow
from labelwise.label_studio.formats import (
    Layout,
    Said,
    prediction,
    read_annotations,
    read_layout,
)
from labelwise.label_studio.order import Order, newest
from labelwise.label_studio.tasks import Facts, Tasks, one_at_a_time
from labelwise.label_studio.visit import (
    Places,
    Synced,
    Visit,
    Wishes,
    campaign_folder,
    tasks_folder,
)
from labelwise.pool.blocks import Progress
from labelwise.record.events import Trained
from labelwise.record.ledger import Ledger

QUEUE = "Uncertainty sampling"
"""The queue that serves the lowest score first."""


def sync(
    client: Client,
    number: int,
    *,
    home: Path | None = None,
    wishes: Wishes | None = None,
    progress: Progress | None = None,
) -> Synced:
    """Bring a campaign and a project of Label Studio up to date with each other, once.

    Args:
        client: Of the server.
        number: Of the project.
        home: The campaign's folder, which is made if it is not there; ``label-studio-NUMBER`` in
            the current folder if None.
        wishes: How.
        progress: Called as ``progress(stage, done, total)``.
    """
    bridge = Bridge(client, number, home, wishes=wishes, progress=progress)
    try:
        return bridge.sync()
    finally:
        bridge.close()


class Bridge:
    """A project of Label Studio and the campaign that belongs to it; keeps the model at hand.

    Args:
        client: Of the server.
        number: Of the project.
        home: The campaign's folder, as for `sync`.
        wishes: How to sync.
        progress: Called as ``progress(stage, done, total)``.
    """

    def __init__(
        self,
        client: Client,
        number: int,
        home: Path | None = None,
        *,
        wishes: Wishes | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._client, self._number = client, number
        self.home = campaign_folder(home or Path(f"label-studio-{number}"))
        self._wishes, self._progress = wishes or Wishes(), progress
        self._project: Project | None = None
        self._runner: CampaignRunner | None = None

    def sync(self, only: Sequence[int] | None = None) -> Synced:
        """Bring both up to date with each other.

        Args:
            only: Look at the annotations of these tasks alone; at all of them if None.
        """
        held = self._client.project(self._number)
        layout = read_layout(str(held["label_config"]))
        folder = tasks_folder(self.home)
        if self.home.exists():
            Tasks.open(folder)  # before anything is made beside a campaign of another kind
        with one_at_a_time(folder):
            return self._sync(self._visit(held, layout), only)

    def _sync(self, visit: Visit, only: Sequence[int] | None) -> Synced:
        project = self._intake(visit)
        places, owned = Places.of(visit.tasks, project), Owned(visit.tasks.folder)
        desk = project.desk()
        intake.forget_deleted(visit, places, desk, owned)
        pull(visit, places, desk, owned, only)
        self._advance(visit, project)
        write_order(visit, places, desk)
        visit.done.left_out = len(visit.tasks.facts.left_out)
        return visit.done

    def close(self) -> None:
        """Let go of the record."""
        if self._project is not None:
            self._project.storage().close()
            self._project = self._runner = None

    def _visit(self, held: dict[str, Any], layout: Layout) -> Visit:
        facts = Facts(self._client.url, self._number, layout.kind, layout.field)
        folder = tasks_folder(self.home)
        if self.home.exists():
            tasks = Tasks.open(folder)
            tasks.check(facts)
        else:
            tasks = Tasks.make(folder, facts)
        done = Synced(self.home, str(held.get("title", "")), layout.kind)
        return Visit(
            self._client,
            self._number,
            held,
            layout,
            self._wishes,
            self.home,
            tasks,
            done,
            self._progress,
        )

    def _intake(self, visit: Visit) -> Project:
        if not self.home.exists():
            self._project = intake.start(visit)
        else:
            self._project = self._project or Project.open(self.home)
            intake.grow(visit, self._project)
            intake.keep_settings(visit, self._project)
        return self._project

    def _advance(self, visit: Visit, project: Project) -> None:
        """Train and select batches when they are due; a failure is reported with the sync."""
        if self._runner is None:
            self._runner = CampaignRunner(project, progress=self._progress, train_first=True)
        self._runner.stuck_batches = None
        self._runner.record_lost_training()
        try:
            while step := self._runner.choose_step():
                result = self._runner.run_step(step)
                if result is None:
                    return
                if isinstance(result, Trained):
                    visit.done.trained.append(result)
                else:
                    visit.done.asked.append(int(result.info["batch"]))
        except Conflict:  # another process does the step; its result is written next time
            return
        except Exception as error:
            visit.done.failure = error


def pull(
    visit: Visit, places: Places, desk: Any, owned: Owned, only: Sequence[int] | None = None
) -> None:
    """What people said there into the record."""
    if only is not None:
        only = [task for task in only if task in places.items]
    people = visit.client.people()
    # All that was said before is taken back, unless it is still among what is listed.
    said = {} if only is not None else dict.fromkeys(owned.items, Said())
    for task in visit.client.annotated(visit.number, only):
        item = places.items.get(int(task["id"]))
        if item is not None:
            said[item] = read_annotations(task.get("annotations") or (), visit.layout, people)
            visit.done.unread.update(said[item].unread)
    for gone in visit.tasks.facts.gone:
        said.pop(places.items.get(gone, -1), None)
    visit.done.words += follow(desk, said, owned)
    if visit.done.unread:
        some = ", ".join(f"{count} with {why}" for why, count in visit.done.unread.items())
        warnings.warn(
            f"some annotations are no labels and were left alone: {some}",
            LabelwiseWarning,
            stacklevel=3,
        )


def write_order(visit: Visit, places: Places, desk: Any) -> None:
    """Have the project serve all that waits in the order of picking, unless it does already."""
    waiting = desk.look(lambda ledger: list(ledger.waiting))
    wanted = tuple(places.tasks[item] for item in waiting)
    order, guesses = Order.read(visit.tasks.folder), visit.wishes.guesses
    visit.done.waiting, visit.done.version = len(wanted), order.version
    if not wanted:
        return
    versions = visit.client.versions(visit.number)
    whole = order.done and versions.get(order.version, 0) == len(order.tasks)
    if whole and order.guesses == guesses and order.serves(wanted):
        _use(visit, order)
        return
    if not order.done and order.version in versions:  # an interruption left half of it
        path = f"/api/projects/{visit.number}/model-versions/"
        visit.client.delete(path, {"model_version": order.version})
    number = max(order.number, newest(versions)) + 1
    order = Order(number, wanted, guesses, done=False)
    order.write(visit.tasks.folder)
    found = desk.look(lambda ledger: guesses_of(ledger, waiting)) if guesses else {}
    visit.client.add_predictions(
        visit.number,
        [
            prediction(task, order.score(task), order.version, visit.layout, found.get(item))
            for task, item in zip(wanted, waiting, strict=True)
        ],
    )
    _use(visit, order)
    replace(order, done=True).write(visit.tasks.folder)
    visit.done.version, visit.done.written = order.version, True


def _use(visit: Visit, order: Order) -> None:
    """Have the project serve an order."""
    wanted = {"model_version": order.version, "sampling": QUEUE}
    different = {name: value for name, value in wanted.items() if visit.held.get(name) != value}
    if different:
        visit.client.patch(f"/api/projects/{visit.number}/", different)
        visit.done.written = True


def guesses_of(ledger: Ledger, items: Sequence[int]) -> dict[int, tuple[Any, float]]:
    """What the model took items for when it chose them, and how sure it was."""
    found = {}
    for item in items:
        number, rank = ledger.batch_of(item), ledger.rank_of(item)
        if number is not None and rank is not None:
            guesses = ledger.batches[number - 1].asked.guesses
            if guesses is not None and rank < len(guesses):
                found[item] = guesses[rank]
    return found
