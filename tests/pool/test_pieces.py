"""Work on pieces of a block is the work on the block, whatever holds the rows."""

from functools import partial

import numpy as np
import pytest

import labelwise
from labelwise import threads
from labelwise.errors import BadInput
from labelwise.pool import rows as pieces
from labelwise.pool.blocks import open_shards
from labelwise.pool.representations import open_sources
from labelwise.pool.rows import map_pieces
from tests.conftest import make_features, make_probabilities


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Three threads, and small pieces."""
    for module in (threads, pieces):
        monkeypatch.setattr(module, "thread_count", lambda: 3)
    monkeypatch.setattr(pieces, "NUMBERS", 100)
    monkeypatch.setattr(pieces, "LEAST", 100)


def lengths(seen, rows, norms):
    seen.append(len(norms))
    return np.hypot(rows["features"][:, 0], norms)


def test_pieces_of_arrays_are_cut_together_with_what_lies_beside():
    features, norms, seen = make_features(200, 3), np.arange(200.0), []
    found = map_pieces(partial(lengths, seen), {"features": features}, norms)
    np.testing.assert_array_equal(found, np.hypot(features[:, 0], norms))
    assert sorted(seen) == [30, 34, 34, 34, 34, 34]  # twice three


def test_tensors_and_few_rows_are_one_piece():
    torch = pytest.importorskip("torch")
    seen = []
    tensor = torch.zeros((200, 3), dtype=torch.float64)
    map_pieces(lambda rows: seen.append(len(rows["features"])), {"features": tensor})
    map_pieces(lambda rows: seen.append(len(rows["features"])), {"features": np.zeros((33, 3))})
    assert seen == [200, 33]


@pytest.mark.parametrize("labelled", [None, [3, 70, 199]])
@pytest.mark.parametrize("kind", ["array", "npy", "parquet", "several"])
def test_pieces_of_a_pool_are_its_rows(kind, labelled, tmp_path):
    features = make_features(200, 3).astype(np.float32)
    given = features
    if kind == "npy":
        given = tmp_path / "rows.npy"
        np.save(given, features)
    elif kind == "parquet":
        pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
        given = tmp_path / "rows.parquet"
        table = pyarrow.table({f"c{j}": features[:, j] for j in range(3)})
        parquet.write_table(table, given, row_group_size=37)
    elif kind == "several":
        given = [features, features]
    shards, _ = open_shards(open_sources({"features": given}), labelled=labelled)
    last = (lambda rows: rows["features"][-1]) if kind == "several" else (lambda r: r["features"])
    (found,) = shards.map(lambda shard: map_pieces(last, shard.rows))
    np.testing.assert_array_equal(found, np.delete(features, labelled or [], axis=0))


@pytest.mark.parametrize("wrong", [5, 150])
def test_a_row_that_is_not_finite_is_refused_by_its_item_in_any_piece(wrong, tmp_path):
    features = make_features(200, 3).astype(np.float32)
    features[wrong, 1] = np.nan
    np.save(tmp_path / "rows.npy", features)
    sources = open_sources({"features": tmp_path / "rows.npy"})
    shards, _ = open_shards(sources, ids=np.arange(200) * 10)
    with pytest.raises(BadInput, match=f"features of item {10 * wrong} is NaN"):
        shards.map(lambda shard: map_pieces(lambda rows: rows["features"], shard.rows))
    with pytest.raises(BadInput, match=f"item {10 * wrong} is NaN"):  # it does not count as checked
        shards.map(lambda shard: shard.rows["features"])


@pytest.mark.parametrize("strategy", ["entropy", "margin", "confidence", "badge", "kmeans"])
def test_the_picks_do_not_depend_on_pieces(strategy, monkeypatch, tmp_path):
    rows = {
        "features": make_features(700, 5).astype(np.float32),
        "probabilities": make_probabilities(700, 4).astype(np.float32),
    }
    rows["probabilities"][:50, :2] = rows["probabilities"][:50, :2].mean(axis=1)[:, None]  # level
    needed = ("probabilities",) if strategy in ("entropy", "margin", "confidence") else tuple(rows)
    needed = ("features",) if strategy == "kmeans" else needed
    given = {name: rows[name] for name in needed}
    cut = labelwise.select(strategy, 40, **given, labelled=[7, 8], seed=1)
    monkeypatch.setattr(pieces, "LEAST", 10**9)
    whole = labelwise.select(strategy, 40, **given, labelled=[7, 8], seed=1)
    assert cut.ids.tolist() == whole.ids.tolist()
