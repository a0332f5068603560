"""Atomic writes, locks, JSON values and natural sort."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labelwise import files
from labelwise.errors import BadInput


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.write_atomically(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_written_file_has_the_usual_permissions(tmp_path):
    files.write_text(tmp_path / "a.txt", "text", durable=True)
    (tmp_path / "b.txt").write_text("text")
    modes = [(tmp_path / name).stat().st_mode for name in ("a.txt", "b.txt")]
    assert modes[0] == modes[1]


def test_json_that_is_written_is_strict_and_read_back(tmp_path):
    value = {
        "loss": np.float32("nan"),
        "ids": np.arange(3),
        "name": "Zoë",
        "at": Path("x"),
        1: True,
    }
    files.write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
    expected = {"loss": "nan", "ids": [0, 1, 2], "name": "Zoë", "at": "x", "1": True}
    assert files.read_json(tmp_path / "a.json") == expected


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_damaged_json_file_is_named(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadInput, match=r"a\.json is damaged"):
        files.read_json(tmp_path / "a.json")


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_a_lock_keeps_other_processes_out(tmp_path):
    code = "import sys; from labelwise.files import lock_file\n"
    code += "with lock_file(sys.argv[1]) as held: print(held)"
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with files.lock_file(tmp_path / "lock") as held:
        assert held
        assert subprocess.check_output(command, text=True).strip() == "False"
    assert subprocess.check_output(command, text=True).strip() == "True"
