"""Text encoders based on words: means of GloVe word vectors, and TF-IDF with an SVD.

`build_glove` averages the 50-d vectors of the known words of a text. `build_counts` computes TF-IDF
weights on the pool and keeps the first directions of their singular value decomposition.

References: J. Pennington, R. Socher, C. Manning, "GloVe: Global Vectors for Word Representation",
EMNLP 2014. S. Deerwester et al., "Indexing by Latent Semantic Analysis", 1990.
"""

import io
import re

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.encoders.entries import Encode, Weights

WORD = re.compile(r"\w+|[^\w\s]")


def read_glove(files: Files) -> dict[str, Arrays]:
    """The vectors, and the words as UTF-8 bytes, one per line."""
    import pyarrow.parquet

    (table,) = (data for name, data in files.items() if name.endswith(".parquet"))
    (values,) = (data for name, data in files.items() if name.endswith(".npy"))
    words = pyarrow.parquet.read_table(io.BytesIO(table)).column("index").to_pylist()
    vectors = np.load(io.BytesIO(values), allow_pickle=False)
    return {"vectors": vectors, "words": np.frombuffer("\n".join(words).encode(), np.uint8)}


def build_glove(weights: Weights, corpus: Arrays) -> Encode:
    """The function that averages word vectors; zeros for texts without known words."""
    words = bytes(weights["words"]).decode().split("\n")
    places = {word: number for number, word in enumerate(words)}
    vectors = weights["vectors"]

    def encode(texts: Arrays) -> Arrays:
        found = np.zeros((len(texts), vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            known = [places[word] for word in WORD.findall(str(text).lower()) if word in places]
            if known:
                found[row] = vectors[known].mean(axis=0)
        return found

    return encode


def build_counts(width: int, letters: bool, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes texts by TF-IDF and its first ``width`` directions on ``corpus``.

    Args:
        width: number of directions.
        letters: count runs of 3 to 5 letters within words, instead of words.
        weights: none.
        corpus: the texts of the pool, ``width + 1`` or more.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    kind = {"analyzer": "char_wb", "ngram_range": (3, 5)} if letters else {"stop_words": "english"}
    counts = TfidfVectorizer(
        sublinear_tf=True, min_df=2, max_features=20_000, dtype=np.float32, **kind
    )
    table = counts.fit_transform(corpus)
    directions = TruncatedSVD(width, random_state=0, n_iter=5).fit(table)

    def encode(texts: Arrays) -> Arrays:
        found: Arrays = directions.transform(counts.transform(texts))
        return found.astype(np.float32)

    return encode
