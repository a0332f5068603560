"""TF-IDF in singular directions, against scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput

TEXTS = [
    "the rose needs soil and water",
    "seed and soil for the rose",
    "salt and butter in the pan",
    "the oven and the pan are hot",
    "water the seed at the root",
    "bread needs salt and flour",
]


def test_texts_are_scikit_learns_directions_and_come_back_from_a_file(tmp_path):
    rows = TfidfEncoder.fit(TEXTS, directions=3)
    counts = TfidfVectorizer(sublinear_tf=True).fit_transform(TEXTS)
    wanted = TruncatedSVD(3, random_state=0).fit_transform(counts)
    wanted = (wanted - wanted.mean(axis=0)) / (wanted - wanted.mean(axis=0)).std()
    signs = np.sign((rows(TEXTS) * wanted).sum(axis=0))  # a direction may point either way
    np.testing.assert_allclose(rows(TEXTS), wanted * signs, atol=1e-5)
    rows.save(tmp_path / "e.npz")
    again = TfidfEncoder.load(tmp_path / "e.npz")
    np.testing.assert_array_equal(again(["a rose", "pan"]), rows(["a rose", "pan"]))
    assert again.checksum == rows.checksum != TfidfEncoder.fit(TEXTS).checksum
    (tmp_path / "e.npz").write_bytes((tmp_path / "e.npz").read_bytes()[:300])
    with pytest.raises(BadInput, match=r"e\.npz is damaged"):
        TfidfEncoder.load(tmp_path / "e.npz")
    with pytest.raises(BadInput, match="hold no words"):
        TfidfEncoder.fit(["!", "?"])


@pytest.mark.parametrize("texts", [["same", "same"], ["one"], ["a rose", "a rose", "a rose"]])
def test_texts_that_do_not_differ_give_rows_that_do_not_differ(texts):
    rows = TfidfEncoder.fit(texts)(texts)
    assert np.isfinite(rows).all() and np.allclose(rows, rows[0])


def test_a_text_unlike_all_that_were_looked_at_has_a_row_of_usual_size():
    rows = TfidfEncoder.fit(["a red rose", "a red rose"])
    assert np.abs(rows(["a rose"])).max() < 10
