"""Processes for the tests of those that work beside a server."""

import sys
from pathlib import Path


def talker(words: str, more: str = "import sys; sys.stdin.read()") -> list[str]:
    """A process that says something and then waits for the end of its input."""
    return [sys.executable, "-c", f"print({words!r}, flush=True); {more}"]


def is_running(process: int) -> bool:
    """Whether a process is at work, and not only waiting to be taken note of."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"
