"""Preprocessing of texts and numbers for a network, offline and without torch.

Images are read by `labelwise.media.images`.

=======  ======================================================================================
items    become
=======  ======================================================================================
texts    TF-IDF of their words in its first 100 singular directions, one scale for all
numbers  mean 0 and deviation 1 per column
=======  ======================================================================================

Cost: one sparse singular value decomposition of the texts; two passes over numbers, block by block.

Reference: S. Deerwester, S. Dumais, G. Furnas, T. Landauer, R. Harshman, "Indexing by Latent
Semantic Analysis", Journal of the American Society for Information Science 1990, for the texts.
"""

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput, MissingDependency
from labelwise.pool.blocks import Progress

Arrays = NDArray[Any]

DIRECTIONS, MOST_WORDS = 100, 20_000

_ENCODED_AT_ONCE = 512
_BLOCK_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Standardizes values to mean 0 and deviation 1, per channel or column.

    Attributes:
        mean: with the axes of the values, of length 1 but for the second.
        spread: their deviations; 1 for a column that never changes.

    Example:
        >>> scale = Standardizer.fit(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> scale(np.array([[3.0, 6.0]])).tolist()
        [[1.0, 1.0]]
    """

    mean: Arrays
    spread: Arrays

    @classmethod
    def fit(cls, values: Arrays) -> "Standardizer":
        """Measure ``(n, d)`` or ``(n, channels, height, width)`` values, block by block."""
        axes = tuple(axis for axis in range(values.ndim) if axis != 1)
        count = values.size // values.shape[1]
        mean = sum(block.sum(axis=axes, keepdims=True) for block in _iterate_blocks(values)) / count
        squares = sum(
            ((b - mean) ** 2).sum(axis=axes, keepdims=True) for b in _iterate_blocks(values)
        )
        spread = np.sqrt(squares / count)
        spread[spread <= 1e-8 * np.abs(mean)] = 1  # constant up to rounding
        return cls(mean, spread)

    def __call__(self, rows: Arrays) -> NDArray[np.float32]:
        """Standardize rows."""
        if rows.ndim == 4:  # images: float32 is enough
            mean, spread = self.mean.astype(np.float32), self.spread.astype(np.float32)
            return np.asarray((rows - mean) / spread, dtype=np.float32)
        return ((rows - self.mean) / self.spread).astype(np.float32)

    def back(self, rows: Arrays) -> NDArray[np.float64]:
        """Undo the scaling, up to rounding."""
        return np.asarray(rows * self.spread + self.mean, dtype=np.float64)

    def save(self, path: Path) -> None:
        """Write a .npz file."""
        np.savez(path, mean=self.mean, spread=self.spread)

    @classmethod
    def load(cls, path: Path) -> "Standardizer":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as held:
            return cls(held["mean"], held["spread"])


def _iterate_blocks(values: Arrays) -> Iterator[NDArray[np.float64]]:
    """Iterate over blocks of rows in float64."""
    width = max(1, values.size // max(1, len(values)))
    step = max(1, _BLOCK_BYTES // (8 * width))
    for first in range(0, len(values), step):
        yield values[first : first + step].astype(np.float64)


@dataclass(frozen=True, eq=False)
class TfidfEmbedding:
    """Embeds texts as ``(n, d)`` numbers: TF-IDF in its first singular directions.

    Attributes:
        words: the vocabulary.
        rarity: ``(w,)``, inverse document frequencies.
        directions: ``(d, w)``.
        mean: ``(d,)`` of the texts that were looked at.
        spread: of all their numbers; one for all, since late directions are noise.

    Example:
        >>> texts = ["rose and soil", "rose and seed", "pan and salt", "pan and oven"]
        >>> rows = TfidfEmbedding.fit(texts)
        >>> rows(["a rose"]).shape
        (1, 3)
    """

    words: Sequence[str]
    rarity: Arrays
    directions: Arrays
    mean: Arrays
    spread: float

    @classmethod
    def fit(
        cls, texts: Sequence[str] | Arrays, *, directions: int = DIRECTIONS
    ) -> "TfidfEmbedding":
        """Learn vocabulary and singular directions from texts."""
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

    def __call__(self, texts: Sequence[str] | Arrays) -> NDArray[np.float32]:
        """Embed texts as ``(n, d)``; unknown words are ignored."""
        extraction, _ = _import_text_tools()
        words = extraction.TfidfVectorizer(sublinear_tf=True, vocabulary=list(self.words))
        words.idf_ = self.rarity
        rows = words.transform(texts) @ self.directions.T
        return np.asarray((rows - self.mean) / self.spread, dtype=np.float32)

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
    def load(cls, path: Path) -> "TfidfEmbedding":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as held:
            words = json.loads(held["words"].tobytes())
            spread = float(held["spread"])
            return cls(words, held["rarity"], held["directions"], held["mean"], spread)


def encode_sentences(
    texts: Sequence[str], model: str, *, progress: Progress | None = None
) -> NDArray[np.float32]:
    """``(n, d)`` vectors of texts by a model of sentence-transformers, a name or a folder."""
    try:
        tools = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise MissingDependency(
            f"the embedding {model!r} needs sentence-transformers ({error}); run pip install "
            "sentence-transformers, or leave --embedding out"
        ) from error
    encoder, parts = tools.SentenceTransformer(model), []
    for first in range(0, len(texts), _ENCODED_AT_ONCE):
        part = list(texts[first : first + _ENCODED_AT_ONCE])
        parts.append(np.asarray(encoder.encode(part, show_progress_bar=False)))
        if progress is not None:
            progress("embedding texts", first + len(part), len(texts))
    return np.concatenate(parts).astype(np.float32)


def _import_text_tools() -> tuple[Any, Any]:
    try:
        from sklearn.feature_extraction import text
        from sklearn.utils.extmath import randomized_svd
    except ImportError as error:
        raise MissingDependency(
            f"embedding texts needs scikit-learn ({error}); run pip install 'labelwise[demo]'"
        ) from error
    return text, randomized_svd
