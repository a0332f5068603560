"""What the catalogue says about a pretrained encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from labelwise.benchmark.datasets.entries import DataPackage, Files

Weights = Mapping[str, NDArray[Any]]
"""Arrays by name; what is no array (a vocabulary) as its bytes, uint8."""

Encode = Callable[[NDArray[Any]], NDArray[Any]]
"""``encode(items) -> (b, width)`` float32, for a batch of images or texts."""


@dataclass(frozen=True)
class Encoder:
    """A way from images or texts to features, with parameters that are not trained here.

    Attributes:
        name: what `features` calls it.
        kind: of what: images ``(b, 3, side, side)`` in [0, 1], or texts.
        width: how many features it gives.
        build: ``build(weights, corpus)`` gives the function that encodes a batch. ``corpus`` holds
            the items of the pool; only encoders that count words look at it.
        about: what it is, in a few words.
        carrier: the package that holds its parameters, or None if it has none.
        wanted: patterns of the files in that package, see `archives.matches`.
        read: makes the parameters from those files.
        digest: of the parameters (see `weights.digest`).
        licence: what is known of the terms of use.
    """

    name: str
    kind: Literal["images", "texts"]
    width: int
    build: Callable[[Weights, NDArray[Any]], Encode]
    about: str
    carrier: DataPackage | None = None
    wanted: tuple[str, ...] = ()
    read: Callable[[Files], dict[str, NDArray[Any]]] | None = None
    digest: str | None = None
    licence: str = "not stated"
