"""Picks and weights of every strategy stay those of version 0.1.0, wherever the rows are.

picks.json holds them; generate.py writes it. Later strategies have the picks of their first
version, and typiclust, whose clustering stops earlier, those of 0.2.0.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise
from tests.golden.cases import POOLS, list_cases, make_arguments, run_case

GOLDEN = json.loads((Path(__file__).parent / "picks.json").read_text())
CASES = [case for case in list_cases() if case.key in GOLDEN]
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}
"""Of weights, as a fraction of the largest."""


def check_picks(case, arguments):
    entry, found = GOLDEN[case.key], run_case(case, arguments)
    assert found.ids.tolist() == entry["ids"], case.key
    assert (found.weights is None) == ("weights" not in entry), case.key
    if found.weights is not None:
        expected = np.array(entry["weights"])
        tolerance = TOLERANCE[POOLS[case.pool].dtype] * expected.max()
        np.testing.assert_allclose(found.weights, expected, rtol=0, atol=tolerance)


def convert_arrays(arguments, convert):
    """The arguments with every representation converted, those in lists too."""
    rows = {
        name: [convert(part) for part in value] if isinstance(value, list) else convert(value)
        for name, value in arguments.items()
        if name not in ("ids", "labelled", "labels") and isinstance(value, list | np.ndarray)
    }
    return arguments | rows


def write_files(folder):
    """A function that writes an array to a .npy file and returns its path."""

    def write(array):
        path = folder / f"{len(list(folder.iterdir()))}.npy"
        np.save(path, array)
        return path

    return write


def set_small_blocks(monkeypatch):
    """Cut pools into the smallest blocks, of 256 rows; the only internal name used here."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("labelwise.") and hasattr(module, "BLOCK_BYTES")
    ]
    assert modules, "no module has BLOCK_BYTES; set the size of blocks here"
    for module in modules:
        monkeypatch.setattr(module, "BLOCK_BYTES", 1)


def list_strategies(*, variants):
    names = [case.strategy for case in CASES if POOLS[case.pool].variants or not variants]
    return sorted(set(names))


@pytest.mark.parametrize("strategy", list_strategies(variants=False))
def test_arrays_give_the_stored_picks(strategy):
    for case in CASES:
        if case.strategy == strategy:
            check_picks(case, make_arguments(case, GOLDEN[case.key]["salt"]))


@pytest.mark.parametrize("where", ["files", "blocks", "file_blocks", "tensors"])
@pytest.mark.parametrize("strategy", list_strategies(variants=True))
def test_files_blocks_and_tensors_give_the_same_picks(strategy, where, tmp_path, monkeypatch):
    convert = np.asarray
    if "file" in where:
        convert = write_files(tmp_path)
    if "blocks" in where:
        set_small_blocks(monkeypatch)
    if where == "tensors":
        convert = pytest.importorskip("torch").asarray
    for case in CASES:
        if case.strategy == strategy and POOLS[case.pool].variants and case.seed == 0:
            arguments = make_arguments(case, GOLDEN[case.key]["salt"])
            check_picks(case, convert_arrays(arguments, convert))


def test_every_stored_case_is_checked():
    assert {case.key for case in CASES} == set(GOLDEN)


def test_every_strategy_of_version_0_1_0_is_covered():
    """By pools with and without labelled items, both seeds and precisions, and several models."""
    known = labelwise.strategies()
    for name in {key.split()[0] for key in GOLDEN}:
        cases = [case for case in CASES if case.strategy == name]
        pools = [POOLS[case.pool] for case in cases]
        assert len({case.pool for case in cases}) >= 12, name
        assert {case.names for case in cases} >= {known[name].needs or ("features",)}, name
        assert {case.seed for case in cases} >= {0, 7}, name
        assert {bool(pool.labelled) for pool in pools} == {True, False}, name
        assert {pool.dtype for pool in pools} == {"float64", "float32"}, name
        assert any(pool.variants for pool in pools), name
