"""TF-IDF in its first singular directions: features of texts without a pretrained model.

Cost: one sparse singular value decomposition of the texts.

Reference: S. Deerwester, S. Dumais, G. Furnas, T. Landauer, R. Harshman, "Indexing by Latent
Semantic Analysis", Journal of the American Society for Information Science 1990.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.encoders.encoder import Features, Kind
from labelwise.errors import BadInput, first_line, require_extra
from labelwise.files import ARRAY_ERRORS

DIRECTIONS = 100  # Largest number of features
MOST_WORDS = 20_000  # Size of the vocabulary

Arrays = NDArray[Any]


@dataclass(frozen=True, eq=False)
class TfidfEncoder:
    """Encodes texts as ``(n, d)``: TF-IDF in the first singular directions of a corpus.

    Example:
        >>> texts = ["rose and soil", "rose and seed", "pan and salt", "pan and oven"]
        >>> encoder = TfidfEncoder.fit(texts)
        >>> encoder.encode_batch(["a rose"]).shape
        (1, 3)
    """

    words: Sequence[str]  # the vocabulary
    rarity: Arrays  # ``(w,)``, inverse document frequencies
    directions: Arrays  # ``(d, w)``
    mean: Arrays  # ``(d,)`` of the corpus
    spread: float  # of all numbers of the corpus; one for all, since late directions are noise

    name = "tfidf"
    kind: Kind = "texts"
    side, batch_size, workers = 0, 1024, 1

    @property
    def dimension(self) -> int:
        """Number of directions."""
        return len(self.mean)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of vocabulary and directions."""
        total = hashlib.sha256(json.dumps(list(self.words)).encode())
        for array in (self.rarity, self.directions, self.mean, np.float64(self.spread)):
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    @classmethod
    def fit(cls, texts: Sequence[str] | Arrays, *, directions: int = DIRECTIONS) -> "TfidfEncoder":
        """Learn vocabulary and singular directions from a corpus."""
        extraction, decompose = _import_text_tools()
        words = extraction.TfidfVectorizer(sublinear_tf=True, max_features=MOST_WORDS)
        try:
            counts = words.fit_transform(texts)
        except ValueError as error:
            raise BadInput(
                f"the texts hold no words ({error}); is this the right column?"
            ) from error
        wanted = max(1, min(directions, min(counts.shape) - 1))
        found = decompose(counts, wanted, n_iter=5, random_state=0)[2]
        rows = counts @ found.T
        mean = rows.mean(axis=0)
        spread = float((rows - mean).std())
        spread = spread if spread > 1e-8 else 1.0  # all texts are alike
        names = words.get_feature_names_out().tolist()
        return cls(names, words.idf_, found, mean, spread)

    def encode_batch(self, texts: Sequence[str] | Arrays) -> Features:
        """Encode texts as ``(n, d)``; unknown words are ignored."""
        rows = self._vectorizer.transform(texts) @ self.directions.T
        return np.asarray((rows - self.mean) / self.spread, dtype=np.float32)

    __call__ = encode_batch

    @cached_property
    def _vectorizer(self) -> Any:
        extraction, _ = _import_text_tools()
        words = extraction.TfidfVectorizer(sublinear_tf=True, vocabulary=list(self.words))
        words.idf_ = self.rarity
        return words

    def save(self, path: Path) -> None:
        """Write a .npz file."""
        words = np.frombuffer(json.dumps(list(self.words)).encode(), dtype=np.uint8)
        np.savez(
            path,
            words=words,
            rarity=self.rarity,
            directions=self.directions,
            mean=self.mean,
            spread=np.float64(self.spread),
        )

    @classmethod
    def load(cls, path: Path) -> "TfidfEncoder":
        """Read what `save` wrote."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                words = json.loads(held["words"].tobytes())
                spread = float(held["spread"])
                return cls(words, held["rarity"], held["directions"], held["mean"], spread)
        except (*ARRAY_ERRORS, KeyError) as error:
            raise BadInput(
                f"{path} is damaged ({first_line(error)}); restore it from a copy"
            ) from error


def _import_text_tools() -> tuple[Any, Any]:
    with require_extra("encoding texts needs scikit-learn", "encoders"):
        from sklearn.feature_extraction import text
        from sklearn.utils.extmath import randomized_svd
    return text, randomized_svd
