"""Actors that start late: when to go on waiting, and when to say that there is no room."""

from types import SimpleNamespace

import pytest

from labelwise.pool.ray import supervision as ray_patience
from labelwise.pool.ray.supervision import SLOW, SLOWER, StartPatience

LIMIT, STEP = 40, 5


def given_up(monkeypatch, takes):
    """Patience once it is over, asked every 5 s, where a process that needs no room takes long."""
    now, asked = [1000.0], []
    monkeypatch.setattr(ray_patience, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ask = lambda: asked.append(now[0]) or "probe"  # noqa: E731
    patience = StartPatience(LIMIT, ask, lambda probe: now[0] - asked[0] >= takes)
    while not patience.is_over():
        assert patience.is_slow == (takes > LIMIT / 2 and LIMIT <= patience.seconds < takes + 20)
        now[0] += STEP
    assert len(asked) == 1 and asked[0] - 1000 == LIMIT / 2
    assert patience.seconds == now[0] - 1000
    return patience


@pytest.mark.parametrize("takes", [0, 3, 10])
def test_a_cluster_that_starts_other_processes_has_no_room(takes, monkeypatch):
    patience = given_up(monkeypatch, takes)
    assert patience.others_start and patience.seconds == LIMIT


@pytest.mark.parametrize("takes", [20, 50, 100])
def test_a_slow_cluster_is_given_time_in_proportion(takes, monkeypatch):
    patience = given_up(monkeypatch, takes)
    assert patience.others_start and patience.seconds == SLOWER * takes


def test_a_cluster_that_starts_nothing_is_given_up_in_the_end(monkeypatch):
    patience = given_up(monkeypatch, 10_000)
    assert not patience.others_start and patience.seconds == SLOW * LIMIT


def test_nothing_is_asked_for_where_actors_start_soon(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(ray_patience, "time", SimpleNamespace(monotonic=lambda: now[0]))
    patience = StartPatience(LIMIT, pytest.fail, pytest.fail)
    now[0] = LIMIT / 2 - 1
    assert not patience.is_over()
