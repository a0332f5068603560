"""What the handlers of one server share: the campaign, its rules, and the background process."""

import asyncio
import json
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labelwise.campaign.folder.missing_items import find_missing
from labelwise.campaign.runner import sign_process
from labelwise.errors import BadInput, LabelwiseError
from labelwise.record.events import Event, TrainingFailed
from labelwise.record.ledger import Ledger, replay
from labelwise.web import bodies, views
from labelwise.web.errors import log
from labelwise.web.loans import Loans, Visitor
from labelwise.web.security import Policy
from labelwise.web.supervisor import Progress, Supervisor, worker_command
from labelwise.web.watch import Watch

ROUNDS = 20
"""How often items that are gone are replaced by others in one call; the next call goes on."""
EVERY = 10.0
"""Seconds between two looks for files that are gone, while there is nothing to lend."""
LOOKING = 3
"""Pages that get the state at a time: news reach all at once, and labels should not wait for it."""


class Site:
    """One campaign as one server sees it; nothing here outlives the record.

    Args:
        project: The campaign's folder.
        policy: Who may speak to the server.
        trains: Whether a background process trains and asks for the next batch.
    """

    def __init__(self, project: Any, policy: Policy, *, trains: bool = True) -> None:
        self.project, self.policy = project, policy
        self.desk = project.desk()
        self.supervisor: Supervisor | None = None
        if trains:
            self.supervisor = Supervisor(worker_command(project.home), ended=self._worker_ended)
        self.watch = Watch(self.version)
        self.loans = Loans(self.desk)
        self.looking = asyncio.Semaphore(LOOKING)
        self.boot = secrets.token_hex(4)
        self._look_again = 0.0
        self._get_state: bodies.State | None = None  # both only under the desk's lock
        self._forecast: tuple[Any, bodies.ForecastState] | None = None

    def version(self) -> str:
        """Changes with the record and with what the background process says."""
        changes = self.supervisor.changes if self.supervisor else 0
        return f"{self.desk.storage.length(self.desk.name)}.{changes}"

    def state(self, by: str | None) -> bodies.State:
        """How far the campaign has come, for one annotator."""
        changes = self.supervisor.changes if self.supervisor else 0
        progress = self.supervisor.progress if self.supervisor else Progress()

        found = self.desk.look(lambda ledger: self._common(ledger, by))
        return views.with_progress(
            found,
            progress,
            trains=self.supervisor is not None,
            version=f"{found.length}.{changes}",
        )

    def _common(self, ledger: Ledger, by: str | None) -> bodies.State:
        """The state, worked out once for all who ask while the record stays as it is."""
        settings = self.desk.settings_of(ledger)
        if self._get_state is None or self._get_state.length != ledger.length:
            key = (len(ledger.trainings), settings)
            if self._forecast is None or self._forecast[0] != key:
                self._forecast = (key, views.show_forecast(ledger, settings))
            self._get_state = views.show_state(ledger, settings, self._forecast[1])
        return self._get_state.model_copy(update={"you": views.show_person(ledger, by)})

    def show_lent(self, by: Visitor, places: Sequence[views.Place]) -> list[bodies.Item]:
        """Items that were lent, as the page shows them.

        Those whose picture is gone are closed, or their batch would never be complete, and others
        lent in their place. The files are looked at outside the record's lock: a disk may be slow.
        """
        for _ in range(ROUNDS):
            gone = find_missing(self.project.items, [place.id for place in places])
            if not gone:
                break
            _say_closed(gone)
            places = self.desk.commit(self.loans.close(by, gone, len(places)))
        if not places:
            self._close_missing()
        return self.show(places)

    def _close_missing(self) -> None:
        """Close what is gone and waits for somebody else; who would get it may never come."""
        now = time.monotonic()
        if now >= self._look_again:
            self._look_again = now + EVERY
            gone = self.project.close_missing(self.desk)
            if gone:
                _say_closed(gone)

    def show(self, places: Sequence[views.Place]) -> list[bodies.Item]:
        """Items as the page shows them."""
        return [views.show_item(self.project, place) for place in places]

    def export(self, format: str, *, spreadsheet: bool = False) -> bytes:
        """All labels as a file, from a ledger of its own, so that nobody waits for it."""
        from labelwise.campaign import export
        from labelwise.campaign.labels import resolve_labels

        events = self.desk.storage.read(self.desk.name)
        ledger = replay(events)
        labels = resolve_labels(ledger, self.desk.settings_of(ledger))
        rows = export.label_rows(ledger, labels, events, self._in_words)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"labels.{format}"
            export.write_table(path, export.COLUMNS, rows, spreadsheet=spreadsheet)
            return path.read_bytes()

    def ask_for_training(self) -> bool:
        """Have the background process train now; False if it could not be told."""
        if self.supervisor is None:
            raise BadInput("this server does not train; run labelwise train")
        return self.supervisor.ask("train")

    def start(self) -> None:
        """Start the background process."""
        if self.supervisor is not None:
            self.supervisor.start()

    def stop(self) -> None:
        """End the background process."""
        if self.supervisor is not None:
            self.supervisor.stop()

    def _in_words(self, item: int) -> str:
        """An item as text; it may have been taken out of the folder since it was labelled."""
        try:
            about = self.project.items.describe(item)
        except LookupError:
            return ""
        for key in ("text", "name"):
            if key in about:
                return str(about[key])
        return json.dumps(about.get("columns", {}), ensure_ascii=False)

    def _worker_ended(self, process: int, error: str) -> None:
        """Note in the record that the training of a process that is gone will not end."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], None]:
            running = ledger.training
            if running is None or running.by != sign_process(process):
                return [], None
            return [TrainingFailed(now, running.number, error)], None

        try:
            self.desk.commit(decide)
        except LabelwiseError as problem:  # the next process will find out by itself
            log.warning("the end of the background process could not be recorded: %s", problem)


def _say_closed(gone: Sequence[int]) -> None:
    log.warning("closed, as their files are gone: items %s", ", ".join(map(str, gone)))
