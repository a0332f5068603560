"""What is said of actors that do not start."""

import doctest
from importlib.metadata import version

import pytest

from labelwise.errors import LabelwiseWarning
from labelwise.pool.ray import supervision as ray_starting
from labelwise.pool.ray.parts import ClusterFailed


def test_what_there_is_no_room_for_is_told_with_what_is_free():
    assert ray_starting.describe_full_cluster(2, 3, 45.2, {"CPU": (0.5, 4)}) == (
        "2 of 3 actors could not start within 45 s; each needs a CPU, and 0.5 of the cluster's 4 "
        "CPUs are free: ask for fewer actors or add nodes"
    )


def test_another_version_is_refused_and_both_are_named():
    ours = version("labelwise")
    ray_starting.check_version(ours)
    with pytest.raises(ClusterFailed, match=rf"has labelwise 0\.0\.0, but here it is {ours}; ins"):
        ray_starting.check_version("0.0.0")


def test_a_slow_cluster_is_told_before_it_is_given_up():
    with pytest.warns(LabelwiseWarning, match=r"has started yet; .*; waiting for 180 s in all$"):
        ray_starting.warn_slow_cluster(180.0)


def test_the_examples_run():
    found = doctest.testmod(ray_starting)
    assert found.attempted > 0 and found.failed == 0
