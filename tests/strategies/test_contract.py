"""What every strategy must do, checked for each one found; nothing is listed here."""

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import take_rows
from labelwise.selection.run import select as run_select
from tests.conftest import make_features, make_probabilities

N, D, K, M, BUDGET = 60, 6, 3, 20, 9
STRATEGIES = labelwise.strategies()


def make_rows(name, n=N, dtype=np.float64, seed=0):
    """One representation, with duplicates and a constant column."""
    features = make_features(n, D, seed)
    features[:, 2] = 1.5
    probabilities = make_probabilities(n, K, seed)
    members = np.stack([make_probabilities(n, K, seed + j) for j in range(M)], axis=1)
    columns = np.random.default_rng(seed).normal(size=n)
    rows = {
        "features": features,
        "probabilities": probabilities,
        "logits": 2 * np.log(probabilities + 1e-3),
        "member_probabilities": members,
        "member_votes": members.argmax(axis=2),
        "outputs": features[:, :2],
        "gradient_norms": np.abs(columns),
        "gradient_products": columns,
        "gradient_sketch": 2 * features,
        "duals": np.abs(columns),
    }[name]
    rows[n // 2 : n // 2 + 5] = rows[:5]  # duplicates
    return rows.astype(dtype) if rows.dtype.kind == "f" else rows


def make_inputs(strategy, **kwargs):
    names = strategy.needs or ("features",)
    return {name: make_rows(name, **kwargs) for name in names}


def select(strategy, budget=BUDGET, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        return labelwise.select(strategy, budget, **kwargs)


def select_in_blocks(strategy, inputs, order, cuts, labelled=()):
    """Select from rows in another order, cut into blocks; ids travel with their rows."""
    order = order[~np.isin(order, labelled)]
    blocks = [
        Shard(part.astype(np.int64), take_rows(inputs, part)) for part in np.split(order, cuts)
    ]
    context = take_rows(inputs, np.array(labelled)) if len(labelled) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        return run_select(strategy, LocalShards(blocks), BUDGET, labelled=context, seed=5)


@pytest.fixture(params=STRATEGIES.values(), ids=STRATEGIES.keys())
def strategy(request):
    return request.param


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def inputs(strategy, request):
    return make_inputs(strategy, dtype=request.param)


def test_has_a_reference_and_says_what_it_is_good_for(strategy):
    assert len(strategy.reference) > 20 and any(c.isdigit() for c in strategy.reference)
    assert strategy.good_for
    module = inspect.getmodule(inspect.unwrap(strategy.main))
    assert module is not None


def test_ids_are_distinct_and_never_labelled(strategy, inputs):
    labelled = [0, 3, 17, 31, 59]
    selection = select(strategy, **inputs, labelled=labelled, seed=1)
    assert len(set(selection.ids.tolist())) == len(selection) == BUDGET
    assert not set(selection.ids.tolist()) & set(labelled)
    assert set(selection.ids.tolist()) <= set(range(N))
    assert selection.ids.dtype == np.int64


def test_weights_stand_for_the_pool(strategy, inputs):
    selection = select(strategy, 20, **inputs, seed=1)
    assert (selection.weights is not None) == strategy.weighted
    if strategy.weighted:
        assert (selection.weights >= 0).all()
        assert 0.3 * N < selection.weights.sum() < 3 * N


@pytest.mark.parametrize("labelled", [[], [2, 40, 41]], ids=["fresh", "labelled"])
def test_does_not_depend_on_the_split_or_the_order(strategy, inputs, labelled):
    whole = select_in_blocks(strategy, inputs, np.arange(N), [], labelled)
    shuffled = np.random.default_rng(3).permutation(N)
    for order, cuts in [
        (np.arange(N), [1, 30]),
        (np.arange(N), [7, 20, 25, 33, 50, 56]),
        (shuffled, []),
        (shuffled, [10, 35]),
    ]:
        other = select_in_blocks(strategy, inputs, order, cuts, labelled)
        assert other.ids.tolist() == whole.ids.tolist()
        if whole.weights is not None:
            np.testing.assert_allclose(other.weights, whole.weights, rtol=2e-3, atol=1e-3)


def test_does_not_depend_on_the_array_library(strategy, inputs):
    torch = pytest.importorskip("torch")
    expected = select(strategy, **inputs, labelled=[4, 9], seed=2)
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        tensors = {name: torch.asarray(value, device=device) for name, value in inputs.items()}
        found = select(strategy, **tensors, labelled=[4, 9], seed=2)
        assert found.ids.tolist() == expected.ids.tolist()


def test_gives_the_whole_pool_when_asked_for_it(strategy, inputs):
    selection = select(strategy, N - 2, **inputs, labelled=[1, 58], seed=1)
    assert sorted(selection.ids.tolist()) == sorted(set(range(N)) - {1, 58})


def test_gives_nothing_when_asked_for_nothing(strategy, inputs):
    assert len(select(strategy, 0, **inputs)) == 0


def test_gives_one_when_asked_for_one(strategy, inputs):
    assert len(select(strategy, 1, **inputs)) == 1


def test_a_seed_decides_the_picks(strategy, inputs):
    first, again = (select(strategy, **inputs, seed=11).ids.tolist() for _ in range(2))
    assert first == again
    others = [select(strategy, 20, **inputs, seed=seed).ids.tolist() for seed in range(5)]
    assert (len({tuple(sorted(ids)) for ids in others}) > 1) == strategy.draws


def test_leaves_the_inputs_unchanged(strategy, inputs):
    copies = {name: value.copy() for name, value in inputs.items()}
    for value in inputs.values():
        value.flags.writeable = False
    select(strategy, **inputs, seed=1)
    for name, copy in copies.items():
        np.testing.assert_array_equal(inputs[name], copy)


def test_refuses_too_large_a_budget(strategy, inputs):
    with pytest.raises(BadInput, match=r"budget is 59 but only 58 unlabelled items are left"):
        select(strategy, 59, **inputs, labelled=[1, 58])


def test_refuses_nan_and_names_the_item(strategy, inputs):
    name, value = next(iter(inputs.items()))
    inputs[name] = value.astype(np.result_type(value, np.float32))  # votes are whole numbers
    inputs[name][23] = np.nan
    with pytest.raises(BadInput, match=r"item 23"):
        select(strategy, **inputs)


def test_survives_a_pool_of_copies(strategy):
    inputs = make_inputs(strategy)
    copies = {name: np.repeat(value[:1], 30, axis=0) for name, value in inputs.items()}
    selection = select(strategy, 5, **copies)
    assert len(set(selection.ids.tolist())) == 5


def test_survives_more_columns_than_items(strategy):
    inputs = make_inputs(strategy, n=20)
    if "features" in inputs:
        inputs["features"] = np.random.default_rng(0).normal(size=(20, 40))
    assert len(set(select(strategy, 6, **inputs).ids.tolist())) == 6


def test_survives_zero_rows(strategy):
    inputs = make_inputs(strategy)
    if "features" in inputs:
        inputs["features"][10:30] = 0
    assert len(set(select(strategy, 12, **inputs).ids.tolist())) == 12


def test_survives_one_class(strategy):
    inputs = make_inputs(strategy)
    for name in ("probabilities", "logits"):
        if name in inputs:
            inputs[name] = np.ones((N, 1))
    if "member_probabilities" in inputs:
        inputs["member_probabilities"] = np.ones((N, M, 1))
    assert len(set(select(strategy, 5, **inputs).ids.tolist())) == 5


def test_has_a_test_file_of_its_own(strategy):
    assert (Path(__file__).parent / f"test_{strategy.name}.py").exists()


def test_an_unknown_option_is_an_error(strategy, inputs):
    with pytest.raises(labelwise.UnknownName, match="has no option 'bugdet'"):
        select(strategy, **inputs, bugdet=3)
