"""Requests that wait until something has changed, at the price of one look for all of them.

Pages ask for the state with the version that they have. Instead of asking again and again they
wait here; a single task looks at the record once a second while anyone waits, since the
command line, the background process or another server may have written to it.
"""

import asyncio
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool


class Watch:
    """Waits for a version to change.

    Args:
        look: Gives the version now; may block for a moment.
        interval: Seconds between two looks, and so the most often that a waiting page is told.
    """

    def __init__(self, look: Callable[[], str], *, interval: float = 1.0) -> None:
        self._look, self._interval = look, interval
        self._version: str | None = None
        self._changed = asyncio.Event()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, seen: str, seconds: float) -> None:
        """Return when there is news after the version ``seen``, or after so many seconds.

        On arrival, what counts is the last look, so that a page whose campaign changes all the
        time is not told more often than once per look. After a new look, any other version is
        news, also an earlier one: the page saw it on a server that counted otherwise.
        """
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._keep_looking())
                elif self._version is not None and is_later(self._version, seen):
                    return
                while not self._closed:
                    await self._changed.wait()
                    if self._version is not None and differs(self._version, seen):
                        return
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let everyone go on, so that the server can end. Call it in the event loop."""
        self._closed = True
        self._tell()

    async def _keep_looking(self) -> None:
        while self._waiting and not self._closed:
            try:
                self._version = await run_in_threadpool(self._look)
            except Exception:  # the requests themselves will say what is wrong with the record
                self._version = None
            self._tell()
            await asyncio.sleep(self._interval)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def is_later(version: str, seen: str) -> bool:
    """Whether a version comes after the one that a page has seen.

    A version is ``length.progress``; one without its second part is compared by its first.

    >>> is_later("12.3", "12"), is_later("12.3", "12.2"), is_later("13.0", "12.9")
    (False, True, True)
    """
    now, before = _numbers(version), _numbers(seen)
    return now[: len(before)] > before


def differs(version: str, seen: str) -> bool:
    """Whether a version is another than the one that a page has seen.

    >>> differs("12.3", "12"), differs("12.0", "12.2")
    (False, True)
    """
    now, before = _numbers(version), _numbers(seen)
    return now[: len(before)] != before


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
