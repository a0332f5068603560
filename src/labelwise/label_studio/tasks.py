"""The tasks of a Label Studio project as the items of a campaign.

Everything is in one folder beside the campaign's: the pictures as ``TASK.png`` and the like, or
the texts in ``tasks.jsonl`` with a line per task, which are the campaign's source; and what must be
remembered of the project. The number of a task is in the name of its file or in its line, so that
it can always be told which item a task is: `Tasks.items`.

Tasks come in by their numbers, which Label Studio only ever counts up: what is new is what has a
higher number than all before. Whether some were deleted is told by their count.
"""

import dataclasses
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.label_studio.client import Client
from labelwise.label_studio.order import read_json, write_json
from labelwise.pool.blocks import Progress

FACTS, TEXTS, LOCK = ".label_studio.json", "tasks.jsonl", ".lock"
FORMAT = 1
AT_ONCE = 8
"""So many pictures are fetched at a time."""

_HEADS = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
)


@dataclass(frozen=True)
class Facts:
    """What is remembered of a project.

    Attributes:
        url: Of the server, without name or password.
        project: Its number.
        kind: ``"images"`` or ``"texts"``.
        field: Where a task's data holds the picture or text.
        left_out: Tasks that cannot be items, with the reason.
        gone: Tasks that were deleted.
    """

    url: str
    project: int
    kind: str
    field: str
    left_out: Mapping[int, str] = dataclasses.field(default_factory=dict)
    gone: tuple[int, ...] = ()


class Tasks:
    """The folder of a project's tasks.

    Attributes:
        folder: Beside the campaign's.
        facts: What is remembered.
    """

    def __init__(self, folder: Path, facts: Facts) -> None:
        """Use `open` or `make`."""
        self.folder, self.facts = folder, facts

    @classmethod
    def open(cls, folder: Path) -> "Tasks":
        """The tasks in a folder."""
        path = folder / FACTS
        if not path.is_file():
            raise BadInput(
                f"{folder} does not come from Label Studio; leave out --campaign to make a "
                "campaign of its own, or give the folder of one that label-studio sync made"
            )
        held = read_json(path)
        try:
            number = held.pop("format")
            held["left_out"] = {int(task): why for task, why in held["left_out"].items()}
            held["gone"] = tuple(held["gone"])
            if number <= FORMAT:
                return cls(folder, Facts(**held))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"{path} is damaged ({error})") from None
        raise BadInput(f"{path} was written by a newer labelwise (format {number}); update it")

    @classmethod
    def make(cls, folder: Path, facts: Facts) -> "Tasks":
        """The tasks in a folder that may be new, or left by an interrupted start."""
        others = [name for name in os.listdir(folder) if name != LOCK]
        if others and FACTS not in others:
            raise BadInput(f"{folder} is there and not empty; give another --campaign")
        made = cls(folder, facts)
        if (folder / FACTS).is_file():
            made = cls.open(folder)
            made.check(facts)
        made.remember(facts=made.facts)
        return made

    def check(self, wanted: Facts) -> None:
        """Refuse another project, or one whose tasks are of another kind now."""
        mine = (self.facts.url, self.facts.project)
        if mine != (wanted.url, wanted.project):
            raise BadInput(
                f"{self.folder} belongs to project {mine[1]} of {mine[0]}, not to project "
                f"{wanted.project} of {wanted.url}; give another --campaign"
            )
        if (self.facts.kind, self.facts.field) != (wanted.kind, wanted.field):
            raise BadInput(
                f"the project showed {self.facts.kind} in ${self.facts.field}, and now "
                f"{wanted.kind} in ${wanted.field}; start a campaign of its own (--campaign)"
            )

    def remember(self, *, facts: Facts) -> None:
        """Keep what is known of the project."""
        self.facts = facts
        held = {"format": FORMAT, **asdict(facts)}
        write_json(self.folder / FACTS, held)

    @property
    def source(self) -> Path:
        """What the campaign is started from."""
        return self.folder if self.facts.kind == "images" else self.folder / TEXTS

    def here(self) -> list[int]:
        """The tasks whose pictures or texts are here, in no order."""
        if self.facts.kind == "images":
            stems = (Path(name).stem for name in os.listdir(self.folder) if name[0] != ".")
            return [int(stem) for stem in stems if stem.isdecimal()]
        if not self.source.exists():
            return []
        with self.source.open("rb") as lines:
            return [int(json.loads(line)["task"]) for line in lines]

    def of_items(self, items: Any) -> list[int]:
        """The task of every item, by the item's id.

        Args:
            items: A `labelwise.campaign.folder.items.Items`.
        """
        if self.facts.kind == "images":
            return [int(Path(items.entry(item)["path"]).stem) for item in items]
        found = self.here()
        if len(found) < len(items):
            raise BadInput(
                f"{self.source} has {len(found)} lines for {len(items)} items; restore it"
            )
        return found[: len(items)]

    def add(
        self,
        client: Client,
        new: Sequence[Mapping[str, Any]],
        *,
        skip_broken: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Bring in the pictures or texts of tasks.

        What is here already is not fetched again, so that an interrupted call goes on where it was.

        Args:
            client: Of the server.
            new: Tasks, with ``id`` and ``data``.
            skip_broken: Leave out what cannot be used, in place of refusing all.
            progress: Called as ``progress(stage, done, total)``.
        """
        known = set(self.here())
        wanted = {int(task["id"]): task for task in new if int(task["id"]) not in known}
        if self.facts.kind == "images":
            broken = self._add_pictures(client, wanted, progress)
        else:
            broken = self._add_texts(wanted, skip_broken)
        if broken:
            _refuse(broken, len(wanted), skip_broken)
        self.leave_out(broken, back=wanted.keys() - broken.keys())

    def leave_out(self, broken: Mapping[int, str], back: Iterable[int] = ()) -> None:
        """Remember tasks that cannot be used, and forget it of others."""
        left = {task: why for task, why in self.facts.left_out.items() if task not in set(back)}
        left |= broken
        if left != self.facts.left_out:
            self.remember(facts=replace(self.facts, left_out=left))

    def drop_pictures(self, broken: Mapping[str, str]) -> None:
        """Leave out pictures that turned out to be none, by the names of their files."""
        self.leave_out({int(Path(name).stem): why for name, why in broken.items()})
        for name in broken:
            (self.folder / name).unlink(missing_ok=True)

    def _add_pictures(
        self,
        client: Client,
        tasks: Mapping[int, Mapping[str, Any]],
        progress: Progress | None,
    ) -> dict[int, str]:
        broken: dict[int, str] = {}

        def one(number: int) -> str:
            try:
                body = client.fetch(_value(tasks[number], self.facts.field), task=number)
                name = f"{number:010d}{ending(body)}"
            except BadInput as error:
                return str(error)
            partial = self.folder / f".{name}.partial"
            partial.write_bytes(body)
            partial.replace(self.folder / name)
            return ""

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                for done, (number, wrong) in enumerate(
                    zip(tasks, pool.map(one, tasks), strict=True)
                ):
                    if wrong:
                        broken[number] = wrong
                    if progress is not None:
                        progress("fetching pictures", done + 1, len(tasks))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return broken

    def _add_texts(
        self, tasks: Mapping[int, Mapping[str, Any]], skip_broken: bool
    ) -> dict[int, str]:
        broken, lines = {}, []
        for number, task in tasks.items():
            try:
                text = _value(task, self.facts.field).strip()
                if not text:
                    raise BadInput("an empty text")
                lines.append(json.dumps({"task": number, "text": text}).encode() + b"\n")
            except BadInput as error:
                broken[number] = str(error)
        if lines and (skip_broken or not broken):
            before = self.source.read_bytes() if self.source.exists() else b""
            partial = self.folder / f".{TEXTS}.partial"
            partial.write_bytes(before + b"".join(lines))
            partial.replace(self.source)
        return broken


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep the folder, which is made if it is not there, from any other process meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        _lock(file, folder)
        yield


def _lock(file: Any, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows; there, it is up to the user
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        words = f"another sync works on {folder}; waiting for it"
        warnings.warn(words, LabelwiseWarning, stacklevel=4)
        fcntl.flock(file, fcntl.LOCK_EX)


def ending(body: bytes) -> str:
    """The ending that belongs to a picture, by its first bytes.

    Example:
        >>> ending(b"GIF89a...")
        '.gif'
    """
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return ".webp"
    for head, name in _HEADS:
        if body.startswith(head):
            return name
    raise BadInput("it is no picture (.png, .jpg, .gif, .bmp, .tif or .webp)")


def _value(task: Mapping[str, Any], name: str) -> str:
    data = task.get("data")
    value = data.get(name) if isinstance(data, Mapping) else None
    if value is None:
        raise BadInput(f"its data has no {name!r}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{name!r} in its data is no text")
    return str(value)


def _refuse(broken: Mapping[int, str], total: int, skip: bool) -> None:
    if skip:
        return
    some = "; ".join(f"task {task}: {why}" for task, why in list(broken.items())[:3])
    more = f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
    raise BadInput(
        f"{len(broken):,} of {total:,} tasks cannot be used ({some}{more}); mend or delete them "
        "there, or leave them out with --skip-broken"
    )
