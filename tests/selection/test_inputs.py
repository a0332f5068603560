"""Rows, ids and arguments of any kind: converted if their meaning is clear, otherwise rejected."""

import os
import struct
from datetime import datetime, timedelta

import numpy as np
import pytest
from scipy import sparse

import labelwise
from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning
from labelwise.pool.representations import open_source
from tests.conftest import make_features, make_probabilities

N = 60
FEATURES, PROBABILITIES = make_features(N, 4), make_probabilities(N, 3)
MEMBERS = np.stack([make_probabilities(N, 3, seed=j) for j in range(5)], axis=1)


def pick(strategy="k_center", **given):
    picks = labelwise.select(strategy, 5, **given)
    return picks.ids.tolist() if picks.keys is None else picks.keys


def to_tensor(rows):
    return pytest.importorskip("torch").as_tensor(np.ascontiguousarray(rows))


class WithArray:
    """Supports ``__array__`` only."""

    def __init__(self, rows):
        self._rows = rows

    def __array__(self, dtype=None, copy=None):
        return self._rows


class WithDlpack:
    """Supports DLPack only."""

    def __init__(self, rows):
        self._rows = rows

    def __dlpack__(self, **options):
        return self._rows.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._rows.__dlpack_device__()


def to_pandas(rows):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows, columns=[f"c{j}" for j in range(rows.shape[1])])


def to_pyarrow(rows):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({f"c{j}": column for j, column in enumerate(rows.T)})


def to_polars(rows):
    return pytest.importorskip("polars").DataFrame(rows)


def to_list_column(rows):
    return pytest.importorskip("pandas").DataFrame({"rows": rows.tolist()})


def to_fixed_lists(rows):
    pyarrow = pytest.importorskip("pyarrow")
    numbers = pyarrow.array(np.ravel(rows))
    return pyarrow.table({"rows": pyarrow.FixedSizeListArray.from_arrays(numbers, rows.shape[1])})


def to_polars_arrays(rows):
    polars = pytest.importorskip("polars")
    kind = polars.Array(polars.Float64, rows.shape[1])
    return polars.DataFrame({"rows": rows.tolist()}, schema={"rows": kind})


def to_hugging_face(rows):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"rows": rows.tolist()})


FORMS = {
    "column-major": np.asfortranarray,
    "reversed twice": lambda rows: np.ascontiguousarray(rows[::-1])[::-1],
    "lists": lambda rows: rows.tolist(),
    "list of arrays of one dimension": list,
    "__array__": WithArray,
    "DLPack": WithDlpack,
    "pandas": to_pandas,
    "polars": to_polars,
    "pyarrow": to_pyarrow,
    "pandas, one column of lists": to_list_column,
    "polars, one column of arrays": to_polars_arrays,
    "pyarrow, one column of lists": to_fixed_lists,
    "Hugging Face": to_hugging_face,
    "column of Hugging Face": lambda rows: to_hugging_face(rows)["rows"],
    "SciPy": sparse.csr_array,
    "SciPy matrix in another format": sparse.coo_matrix,
    "torch": to_tensor,
    "column-major tensor": lambda rows: to_tensor(rows.T).T,
}


@pytest.mark.parametrize("strategy", ["badge", "dynamics", "entropy", "lewis"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_same_picks(strategy, form):
    needs = labelwise.strategies()[strategy].match_needs(
        {"features": FEATURES, "probabilities": PROBABILITIES}
    )
    given = {"features": FEATURES, "probabilities": PROBABILITIES}
    given = {name: given[name] for name in needs}
    converted = {name: FORMS[form](rows) for name, rows in given.items()}
    assert pick(strategy, **converted) == pick(strategy, **given)


def test_columns_of_one_number_per_item():
    pandas = pytest.importorskip("pandas")
    given = {"gradient_norms": abs(FEATURES[:, 0]), "gradient_products": FEATURES[:, 1]}
    expected = pick("dynamics", **given)
    assert pick("dynamics", **{k: v.tolist() for k, v in given.items()}) == expected
    assert pick("dynamics", **{k: pandas.Series(v) for k, v in given.items()}) == expected
    assert pick("dynamics", **{k: pandas.DataFrame({"x": v}) for k, v in given.items()}) == expected


def test_the_column_id_of_a_table_holds_the_ids():
    names = [f"photo-{row}" for row in range(N)]
    table = to_pandas(FEATURES).assign(id=names)
    assert pick(features=table) == pick(features=FEATURES, ids=names)
    assert pick(features=table, ids=range(N)) == pick(features=FEATURES)


def test_another_column_holds_the_ids_if_it_is_named():
    names = [f"photo-{row}" for row in range(N)]
    table = to_pandas(FEATURES).assign(photo=names)
    assert pick(features=table, id_column="photo") == pick(features=FEATURES, ids=names)
    chances = to_pandas(PROBABILITIES).assign(photo=names)
    scores = labelwise.score("entropy", probabilities=chances, id_column="photo")
    np.testing.assert_array_equal(scores, labelwise.score("entropy", probabilities=PROBABILITIES))
    with pytest.raises(BadInput, match="give either a pool or representations and ids"):
        labelwise.select("k_center", 5, pool=labelwise.Pool(features=FEATURES), id_column="photo")


def test_values_that_are_almost_tables_are_rejected():
    polars = pytest.importorskip("polars")
    with pytest.raises(BadInput, match="got LazyFrame"):
        pick(features=polars.DataFrame(FEATURES).lazy())
    with pytest.raises(BadInput, match="features is a list of dicts; give a table of them"):
        pick(features=to_pandas(FEATURES).to_dict("records"))


def test_tables_with_texts_or_repeated_columns_are_rejected():
    table = to_pandas(FEATURES)
    with pytest.raises(BadInput, match="column 'town' holds values that are not numbers"):
        pick(features=table.assign(town="9"))
    with pytest.raises(BadInput, match="column 'c0' is next to the lists of 'rows'"):
        pick(features=table.assign(rows=FEATURES.tolist()))
    with pytest.raises(BadInput, match="column 'rows' is a list of rows that do not form an array"):
        pick(features=to_list_column(FEATURES).map(lambda row: row[: 3 + (row[0] > 0)]))
    table.columns = ["a", "b", "b", "c"]
    with pytest.raises(BadInput, match="several columns called 'b'"):
        pick(features=table)


def test_a_list_of_matrices_has_one_per_model():
    models = [FEATURES, FEATURES[:, :2]]
    assert pick("lewis", features=[m.tolist() for m in models][:1]) == pick(
        "lewis", features=models[:1]
    )
    with pytest.raises(BadInput, match="k_center takes one array of features; got a list of 2"):
        pick(features=models)


@pytest.mark.parametrize("strategy", ["bald", "committee", "entropy"])
def test_a_list_of_members_is_stacked(strategy):
    expected = pick(strategy, member_probabilities=MEMBERS)
    assert pick(strategy, member_probabilities=[MEMBERS[:, j] for j in range(5)]) == expected
    assert pick(strategy, member_probabilities=[MEMBERS[:, :2], MEMBERS[:, 2:]]) == expected


def test_a_list_of_votes_is_stacked():
    votes = MEMBERS.argmax(axis=2)
    expected = pick("committee", member_votes=votes)
    assert pick("committee", member_votes=list(votes.T)) == expected
    assert pick("committee", member_votes=[votes[:, :2], votes[:, 2:]]) == expected


def test_sparse_rows_are_dense_one_block_at_a_time():
    rows = np.where(FEATURES > 0.5, FEATURES, 0).astype(np.float32)
    source = open_source(sparse.coo_array(rows), "features")
    np.testing.assert_array_equal(source.read(10, 20), rows[10:20])
    np.testing.assert_array_equal(source.take(np.array([7, 3])), rows[[7, 3]])
    assert source.bytes_per_row == 16


@pytest.mark.parametrize("strategy", ["badge", "entropy", "bait"])
def test_logits_replace_probabilities(strategy, tmp_path):
    logits = np.log(PROBABILITIES) + FEATURES[:, :1]  # a constant per row changes nothing
    given = {} if strategy == "entropy" else {"features": FEATURES}
    expected = pick(strategy, probabilities=PROBABILITIES, **given)
    assert pick(strategy, logits=logits, **given) == expected
    np.save(tmp_path / "logits.npy", logits)
    assert pick(strategy, logits=tmp_path / "logits.npy", **given) == expected


def test_logits_that_are_not_finite_are_rejected():
    logits = np.log(PROBABILITIES)
    logits[3, 1] = np.nan
    with pytest.raises(BadInput, match="probabilities of item 13 is NaN or infinite"):
        pick("entropy", logits=logits, ids=range(10, 10 + N))


def test_the_rounding_of_bfloat16_is_accepted():
    torch = pytest.importorskip("torch")
    rows = torch.as_tensor(make_probabilities(200, 4)).to(torch.bfloat16)
    assert float(abs(rows.double().sum(1) - 1).max()) > 1e-3
    assert pick("entropy", probabilities=rows) == pick("entropy", probabilities=rows.float())


@pytest.mark.parametrize("make", ["ml_dtypes", "jax.numpy"])
def test_bfloat16_of_numpy_and_jax_is_computed_with_in_float32(make):
    kind = pytest.importorskip(make).bfloat16
    rows = make_probabilities(200, 4).astype(pytest.importorskip("ml_dtypes").bfloat16)
    given = pytest.importorskip("jax.numpy").asarray(rows) if make == "jax.numpy" else rows
    assert given.dtype == kind
    expected = pick("entropy", probabilities=rows.astype(np.float32))
    assert pick("entropy", probabilities=given) == expected


def test_arrays_of_jax_are_shared():
    rows = pytest.importorskip("jax.numpy").asarray(FEATURES)
    assert pick(features=rows) == pick(features=FEATURES.astype(np.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: {3, 8},
        lambda: frozenset([3, 8]),
        lambda: iter([3, 8]),
        lambda: np.isin(np.arange(N), [3, 8]),
        lambda: [row in (3, 8) for row in range(N)],
        lambda: to_tensor(np.isin(np.arange(N), [3, 8])),
        lambda: to_tensor(np.array([3, 8])),
    ],
)
def test_labelled_items_in_sets_and_masks(make):
    assert pick(features=FEATURES, labelled=make()) == pick(features=FEATURES, labelled=[3, 8])


def test_a_mask_follows_the_order_of_the_rows():
    names = [f"{row}" for row in range(N)][::-1]
    mask = [name in ("3", "8") for name in names]
    expected = pick(features=FEATURES, ids=names, labelled=["3", "8"])
    assert pick(features=FEATURES, ids=names, labelled=mask) == expected


@pytest.mark.parametrize(
    "ids",
    [
        [str(row) for row in range(N)],
        [datetime(2024, 1, 1) + timedelta(hours=row) for row in range(N)],
        [f"\udc80{row}" for row in range(N)],  # a file name that is not UTF-8
    ],
)
def test_keys_of_any_type_come_back(ids):
    rows = pick(features=FEATURES, labelled=[0])
    keys = pick(features=FEATURES, ids=ids, labelled=[ids[0]])
    assert keys == [ids[row] for row in rows]
    in_array = pick(features=FEATURES, ids=np.array(ids), labelled=ids[:1])
    assert np.array_equal(np.array(in_array), np.array(keys))


def make_bad_tensor(change):
    torch = pytest.importorskip("torch")
    return change(torch, torch.as_tensor(FEATURES, dtype=torch.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, rows: rows.to_sparse(), "features is a sparse tensor"),
        (lambda _, rows: rows.to_sparse_csr(), "features is a sparse tensor"),
        (lambda torch, rows: torch.quantize_per_tensor(rows, 0.1, 0, torch.qint8), "quantized"),
        (lambda _, rows: rows.to("meta"), "meta device"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_plain_rows_are_rejected(change, words):
    with pytest.raises(BadInput, match=words):
        pick(features=make_bad_tensor(change))


@pytest.mark.parametrize(
    "given",
    [
        {"memory": "4"},
        {"memory": True},
        {"on": 1},
        {"on": b"ray"},
        {"progress": 1},
        {"resume": 3},
        {"resume": True},
        {"resume": ""},
        {"labelled": 5},
        {"labelled": "abc"},
        {"labelled": {1: 2}},
        {"labelled": [1, [2]]},
        {"labelled": [True, False]},
        {"ids": [[1, 2], [1]] * 30},
        {"ids": 5},
        {"features": [[1.0, 2.0], [3.0]]},
        {"features": [["a"], ["b"]]},
        {"features": 3.0},
        {"features": "a" * 5000},
        {"features": "a\0b.npy"},
        {"features": object()},
        {"strategy": 3},
        {"strategy": None},
    ],
)
def test_arguments_of_the_wrong_type_are_rejected(given):
    with pytest.raises(LabelwiseError) as error:
        pick(**{"features": FEATURES, **given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("strategy", ["bss", "lewis", "volume"])
@pytest.mark.parametrize("scale", [5e-324, 1e-310])
def test_numbers_without_a_finite_inverse_are_rejected(strategy, scale):
    with pytest.raises(BadInput, match="multiply all features by a number that brings them near 1"):
        pick(strategy, features=FEATURES * scale)


def test_scores_beyond_float64_are_left_out_with_a_warning():
    ordinary = labelwise.select("badge", 5, features=FEATURES, probabilities=PROBABILITIES)
    with pytest.warns(LabelwiseWarning, match="scores are beyond"):
        picks = labelwise.select(
            "badge", 5, features=FEATURES * 2.0**540, probabilities=PROBABILITIES
        )
    assert picks.ids.tolist() == ordinary.ids.tolist()
    assert picks.scores is None and "scores" in picks.info["warning"]


def write_npy(path, header, rows=b"\0" * 80):
    text = header.encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + rows)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-5, -2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }",
        "{'descr': '<f8', ",
    ],
)
def test_npy_headers_that_make_no_sense_are_rejected(tmp_path, header):
    write_npy(tmp_path / "rows.npy", header)
    with pytest.raises(BadInput, match="is not a readable"):
        pick(features=tmp_path / "rows.npy")


@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet"])
def test_named_pipes_are_rejected_without_waiting(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / name, f"{tmp_path}/*"):
        with pytest.raises(BadInput, match=f"{name} is not a regular file"):
            pick(features=path)


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_column_of_lists_is_an_array(library):
    rows = np.arange(12.0).reshape(6, 2) ** 2
    module = pytest.importorskip(library)
    make = module.array if library == "pyarrow" else module.Series
    picks = labelwise.select("k_center", 3, features=make(rows.tolist()))
    assert picks.ids.tolist() == labelwise.select("k_center", 3, features=rows).ids.tolist()


@pytest.mark.parametrize("name", ["lewis", "bss", "design", "volume", "bait"])
def test_a_matrix_of_a_million_words_is_too_wide_for_a_gram_matrix(name):
    words = sparse.csr_array((30, 1_000_000))
    with pytest.raises(BadInput, match=r"of memory for 30 items but 4\.0 GiB may be used"):
        labelwise.select(name, 5, features=words, memory=4)
