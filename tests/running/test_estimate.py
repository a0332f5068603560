"""What is said of a selection before it runs."""

import numpy as np
import pytest

import labelwise
from labelwise.running.estimate import estimate, size_text
from labelwise.running.shards import BLOCK_BYTES


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
    assert size_text(count) == text


def test_the_pool_is_described_by_its_shapes():
    strategy = labelwise.strategies()["lewis"]
    given = {"features": [np.zeros((1000, 4)), np.zeros((1000, 6), np.float32)]}
    pool, plan = estimate(strategy, given, 10)
    assert pool == "pool: 1,000 items (features 4 and 6), 55 KiB, read in one block"
    assert plan.startswith("plan: lewis reads the rows several times")


def test_a_large_file_is_read_in_blocks_and_the_memory_does_not_grow_with_it(tmp_path):
    rows = 4 * BLOCK_BYTES // (8 * 64)
    np.lib.format.open_memmap(tmp_path / "f.npy", mode="w+", shape=(rows, 64))
    pool, plan = estimate(labelwise.strategies()["k_center"], {"features": tmp_path / "f.npy"}, 99)
    assert pool.endswith("256 MiB, read in 4 blocks of 64 MiB")
    assert plan == (
        "plan: k_center reads the rows at most 100 times, far fewer as a rule; "
        "about 224 MiB above Python's own"
    )


def test_a_strategy_that_needs_no_rows_reads_them_for_their_checks_alone():
    _, plan = estimate(labelwise.strategies()["random"], {"features": np.zeros((10, 2))}, 5)
    assert plan == "plan: random reads the rows once, to check them"


def test_without_files_there_is_nothing_to_say():
    assert list(estimate(labelwise.strategies()["random"], {}, 10)) == []
