"""The first moments of the labelwise command."""

import os
import signal
import subprocess
import sys
import time

import pytest

import labelwise

PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.{handler})
from labelwise_command import main
main()
"""
# As a shell starts it before the user, and in the background.
BEFORE_THE_USER = [sys.executable, "-c", PROGRAM.format(handler="default_int_handler")]
IN_THE_BACKGROUND = [sys.executable, "-c", PROGRAM.format(handler="SIG_IGN")]

# Stands before NumPy: says that it is being imported, imports it, and then does something more.
OTHER_NUMPY = """
import os, sys, time
os.write(1, b"importing\\n")
sys.path.remove(os.path.dirname(__file__))
del sys.modules["numpy"]
import numpy
"""


@pytest.fixture
def with_numpy(tmp_path):
    """The environment of a command in which the import of NumPy ends with something more."""

    def make(more):
        (tmp_path / "numpy.py").write_text(OTHER_NUMPY + more)
        return os.environ | {"PYTHONPATH": str(tmp_path)}

    return make


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64])
def test_an_interruption_while_numpy_is_imported_is_one_line(with_numpy, seconds):
    with subprocess.Popen(
        [*BEFORE_THE_USER, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_numpy("time.sleep(3600)"),
    ) as process:
        assert process.stdout.readline() == "importing\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "labelwise: interrupted\n")
    assert process.returncode == 130


def test_in_the_background_an_interruption_is_ignored_as_the_shell_wants_it(with_numpy):
    environment = with_numpy("os.kill(os.getpid(), 2)")
    command = [*IN_THE_BACKGROUND, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("importing\nlabelwise ")


def test_once_it_runs_an_interruption_is_an_exception_that_the_command_handles():
    work = """
import labelwise.cli.commands, os

def work(arguments):
    try:
        os.kill(os.getpid(), 2)
        while True:
            pass
    except KeyboardInterrupt:
        print("in good order")
        return 130

labelwise.cli.commands.run = work
"""
    program = work + PROGRAM.format(handler="default_int_handler")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "in good order\n", "")


def test_the_package_runs_as_the_command():
    command = [sys.executable, "-m", "labelwise", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == labelwise.__version__
