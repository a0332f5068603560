"""What is said of actors that do not start."""

import doctest

from labelwise.pool.ray import supervision as ray_starting


def test_what_there_is_no_room_for_is_told_with_what_is_free():
    assert ray_starting.describe_late_actors(2, 3, 45.2, {"CPU": (0.5, 4)}) == (
        "2 of 3 actors could not start within 45 s; each needs a CPU, and 0.5 of the cluster's 4 "
        "CPUs are free: ask for fewer actors, add nodes, or give busy ones more time with "
        "start_seconds"
    )


def test_the_examples_run():
    found = doctest.testmod(ray_starting)
    assert found.attempted > 0 and found.failed == 0
