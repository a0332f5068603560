"""A cache folder of its own for every test that asks for one."""

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, which does not exist yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LABELWISE_DATA", str(folder))
    return folder
