"""How much memory this process may still take, from what the machine says."""

import os
from pathlib import Path

_INFO = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """How many bytes can be had without swapping; the process's container counts.

    >>> free_bytes() > 0
    True
    """
    return max(min([_of_machine(), *_of_containers()]), 1)


def _of_machine() -> int:
    """What is free, or held only by files that are cached; all memory where that is not told."""
    try:
        for line in _INFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30  # nothing is told: a small machine


def _of_containers() -> list[int]:
    """What is left in the control groups (versions 1 and 2) that limit this process."""
    try:
        lines = [line.split(":", 2) for line in _GROUPS.read_text().splitlines()]
    except OSError:
        return []
    folders = []
    for _, controllers, path in lines:
        if controllers == "memory":
            folders += _upwards(_MOUNT / "memory", path)
        elif not controllers:
            folders += _upwards(_MOUNT, path)
    return [left for folder in folders if (left := _left_in(folder)) is not None]


def _upwards(top: Path, path: str) -> list[Path]:
    """A group's folder and those of the groups around it."""
    folder = top / path.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _left_in(folder: Path) -> int | None:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most = int((folder / limit).read_text())
            now = int((folder / used).read_text())
            facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
        cached = facts.get("total_inactive_file", facts.get("inactive_file", "0"))
        return most - now + int(cached)
    return None
