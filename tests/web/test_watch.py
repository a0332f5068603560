"""Requests that wait for news, alone and at the API."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from labelwise.web.site import StateWatch
from tests.web import loops
from tests.web.conftest import PATIENCE


def test_a_waiting_page_is_told_as_soon_as_someone_labels(page, project):
    client = page("ann")
    version, begin = client.get("/api/state").json()["version"], time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, "/api/state", params={"since": version, "wait": 25})
        with pytest.raises(TimeoutError):
            asked.result(0.7)  # there is no news yet
        project.open_record().tell({0: "3"}, by="cli")
        state = asked.result().json()
    assert state["labelled"] == 1
    assert time.monotonic() - begin < 25  # so long it would have waited without news


def test_waiting_ends_after_the_given_time_and_not_before(page):
    client = page("ann")
    length = client.get("/api/state").json()["length"]
    begin = time.monotonic()
    state = client.get("/api/state", params={"since": str(length), "wait": 1}).json()
    assert 0.9 < time.monotonic() - begin < 25
    assert state["length"] == length
    for other in ("0", "99999", f"{length}.7"):  # the last two as from another server
        begin = time.monotonic()
        assert client.get("/api/state", params={"since": other, "wait": 25}).status_code == 200
        assert time.monotonic() - begin < 25
    assert client.get("/api/state", params={"since": "x"}).status_code == 422
    assert client.get("/api/state", params={"wait": 26}).status_code == 422


def test_many_waiting_pages_cost_one_look_at_a_time():
    looks, begin = [], time.monotonic()

    async def main():
        watching = StateWatch(lambda: looks.append(1) or "7.0", interval=0.1)
        await asyncio.gather(*(watching.wait_for_change("7", 1.0) for _ in range(50)))

    loops.run(main())
    assert 1 <= len(looks) <= 1 + (time.monotonic() - begin) / 0.09


def test_a_busy_campaign_tells_a_page_once_per_look():
    versions, begin = iter(range(1, 10**9)), time.monotonic()

    async def main():
        watching = StateWatch(lambda: f"{next(versions)}.0", interval=0.2)
        seen = "0"
        for _ in range(5):
            await watching.wait_for_change(seen, 600)
            seen = f"{next(versions)}.0"  # the state that the page gets is newer than the look

    loops.run(main())
    assert time.monotonic() - begin > 0.7  # the first look is at once, the others 0.2 s apart


def test_waiting_pages_are_let_go_when_the_server_ends():
    async def main():
        watching = StateWatch(lambda: "7.0")
        waiting = asyncio.create_task(watching.wait_for_change("7.0", 600))
        await asyncio.sleep(0.1)
        watching.close()
        async with asyncio.timeout(PATIENCE):
            await waiting

    loops.run(main())
