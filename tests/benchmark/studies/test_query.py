"""The first query: the picks of a run's first round, with one training and one pass for all."""

import pytest

from labelwise.benchmark.devices import find_device
from labelwise.benchmark.protocol import Entrant, changed
from labelwise.benchmark.protocols import get
from labelwise.benchmark.rounds import Run, Stage, play
from labelwise.benchmark.studies.query import query

CPU = find_device("cpu")
PROTOCOL = changed(
    get("sparse-table3-time").at("small").on("digits"),
    pool=500,
    start=40,
    batch=20,
    validation=50,
)


@pytest.mark.parametrize("entrant", PROTOCOL.entrants, ids=lambda entrant: entrant.strategy)
def test_picks_are_those_of_the_first_round_of_a_run(entrant):
    picked, seconds = query(PROTOCOL, entrant, 0, CPU)
    rounds = changed(PROTOCOL, study=None, metric="accuracy", rounds=1)
    line = next(play([Run(Stage(rounds, CPU), entrant, 0)]))
    assert tuple(picked.ids.tolist()) == line.picks
    assert (seconds["represent"] > 0) == (entrant.strategy != "random")
    assert seconds["select"] > 0 and seconds["train"] > 0


def test_a_changed_protocol_is_not_answered_from_the_old_pool():
    query(PROTOCOL, Entrant("random"), 0, CPU)
    smaller = changed(PROTOCOL, pool=100)
    picked, _ = query(smaller, Entrant("random"), 0, CPU)
    rounds = changed(smaller, study=None, metric="accuracy", rounds=1)
    assert set(picked.ids.tolist()) <= set(Stage(rounds, CPU).scene(0)[0].ids.tolist())


def test_strategies_of_a_seed_share_the_training_and_the_pass():
    badge, margin = (query(PROTOCOL, Entrant(name), 1, CPU)[1] for name in ("badge", "margin"))
    other = query(PROTOCOL, Entrant("badge"), 2, CPU)[1]
    assert (badge["train"], badge["represent"]) == (margin["train"], margin["represent"])
    assert badge["train"] != other["train"]
