"""Readers of image sets in the formats in which they are published.

Every reader gives images as ``(n, channels, side, side)`` uint8 (or float32 in [0, 1] where the
original has no bytes) and classes as ``(n,)`` int64 from 0.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from labelwise.benchmark.datasets.archives import matches
from labelwise.benchmark.datasets.entries import Arrays, Files, Parts, held_out, numbered
from labelwise.benchmark.datasets.pickles import unpickle
from labelwise.errors import BadInput, MissingDependency

_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def pick(files: Files, pattern: str) -> tuple[str, bytes]:
    """The one file that matches; of several, that with the shortest path."""
    names = [name for name in files if matches(name, pattern)]
    if not names:
        raise BadInput(f"no file matches {pattern}; is the download whole?")
    name = min(names, key=lambda entry: (len(entry), entry))
    return name, files[name]


def matching(files: Files, pattern: str) -> list[tuple[str, bytes]]:
    """The files that match, by their path."""
    return [(name, files[name]) for name in sorted(files) if matches(name, pattern)]


def as_array(name: str, data: bytes, *shape: int, dtype: str = "u1") -> Arrays:
    """Raw numbers in a shape with one free side; a file that was cut off is refused."""
    width = np.dtype(dtype).itemsize * int(np.prod([side for side in shape if side >= 0]))
    if not data or len(data) % width:
        raise BadInput(f"{name} has {len(data)} bytes, not a multiple of {width}; download it anew")
    return np.frombuffer(data, dtype).reshape(shape)


def read_idx(name: str, data: bytes) -> Arrays:
    """An IDX file, the format of MNIST: two zeros, type, number of sides, sides, numbers.

    >>> read_idx("labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise BadInput(f"{name} is no IDX file: it begins with {data[:4].hex(' ')}")
    begin = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:begin], ">u4").astype(np.int64)
    dtype = np.dtype(_IDX_TYPES[data[2]])
    wanted = begin + int(shape.prod()) * dtype.itemsize
    if len(data) != wanted:
        raise BadInput(f"{name} has {len(data)} bytes but its head says {wanted}; get it again")
    return np.frombuffer(data, dtype, offset=begin).reshape(shape).astype(dtype.newbyteorder("="))


def idx_images(
    files: Files, *, prefix: str = "", test: str = "t10k", transposed: bool = False, first: int = 0
) -> Parts:
    """MNIST and its kin: images and labels of the two parts in four IDX files.

    Args:
        files: with ``train-images``, ``train-labels`` and the same of the test in their names.
        prefix: what the names begin with.
        test: what the test is called in the names.
        transposed: the images lie on their side, as those of EMNIST do.
        first: the number of the first class.
    """
    parts: list[Arrays] = []
    for part in ("train", test):
        images = read_idx(*pick(files, f"*{prefix}{part}-images*ubyte"))
        labels = read_idx(*pick(files, f"*{prefix}{part}-labels*ubyte"))
        parts.append((images.swapaxes(1, 2) if transposed else images)[:, None])
        parts.append(labels.astype(np.int64) - first)
    return Parts(*parts)


def npz_images(files: Files) -> Parts:
    """KMNIST's second form: four .npz files with one array each, called arr_0."""
    parts: list[Arrays] = []
    for part in ("train", "test"):
        images = only_array(*pick(files, f"*{part}-imgs.npz"))
        labels = only_array(*pick(files, f"*{part}-labels.npz"))
        parts += [images[:, None], labels.astype(np.int64)]
    return Parts(*parts)


def only_array(name: str, data: bytes) -> Arrays:
    """The one array in a .npz file."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            (key,) = held.files
            return np.asarray(held[key])
    except (ValueError, OSError) as error:
        raise BadInput(f"{name} is no .npz file with one array ({error})") from error


def cifar_binary(files: Files, *, train: str, test: str, label_bytes: int = 1) -> Parts:
    """CIFAR's binary form: per image its labels (the last counts) and 3,072 bytes of pixels."""

    def read(pattern: str) -> tuple[Arrays, Arrays]:
        width = label_bytes + 3072
        rows = [as_array(name, data, -1, width) for name, data in matching(files, pattern)]
        table = np.concatenate(rows)
        labels = table[:, label_bytes - 1].astype(np.int64)
        return table[:, label_bytes:].reshape(-1, 3, 32, 32), labels

    return Parts(*read(train), *read(test))


def cifar_pickles(files: Files, *, train: str, test: str, labels: str = "labels") -> Parts:
    """CIFAR's Python form: pickles with ``data`` ``(n, 3072)`` and a list of labels."""

    def read(pattern: str) -> tuple[Arrays, Arrays]:
        found = matching(files, pattern)
        batches = [_batch(name, unpickle(name, data), labels) for name, data in found]
        images = np.concatenate([images for images, _ in batches])
        return images, np.concatenate([classes for _, classes in batches])

    return Parts(*read(train), *read(test))


def _batch(name: str, held: Any, labels: str) -> tuple[Arrays, Arrays]:
    if not isinstance(held, dict):
        raise BadInput(f"{name} holds a {type(held).__name__}; a batch of CIFAR is a dict")
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in held.items()}
    try:
        images = np.asarray(named["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        return images, np.asarray(named[labels], dtype=np.int64)
    except (KeyError, ValueError) as error:
        raise BadInput(f"{name} is no batch of CIFAR ({error})") from error


def png_rows(files: Files) -> Parts:
    """CIFAR-10 with one image in each row of large PNG files, and the labels in JSON files."""

    def read(pattern: str, labels: str) -> tuple[Arrays, Arrays]:
        tables = [open_image(name, data, "RGB") for name, data in matching(files, pattern)]
        rows = np.concatenate([table.reshape(len(table), 32, 32, 3) for table in tables])
        classes = np.array(json.loads(pick(files, labels)[1]), dtype=np.int64)
        return np.ascontiguousarray(rows.transpose(0, 3, 1, 2)), classes

    return Parts(
        *read("*data_batch_[1-5].png", "*train_lables.json"),
        *read("*test_batch.png", "*test_lables.json"),
    )


def open_image(name: str, data: bytes, mode: str, side: int | None = None) -> Arrays:
    """A picture as uint8, ``(height, width)`` or ``(height, width, 3)``.

    Args:
        name: of the file, for the message.
        data: a PNG, JPEG or any other file that Pillow reads.
        mode: ``RGB`` or ``L`` (grey).
        side: of the square that the whole picture is scaled to; None leaves it as it is.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependency(
            "reading pictures needs pillow; run pip install 'labelwise[demo]'"
        ) from error
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if side is not None and picture.size != (side, side):
                return np.asarray(picture.convert(mode).resize((side, side), Image.Resampling.BOX))
            return np.asarray(picture.convert(mode))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"{name} is no picture ({error}); download it again") from error


def pictures(named: Iterable[tuple[str, bytes]], side: int, mode: str = "RGB") -> Arrays:
    """Pictures of a common size, ``(n, channels, side, side)``."""
    images = np.stack([open_image(name, data, mode, side) for name, data in named])
    return images[:, None] if mode == "L" else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def human_labels(files: Files, *, read: Callable[[Files], Parts], key: str) -> Parts:
    """CIFAR-10 with the labels that people gave, from the file of CIFAR-10N; the test's are right.

    Args:
        files: of CIFAR-10, and ``CIFAR-10_human.pt``.
        read: reads CIFAR-10.
        key: which labels: ``worse_label``, ``aggre_label``, ``random_label1``, ...
    """
    parts = read(files)
    name, data = pick(files, "*cifar-10_human.pt")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            (inside,) = [entry for entry in archive.namelist() if entry.endswith("data.pkl")]
            held = unpickle(name, archive.read(inside))
        if not np.array_equal(held["clean_label"], parts.targets):
            raise BadInput(f"{name} has other clean labels than the images; is the order another?")
        return parts._replace(targets=np.asarray(held[key], dtype=np.int64))
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{name} is not the file of CIFAR-10N ({error})") from error


def stl10(files: Files) -> Parts:
    """STL-10: pixels column by column, and classes from 1."""

    def read(part: str) -> tuple[Arrays, Arrays]:
        name, data = pick(files, f"*{part}_x.bin")
        images = as_array(name, data, -1, 3, 96, 96).swapaxes(2, 3)
        name, data = pick(files, f"*{part}_y.bin")
        return np.ascontiguousarray(images), as_array(name, data, -1).astype(np.int64) - 1

    return Parts(*read("train"), *read("test"))


def tiny_imagenet(files: Files) -> Parts:
    """Tiny ImageNet: training pictures in a folder per class, the others with a list of classes."""
    order = sorted(pick(files, "*wnids.txt")[1].decode().split())
    train = matching(files, "*train/*/images/*.jpeg")
    listed = pick(files, "*val/val_annotations.txt")[1].decode().splitlines()
    classes = dict(line.split("\t")[:2] for line in listed if line.strip())
    test = [entry for entry in matching(files, "*val/images/*.jpeg") if _last(entry[0]) in classes]
    return Parts(
        pictures(train, 64),
        numbered([name.split("/")[-3] for name, _ in train], order),
        pictures(test, 64),
        numbered([classes[_last(name)] for name, _ in test], order),
    )


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def image_folders(files: Files, *, side: int, share: float, without: Sequence[str] = ()) -> Parts:
    """A folder per class with pictures of any size, some of them held out.

    Args:
        files: ``.../class/picture.jpg``.
        side: of the square that each picture is scaled to.
        share: of the pictures that are held out.
        without: classes to leave out.
    """
    kept = [(n, data) for n, data in sorted(files.items()) if n.split("/")[-2] not in without]
    classes = numbered([name.split("/")[-2] for name, _ in kept])
    return held_out(pictures(kept, side), classes, round(share * len(kept)))
