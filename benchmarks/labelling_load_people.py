"""Simulated annotators: what the labelling page does, over connections that stay open.

Each has a session, borrows items, and then sends one label after the other, each call with the wish
for the next items (``POST /api/labels``), while a second connection waits for news of the state.
HTTP is spoken by hand: a client library would take more of the processor than the server does.

`People` starts some processes with a share of the annotators each; such a process is this file run
with an order, and writes what was acknowledged to a file.
"""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PAUSE, LONG_LOOK = 0.7, 5
"""Seconds between two looks of a page at the state, and for how long a look waits for news."""

Given = tuple[int, int, int]
"""Item, number of the class, number of the annotator."""


class Refused(Exception):
    """The server answered with an error."""


class Connection:
    """One HTTP connection that stays open."""

    def __init__(self, port: int, name: str) -> None:
        self._port, self.name, self.csrf = port, name, ""

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def call(self, path: str, body: Any = None) -> Any:
        """The answer to one request: a GET, or a POST where there is a body."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n"
        head += f"Host: 127.0.0.1:{self._port}\r\nX-Annotator: {self.name}\r\n"
        if body is not None:
            head += f"X-Labelwise-Csrf: {self.csrf}\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(content)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("\r\ncontent-length:")[2].partition("\r\n")[0])
        found = await self._reader.readexactly(length)
        if not answer.startswith("http/1.1 200"):
            raise Refused(f"{path}: {answer[:12]} {found[:200]!r}")
        return json.loads(found)


@dataclass
class Tally:
    """What came of the calls of one process."""

    given: list[Given] = field(default_factory=list)  # acknowledged
    unsure: list[Given] = field(default_factory=list)  # sent, and no answer came
    milliseconds: list[float] = field(default_factory=list)  # of a label and the next items
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


class Annotator:
    """One page: a desk with some items, and a look at the state now and then."""

    def __init__(self, number: int, order: dict[str, Any], tally: Tally) -> None:
        self.number, self.order, self.tally = number, order, tally
        name = f"person%20{number}"
        self._desk, self._news = Connection(order["port"], name), Connection(order["port"], name)
        self._random = np.random.default_rng([order["seed"], number])

    async def begin(self) -> None:
        """Open the page: session and first items."""
        await self._desk.open()
        await self._news.open()
        session = await self._desk.call("/api/session")
        self._desk.csrf = session["csrf"]
        self._classes = [one["value"] for one in session["classes"]]
        lent = await self._desk.call("/api/lend", {"count": self.order["ahead"]})
        self._items = [item["id"] for item in lent["items"]]

    async def work(self, end: float) -> None:
        """Label until the end, or until nothing waits."""
        looking = asyncio.create_task(self._look())
        try:
            while time.perf_counter() < end and self._items:
                await asyncio.sleep(self._pace())
                await self._label(self._items[0])
        except (OSError, asyncio.IncompleteReadError):  # the server is gone
            pass
        except Refused as error:
            self.tally.errors.append(str(error))
        finally:
            looking.cancel()
            self._desk.close()
            self._news.close()

    def _pace(self) -> float:
        """How long this person looks at an item: around the mean, from half of it to twice."""
        usual: float = self.order["pace"]
        return usual * float(np.clip(self._random.lognormal(-0.08, 0.4), 0.5, 2.0))

    async def _label(self, item: int) -> None:
        chosen = (item + self.number) % len(self._classes)
        given = (item, chosen, self.number)
        one = {"id": item, "label": self._classes[chosen], "seconds": 1.5}
        self.tally.unsure.append(given)
        begin = time.perf_counter()
        answer = await self._desk.call(
            "/api/labels", {"labels": [one], "lend": self.order["ahead"]}
        )
        self.tally.milliseconds.append(1000 * (time.perf_counter() - begin))
        self.tally.unsure.remove(given)
        self.tally.given.append(given)
        self._items = [item["id"] for item in answer["items"]]

    async def _look(self) -> None:
        state = await self._news.call("/api/state")
        while True:
            await asyncio.sleep(PAUSE)
            state = await self._news.call(f"/api/state?since={state['version']}&wait={LONG_LOOK}")


async def label(order: dict[str, Any]) -> Tally:
    """Have all annotators of one process work at once; they begin together, when told so."""
    tally = Tally()
    people = [Annotator(number, order, tally) for number in order["numbers"]]
    await asyncio.gather(*(person.begin() for person in people))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begin = time.perf_counter()
    await asyncio.gather(*(person.work(begin + order["seconds"]) for person in people))
    tally.seconds = time.perf_counter() - begin
    return tally


def main() -> None:
    """Carry out an order."""
    order = json.loads(sys.argv[1])
    tally = asyncio.run(label(order))
    np.savez(
        order["out"],
        given=np.array(tally.given, dtype=np.int64).reshape(-1, 3),
        unsure=np.array(tally.unsure, dtype=np.int64).reshape(-1, 3),
        milliseconds=np.array(tally.milliseconds),
        errors=np.array(tally.errors, dtype=np.str_),
        seconds=tally.seconds,
        cpu=time.process_time(),
    )


class People:
    """Annotators in some processes, ready to begin."""

    def __init__(self, port: int, count: int, processes: int, folder: Path, **order: Any) -> None:
        self._outs, self._processes = [], []
        for first in range(processes):
            out = folder / f"people-{first}.npz"
            numbers = list(range(first, count, processes))
            task = {"port": port, "numbers": numbers, "out": str(out), **order}
            command = [sys.executable, __file__, json.dumps(task)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._outs.append(out)
            self._processes.append(process)
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("the annotators could not begin; their errors are above")

    def begin(self) -> None:
        """Let all of them begin."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def wait(self) -> dict[str, Any]:
        """What came of it, once all are done; every array is of all processes."""
        for process in self._processes:
            if process.wait():
                raise RuntimeError("a process of annotators failed; its error is above")
        found = [np.load(out) for out in self._outs]
        return {
            name: np.concatenate([np.atleast_1d(one[name]) for one in found]) for name in found[0]
        }

    def stop(self) -> None:
        """End those that are still at work."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
