"""The demo: real digits, a campaign, the page, and Robin who labels along."""

import re
import runpy
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from labelwise.campaign.project import Project
from tests.web.conftest import PATIENCE
from tests.web.page.browsing import press_and_see, shown, until, wait_saved
from tests.web.page.conftest import KINDS, PIXELS

SCRIPT = str(Path(__file__).parents[3] / "tools" / "label_demo.py")
DEMO = runpy.run_path(SCRIPT)


def test_the_digits_are_those_of_scikit_learn():
    images, names = DEMO["read_digits"]()
    assert names == [str(kind) for kind in KINDS]
    assert np.abs(255 - images.reshape(-1, 64) * 1.0 - PIXELS * 255 / 16).max() <= 0.5


@contextmanager
def running(home):
    """The demo's process; gives the address of its page."""
    command = [sys.executable, SCRIPT, "--home", str(home)]
    options = ["--port", "0", "--no-open", "--pace", "0.1"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://\S+", process.stdout.readline())[0]
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE)[0]
    assert "Stopped." in said


@pytest.mark.slow
def test_robin_labels_along_and_disagrees_and_a_restart_goes_on(visit, tmp_path):
    with running(tmp_path) as url:
        page = visit(url)
        first = shown(page)
        press_and_see(page, str(KINDS[first]))
        wait_saved(page)
        record = Project.open(tmp_path / "digits.labelwise").open_record()
        until(lambda: len(record.ledger().disagreements()) == 1)
        assert record.ledger().disagreements()[0].id == first
        assert record.ledger().per_annotator[DEMO["ROBIN"]].labels > DEMO["SECOND_OPINION"]
        page.close()
    with running(tmp_path) as url:
        assert shown(visit(url)) != first
        assert first in record.ledger().votes
        record.storage.close()
