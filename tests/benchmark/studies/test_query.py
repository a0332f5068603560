"""The first query: the picks of a run's first round, with one training and one pass for all."""

import pytest

from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocol import Entrant, change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.splits import SplitCache
from labelwise.benchmark.studies.query import query_first_batch

CPU = find_benchmark_device("cpu")
PROTOCOL = change_protocol(
    get_experiment("sparse-table3-time").at("small").on("digits"),
    pool=500,
    start=40,
    batch=20,
    validation=50,
)


@pytest.mark.parametrize("entrant", PROTOCOL.entrants, ids=lambda entrant: entrant.strategy)
def test_picks_are_those_of_the_first_round_of_a_run(entrant):
    picked, seconds = query_first_batch(PROTOCOL, entrant, 0, CPU)
    rounds = change_protocol(PROTOCOL, study=None, metric="accuracy", rounds=1)
    line = next(play_benchmark_runs([BenchmarkRun(SplitCache(rounds, CPU), entrant, 0)]))
    assert tuple(picked.ids.tolist()) == line.picks
    assert (seconds["represent"] > 0) == (entrant.strategy != "random")
    assert seconds["select"] > 0 and seconds["train"] > 0


def test_a_changed_protocol_is_not_answered_from_the_old_pool():
    query_first_batch(PROTOCOL, Entrant("random"), 0, CPU)
    smaller = change_protocol(PROTOCOL, pool=100)
    picked, _ = query_first_batch(smaller, Entrant("random"), 0, CPU)
    rounds = change_protocol(smaller, study=None, metric="accuracy", rounds=1)
    assert set(picked.ids.tolist()) <= set(SplitCache(rounds, CPU).get(0)[0].ids.tolist())


def test_strategies_of_a_seed_share_the_training_and_the_pass():
    badge, margin = (
        query_first_batch(PROTOCOL, Entrant(name), 1, CPU)[1] for name in ("badge", "margin")
    )
    other = query_first_batch(PROTOCOL, Entrant("badge"), 2, CPU)[1]
    assert (badge["train"], badge["represent"]) == (margin["train"], margin["represent"])
    assert badge["train"] != other["train"]
