"""State shared by all handlers: the campaign, its leases and the background process."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from labelwise.campaign import export
from labelwise.campaign.folder.missing_items import find_missing_items
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.project import Project
from labelwise.campaign.runner import sign_process
from labelwise.errors import BadInput, LabelwiseError
from labelwise.record.events import Event, TrainingFailed
from labelwise.record.ledger import Ledger, replay
from labelwise.record.votes import AnnotatorWork
from labelwise.web import bodies, views
from labelwise.web.background import BackgroundProcess, WorkerReport, build_worker_command
from labelwise.web.errors import log
from labelwise.web.leases import PageLeases, Visitor
from labelwise.web.security import AccessPolicy

REPLACEMENTS = 20  # Maximum number of times that missing items are replaced in one request
MISSING_INTERVAL = 10.0
"""Seconds between two searches for missing files while nothing can be leased."""
STATE_REQUESTS = 3
"""Maximum number of concurrent state requests, so that labels do not wait for them."""


class CampaignSite:
    """The campaign of a server; all persistent state is in the record."""

    def __init__(self, project: Project, policy: AccessPolicy, *, trains: bool = True) -> None:
        """Open the record; `start` starts the background process.

        Args:
            project: The campaign's folder.
            policy: Which requests the server accepts.
            trains: Whether a background process trains and asks for the next batch.
        """
        self.project, self.policy = project, policy
        self.record = project.open_record()
        self.background: BackgroundProcess | None = None
        if trains:
            command = build_worker_command(project.home)
            self.background = BackgroundProcess(command, on_exit=self._record_exit)
        self.watch = StateWatch(self.read_version)
        self.leases = PageLeases()
        self.state_requests = asyncio.Semaphore(STATE_REQUESTS)
        self._next_search = 0.0
        self._state: bodies.State | None = None  # of all requests until the record changes

    def start(self) -> None:
        """Start the background process."""
        if self.background is not None:
            self.background.start()

    def stop(self) -> None:
        """End the background process."""
        if self.background is not None:
            self.background.stop()

    def order_training(self) -> bool:
        """Order a training; False if the background process cannot be reached."""
        if self.background is None:
            raise BadInput("this server does not train; run labelwise train")
        return self.background.send_order("train")

    def add_upload(self, name: str, content: bytes) -> int:
        """Add a file with new items; the background process then adds them to the campaign."""
        count = self.project.add_upload(name, content)
        if self.background is not None:
            self.background.send_order("refresh")
        else:
            self.project.refresh(skip_broken=True)
        return count

    def _record_exit(self, pid: int, error: str) -> None:
        """Record the failure of a training whose process has ended."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            running = ledger.training
            if running is None or running.by != sign_process(pid):
                return [], None
            return [TrainingFailed(now, running.number, error)], None

        try:
            self.record.commit(decide)
        except LabelwiseError as problem:  # the next process checks again
            log.warning("the end of the background process could not be recorded: %s", problem)

    # The state.

    def read_version(self) -> str:
        """Changes with the record and with the reports of the background process."""
        changes = self.background.changes if self.background else 0
        return f"{self.record.storage.length(self.record.name)}.{changes}"

    def read_state(self, by: str | None) -> bodies.State:
        """The progress of the campaign, for one annotator."""
        changes = self.background.changes if self.background else 0
        report = self.background.report if self.background else WorkerReport()

        def read(ledger: Ledger) -> bodies.State:
            if self._state is None or self._state.length != ledger.length:
                self._state = views.show_campaign_state(ledger, self.record.settings_of(ledger))
            if by is None:
                return self._state
            work = ledger.per_annotator.get(by, AnnotatorWork())
            return self._state.model_copy(update={"you": views.show_annotator(by, work)})

        found = self.record.look(read)
        return views.add_worker_report(
            found, report, trains=self.background is not None, version=f"{found.length}.{changes}"
        )

    def commit_events(self, make_events: Callable[[Ledger, float], Sequence[Event]]) -> bodies.Done:
        """Record the events that ``make_events(ledger, now)`` returns."""

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], int]:
            events = make_events(ledger, now)
            return events, ledger.length + len(events)

        return bodies.Done(length=self.record.commit(decide))

    # Items and answers.

    def accept_answers(
        self,
        by: Visitor,
        ids: Collection[int],
        count: int,
        answer: Callable[..., Sequence[Event]] | None = None,
    ) -> bodies.Accepted:
        """Record a page's answers to some items and lease the next ones, in one step.

        ``answer(ledger, settings=settings, now=now)`` gives the events of the answers, or raises.
        """

        def decide(
            ledger: Ledger, now: float
        ) -> tuple[list[Event], tuple[int, list[views.LeasedItem], bool]]:
            settings = self.record.settings_of(ledger)
            events = [] if answer is None else [*answer(ledger, settings=settings, now=now)]
            leases, leased = self.leases.lease_items(
                ledger, settings, by, count, now=now, answered=ids
            )
            events += leases
            picks = [(item, ledger.pick_of(item)) for item in leased]
            waiting = len(ledger.waiting) > len(ids)
            return events, (ledger.length + len(events), picks, waiting)

        length, picks, waiting = self.record.commit(decide)
        items = self._show_leased(by, picks) if waiting and count else []
        return bodies.Accepted(accepted=len(ids), length=length, items=items)

    def _show_leased(self, by: Visitor, leased: Sequence[views.LeasedItem]) -> list[bodies.Item]:
        """Leased items as the page shows them, while any item waits.

        Items whose picture is missing are closed, since their batch would never be complete, and
        replaced. The files are checked outside of the record's lock, because a disk may be slow.
        """
        for _ in range(REPLACEMENTS):
            gone = find_missing_items(self.project.items, [item for item, _ in leased])
            if not gone:
                break
            leased = self._replace_missing(by, gone, len(leased))
        if not leased and time.monotonic() >= self._next_search:
            # Items that wait for other annotators may be missing too.
            self._next_search = time.monotonic() + MISSING_INTERVAL
            if gone := self.project.close_missing(self.record):
                _log_missing_items(gone)
        return [views.show_item(self.project, item, pick) for item, pick in leased]

    def _replace_missing(
        self, by: Visitor, gone: Collection[int], count: int
    ) -> list[views.LeasedItem]:
        _log_missing_items(gone)

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], list[views.LeasedItem]]:
            settings = self.record.settings_of(ledger)
            events, ids = self.leases.replace_missing(ledger, settings, by, gone, count, now)
            return events, [(item, ledger.pick_of(item)) for item in ids]

        return self.record.commit(decide)

    def export_labels(self, format: str, *, spreadsheet: bool = False) -> bytes:
        """All labels as a file, from a ledger of its own, so that no request waits for it."""
        events = self.record.storage.read(self.record.name)
        ledger = replay(events)
        labels = resolve_labels(ledger, self.record.settings_of(ledger))
        rows = export.label_rows(ledger, labels, events, self.project.describe_item)
        export.restore_keys(rows, self.project.items)
        return export.encode_table(f".{format}", export.COLUMNS, rows, spreadsheet=spreadsheet)


def _log_missing_items(gone: Collection[int]) -> None:
    log.warning("closed items whose files are missing: %s", ", ".join(map(str, gone)))


class StateWatch:
    """Lets requests wait for a new version; one look per interval serves all of them.

    The command line, the background process or another server may write to the record.
    """

    def __init__(self, look: Callable[[], str], *, interval: float = 1.0) -> None:
        """``look`` returns the current version and may block for a moment."""
        self._look, self._interval = look, interval
        self._version, self._looked_at = "", -math.inf
        self._closed = asyncio.Event()

    async def wait_for_change(self, seen: str, seconds: float) -> None:
        """Return when the version differs from ``seen``, or after some seconds.

        A look from before the request counts only if it found a later version, which the page
        cannot have. After the next one an earlier version counts too, as after a restart.
        """
        began = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closed.is_set():
                    if time.monotonic() - self._looked_at >= self._interval:
                        self._looked_at = time.monotonic()
                        with suppress(LabelwiseError):  # the requests themselves will report it
                            self._version = await run_in_threadpool(self._look)
                    order = compare_state_versions(self._version, seen) if self._version else 0
                    if order > 0 or (order < 0 and self._looked_at > began):
                        return
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._closed.wait(), self._interval)

    def close(self) -> None:
        """Let all requests continue, so that the server can end. Call it in the event loop."""
        self._closed.set()


def compare_state_versions(version: str, seen: str) -> int:
    """1 if a version is later than the one that a page has seen, -1 if earlier, 0 if equal.

    A version is ``length.changes``; if the page only knows the length, the rest is not compared.

    >>> [compare_state_versions("12.3", seen) for seen in ("12", "12.2", "12.4", "13")]
    [0, 1, -1, -1]
    """
    before = [int(part) for part in seen.split(".")]
    now = [int(part) for part in version.split(".")][: len(before)]
    return (now > before) - (now < before)
