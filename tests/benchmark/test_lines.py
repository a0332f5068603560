"""What a line says of the code that made it."""

import shutil
from importlib import metadata
from pathlib import Path

import pytest

import labelwise
from labelwise.benchmark import lines
from labelwise.benchmark.lines import digest_source_code

PACKAGE = Path(labelwise.__file__).parent


def test_the_code_is_the_version_and_a_digest_of_the_package():
    version, _, digest = lines.describe_code_version().partition("+")
    assert version == metadata.version("labelwise")
    assert digest == digest_source_code(PACKAGE) and len(digest) == 12


@pytest.fixture
def folder(tmp_path):
    """Some of the package."""
    shutil.copytree(PACKAGE / "theory", tmp_path / "theory")
    return tmp_path


def test_a_digest_is_of_the_source_alone_wherever_it_lies(folder, tmp_path_factory):
    before = digest_source_code(folder)
    (folder / "theory" / "notes.txt").write_text("no source")
    file = folder / "theory" / "coverage.py"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))  # whatever ends its lines
    other = tmp_path_factory.mktemp("other") / "place"
    shutil.copytree(folder, other)
    assert digest_source_code(folder) == digest_source_code(other) == before


def test_a_digest_changes_with_a_text_and_with_a_name(folder):
    found = {digest_source_code(folder)}
    file = folder / "theory" / "coverage.py"
    file.write_text(file.read_text() + "\n")
    found.add(digest_source_code(folder))
    file.rename(file.with_name("covering.py"))
    found.add(digest_source_code(folder))
    assert len(found) == 3
