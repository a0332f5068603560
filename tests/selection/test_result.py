"""Selections: weights, files, and what they refuse."""

import csv
import json

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.selection.result import Selection
from tests.conftest import make_probabilities


def make_selection():
    return Selection(
        np.array([4, 1, 9]), np.array([1.0, 2.0, 6.0]), np.array([1, 1, 3]), np.array([0.5, 0.4, 0])
    )


def test_training_weights_have_mean_one_and_keep_their_ratios():
    np.testing.assert_allclose(make_selection().training_weights(), [1 / 3, 2 / 3, 2])


def test_without_weights_all_are_one():
    assert Selection(np.array([4, 1])).training_weights().tolist() == [1.0, 1.0]


def test_effective_size_counts_equal_weights_in_full():
    assert Selection(np.arange(5), np.full(5, 3.0)).effective_size() == pytest.approx(5)
    assert make_selection().effective_size() == pytest.approx(81 / 41)
    assert Selection(np.arange(3), np.array([1.0, 0, 0])).effective_size() == pytest.approx(1)


def test_weights_that_are_all_zero_cannot_train():
    with pytest.raises(BadInput, match="all weights of this selection are zero"):
        Selection(np.array([1]), np.zeros(1)).training_weights()


def test_repeated_ids_are_an_error():
    with pytest.raises(BadInput, match="must all be different"):
        Selection(np.array([1, 1]))


def test_weights_of_another_length_are_an_error():
    with pytest.raises(BadInput, match="a selection of 2 ids has 3 weights"):
        Selection(np.array([1, 2]), np.ones(3))


def test_csv_holds_every_pick_in_order(tmp_path):
    make_selection().save(tmp_path / "picks.csv")
    with (tmp_path / "picks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[2] == {"id": "9", "weight": "6.0", "count": "3", "score": "0.0", "rank": "2"}
    assert [row["id"] for row in rows] == ["4", "1", "9"]


def test_jsonl_leaves_out_no_field(tmp_path):
    Selection(np.array([4, 1])).save(tmp_path / "picks.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "picks.jsonl").read_text().splitlines()]
    assert lines[1] == {"id": 1, "weight": None, "count": None, "score": None, "rank": 1}


def test_parquet_gives_the_same_table(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    make_selection().save(tmp_path / "picks.parquet")
    assert parquet.read_table(tmp_path / "picks.parquet").to_pydict() == make_selection().columns()


def test_a_failed_write_leaves_the_old_file_and_no_half_file(tmp_path, monkeypatch):
    path = tmp_path / "picks.csv"
    path.write_text("old")

    def fail(table, part):
        part.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setitem(Selection.save.__globals__["_WRITERS"], ".csv", fail)
    with pytest.raises(KeyboardInterrupt):
        make_selection().save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_ending_or_folder_is_an_error(tmp_path):
    with pytest.raises(BadInput, match=r"cannot write 'picks.txt'; end the name in .csv"):
        make_selection().save(tmp_path / "picks.txt")
    with pytest.raises(BadInput, match="there is no folder"):
        make_selection().save(tmp_path / "nowhere" / "picks.csv")


@pytest.mark.parametrize("strategy", ["entropy", "margin", "confidence"])
def test_scores_of_the_pool_are_those_of_the_picks(strategy):
    rows = make_probabilities(40, 3)
    scores = labelwise.score(strategy, probabilities=rows, labelled=[4, 7])
    picks = labelwise.select(strategy, 38, probabilities=rows, labelled=[4, 7])
    assert np.flatnonzero(np.isnan(scores)).tolist() == [4, 7]
    np.testing.assert_array_equal(scores[picks.ids], picks.scores)


def test_only_score_strategies_score_the_pool():
    with pytest.raises(BadInput, match="badge does not score items one by one; choose from"):
        labelwise.score("badge", probabilities=make_probabilities(40, 3))


def test_notebooks_show_a_table_with_escaped_keys():
    rows, names = make_probabilities(40, 3), [f"<{n}>" for n in range(40)]
    text = labelwise.select("entropy", 12, probabilities=rows, ids=names)._repr_html_()
    assert text.count("<tr>") == 11 and "&lt;" in text and "and 2 more" in text
    assert not any(name in text for name in names)


def test_plots_show_every_pick():
    pytest.importorskip("matplotlib").use("agg")
    rows = np.random.default_rng(0).normal(size=(40, 5))
    picks = labelwise.select("k_center", 6, features=rows)
    pool, shown = picks.plot(rows).collections
    assert len(pool.get_offsets()) == 40 and len(shown.get_offsets()) == 6
    assert len(picks.plot().lines[0].get_xdata()) == 6


def test_prints_the_first_picks_on_one_line():
    picks = Selection(np.arange(100_000), info={"strategy": "lewis"})
    assert repr(picks) == "Selection(100000 picks by lewis: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)"
    assert repr(Selection(np.empty(0, dtype=np.int64))) == "Selection(0 picks)"


def test_comparing_selections_is_not_an_error():
    picks = Selection(np.array([3, 4]))
    assert picks == picks
    assert picks != Selection(np.array([3, 5]))


def test_plots_take_tables_and_need_the_keys_of_the_rows():
    pytest.importorskip("matplotlib").use("agg")
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(size=(30, 4))
    names = [f"photo-{row}" for row in range(30)]
    table = pandas.DataFrame(rows).assign(id=names)
    picks = labelwise.select("lewis", 6, features=table)
    expected = picks.plot(rows, ids=names).collections[1].get_offsets()
    np.testing.assert_array_equal(picks.plot(table).collections[1].get_offsets(), expected)
    with pytest.raises(BadInput, match="the picks have keys of their own; give ids"):
        picks.plot(rows)
    with pytest.raises(BadInput, match="plot takes one array of features"):
        picks.plot([rows, rows])
