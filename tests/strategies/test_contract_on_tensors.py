"""Every strategy takes tensors as models leave them, and beside NumPy arrays and files."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelwise.pool.rows import map_models  # noqa: E402
from tests.strategies.test_contract import STRATEGIES, make_rows, select  # noqa: E402

WITHOUT_LABELS = {"dynamics": {"gamma": 0.0}}
"""The labels of labelled items are no part of this test."""
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
LISTED = {("features",), ("probabilities",), ("outputs",), ("features", "outputs")}
"""Representations of which strategies for several models take a list; of the last one here."""

PAIRS = [
    pytest.param(strategy, names, id=f"{name}-{'-'.join(names)}")
    for name, strategy in STRATEGIES.items()
    for names in (strategy.needs or ("features",), *strategy.or_needs)
]
"""All strategies with each set of representations that they read."""


def make_inputs(strategy, names, dtypes=(np.float64,)):
    """Rows by name, a list of two models' where the strategy takes one."""
    rows = {
        name: make_rows(name, dtype=dtype)
        for name, dtype in zip(names, itertools.cycle(dtypes), strict=False)
    }
    if strategy.several and names in LISTED:
        rows[names[-1]] = [rows[names[-1]], make_rows(names[-1], seed=1)]
    return rows


def picks(strategy, rows):
    options = WITHOUT_LABELS.get(strategy.name, {})
    return select(strategy, **rows, labelled=[4, 9], seed=2, **options).ids.tolist()


def with_gradient(array):
    return torch.tensor(array, requires_grad=array.dtype.kind == "f")


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def written(folder):
    """A function that writes an array to a file of its own."""
    numbers = itertools.count()

    def write(array):
        path = folder / f"{next(numbers)}.npy"
        np.save(path, array)
        return path

    return write


@pytest.mark.parametrize(("strategy", "names"), PAIRS)
def test_takes_tensors_that_still_know_their_gradients(strategy, names):
    rows = make_inputs(strategy, names)
    tensors = {name: map_models(value, with_gradient) for name, value in rows.items()}
    assert picks(strategy, tensors) == picks(strategy, rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("strategy", "names"), [pair for pair in PAIRS if len(pair.values[1]) > 1])
def test_takes_tensors_beside_arrays_and_files(strategy, names, device, tmp_path):
    rows = make_inputs(strategy, names, (np.float32, np.float64))  # of any precision, as they come
    expected = picks(strategy, rows)
    for convert in (read_only, written(tmp_path)):
        others = {name: map_models(value, convert) for name, value in rows.items()}
        for name, value in rows.items():
            tensors = {name: map_models(value, lambda array: torch.tensor(array, device=device))}
            assert picks(strategy, others | tensors) == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("strategy", "names"),
    [pair for pair in PAIRS if pair.values[0].several and pair.values[1] in LISTED],
)
def test_takes_a_tensor_of_one_model_and_an_array_of_another(strategy, names, device, tmp_path):
    rows = make_inputs(strategy, names)
    expected = picks(strategy, rows)
    first, second = rows[names[-1]]
    for other in (first, written(tmp_path)(first)):
        mixed = rows | {names[-1]: [other, torch.tensor(second, device=device)]}
        assert picks(strategy, mixed) == expected
