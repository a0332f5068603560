"""Encode many items: decode images and run batches in threads."""

import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.encoders.encoder import Encoder, Features, Kind
from labelwise.encoders.registry import AUTO, TEXT_HINT, open_encoder
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.media.folders import find_images
from labelwise.media.images import (
    IMAGE_SUFFIXES,
    convert_array,
    ignore_pillow_warnings,
    read_image,
    scale_image,
)
from labelwise.pool.blocks import Progress

_WINDOW = 1024
"""Number of texts that are sorted by length together, so that a batch has similar lengths."""


def encode(
    source: Any,
    encoder: str | Encoder = "auto",
    *,
    batch_size: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Features:
    """Encode images or texts by a frozen pretrained encoder.

    Args:
        source: a folder of images, in the alphabetical order of their paths; a list of paths of
            images; a list or array of images, ``(n, h, w, 3)``, ``(n, h, w)`` or ``(n, 3, h, w)``,
            as bytes or as floats from 0 to 1; or a list of texts.
        encoder: a specification such as ``"minilm"`` or ``"onnx:FILE"`` (docs/encoders.md), or an
            object with the interface `labelwise.encoders.Encoder`.
        batch_size: number of items per call of the model; the encoder's own if None.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: called as ``progress("encoding", done, total)``.

    Returns:
        ``(n, d)`` float32, one row per item.

    Raises:
        BadInput: some items cannot be read; nothing is left out.

    Example:
        >>> images = np.zeros((2, 32, 32, 3), dtype=np.uint8)
        >>> encode(images).shape
        (2, 1280)
    """
    kind, items = find_items(source)
    model: Any = encoder
    if isinstance(encoder, str):
        model = open_encoder(encoder, kind, device=device, corpus=items)
        if encoder == AUTO and model.name == "tfidf":
            warnings.warn(TEXT_HINT, LabelwiseWarning, stacklevel=2)
    elif encoder.kind != kind:
        raise BadInput(f"{encoder.name} encodes {encoder.kind}, and these items are {kind}")
    found = np.empty((len(items), model.dimension), dtype=np.float32)
    broken: dict[int, str] = {}
    done = 0
    for batch in encode_batches(model, items, batch_size=batch_size):
        found[batch.places] = batch.features
        broken |= batch.broken
        done += len(batch.places) + len(batch.broken)
        if progress is not None:
            progress("encoding", done, len(items))
    if broken:
        first = min(broken)
        named = items[first] if isinstance(items[first], str | Path) else f"item {first}"
        raise BadInput(
            f"{len(broken):,} of {len(items):,} images cannot be read ({named}: {broken[first]}); "
            "repair or leave them out"
        )
    return found


class EncodedBatch(NamedTuple):
    """Features of some items."""

    places: NDArray[np.intp]  # ``(b,)``, their positions in the list of items
    features: Features  # ``(b, d)``
    broken: dict[int, str]  # why others of the same batch cannot be read, by position


def encode_batches(
    encoder: Encoder, items: Sequence[Any], *, batch_size: int | None = None
) -> Iterator[EncodedBatch]:
    """Encode items in threads, each of which decodes a batch of images and runs the model on it.

    A few batches are in progress at a time, so memory does not grow with the number of items.
    """
    size = encoder.batch_size if batch_size is None else batch_size
    if size < 1:
        raise BadInput(f"a batch has one item or more; got {size}")
    waiting: deque[Future[EncodedBatch]] = deque()
    with ignore_pillow_warnings(), ThreadPoolExecutor(encoder.workers) as threads:
        try:
            for places in _split_encoder_batches(encoder, items, size):
                waiting.append(threads.submit(_encode_items_at, encoder, items, places))
                if len(waiting) > 2 * encoder.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _split_encoder_batches(
    encoder: Encoder, items: Sequence[Any], size: int
) -> Iterator[NDArray[np.intp]]:
    for first in range(0, len(items), _WINDOW):
        places = np.arange(first, min(first + _WINDOW, len(items)))
        if encoder.kind == "texts":
            lengths = [len(items[place]) for place in places.tolist()]
            places = places[np.argsort(lengths, kind="stable")]
        for begin in range(0, len(places), size):
            yield places[begin : begin + size]


def _encode_items_at(
    encoder: Encoder, items: Sequence[Any], places: NDArray[np.intp]
) -> EncodedBatch:
    some = [items[place] for place in places.tolist()]
    if encoder.kind == "texts":
        return EncodedBatch(places, encoder.encode_batch(some), {})
    images, good, broken = [], [], {}
    for place, item in zip(places.tolist(), some, strict=True):
        try:
            images.append(prepare_image(item, encoder.side))
            good.append(place)
        except BadInput as error:
            broken[place] = str(error)
    if not good:
        empty = np.empty((0, encoder.dimension), np.float32)
        return EncodedBatch(np.empty(0, np.intp), empty, broken)
    return EncodedBatch(np.array(good), encoder.encode_batch(np.stack(images)), broken)


def prepare_image(item: Any, side: int) -> NDArray[np.uint8]:
    """Turn a path, an array or a Pillow image into ``(3, side, side)`` bytes."""
    if isinstance(item, str | Path):
        return read_image(Path(item), side, grey=False, smooth=True)
    picture = item if hasattr(item, "getexif") else convert_array(item)
    return scale_image(picture, side, grey=False, smooth=True)


def find_items(source: Any) -> tuple[Kind, list[Any]]:
    """The kind of a source and its items: texts, paths of images, or images.

    Strings are paths if all of them end like images.

    Example:
        >>> find_items(["a text", "another one"])
        ('texts', ['a text', 'another one'])
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        if not folder.is_dir():
            raise BadInput(f"{folder} is not a folder of images; give a folder, or a list of texts")
        paths = find_images(folder).paths
        if not paths:
            raise BadInput(f"{folder} has no images")
        return "images", [folder / path for path in paths]
    if hasattr(source, "ndim") and source.ndim > 1:
        return "images", list(np.asarray(source))
    items = list(source)
    if not items:
        raise BadInput("there is nothing to encode: the list is empty")
    if not all(isinstance(item, str) for item in items):
        if any(isinstance(item, str) for item in items):
            wrong = next(item for item in items if not isinstance(item, str))
            raise BadInput(f"give texts only or images only; got texts and {type(wrong).__name__}")
        return "images", items
    suffixes = {os.path.splitext(item)[1].lower() for item in items}
    return ("images" if suffixes <= IMAGE_SUFFIXES else "texts"), items
