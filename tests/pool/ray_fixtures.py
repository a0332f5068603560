"""One small Ray cluster for all tests of a pytest process, started when the first one needs it.

Import `two_actors` where the fixture ``actors`` is used. With pytest-xdist every process that runs
such tests has a cluster of its own, at ports that are free; with ``--dist loadgroup`` one process
runs them all.
"""

import os
from functools import cache

import pytest

ray = pytest.importorskip("ray")
from labelwise.pool.ray.shards import RayActors, connect  # noqa: E402

CPUS = 4
"""How many processes the cluster has room for. All of them wait most of the time."""


@cache
def _actors():
    os.environ.pop("RAY_ADDRESS", None)  # a cluster of our own, whatever else there is
    connect("ray", actors=CPUS)
    return RayActors(2)


@pytest.fixture(scope="session", name="actors")
def two_actors():
    """Two processes of the cluster, the same for all tests; there is room for two more."""
    yield _actors()
    ray.shutdown()  # once more for every module that imports this, which does nothing
