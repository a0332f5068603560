"""The server's side of the background process: starting it, hearing it, ending it."""

import sys

from labelwise.web.background import BackgroundProcess, WorkerReport
from tests.web.conftest import wait_until
from tests.web.processes import is_running, talker


def test_what_the_process_says_is_known_and_what_libraries_print_is_not():
    said = BackgroundProcess(talker('hello\n{"stage": "training", "done": 1, "total": 4}'))
    said.start()
    try:
        wait_until(lambda: said.report == WorkerReport("training", 1, 4))
    finally:
        said.stop()
    assert said.pid is None


def test_a_process_that_ends_by_itself_is_told_once_and_started_again_on_demand():
    ended = []
    dying = BackgroundProcess(
        talker("{}", "import os; os.kill(os.getpid(), 9)"), on_exit=lambda *a: ended.append(a)
    )
    dying.start()
    wait_until(lambda: ended)
    (process, error), *others = ended
    assert not others and "SIGKILL" in error
    assert dying.report.error == error
    assert not dying.send_order("look")
    dying.send_order("train")
    wait_until(lambda: len(ended) == 2)
    assert ended[1][0] != process
    dying.stop()
    assert not dying.send_order("train")


REPLACED = """
import subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1])
if (folder / "begun").exists():
    print('{"stage": "working"}', flush=True)
    sys.stdin.read()
else:  # it ends, and leaves someone behind who might still say something
    (folder / "begun").touch()
    wait = "import sys, time; from pathlib import Path\\nwhile not Path(sys.argv[1]).exists():\\n"
    command = [sys.executable, "-c", wait + "    time.sleep(0.05)", str(folder / "go")]
    subprocess.Popen(command, stdin=subprocess.DEVNULL)
"""


def test_the_end_of_a_process_that_was_replaced_is_not_taken_for_that_of_the_next(tmp_path):
    ended = []
    command = [sys.executable, "-c", REPLACED, str(tmp_path)]
    replaced = BackgroundProcess(command, on_exit=lambda *a: ended.append(a))
    replaced.start()
    first = replaced._process
    wait_until(lambda: first.poll() is not None)
    assert replaced.send_order("train") and replaced.pid != first.pid
    wait_until(lambda: replaced.report == WorkerReport("working"))
    (tmp_path / "go").touch()  # only now is it heard that the first has ended
    wait_until(lambda: ended)
    assert ended[0][0] == first.pid
    assert replaced.report == WorkerReport("working")
    replaced.stop()


def test_a_process_that_does_not_listen_is_ended_by_force():
    deaf = BackgroundProcess(talker('{"stage": "deaf"}', "import time; time.sleep(3600)"))
    deaf.start()
    wait_until(lambda: deaf.report.stage == "deaf")
    process = deaf.pid
    deaf.stop(seconds=0.3)
    assert deaf.pid is None and not is_running(process)
