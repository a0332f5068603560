"""Tasks of Label Studio into a campaign: the first ones, new ones, and those that were deleted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelwise.campaign.project import SUFFIX, Project
from labelwise.errors import BadInput
from labelwise.label_studio.follow import Owned, forget
from labelwise.label_studio.visit import Places, Visit


def start(visit: Visit) -> Project:
    """Fetch all tasks and make a campaign of them.

    What an interrupted start has fetched is not fetched again.
    """
    wishes, layout, tasks = visit.wishes, visit.layout, visit.tasks
    new = list(visit.client.tasks_after(visit.number, 0))
    tasks.add(visit.client, new, skip_broken=wishes.skip_broken, progress=visit.progress)
    if not tasks.here():
        why = "none of its tasks can be used" if new else "it has no tasks"
        raise BadInput(f"project {visit.number} cannot be labelled: {why}; import some there")
    project = Project.start(
        tasks.source,
        home=visit.home,
        name=visit.home.name.removesuffix(SUFFIX),
        classes=layout.classes,
        text="text" if layout.kind == "texts" else None,
        strategy=wishes.strategy,
        batch=wishes.batch or 50,
        overlap=people_per_task(visit.held),
        skip_broken=wishes.skip_broken,
        progress=visit.progress,
    )
    assert project.ingested is not None
    tasks.drop_pictures(project.ingested.broken)
    visit.done.started, visit.done.new = True, len(project.items)
    return project


def grow(visit: Visit, project: Project) -> None:
    """Add tasks that are new since the last time.

    Numbers only grow; the last one is taken from the campaign, which gets all new tasks or none.
    """
    tasks, skip = visit.tasks, visit.wishes.skip_broken
    left = tasks.facts.left_out
    last = max([*tasks.of_items(project.items), *left, *tasks.facts.gone])
    new = list(visit.client.tasks_after(visit.number, last))
    if skip and left:  # whoever leaves tasks out now has those of before tried again
        again = [task for task in left if task not in tasks.facts.gone]
        new = visit.client.annotated(visit.number, again) + new
    if new:
        tasks.add(visit.client, new, skip_broken=skip, progress=visit.progress)
    if len(tasks.here()) > len(project.items):
        ingested = project.refresh(skip_broken=skip, progress=visit.progress)
        tasks.drop_pictures(ingested.broken)
        visit.done.new = ingested.new


def keep_settings(visit: Visit, project: Project) -> None:
    """Take over what was changed there, and what is wished for now."""
    desk = project.desk()
    now = desk.settings
    classes = now.classes or ()
    known = {str(name) for name in classes}
    wanted: dict[str, Any] = {
        "classes": (*classes, *(name for name in visit.layout.classes if name not in known)),
        "overlap": people_per_task(visit.held),
        "strategy": visit.wishes.strategy or now.strategy,
        "batch": visit.wishes.batch or now.batch,
    }
    different = {name: value for name, value in wanted.items() if getattr(now, name) != value}
    if different:
        desk.change(**different)


def forget_deleted(visit: Visit, places: Places, desk: Any, owned: Owned) -> None:
    """Take out items whose tasks are gone; all numbers are listed only if some are missing."""
    facts = visit.tasks.facts
    known = (places.items.keys() | facts.left_out.keys()) - set(facts.gone)
    if visit.held.get("task_number") == len(known):
        return
    there = visit.client.tasks_after(visit.number, 0, data=False)
    gone = sorted(known - {int(task["id"]) for task in there})
    if not gone:
        return
    items = [places.items[task] for task in gone if task in places.items]
    visit.done.words += forget(desk, items, owned)
    visit.done.gone = len(gone)
    visit.tasks.remember(facts=replace(facts, gone=(*facts.gone, *gone)))


def people_per_task(held: Mapping[str, Any]) -> int:
    """How many people a project wants to label each task.

    >>> people_per_task({"maximum_annotations": 3, "overlap_cohort_percentage": 100})
    3
    """
    most, share = held.get("maximum_annotations"), held.get("overlap_cohort_percentage", 100)
    return int(most) if isinstance(most, int) and most > 1 and share == 100 else 1
