"""Texts by their words, against sums that are made by hand."""

import io

import numpy as np
import pytest

from labelwise.benchmark.encoders.text_features import build_counts, build_glove, read_glove

TEXTS = np.array(
    [
        "the cat sat",
        "a cat and a dog",
        "stars and planets",
        "planets have moons",
        "dog sat",
        "moons",
    ]
    * 3,
    dtype=object,
)


def glove_files():
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table, values = io.BytesIO(), io.BytesIO()
    parquet.write_table(pyarrow.table({"index": ["cat", "sat", "é", "."]}), table)
    np.save(values, np.arange(8, dtype=np.float32).reshape(4, 2))
    return {"a/index.parquet": table.getvalue(), "a/emb.npy": values.getvalue()}


def test_a_text_is_the_mean_of_the_words_that_are_known():
    encode = build_glove(read_glove(glove_files()), TEXTS)
    texts = np.array(["The CAT sat.", "é é unknown", "nothing", ""], dtype=object)
    wanted = [[(0 + 2 + 6) / 3, (1 + 3 + 7) / 3], [4, 5], [0, 0], [0, 0]]
    np.testing.assert_allclose(encode(texts), wanted, rtol=1e-6)


@pytest.mark.parametrize("letters", [False, True])
def test_texts_with_common_words_are_near(letters):
    encode = build_counts(3, letters, {}, TEXTS)
    found = encode(np.array(["cat dog sat", "dog cat", "planets moons"], dtype=object))
    assert found.shape == (3, 3) and found.dtype == np.float32
    near, far = (float(found[0] @ found[other]) for other in (1, 2))
    assert near > far + 0.3


def test_counts_do_not_depend_on_what_else_is_encoded():
    encode = build_counts(3, False, {}, TEXTS)
    np.testing.assert_allclose(encode(TEXTS)[2:4], encode(TEXTS[2:4]), atol=1e-6)
