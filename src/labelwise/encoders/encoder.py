"""The interface of an encoder, and checks of what one returns."""

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput, first_line

Kind = Literal["images", "texts"]

Features = NDArray[np.float32]  # ``(n, d)``, one row per item

SIDE = 224  # Side of the square images of an encoder that does not say otherwise, in pixels


class Encoder(Protocol):
    """A frozen pretrained model that turns images or texts into features.

    Attributes:
        name: the specification that opens it, such as ``"efficientnet_lite0"``.
        kind: of the items.
        dimension: number of features d.
        checksum: SHA-256 of what determines the features: equal checksums, equal features.
        side: of the square images that it takes, in pixels; 0 for texts.
        batch_size: number of items that it encodes well at once.
        workers: number of threads that may call `encode_batch` at the same time.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def dimension(self) -> int: ...  # noqa: D102
    @property
    def checksum(self) -> str: ...  # noqa: D102
    @property
    def side(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def workers(self) -> int: ...  # noqa: D102

    def encode_batch(self, items: Any) -> Features:
        """Encode ``(b, 3, side, side)`` uint8 images, or a list of b texts, to ``(b, d)``."""


def check_features(name: str, found: Any, count: int, dimension: int | None = None) -> Features:
    """Reject what an encoder returned if it is not one finite row per item."""
    try:
        rows = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name} does not return numbers ({first_line(error)}); it must return an array "
            "(items, features)"
        ) from error
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1]:
        raise BadInput(
            f"{name} returns an array of shape {rows.shape} for {count} items; it must return "
            f"({count}, d), one row of features per item"
        )
    if dimension is not None and rows.shape[1] != dimension:
        raise BadInput(
            f"{name} returns {rows.shape[1]} features but returned {dimension} before; it must "
            "always return the same number"
        )
    if not np.isfinite(rows).all():
        raise BadInput(f"{name} returns NaN or infinite features; use another encoder")
    return rows
