"""The examples in the docstrings of every module give what they say."""

import doctest
from pathlib import Path

import pytest

import labelwise
import labelwise.cli.commands  # an example of cli.app names commands

HOME = Path(labelwise.__file__).parent
MODULES = [
    ".".join(("labelwise", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(HOME.rglob("*.py"))
    if ">>> " in path.read_text() and path.parent != HOME / "pool" / "ray"  # tests/pool has Ray
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    module = pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0 and found.failed == 0
