"""Files that outlive an interruption."""

import errno
import json

import pytest

from labelwise.errors import BadInput, StorageFailed
from labelwise.selection.kept_files import (
    intact,
    locked,
    part,
    read_json,
    whole,
    write_json,
    writing,
)


def test_values_come_back_as_json_has_them(tmp_path):
    path = tmp_path / "facts.json"
    assert read_json(path) is None
    write_json(path, {"shape": (3, 4), "name": "a", "kind": len})
    assert read_json(path) == {"shape": [3, 4], "name": "a", "kind": repr(len)}


def test_a_file_that_was_not_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "facts.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyboardInterrupt), whole(path) as file:
        file.write(b'{"a"')
        raise KeyboardInterrupt
    assert read_json(path) == {"a": 1}
    assert part(path).name == "facts.part" and part(path).exists()


@pytest.mark.parametrize("text", ["", '{"a": ', "[1, 2]", "5", "\x00\x00"])
def test_what_is_no_json_object_is_damage(tmp_path, text):
    (tmp_path / "facts.json").write_text(text)
    words = rf"{tmp_path} is damaged \(facts.json: .+\); delete the folder and start again"
    with pytest.raises(BadInput, match=words):
        read_json(tmp_path / "facts.json")


def test_a_missing_file_is_damage_in_words(tmp_path):
    with pytest.raises(BadInput, match=r"is damaged \(states-3: No such file or directory\)"):
        with intact(tmp_path / "states-3"):
            (tmp_path / "states-3").read_bytes()


def test_an_error_in_words_stays_as_it_is(tmp_path):
    with pytest.raises(BadInput, match=r"^other words$"), intact(tmp_path / "states-3"):
        raise BadInput("other words")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    words = rf"cannot write to {tmp_path} \(Read-only\), where resume keeps .*; make room there, or"
    with pytest.raises(StorageFailed, match=words), writing(tmp_path):
        raise OSError(errno.EROFS, "Read-only")


def test_one_holds_a_folder_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    with locked(tmp_path / "lock"):
        with pytest.raises(BadInput, match=f"another selection is using {tmp_path}; wait for it"):
            with locked(tmp_path / "lock"):
                pass
    with locked(tmp_path / "lock"):
        write_json(tmp_path / "facts.json", {})
    assert json.loads((tmp_path / "facts.json").read_text()) == {}
