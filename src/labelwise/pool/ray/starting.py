"""What is said of actors that start late, badly or not at all. Nothing here imports ray."""

import warnings
from collections.abc import Mapping
from importlib.metadata import version

from labelwise.errors import LabelwiseWarning
from labelwise.pool.ray.parts import ClusterFailed


def slow_cluster(seconds: float) -> str:
    """No process of any kind has started for so long."""
    return (
        f"no process of the cluster started within {seconds:.0f} s; look at its nodes, which may "
        "be too busy or without memory"
    )


def no_room(late: int, count: int, seconds: float, room: Mapping[str, tuple[float, float]]) -> str:
    """Processes start, but actors do not.

    Args:
        late: how many have not started.
        count: how many there should be.
        seconds: for how long nothing has come.
        room: by what an actor needs, how much is free and how much there is in the cluster.

    Example:
        >>> no_room(1, 2, 45, {"CPU": (0, 8), "GPU": (1, 2)})  # doctest: +ELLIPSIS
        "1 of 2 ... each needs a CPU and a GPU, and 0 of the cluster's 8 CPUs and 1 of its 2 GPUs...
    """
    whose = ["the cluster's", *["its"] * len(room)]
    parts = [
        f"{free:g} of {of} {there:g} {name}s"
        for of, (name, (free, there)) in zip(whose, room.items(), strict=False)
    ]
    return (
        f"{late} of {count} actors could not start within {seconds:.0f} s; each needs a "
        f"{' and a '.join(room)}, and {' and '.join(parts)} are free: ask for fewer actors or add "
        "nodes"
    )


def say_slow(most: float) -> None:
    """Warn that a cluster may be given up after so many seconds."""
    words = "no process of the cluster has started yet; its nodes may be busy or without memory"
    warnings.warn(f"{words}; waiting for {most:.0f} s in all", LabelwiseWarning, stacklevel=3)


def unwelcome(why: str) -> str:
    """An actor was lost before it said anything."""
    return f"an actor ended while it started ({why}); every node needs the same labelwise as this"


def check_version(theirs: str) -> None:
    """Refuse a node with another labelwise."""
    ours = version("labelwise")
    if theirs != ours:
        raise ClusterFailed(
            f"a node of the cluster has labelwise {theirs}, but here it is {ours}; install the "
            "same on all"
        )
