"""What is said of a selection before it runs, held against what it then takes."""

import math
import os
import re
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.pool.blocks import BLOCK_BYTES, open_shards
from labelwise.pool.representations import open_source, open_sources
from labelwise.selection import plan
from labelwise.selection.plan import (
    ReadSpeed,
    check_plan_memory,
    describe_passes,
    format_size,
    measure_read_speed,
    plan_selection,
    plan_sources,
)
from labelwise.selection.run import select as run_select
from labelwise.strategy import Cost, Job, PassStrategy
from tests.pool.counting import CountingShards
from tests.strategies.test_contract import make_rows

STRATEGIES = labelwise.strategies()


@pytest.fixture(params=STRATEGIES.values(), ids=STRATEGIES.keys())
def strategy(request):
    return request.param


def representations(strategy, n):
    return {name: make_rows(name, n=n) for name in strategy.needs or ("features",)}


def passes_counted(strategy, rows, budget):
    shards = CountingShards(rows, blocks=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        run_select(strategy, shards, budget, seed=1)
    return shards.passes


@pytest.mark.parametrize("budget", [1, 15])
def test_every_strategy_reads_the_rows_as_often_as_it_says(strategy, budget):
    rows = representations(strategy, 300)
    shapes = {name: (value.shape[1:],) for name, value in rows.items()}
    low, high = strategy.costs(Job(300, budget, shapes, strategy.options)).passes
    counted = passes_counted(strategy, rows, budget)
    assert min(low, 1) <= counted <= high
    if budget > 1:
        assert low <= counted


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lewis", {"p": 1.0}),
        ("lewis", {"p": 5.0}),
        ("bss", {"basis": "polynomial"}),
        ("bss", {"basis": "fourier"}),
        ("ally", {"diversity": "kmeans++"}),
        ("ally", {"diversity": "k_center"}),
        ("ally", {"diversity": "none"}),
        ("kmeans", {"rounds": 3}),
        ("sparse_iht", {"beta": 1e-4}),
    ],
)
def test_options_change_how_often_the_rows_are_read(name, options):
    strategy = STRATEGIES[name].with_options(**options)
    rows = representations(strategy, 300)
    shapes = {name: (value.shape[1:],) for name, value in rows.items()}
    low, high = strategy.costs(Job(300, 60, shapes, strategy.options)).passes
    assert low <= passes_counted(strategy, rows, 60) <= high


def test_a_pass_of_a_strategy_for_each_model_is_counted():
    rows = {"features": [make_rows("features", n=300), make_rows("features", n=300, seed=1)]}
    cost = STRATEGIES["lewis"].costs(Job(300, 20, {"features": ((6,), (6,))}, {"p": 2, "tol": 1}))
    low, high = cost.passes
    assert low <= passes_counted(STRATEGIES["lewis"], rows, 20) <= high


def peak_memory(strategy, n, folder, budget=10, block=1 << 19):
    """The most memory that a selection from files takes, and the plan for it."""
    given = {}
    for name, value in representations(strategy, n).items():
        given[name] = folder / f"{name}-{n}.npy"
        np.save(given[name], value.astype(np.float32) if value.dtype.kind == "f" else value)
    sources = open_sources(given)
    shards, _ = open_shards(sources, block_bytes=block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        tracemalloc.start()
        run_select(strategy, shards, budget, seed=1)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak, plan_sources(strategy, sources, budget, block_bytes=block)


def check_memory_per_item(strategy, few, many, folder):
    """With more items, memory grows by what is said to be kept of each, and no more."""
    less, _ = peak_memory(strategy, few, folder)
    more, said = peak_memory(strategy, many, folder)
    assert more - less <= 1.1 * said.cost.item_bytes * (many - few) + 2**20
    assert more <= said.memory


@pytest.mark.parametrize("name", ["random", "margin", "lewis", "bss", "badge", "dynamics"])
def test_memory_per_item_is_as_declared(name, tmp_path):
    check_memory_per_item(STRATEGIES[name], 40_000, 120_000, tmp_path)


@pytest.mark.slow
def test_memory_per_item_is_as_declared_by_every_strategy(strategy, tmp_path):
    if "member_probabilities" in strategy.needs or strategy.name in (
        "bait",
        "typiclust",
        "herding",
    ):
        check_memory_per_item(strategy, 20_000, 60_000, tmp_path)
    else:
        check_memory_per_item(strategy, 100_000, 300_000, tmp_path)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (2048, "2 KiB"),
        (64 << 20, "64 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes_are_written_in_units_that_fit(count, text):
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(passes=(1, 1)), "once"),
        (Cost(passes=(2, 2)), "twice"),
        (Cost(passes=(9, 9)), "9 times"),
        (Cost(passes=(1, 1200)), "at most 1,200 times"),
        (Cost(passes=(1, 1200), usual=4), "at most 1,200 times, usually about 4"),
        (Cost(passes=(1, math.inf)), "several times, depending on the data"),
    ],
)
def test_passes_are_said_in_words(cost, text):
    assert describe_passes(cost) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(passes=(2, 2)), "128 KiB"),
        (Cost(passes=(1, 100)), "at most 6 MiB"),
        (Cost(passes=(1, 100), usual=4), "at most 6 MiB, usually about 256 KiB"),
        (Cost(passes=(1, math.inf)), "64 KiB, more if needed"),
    ],
)
def test_the_bytes_read_are_said_as_the_passes_are(cost, text):
    found = plan_selection(STRATEGIES["k_center"], {"features": np.zeros((1024, 8))}, 10)
    assert list(replace(found, cost=cost).describe_fully())[2] == f"bytes read: {text}"


def test_the_pool_is_described_by_its_shapes():
    given = {"features": [np.zeros((1000, 4)), np.zeros((1000, 6), np.float32)]}
    found = plan_selection(STRATEGIES["lewis"], given, 10)
    pool, how = found.describe_briefly()
    assert pool == "pool: 1,000 items (features 4 and 6), 55 KiB, read in one block"
    assert how.startswith("plan: lewis reads the rows at most 6 times, usually about 4; about ")


def test_memory_grows_with_the_items_and_the_gram_matrix():
    narrow, wide, more = (
        plan_selection(STRATEGIES["lewis"], {"features": np.zeros(shape, np.float32)}, 10)
        for shape in [(1 << 20, 64), (1 << 20, 256), (1 << 21, 64)]
    )
    assert wide.memory - narrow.memory == 24 * (256**2 - 64**2)
    assert more.memory - narrow.memory == narrow.cost.item_bytes * 2**20


def test_blocks_that_keep_all_picks_are_counted():
    few = Job(10**6, 10, {"features": ((512,),)}, {})
    many = few._replace(budget=10_000)
    assert many.picked_bytes == 1000 * few.picked_bytes
    blocks = math.ceil(10**6 * 2048 / few.block_bytes)
    assert few.picked_bytes * 10**6 == pytest.approx(blocks * 2 * 10 * 2048)


def test_a_large_file_is_read_in_blocks(tmp_path):
    rows = 4 * BLOCK_BYTES // (8 * 64)
    np.lib.format.open_memmap(tmp_path / "f.npy", mode="w+", shape=(rows, 64))
    found = plan_selection(STRATEGIES["k_center"], {"features": tmp_path / "f.npy"}, 99)
    pool, how = found.describe_briefly()
    assert pool.endswith("256 MiB, read in 4 blocks of 64 MiB")
    assert how.startswith("plan: k_center reads the rows at most 101 times")
    assert found.bytes_read == (2 * 2**28, 101 * 2**28)


def test_a_strategy_that_needs_no_rows_reads_them_once_for_their_checks():
    found = plan_selection(STRATEGIES["random"], {"features": np.zeros((10, 2))}, 5)
    assert found.cost.passes == (1, 1)


def test_without_files_there_is_nothing_to_say():
    assert plan_selection(STRATEGIES["random"], {}, 10) is None


def test_time_is_passes_times_reading_and_columns_times_multiplying():
    given = {"features": np.zeros((1000, 4))}
    found = plan_sources(STRATEGIES["k_center"], open_sources(given), 10, timed=True)
    assert found.speed.read >= 0 and found.speed.column > 0 and found.speed.blocks == 1
    cost = Cost(passes=(2, 4), columns=7)
    speed = ReadSpeed(read=10.0, again=10.0, column=3.0, blocks=1)
    slow = replace(found, cost=cost, speed=speed)
    assert slow.seconds == 3 * 10.0 + 7 * 3.0
    kept = replace(slow, speed=replace(speed, again=0.0))
    assert kept.seconds == 10.0 + 7 * 3.0
    assert "time: about 51.0 s (all rows are read in 10.0 s" in "\n".join(slow.describe_fully())


def test_what_is_kept_is_said_in_words():
    members = {"member_probabilities": np.full((5000, 40, 2), 0.5)}
    said = list(plan_selection(STRATEGIES["bayesian_coreset"], members, 3).describe_fully())
    assert said[3] == (
        "kept in memory: 360 bytes per item (2 MiB); 2 MiB may go to disk: "
        "a vector of 40 numbers per item, one per member"
    )


def test_three_blocks_are_enough_to_measure():
    sources = open_sources({"features": np.zeros((4000, 8))})
    whole = measure_read_speed(sources, 4000, 64, block_bytes=64 * 1000)
    assert whole.blocks == 3


def test_a_strategy_of_ones_own_has_the_cost_of_its_form():
    def choose(shards, labelled, budget, seed):
        raise AssertionError("a plan runs nothing")

    own = PassStrategy(name="own", needs=("features",), good_for="", reference="", choose=choose)
    found = plan_selection(own, {"features": np.zeros((10, 2))}, 3)
    assert found.cost.passes == (1, math.inf) and found.seconds is None
    assert any("several times" in line for line in found.describe_fully())


def test_options_that_are_no_good_are_left_to_the_strategy():
    wrong = STRATEGIES["lewis"].with_options(p=-1.0)
    assert plan_selection(wrong, {"features": np.eye(3)}, 1).cost.passes == (1, math.inf)


def zeros(n, *shape):
    """A pool of any size that takes no memory."""
    return np.broadcast_to(np.zeros((1, *(1,) * len(shape)), np.float32), (n, *shape))


def test_what_would_not_fit_is_refused_before_it_starts():
    members = zeros(10**7, 40, 2)
    words = (
        r"bayesian_coreset would take about .* for 10,000,000 items but 512 MiB may be used: it "
        r"keeps a vector of 40 numbers per item, one per member; use bald or committee, which "
        r"does not, or give it fewer items, or raise memory"
    )
    with pytest.raises(BadInput, match=words):
        labelwise.select("bayesian_coreset", 3, member_probabilities=members, memory=0.5)


def test_what_goes_to_disk_need_not_fit():
    given = {"features": zeros(10**8, 4)}
    cost = Cost(passes=(1, 1), item_bytes=100.0, state_bytes=90.0)
    found = replace(plan_selection(STRATEGIES["k_center"], given, 1), cost=cost)
    check_plan_memory(found, 1.6e9, given)
    with pytest.raises(BadInput, match="give it fewer items, or raise memory"):
        check_plan_memory(found, 0.5e9, given)


GIVEN = {
    "features": (64,),
    "logits": (10,),
    "probabilities": (10,),
    "member_probabilities": (5, 10),
    "member_votes": (5,),
    "outputs": (2,),
    "gradient_norms": (),
    "gradient_products": (),
    "gradient_sketch": (16,),
    "duals": (),
}
USE = re.compile(r"; use (.*?), which does not")


def offered(strategy, names, limit, budget=1000):
    """The pool, and the strategies that a refusal offers."""
    given = {name: zeros(20_000_000, *GIVEN[name]) for name in names}
    with pytest.raises(BadInput) as refused:
        check_plan_memory(plan_selection(strategy, given, budget), limit, given)
    use = USE.search(str(refused.value))
    return given, use[1].split(" or ") if use else []


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.001])
def test_what_a_refusal_offers_can_be_done(strategy, share):
    for names in (strategy.needs, *strategy.or_needs):
        names = names or ("features",)
        whole = plan_selection(strategy, {n: zeros(20_000_000, *GIVEN[n]) for n in names}, 1000)
        limit = share * whole.least_memory
        given, others = offered(strategy, names, limit)
        for other in others:
            assert plan_selection(STRATEGIES[other], given, 1000).least_memory <= limit


def test_strategies_that_need_other_files_are_not_offered():
    limit = 0.6 * 2**30
    _, others = offered(STRATEGIES["sparse_iht"], ["member_probabilities"], limit)
    assert others == ["bald", "committee"]
    _, others = offered(STRATEGIES["bait"], ["features"], limit)
    assert set(others) <= {"bss", "lewis"}


@pytest.mark.parametrize("amount", [0, -1, math.nan])
def test_memory_is_a_number_above_zero(amount):
    with pytest.raises(BadInput, match="memory must be a number of GiB above 0"):
        labelwise.select("k_center", 1, features=np.eye(3), memory=amount)


@pytest.mark.parametrize(
    "files",
    [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")],
    ids=["version 2", "version 1"],
)
def test_the_memory_of_a_container_counts(files, tmp_path, monkeypatch):
    top = tmp_path / "groups" if files[0] == "memory.max" else tmp_path / "groups" / "memory"
    inner = top / "a" / "b"
    inner.mkdir(parents=True)
    for folder, limit in ((top / "a", "5000"), (inner, "max")):
        (folder / files[0]).write_text(f"{limit}\n")
        (folder / files[1]).write_text("2000\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    kind = "" if files[0] == "memory.max" else "memory"
    (tmp_path / "cgroup").write_text(f"3:cpu:/x\n0:{kind}:/a/b\n")
    monkeypatch.setattr(plan, "CGROUP_LIST", tmp_path / "cgroup")
    monkeypatch.setattr(plan, "CGROUP_MOUNT", tmp_path / "groups")
    assert plan.find_free_memory() == 3300


def test_where_nothing_is_told_all_memory_counts(tmp_path, monkeypatch):
    for name in ("MEMORY_INFO", "CGROUP_LIST"):
        monkeypatch.setattr(plan, name, tmp_path / "nothing")
    assert plan.find_free_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.delattr(os, "sysconf")
    assert plan.find_free_memory() == 8 << 30


def test_free_memory_is_less_than_all_of_it():
    info = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert 0 < plan.find_free_memory() <= int(info["MemTotal"].split()[0]) * 1024


def test_a_row_group_is_timed_from_its_start(tmp_path):
    """Rows before a range are decoded again, so a range in the middle would cost a multiple."""
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"a": rows[:, 0], "b": rows[:, 1]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    source = open_source(tmp_path / "rows.parquet", "features")
    read, ranges = source.read, []
    source.read = lambda first, last: ranges.append((first, last)) or read(first, last)
    measure_read_speed({"features": source}, 1000, source.bytes_per_row, block_bytes=1600)
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
