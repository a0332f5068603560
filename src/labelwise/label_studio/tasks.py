r"""Tasks of a Label Studio project as items of a campaign, and the order in which they are served.

Everything is in one folder next to the campaign: the images as ``TASK.png`` etc., or the texts in
``tasks.jsonl`` with a line per task, which are the data of the campaign; and the facts about the
project. The number of a task is in the name of its file or in its line.

Label Studio numbers tasks in ascending order: new tasks have higher numbers than all others.
Deleted tasks are detected by the number of tasks.

The queue "Uncertainty sampling" serves the task with the lowest score first, among those with a
prediction of the project's model version. So pick :math:`r` of :math:`n` gets the score
:math:`r / 2n`, from 0 to below a half. Tasks that were not picked come later, the least confident
first: :math:`(1 + c) / 2` for a confidence :math:`c`. A version is written once and never changed;
a new one is needed only for a task that is missing in it, or for another order.
"""

import dataclasses
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import JsonObject, lock_file, read_json, write_atomically, write_json
from labelwise.label_studio.client import LabelStudioClient
from labelwise.pool.blocks import Progress

if TYPE_CHECKING:
    from labelwise.campaign.folder.items import CampaignItems

FACTS, TEXTS, LOCK, ORDER = ".label_studio.json", "tasks.jsonl", ".lock", ".order.json"
FORMAT = 1
PARALLEL_DOWNLOADS = 8
VERSION_PREFIX = "labelwise-"

_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
)


@dataclass(frozen=True)
class LabelStudioProject:
    """Facts about a project that are stored with its tasks."""

    url: str  # Address of the server, without name or password
    project: int  # Number of the project
    kind: str  # ``"images"`` or ``"texts"``
    field: str  # Field of a task's data with the image or text
    # Tasks that cannot be used, with the reason
    left_out: Mapping[int, str] = dataclasses.field(default_factory=dict)
    gone: tuple[int, ...] = ()  # Deleted tasks


class TaskFolder:
    """The folder with the tasks of a project.

    Attributes:
        folder: Path of the folder.
        facts: Facts about the project.
    """

    def __init__(self, folder: Path, facts: LabelStudioProject) -> None:
        """Use `open` or `create`."""
        self.folder, self.facts = folder, facts

    @classmethod
    def open(cls, folder: Path) -> "TaskFolder":
        """Open an existing folder."""
        path = folder / FACTS
        if not path.is_file():
            raise BadInput(
                f"{folder} does not come from Label Studio; leave out --campaign to create a "
                "new campaign, or give the folder of one that label-studio sync created"
            )
        stored = read_json(path)
        try:
            number = stored.pop("format")
            stored["left_out"] = {int(task): why for task, why in stored["left_out"].items()}
            stored["gone"] = tuple(stored["gone"])
            if number <= FORMAT:
                return cls(folder, LabelStudioProject(**stored))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"{path} is damaged ({error}); restore it from a backup") from None
        raise BadInput(f"{path} was written by a newer labelwise (format {number}); update it")

    @classmethod
    def create(cls, folder: Path, facts: LabelStudioProject) -> "TaskFolder":
        """Create the files of a new folder, or of one that an interrupted start left."""
        others = [name for name in os.listdir(folder) if name != LOCK]
        if others and FACTS not in others:
            raise BadInput(f"{folder} exists and is not empty; give another --campaign")
        if FACTS in others:
            found = cls.open(folder)
            found.check_project(facts)
            return found
        found = cls(folder, facts)
        found.save_facts(facts)
        return found

    def check_project(self, wanted: LabelStudioProject) -> None:
        """Reject another project, or one whose tasks have changed their kind."""
        mine = (self.facts.url, self.facts.project)
        if mine != (wanted.url, wanted.project):
            raise BadInput(
                f"{self.folder} belongs to project {mine[1]} of {mine[0]}, not to project "
                f"{wanted.project} of {wanted.url}; give another --campaign"
            )
        if (self.facts.kind, self.facts.field) != (wanted.kind, wanted.field):
            raise BadInput(
                f"the project showed {self.facts.kind} in ${self.facts.field}, and now "
                f"{wanted.kind} in ${wanted.field}; start another campaign (--campaign)"
            )

    def save_facts(self, facts: LabelStudioProject) -> None:
        """Store the facts about the project."""
        self.facts = facts
        write_json(self.folder / FACTS, {"format": FORMAT, **asdict(facts)}, durable=True)

    @property
    def source(self) -> Path:
        """Folder or file with the data of the campaign."""
        return self.folder if self.facts.kind == "images" else self.folder / TEXTS

    def list_stored_tasks(self) -> list[int]:
        """List the tasks whose images (unordered) or texts (in order) are stored."""
        if self.facts.kind == "images":
            stems = (Path(name).stem for name in os.listdir(self.folder) if name[0] != ".")
            return [int(stem) for stem in stems if stem.isdecimal()]
        if not self.source.exists():
            return []
        with self.source.open("rb") as lines:
            return [int(json.loads(line)["task"]) for line in lines]

    def index_tasks(self, items: "CampaignItems") -> "TaskIndex":
        """Match the items of the campaign with tasks."""
        if self.facts.kind == "images":
            found = [int(Path(items.entry(item)["path"]).stem) for item in items]
        else:
            found = self.list_stored_tasks()
            if len(found) < len(items):
                raise BadInput(
                    f"{self.source} has {len(found)} lines for {len(items)} items; restore it"
                )
            found = found[: len(items)]
        return TaskIndex(found, {task: item for item, task in enumerate(found)})

    def add_tasks(
        self,
        client: LabelStudioClient,
        new: Sequence[JsonObject],
        *,
        skip_broken: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Store the images or texts of tasks.

        Stored tasks are not downloaded again, so that an interrupted call can be continued.
        """
        stored = set(self.list_stored_tasks())
        wanted = {int(task["id"]): task for task in new if int(task["id"]) not in stored}
        if self.facts.kind == "images":
            broken = self._add_images(client, wanted, progress)
        else:
            broken = self._add_texts(wanted, skip_broken)
        if broken and not skip_broken:
            some = "; ".join(f"task {task}: {why}" for task, why in list(broken.items())[:3])
            more = f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
            raise BadInput(
                f"{len(broken):,} of {len(wanted):,} tasks cannot be used ({some}{more}); fix or "
                "delete them there, or leave them out with --skip-broken"
            )
        self._leave_out_tasks(broken, repaired=wanted.keys() - broken.keys())

    def _leave_out_tasks(self, broken: Mapping[int, str], repaired: Iterable[int] = ()) -> None:
        """Store which tasks cannot be used, and which can be used again."""
        again = set(repaired)
        left = {task: why for task, why in self.facts.left_out.items() if task not in again}
        left |= broken
        if left != self.facts.left_out:
            self.save_facts(replace(self.facts, left_out=left))

    def drop_images(self, broken: Mapping[str, str]) -> None:
        """Delete image files that turned out to be unreadable, and leave out their tasks."""
        self._leave_out_tasks({int(Path(name).stem): why for name, why in broken.items()})
        for name in broken:
            (self.folder / name).unlink(missing_ok=True)

    def _add_images(
        self, client: LabelStudioClient, tasks: Mapping[int, JsonObject], progress: Progress | None
    ) -> dict[int, str]:
        broken: dict[int, str] = {}

        def add_image(number: int) -> str:
            try:
                body = client.download(
                    _get_task_value(tasks[number], self.facts.field), task=number
                )
                name = f"{number:010d}{find_image_suffix(body)}"
            except BadInput as error:
                return str(error)
            with write_atomically(self.folder / name) as part:
                part.write_bytes(body)
            return ""

        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            try:
                results = zip(tasks, pool.map(add_image, tasks), strict=True)
                for done, (number, problem) in enumerate(results, 1):
                    if problem:
                        broken[number] = problem
                    if progress is not None:
                        progress("fetching images", done, len(tasks))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return broken

    def _add_texts(self, tasks: Mapping[int, JsonObject], skip_broken: bool) -> dict[int, str]:
        broken, lines = {}, []
        for number, task in tasks.items():
            try:
                text = _get_task_value(task, self.facts.field).strip()
                if not text:
                    raise BadInput("an empty text")
                lines.append(json.dumps({"task": number, "text": text}).encode() + b"\n")
            except BadInput as error:
                broken[number] = str(error)
        if lines and (skip_broken or not broken):
            before = self.source.read_bytes() if self.source.exists() else b""
            with write_atomically(self.source) as part:
                part.write_bytes(before + b"".join(lines))
        return broken


@dataclass(frozen=True)
class TaskIndex:
    """Tasks and items of a campaign."""

    tasks: Sequence[int] = ()  # Number of the task of every item, by item id
    items: Mapping[int, int] = dataclasses.field(default_factory=dict)  # Item id of every task


@contextmanager
def lock_tasks(folder: Path) -> Iterator[None]:
    """Create a folder if needed, and keep other processes from it."""
    folder.mkdir(parents=True, exist_ok=True)
    with lock_file(folder / LOCK) as held:
        if held:
            yield
            return
    words = f"another sync works on {folder}; waiting for it"
    warnings.warn(words, LabelwiseWarning, stacklevel=3)
    with lock_file(folder / LOCK, wait=True):
        yield


def find_image_suffix(body: bytes) -> str:
    """Find the suffix of an image file by its first bytes.

    Example:
        >>> find_image_suffix(b"GIF89a...")
        '.gif'
    """
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return ".webp"
    for signature, suffix in _IMAGE_SIGNATURES:
        if body.startswith(signature):
            return suffix
    raise BadInput("it is not an image (.png, .jpg, .gif, .bmp, .tif or .webp)")


def _get_task_value(task: JsonObject, name: str) -> str:
    data = task.get("data")
    value = data.get(name) if isinstance(data, Mapping) else None
    if value is None:
        raise BadInput(f"its data has no {name!r}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{name!r} in its data is not a text")
    return str(value)


@dataclass(frozen=True)
class ServingOrder:
    """An order of tasks under a model version.

    Example:
        >>> order = ServingOrder(3, (17, 12, 40))
        >>> order.version, order.score_task(17), order.score_task(40), order.score_task(5)
        ('labelwise-3', 0.0, 0.3333333333333333, 1.0)
    """

    number: int = 0  # Number of the version, from 1
    tasks: tuple[int, ...] = ()  # Tasks in the order in which they are served
    guesses: bool = False  # Whether the predictions contain the model's guesses
    done: bool = True  # Whether all predictions are known to be written

    @property
    def version(self) -> str:
        """Model version; empty before there is an order."""
        return f"{VERSION_PREFIX}{self.number}" if self.number else ""

    def score_task(self, task: int, confidence: float | None = None) -> float:
        """Score a task by its rank; tasks outside of the order come after all others."""
        rank = self._ranks.get(task)
        if rank is not None:
            return rank / (2 * len(self.tasks))
        return 1.0 if confidence is None else (1 + min(max(confidence, 0.0), 1.0)) / 2

    @cached_property
    def _ranks(self) -> dict[int, int]:
        return {task: rank for rank, task in enumerate(self.tasks)}

    def serves_tasks(self, wanted: Sequence[int]) -> bool:
        """Tell whether this order serves the tasks in the given order.

        >>> order = ServingOrder(1, (5, 6, 7))
        >>> order.serves_tasks([5, 7]), order.serves_tasks([7, 5])
        (True, False)
        """
        rest = iter(self.tasks)
        return all(task in rest for task in wanted)

    def save(self, folder: Path) -> None:
        """Store the order in a folder."""
        write_json(folder / ORDER, asdict(self), durable=True)

    @classmethod
    def load(cls, folder: Path) -> "ServingOrder":
        """Load the order in a folder; an empty one if there is none."""
        path = folder / ORDER
        if not path.exists():
            return cls()
        stored = read_json(path)
        try:
            return cls(**{**stored, "tasks": tuple(stored["tasks"])})
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path} is not an order of tasks ({error}); delete it") from None


def find_newest_version(versions: Iterable[str]) -> int:
    """Find the number of the newest of our versions among all of a project.

    >>> find_newest_version(["labelwise-2", "labelwise-10", "bert", "labelwise-x"])
    10
    """
    found = (re.fullmatch(rf"{VERSION_PREFIX}(\d{{1,9}})", version) for version in versions)
    return max((int(match[1]) for match in found if match), default=0)
