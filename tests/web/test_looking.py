"""Many pages that hear of news at once, and labels in between."""

import asyncio
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from labelwise.campaign.project import Project
from labelwise.web.app import create_app
from labelwise.web.bodies import State
from labelwise.web.site import STATE_REQUESTS
from tests.web import loops
from tests.web.conftest import PATIENCE


def test_pages_that_look_at_once_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.arange(40.0).reshape(20, 2))
    project = Project.start(tmp_path / "rows.npy", home=tmp_path / "c", classes=["a", "b"])
    app = create_app(project, trains=False)
    lock, now, most, calls = threading.Lock(), 0, 0, 0
    read, together = app.site.read_state, threading.Barrier(STATE_REQUESTS, timeout=PATIENCE)

    def counted(by: str | None) -> State:
        nonlocal now, most, calls
        with lock:
            now, most, calls = now + 1, max(most, now + 1), calls + 1
            first = calls <= STATE_REQUESTS
        if first:
            together.wait()  # so many are let in at once, and the others wait
        time.sleep(0.03)
        with lock:
            now -= 1
        return read(by)

    monkeypatch.setattr(app.site, "read_state", counted)

    async def look() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = await asyncio.gather(*(client.get("/api/state") for _ in range(20)))
        return [answer.status_code for answer in answers]

    assert loops.run(look()) == [200] * 20
    assert most == STATE_REQUESTS
