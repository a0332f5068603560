"""Random calls of `select`: they pick, or raise a labelwise error of one line; never anything else.

Every call is a function of its number, so a failure names the number to repeat.
"""

import math
import warnings

import numpy as np
import pytest
from scipy import sparse

import labelwise
from labelwise.errors import LabelwiseError

CALLS_PER_TEST = 20
QUICK_CALLS, MANY_CALLS = 60, 5000
SECONDS_PER_CALL = 20
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e160, -1e300, 5e-324, 1e-310, 1e-40, 1e39]
TYPES = ["f8", "f4", "f2", ">f8", "i8", "u1", "i2", "?", "c16", "O", "U8", "longdouble"]


def make_rows(rng, name, n, k, m, d):
    """Valid rows of a representation."""
    if name == "probabilities":
        return rng.dirichlet(np.full(k, 0.5), n)
    if name == "member_probabilities":
        return rng.dirichlet(np.full(k, 0.5), (n, m))
    if name == "member_votes":
        return rng.integers(0, k, (n, m))
    shapes = {"features": (n, d), "logits": (n, k), "outputs": (n, 2), "gradient_sketch": (n, d)}
    rows = rng.normal(size=shapes.get(name, (n,)))
    return abs(rows) if name in ("gradient_norms", "duals") else rows


def change_form(rng, rows):
    """The same numbers in another container, layout or type."""
    changes = [
        lambda: rows,
        lambda: np.asfortranarray(rows),
        lambda: np.repeat(rows, 2, axis=0)[::2],
        lambda: rows.astype(rng.choice(TYPES)),
        lambda: rows.tolist(),
        lambda: list(rows),
        lambda: [rows, rows],
        lambda: rows[:-1],
        lambda: rows[..., None],
        lambda: rows.reshape(-1),
        lambda: rows[:0],
        lambda: rows[:, :0] if rows.ndim > 1 else rows,
        lambda: sparse.csr_array(rows) if rows.ndim == 2 else rows,
        lambda: np.ma.masked_less(rows, 0),
        lambda: memoryview(np.ascontiguousarray(rows)),
        lambda: to_tensor(rng, rows),
        lambda: rng.choice(["", "nothing.npy", "*.npy", "a\0b", "s3://", "."]),
        lambda: rng.choice([None, 3, 2.5, object(), b"rows", {"a": rows}], 1)[0],
    ]
    return changes[rng.choice(len(changes), p=weigh(len(changes)))]()


def weigh(count):
    """Most choices are the first, so that most calls reach a strategy."""
    return [0.85] + [0.15 / (count - 1)] * (count - 1)


def to_tensor(rng, rows):
    torch = pytest.importorskip("torch")
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
    tensor = torch.as_tensor(np.ascontiguousarray(rows)).to(kinds[rng.integers(len(kinds))])
    changes = [lambda: tensor, lambda: tensor.requires_grad_(), lambda: tensor.to_sparse()]
    change = changes[rng.integers(len(changes))]
    return change() if tensor.is_floating_point() else tensor


def spoil(rng, rows):
    """Sometimes put special numbers into the rows, or scale them."""
    rows = np.array(rows, dtype=np.float64)
    kind = rng.integers(8)
    if kind == 0 and rows.size:
        rows.flat[rng.integers(rows.size, size=rng.integers(1, 4))] = rng.choice(SPECIAL)
    elif kind == 1:
        with np.errstate(all="ignore"):
            rows = rows * rng.choice(SPECIAL[3:])
    elif kind == 2 and len(rows):
        rows[:] = rows[0]
    return rows


def make_options(rng, strategy):
    """Sometimes a wrong value for an option of the strategy, or an option it does not have."""
    values = [None, -1, 0, 1, 2.5, math.nan, math.inf, "x", True, [], {}, [1, 2], np.float64(0.5)]
    names = [*strategy.options, "nothing"]
    if rng.random() > 0.25:
        return {}
    return {names[rng.integers(len(names))]: values[rng.integers(len(values))]}


def make_ids(rng, n):
    choices = [
        None,
        [str(i) for i in range(n)],
        np.arange(n)[::-1],
        np.datetime64("2024-01-01") + np.arange(n),
        [i / 3 for i in range(n)],
        [0] * n,
        list(range(n + 1)),
        [None] * n,
        [[i] for i in range(n)],
        "abc",
        7,
    ]
    return choices[rng.choice(len(choices), p=weigh(len(choices)))]


def make_labelled(rng, n):
    choices = [
        None,
        [0] if n else [],
        {0, 1},
        [-1],
        [n],
        [0, 0],
        np.zeros(n, dtype=bool),
        np.ones(n, dtype=bool),
        ["0"],
        [0.5],
        [None],
        5,
        np.arange(n),
        np.zeros((2, 2)),
    ]
    return choices[rng.choice(len(choices), p=weigh(len(choices)))]


def call_select(number):
    """The call with this number; returns its picks."""
    rng = np.random.default_rng([number, 77])
    every = list(labelwise.strategies().values())
    strategy = every[rng.integers(len(every))]
    n, k, m, d = (int(rng.choice(sizes)) for sizes in ([0, 1, 2, 5, 30], [1, 2, 5], [1, 3], [1, 4]))
    sets = strategy.input_sets
    names = sets[rng.integers(len(sets))] or ("features",)
    given = {name: change_form(rng, spoil(rng, make_rows(rng, name, n, k, m, d))) for name in names}
    budgets = [min(3, n), 0, 1, n, n + 1, -1, 2.0, "2", None, True]
    budget = budgets[rng.choice(len(budgets), p=weigh(len(budgets)))]
    seeds = [0, 5, -1, 2**70, "0", None, 1.5]
    return labelwise.select(
        strategy.name,
        budget,
        **given,
        ids=make_ids(rng, n),
        labelled=make_labelled(rng, n),
        seed=seeds[rng.choice(len(seeds), p=weigh(len(seeds)))],
        **make_options(rng, strategy),
    )


def check_calls(first, last):
    for number in range(first, last):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                picks = call_select(number)
            assert len(set(picks.ids.tolist())) == len(picks.ids)
        except LabelwiseError as error:
            assert "\n" not in str(error) and str(error), f"call {number}: {error}"
        except Exception as error:
            raise AssertionError(f"call {number} raised {type(error).__name__}: {error}") from error


@pytest.mark.timeout(SECONDS_PER_CALL * CALLS_PER_TEST)
@pytest.mark.parametrize("first", range(0, QUICK_CALLS, CALLS_PER_TEST))
def test_a_few_dozen_random_calls_pick_or_say_why_not(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_calls(first, first + CALLS_PER_TEST)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_PER_CALL * CALLS_PER_TEST)
@pytest.mark.parametrize("first", range(QUICK_CALLS, QUICK_CALLS + MANY_CALLS, 250))
def test_thousands_of_random_calls_pick_or_say_why_not(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_calls(first, first + 250)
