"""What texts and numbers become before a network sees them, against NumPy and scikit-learn."""

import doctest
import sys
import types

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from labelwise.errors import BadInput, MissingDependency
from labelwise.learners import embedding as module
from labelwise.learners.embedding import Standardizer, TfidfEmbedding, encode_sentences

TEXTS = [
    "the rose needs soil and water",
    "seed and soil for the rose",
    "salt and butter in the pan",
    "the oven and the pan are hot",
    "water the seed at the root",
    "bread needs salt and flour",
]


def test_the_examples_of_the_docstrings_run():
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


@pytest.mark.parametrize("shape", [(50, 4), (9, 3, 5, 5)])
def test_a_scale_is_that_of_numpy_whatever_the_blocks(shape, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 300)
    values = np.random.default_rng(0).normal(3, 5, size=shape) * 100
    values[:, 1] = 7.0
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    spread = values.std(axis=axes, keepdims=True)
    spread[spread < 1e-9] = 1
    scale = Standardizer.fit(values)
    wanted = (values - values.mean(axis=axes, keepdims=True)) / spread
    np.testing.assert_allclose(scale(values), wanted, atol=1e-5)
    np.testing.assert_allclose(scale.back(scale(values)), values, atol=1e-3)


def test_large_numbers_that_differ_little_keep_their_digits():
    seconds = 1.7e9 + np.arange(100.0)[:, None]  # float32 would hold them in steps of 128
    rows = Standardizer.fit(seconds)(seconds)[:, 0]
    np.testing.assert_allclose(np.diff(rows), 1 / np.arange(100.0).std(), rtol=1e-4)


def test_texts_are_scikit_learns_directions_and_come_back_from_a_file(tmp_path):
    rows = TfidfEmbedding.fit(TEXTS, directions=3)
    counts = TfidfVectorizer(sublinear_tf=True).fit_transform(TEXTS)
    wanted = TruncatedSVD(3, random_state=0).fit_transform(counts)
    wanted = (wanted - wanted.mean(axis=0)) / (wanted - wanted.mean(axis=0)).std()
    signs = np.sign((rows(TEXTS) * wanted).sum(axis=0))  # a direction may point either way
    np.testing.assert_allclose(rows(TEXTS), wanted * signs, atol=1e-5)
    rows.save(tmp_path / "e.npz")
    again = TfidfEmbedding.load(tmp_path / "e.npz")
    np.testing.assert_array_equal(again(["a rose", "pan"]), rows(["a rose", "pan"]))
    with pytest.raises(BadInput, match="hold no words"):
        TfidfEmbedding.fit(["!", "?"])


@pytest.mark.parametrize("texts", [["same", "same"], ["one"], ["a rose", "a rose", "a rose"]])
def test_texts_that_do_not_differ_give_rows_that_do_not_differ(texts):
    rows = TfidfEmbedding.fit(texts)(texts)
    assert np.isfinite(rows).all() and np.allclose(rows, rows[0])


def test_sentence_transformers_are_asked_for_or_used(monkeypatch):
    with pytest.raises(MissingDependency, match="'mini' needs sentence-transformers"):
        encode_sentences(TEXTS, "mini")

    class Encoder:
        def __init__(self, name):
            assert name == "mini"

        def encode(self, texts, show_progress_bar):
            return [[len(text), 1.0] for text in texts]

    stand_in = types.SimpleNamespace(SentenceTransformer=Encoder)
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)
    np.testing.assert_array_equal(encode_sentences(TEXTS, "mini")[:, 0], [len(t) for t in TEXTS])


def test_columns_in_small_units_are_scaled_and_constant_ones_are_not():
    metres = np.random.default_rng(0).normal(3e-9, 1e-9, size=(200, 1))
    rows = Standardizer.fit(metres)(metres)
    assert rows.mean() == pytest.approx(0, abs=1e-6) and rows.std() == pytest.approx(1, rel=1e-5)
    for constant in (0.0, 0.1, 1e-30, 1e9):
        values = np.full((7, 1), constant)
        assert Standardizer.fit(values).spread.item() == 1


def test_a_text_unlike_all_that_were_looked_at_has_a_row_of_usual_size():
    rows = TfidfEmbedding.fit(["a red rose", "a red rose"])
    assert np.abs(rows(["a rose"])).max() < 10
