"""Description of a pretrained encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.media.packages import DataPackage

Weights = Mapping[str, Arrays]
"""Arrays by name; other content, such as a vocabulary, as uint8 bytes."""

Encode = Callable[[Arrays], Arrays]
"""``encode(items) -> (b, width)`` float32, for a batch of images or texts."""


@dataclass(frozen=True)
class PretrainedEncoder:
    """A function from images or texts to features, with pretrained parameters.

    Attributes:
        name: name in the catalogue.
        kind: images ``(b, 3, side, side)`` in [0, 1], or texts.
        width: number of features.
        build: ``build(weights, corpus)`` returns the function that encodes a batch; only encoders
            that count words read ``corpus``, the items of the pool.
        about: short description.
        package: the package with its parameters; None if it has none.
        patterns: patterns of the files in that package.
        read: reads the parameters from those files.
        digest: checksum of the parameters (`weights.digest_weights`).
        licence: terms of use as far as known.
    """

    name: str
    kind: Literal["images", "texts"]
    width: int
    build: Callable[[Weights, Arrays], Encode]
    about: str
    package: DataPackage | None = None
    patterns: tuple[str, ...] = ()
    read: Callable[[Files], dict[str, Arrays]] | None = None
    digest: str | None = None
    licence: str = "not stated"
