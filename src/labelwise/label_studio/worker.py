"""Background process of the ML backend: syncs with Label Studio whenever there is news.

``python -m labelwise.label_studio.worker HOME VARIABLE`` reads commands from its input and reports
its progress on its output (a line of JSON each), as `labelwise.web.background` expects; it ends
when its input ends. The commands are ``look`` (at everything) and ``tasks 4 7 9`` (read the
annotations of these tasks). The environment variable VARIABLE contains the token of Label Studio.

Commands in quick succession are combined. After a sync the process pauses for several times as
long as Label Studio worked for it, so that annotators get most of the server's time.
"""

import queue
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from labelwise.errors import LabelwiseError
from labelwise.label_studio.client import LabelStudioClient, read_label_studio_token
from labelwise.label_studio.sync import ProjectSync, SyncOptions, make_task_folder_path
from labelwise.label_studio.tasks import TaskFolder
from labelwise.web.background import WorkerOrder, connect_to_server, limit_progress_reports

QUIET_SECONDS = 1.0  # Seconds without a new command before a sync begins
MAX_DELAY = 10.0  # Seconds after which a sync begins in any case
PAUSE_FACTOR = 4.0
"""Length of the pause after a sync, relative to the time that Label Studio worked."""
FULL_SYNC_INTERVAL = 600.0  # Seconds without a command after which everything is read
RETRY_DELAY = 15.0  # Seconds before a failed sync is repeated

Report = Callable[..., None]
Tasks = list[int] | None  # Tasks whose annotations are to be read; None for all


def run_sync_worker(
    home: Path,
    variable: str,
    options: SyncOptions,
    commands: "queue.Queue[WorkerOrder]",
    report: Report,
) -> None:
    """Sync at once, and then whenever there is news, until the process ends."""
    facts = TaskFolder.open(make_task_folder_path(home)).facts
    client = LabelStudioClient(facts.url, read_label_studio_token(variable), source=variable)
    progress = limit_progress_reports(
        lambda stage, done, total: report(stage=stage, done=done, total=total)
    )
    sync = ProjectSync(client, facts.project, home, options=options, progress=progress)
    tasks: Tasks = None
    while True:
        before = client.seconds
        report(stage="syncing with Label Studio")
        try:
            result = sync.run(tasks)
        except LabelwiseError as error:  # read everything the next time
            report(error=str(error))
            time.sleep(RETRY_DELAY)
            tasks = None
            continue
        report(error=None if result.failure is None else str(result.failure)[:2000])
        time.sleep(PAUSE_FACTOR * (client.seconds - before))
        tasks = wait_for_sync_commands(commands)


def wait_for_sync_commands(commands: "queue.Queue[WorkerOrder]") -> Tasks:
    """Wait for commands and a quiet moment; without commands for long, read everything."""
    try:
        lines = [commands.get(timeout=FULL_SYNC_INTERVAL)[0]]
    except queue.Empty:
        return None
    end = time.monotonic() + MAX_DELAY
    while (left := end - time.monotonic()) > 0:
        try:
            lines.append(commands.get(timeout=min(QUIET_SECONDS, left))[0])
        except queue.Empty:
            break
    while not commands.empty():
        lines.append(commands.get_nowait()[0])
    return combine_sync_commands(lines)


def combine_sync_commands(lines: Sequence[str]) -> Tasks:
    """Combine the tasks of several commands; an unknown command means everything.

    Example:
        >>> combine_sync_commands(["tasks 4 7", "tasks 7 9"])
        [4, 7, 9]
    """
    tasks: dict[int, None] = {}
    for line in lines:
        word, *numbers = line.split() or ["look"]
        if word != "tasks" or not all(number.isdecimal() for number in numbers):
            return None
        tasks |= dict.fromkeys(map(int, numbers))
    return list(tasks)


def main(arguments: Sequence[str]) -> None:
    """Sync until the input ends."""
    report, commands = connect_to_server()
    home, variable, *flags = arguments
    options = SyncOptions(guesses="--guesses" in flags)
    try:
        run_sync_worker(Path(home), variable, options, commands, report)
    except LabelwiseError as error:
        print(f"labelwise: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
