"""A small pool in files, and the command in a process of its own, for the tests of commands."""

import csv
import sys
from pathlib import Path

import numpy as np

from labelwise.cli import run
from tests.conftest import make_features, make_probabilities

START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background
from labelwise_command import main
main()
"""
COMMAND = [sys.executable, "-c", START]


def write_pool():
    """Write the features of two models, probabilities, and the ids of labelled items."""
    np.save("f.npy", make_features(300, 6))
    np.save("g.npy", make_features(300, 4, seed=1))
    np.save("p.npy", make_probabilities(300, 3))
    Path("done.txt").write_text("3\n17\n\n42\n")


def answer(capsys, *arguments):
    """Exit code, stdout and stderr of a call."""
    code = run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def picked(path):
    with open(path) as file:
        return [int(line["id"]) for line in csv.DictReader(file)]
