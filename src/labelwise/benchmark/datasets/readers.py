"""Readers for the file formats in which data sets are published.

A reader takes the files that match each pattern of its layout and returns `DatasetArrays`: images
``(n, channels, side, side)`` as uint8 (float32 in [0, 1] where the original has no bytes), rows of
numbers ``(n, d)`` or texts ``(n,)``; classes ``(n,)`` int64 from 0 or values ``(n, k)``.
"""

import codecs
import csv
import io
import json
import pickle
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.io

from labelwise.arrays import row_noise
from labelwise.benchmark.datasets.entries import (
    Arrays,
    DatasetArrays,
    MatchedFiles,
    as_text_array,
    hold_out_test_items,
    number_dataset_classes,
)
from labelwise.errors import BadInput, require_extra


def _encode_pickled_text(text: str, encoding: str = "latin1") -> bytes:
    """Decode bytes that Python 3 wrote into an old pickle; other codecs are rejected."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the codec {encoding!r} is not allowed")
    return codecs.latin_1_encode(text)[0]


_reconstruct = np.empty(0).__reduce__()[0]  # has no public name in NumPy
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_pickled_text,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            message = f"it asks for {module}.{name}, which arrays do not need"
            raise pickle.UnpicklingError(message) from None


def unpickle_arrays(name: str, data: bytes) -> Any:
    """Read a pickle of dicts, lists, numbers, texts and NumPy arrays.

    Strings written by Python 2 are returned as bytes.

    >>> unpickle_arrays("test_batch", pickle.dumps({"labels": [3, 1]}))
    {'labels': [3, 1]}
    """
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise nearly anything
        raise BadInput(f"{name} is not a pickle of arrays ({error}); download it again") from error


NamedFile = tuple[str, bytes]

_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def take_dataset_file(matches: Sequence[NamedFile]) -> NamedFile:
    """The file with the shortest path of those that match."""
    return min(matches, key=lambda file: (len(file[0]), file[0]))


def read_idx(name: str, data: bytes) -> Arrays:
    """Parse an IDX file: two zero bytes, type, number of dimensions, dimensions, values.

    >>> read_idx("labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise BadInput(f"{name} is not an IDX file: it begins with {data[:4].hex(' ')}")
    begin = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:begin], ">u4").astype(np.int64)
    dtype = np.dtype(_IDX_TYPES[data[2]])
    expected = begin + int(shape.prod()) * dtype.itemsize
    if len(data) != expected:
        raise BadInput(f"{name} has {len(data)} bytes instead of {expected}; download it again")
    return np.frombuffer(data, dtype, offset=begin).reshape(shape).astype(dtype.newbyteorder("="))


def read_idx_images(
    files: MatchedFiles, *, transposed: bool = False, first_class: int = 0
) -> DatasetArrays:
    """MNIST and relatives: training images and labels, test images and labels, in IDX files.

    ``transposed`` if the images are, as in EMNIST; ``first_class`` is the number of the first class
    in the files.
    """
    arrays = [read_idx(*take_dataset_file(matches)) for matches in files]
    for part in (0, 2):
        arrays[part] = (arrays[part].swapaxes(1, 2) if transposed else arrays[part])[:, None]
        arrays[part + 1] = arrays[part + 1].astype(np.int64) - first_class
    return DatasetArrays(*arrays)


def read_cifar_pickles(files: MatchedFiles, *, labels: str = "labels") -> DatasetArrays:
    """CIFAR's Python form: pickles with ``data`` ``(n, 3072)`` and a list of labels."""
    parts: list[Arrays] = []
    for matches in files[:2]:
        batches = [_read_cifar_batch(name, data, labels) for name, data in matches]
        parts += [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
    return DatasetArrays(*parts)


def _read_cifar_batch(name: str, data: bytes, labels: str) -> tuple[Arrays, Arrays]:
    content = unpickle_arrays(name, data)
    if not isinstance(content, dict):
        raise BadInput(f"{name} contains a {type(content).__name__}; a CIFAR batch is a dict")
    named = {key.decode() if isinstance(key, bytes) else key: v for key, v in content.items()}
    try:
        images = np.asarray(named["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        return images, np.asarray(named[labels], dtype=np.int64)
    except (KeyError, ValueError) as error:
        raise BadInput(f"{name} is not a CIFAR batch ({error})") from error


def read_cifar_png(files: MatchedFiles) -> DatasetArrays:
    """CIFAR-10 with one image per row of large PNG files, and the labels in JSON files."""
    parts: list[Arrays] = []
    for matches, part in zip(files[:2], ("train", "test"), strict=True):
        tables = [decode_dataset_image(name, data, "RGB") for name, data in matches]
        rows = np.concatenate([table.reshape(len(table), 32, 32, 3) for table in tables])
        labels = take_dataset_file([file for file in files[2] if f"{part}_lables" in file[0]])[1]
        parts.append(np.ascontiguousarray(rows.transpose(0, 3, 1, 2)))
        parts.append(np.array(json.loads(labels), dtype=np.int64))
    return DatasetArrays(*parts)


def read_human_labels(files: MatchedFiles, *, key: str) -> DatasetArrays:
    """CIFAR-10 in any form with the human training labels ``key`` of CIFAR-10N, the last file."""
    png = files[0][0][0].lower().endswith(".png")
    parts = read_cifar_png(files) if png else read_cifar_pickles(files)
    name, data = take_dataset_file(files[-1])
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            (inside,) = [entry for entry in archive.namelist() if entry.endswith("data.pkl")]
            content = unpickle_arrays(name, archive.read(inside))
        if not np.array_equal(content["clean_label"], parts.targets):
            raise BadInput(f"{name} has clean labels that differ from those of the images")
        return parts._replace(targets=np.asarray(content[key], dtype=np.int64))
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{name} is not the CIFAR-10N file ({error})") from error


def read_stl10(files: MatchedFiles) -> DatasetArrays:
    """STL-10: pixels in column-major order, and classes from 1."""
    parts: list[Arrays] = []
    for images, classes in (files[:2], files[2:]):
        name, data = take_dataset_file(images)
        if not data or len(data) % (3 * 96 * 96):
            raise BadInput(f"{name} has {len(data)} bytes, not whole images; download it again")
        pixels = np.frombuffer(data, "u1").reshape(-1, 3, 96, 96).swapaxes(2, 3)
        labels = np.frombuffer(take_dataset_file(classes)[1], "u1").astype(np.int64) - 1
        parts += [np.ascontiguousarray(pixels), labels]
    return DatasetArrays(*parts)


def read_tiny_imagenet(files: MatchedFiles) -> DatasetArrays:
    """Tiny ImageNet: a folder of training images per class, and a list of test classes."""
    ids, train, images, listed = files
    order = sorted(take_dataset_file(ids)[1].decode().split())
    lines = take_dataset_file(listed)[1].decode().splitlines()
    classes = dict(line.split("\t")[:2] for line in lines if line.strip())
    test = {name.rpartition("/")[2]: data for name, data in images}
    shown = [name for name in test if name in classes]
    return DatasetArrays(
        decode_dataset_images(train, 64),
        number_dataset_classes([name.split("/")[-3] for name, _ in train], order),
        decode_dataset_images(((name, test[name]) for name in shown), 64),
        number_dataset_classes([classes[name] for name in shown], order),
    )


def read_celeba(files: MatchedFiles, *, side: int) -> DatasetArrays:
    """CelebA, aligned: x and y of eyes, nose and corners of the mouth, as shares of the image."""
    images, listed, parts = files
    name, data = take_dataset_file(listed)
    rows = [line.split() for line in data.decode().splitlines()[2:] if line.strip()]
    points = {row[0]: _parse_landmarks(name, row[1:], 10) for row in rows}
    split = dict(
        line.split() for line in take_dataset_file(parts)[1].decode().splitlines() if line.strip()
    )
    chosen = []
    for part in ("0", "2"):  # 1 are validation images
        own = [(path, data) for path, data in images if split.get(path.rsplit("/")[-1]) == part]
        faces = [
            _cut_face_image(path, data, points[path.rsplit("/")[-1]], side) for path, data in own
        ]
        chosen += _stack_face_images(faces)
    return DatasetArrays(*chosen)


def read_face_landmarks(files: MatchedFiles, *, side: int) -> DatasetArrays:
    """Faces of the deep convolutional network cascade: five points, as shares of the face's box.

    Lines of the two lists are path, left, right, top, bottom, and x and y of five points.
    """
    images, *lists = files
    named = {path.lower(): (path, data) for path, data in images}
    chosen = []
    for matches in lists:
        name, data = take_dataset_file(matches)
        faces = []
        for line in filter(None, map(str.strip, data.decode().splitlines())):
            path, *numbers = line.replace("\\", "/").rsplit(maxsplit=14)
            values = _parse_landmarks(name, numbers, 14)
            found = next((own for key, own in named.items() if key.endswith(path.lower())), None)
            if found is None:
                raise BadInput(f"{name} lists {path}, which is not there; unpack all images")
            left, right, top, bottom = values[:4]
            faces.append(
                _cut_face_image(*found, values[4:], side, (left, top, right + 1, bottom + 1))
            )
        chosen += _stack_face_images(faces)
    return DatasetArrays(*chosen)


def read_biwi(files: MatchedFiles, *, side: int, test: int) -> DatasetArrays:
    """Biwi head poses: whole frames, with yaw and pitch in degrees; some are held out at random.

    A pose file has the rotation matrix of the head in three lines, then its position.
    """
    poses = {name.removesuffix("_pose.txt"): (name, data) for name, data in files[1]}
    frames, angles = [], []
    for name, data in files[0]:
        if (pose := poses.get(name.removesuffix("_rgb.png"))) is None:
            continue  # a frame without a pose
        values = _parse_landmarks(pose[0], pose[1].decode().split()[:9], 9)
        turn = values.reshape(3, 3).T
        yaw = np.arctan2(turn[2, 0], np.hypot(turn[2, 1], turn[2, 2]))
        frames.append((name, data))
        angles.append(np.degrees([yaw, np.arctan2(turn[2, 1], turn[2, 2])]))
    return hold_out_test_items(
        decode_dataset_images(frames, side), np.array(angles, np.float32), test
    )


def _parse_landmarks(name: str, texts: Sequence[str], count: int) -> Arrays:
    """``count`` numbers of a line."""
    try:
        values = np.array(texts, dtype=np.float64)
    except ValueError:
        values = np.empty(0)
    if len(values) != count:
        raise BadInput(f"{name} has a line with {' '.join(texts)!r} instead of {count} numbers")
    return values


def _cut_face_image(
    name: str,
    data: bytes,
    points: Arrays,
    side: int,
    box: tuple[float, float, float, float] | None = None,
) -> tuple[Arrays, Arrays]:
    """The image ``(3, side, side)`` within a box (all of it if None), and points in [0, 1]."""
    image = decode_dataset_image(name, data, "RGB")
    box = box or (0, 0, image.shape[1], image.shape[0])
    left, top, right, bottom = (max(0, round(value)) for value in box)
    face = image[top:bottom, left:right]
    if not face.size:
        raise BadInput(f"the box {box} of {name} is outside of its image; download the lists again")
    corner, size = np.array([left, top] * 5), np.array([right - left, bottom - top] * 5)
    return scale_dataset_image(face, side).transpose(2, 0, 1), (points - corner) / size


def _stack_face_images(faces: Sequence[tuple[Arrays, Arrays]]) -> list[Arrays]:
    if not faces:
        raise BadInput("no image is in the lists; is a folder of images missing?")
    images, points = zip(*faces, strict=True)
    return [np.stack(images), np.stack(points).astype(np.float32)]


def scale_dataset_image(image: Arrays, side: int) -> Arrays:
    """Scale ``(height, width, 3)`` bytes to ``(side, side, 3)`` by averaging."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BOX))


def read_image_folders(
    files: MatchedFiles, *, side: int, share: float, without: Sequence[str] = ()
) -> DatasetArrays:
    """One folder of images per class, scaled to ``side`` x ``side``; ``share`` is held out."""
    kept = [(name, data) for name, data in files[0] if name.split("/")[-2] not in without]
    classes = number_dataset_classes([name.split("/")[-2] for name, _ in kept])
    return hold_out_test_items(decode_dataset_images(kept, side), classes, round(share * len(kept)))


def decode_dataset_image(name: str, data: bytes, mode: str, side: int | None = None) -> Arrays:
    """Decode an image to uint8 ``(h, w)`` or ``(h, w, 3)``, as a square if ``side`` is given."""
    with require_extra("reading images needs pillow", "demo"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(data)) as image:
            if side is not None and image.size != (side, side):
                return np.asarray(image.convert(mode).resize((side, side), Image.Resampling.BOX))
            return np.asarray(image.convert(mode))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"{name} is not an image ({error}); download it again") from error


def decode_dataset_images(files: Iterable[NamedFile], side: int) -> Arrays:
    """Decode images to ``(n, 3, side, side)``."""
    images = np.stack([decode_dataset_image(name, data, "RGB", side) for name, data in files])
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _read_matlab_arrays(name: str, data: bytes, *keys: str) -> list[Arrays]:
    try:
        content: dict[str, Any] = scipy.io.loadmat(io.BytesIO(data), variable_names=keys)
        return [np.asarray(content[key]) for key in keys]
    except Exception as error:  # SciPy raises many types for a broken file
        raise BadInput(f"{name} is not a .mat file with {' and '.join(keys)} ({error})") from error


def read_svhn(files: MatchedFiles) -> DatasetArrays:
    """SVHN's cropped digits: X ``(32, 32, 3, n)``; y from 1, with 10 for the digit 0."""
    parts: list[Arrays] = []
    for matches in files:
        images, classes = _read_matlab_arrays(*take_dataset_file(matches), "X", "y")
        parts.append(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
        parts.append(classes.reshape(-1).astype(np.int64) % 10)
    return DatasetArrays(*parts)


def read_usps(files: MatchedFiles) -> DatasetArrays:
    """USPS: patterns ``(256, n)`` in [-1, 1], labels ``(10, n)`` with 1 at the digit, else -1."""
    parts: list[Arrays] = []
    for part in ("train", "test"):
        names = f"{part}_patterns", f"{part}_labels"
        patterns, labels = _read_matlab_arrays(*take_dataset_file(files[0]), *names)
        parts.append(((patterns.T.reshape(-1, 1, 16, 16) + 1) / 2).astype(np.float32))
        parts.append(labels.argmax(axis=0).astype(np.int64))
    return DatasetArrays(*parts)


def read_quick_draw(files: MatchedFiles, *, test: int = 20) -> DatasetArrays:
    """Quick, Draw!: one file per class, 784 grey values per line; the last lines are held out."""
    drawings = []
    for name, data in files[0]:
        rows = np.array([json.loads(line) for line in data.splitlines() if line], dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != 784 or len(rows) <= test:
            raise BadInput(f"{name} has shape {rows.shape}; expected more than {test} rows of 784")
        drawings.append(rows.reshape(-1, 1, 28, 28))
    parts: list[Arrays] = []
    for chosen in (slice(-test), slice(-test, None)):
        split = [drawing[chosen] for drawing in drawings]
        parts.append(np.concatenate(split))
        parts.append(np.repeat(np.arange(len(split)), [len(part) for part in split]))
    return DatasetArrays(*parts)


def read_dsprites(
    files: MatchedFiles, *, train: int, test: int, total: int = 737_280
) -> DatasetArrays:
    """dSprites: a fixed random subset of the images with scale, x and y as targets.

    All images would need 12 GB as float32. The orientation is omitted: a square looks the same
    after a quarter turn, an ellipse after half a turn.
    """
    name, data = take_dataset_file(files[0])
    noise = row_noise(0, np.arange(total))
    chosen = np.sort(np.argsort(noise, kind="stable")[: train + test])
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            with archive.open("latents_values.npy") as file:
                latents = np.lib.format.read_array(file, allow_pickle=False)
            images = _read_npy_rows(archive, "imgs.npy", chosen, total)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"{name} is not the dSprites file ({error})") from error
    targets = latents[chosen][:, [2, 4, 5]].astype(np.float32)
    return hold_out_test_items(images[:, None] * np.uint8(255), targets, test)


def _read_npy_rows(archive: zipfile.ZipFile, name: str, rows: Arrays, total: int) -> Arrays:
    """Rows of an array in an .npz file, read in blocks because the whole needs 3 GB."""
    with archive.open(name) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if shape[0] != total:
            raise ValueError(f"it has {shape[0]} images instead of {total}")
        width = int(np.prod(shape[1:])) * dtype.itemsize
        kept = []
        for begin in range(0, total, 8192):
            count = min(8192, total - begin)
            block = np.frombuffer(file.read(count * width), dtype).reshape(count, *shape[1:])
            kept.append(block[rows[(rows >= begin) & (rows < begin + count)] - begin])
    return np.concatenate(kept)


def read_number_columns(name: str, text: str, delimiter: str = ",") -> dict[str, Arrays]:
    r"""Columns of a table of numbers; columns without names are called 0, 1, ...

    The text is CSV, KEEL (``@attribute`` lines, then ``@data``), or rows without a header; without
    a delimiter, numbers are separated by white space.

    >>> read_number_columns("small.csv", "a,b\n1,2\n3,4\n")["b"]
    array([2., 4.])
    """
    lines = [line.strip() for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    head = [line.split()[1].split("{")[0] for line in lines if line.lower()[:10] == "@attribute"]
    if head:
        begin = [line.lower() for line in lines].index("@data") + 1
        lines = lines[begin:]
    elif lines and not lines[0].lstrip("+-.")[:1].isdigit():
        first = csv.reader(lines[:1], delimiter=delimiter) if delimiter else [lines[0].split()]
        head, lines = [entry.strip() for entry in next(iter(first))], lines[1:]
    try:
        table = np.array([line.split(delimiter or None) for line in lines], dtype=np.float64)
    except ValueError as error:
        raise BadInput(f"{name} is not a table of numbers ({error})") from error
    if table.ndim != 2 or (head and len(head) != table.shape[1]):
        raise BadInput(f"{name} has rows of {table.shape[1:]} numbers for {len(head)} columns")
    names = head or [str(number) for number in range(table.shape[1])]
    return dict(zip(names, table.T, strict=True))


def read_regression_table(
    files: MatchedFiles,
    *,
    targets: Sequence[str],
    without: Sequence[str] = (),
    delimiter: str = ",",
    share: float = 0.2,
) -> DatasetArrays:
    """A table with ``targets`` to predict from columns not in ``without``, partly held out."""
    name, data = take_dataset_file(files[0])
    columns = read_number_columns(name, data.decode("utf-8", "replace"), delimiter)
    missing = [key for key in (*targets, *without) if key not in columns]
    if missing:
        raise BadInput(f"{name} has no column {missing[0]!r}; it has {', '.join(columns)}")
    features = [values for key, values in columns.items() if key not in (*targets, *without)]
    values = np.stack([columns[key] for key in targets], axis=1)
    rows = np.stack(features, axis=1).astype(np.float32)
    return hold_out_test_items(rows, values.astype(np.float32), round(share * len(rows)))


def read_satimage(files: MatchedFiles) -> DatasetArrays:
    """Landsat pixels: 36 numbers and a class of 1, 2, 3, 4, 5 or 7 (6 does not occur) per row."""
    parts: list[Arrays] = []
    for matches in files:
        name, data = take_dataset_file(matches)
        table = np.stack(list(read_number_columns(name, data.decode(), "").values()), axis=1)
        classes = number_dataset_classes(
            [str(int(value)) for value in table[:, -1]], list("123457")
        )
        parts += [table[:, :-1].astype(np.float32), classes]
    return DatasetArrays(*parts)


def read_tab_separated(files: MatchedFiles, *, skip: int = 3) -> DatasetArrays:
    """Lines of class, tab and text, after ``skip`` header lines (three in Orange's .tab)."""
    parts: list[Arrays] = []
    order: list[str] = []
    for matches in files:
        name, data = take_dataset_file(matches)
        lines = data.decode("utf-8").split("\n")[skip:]
        pairs = [line.rstrip("\r").split("\t", 1) for line in lines if line.strip()]
        wrong = next((number for number, pair in enumerate(pairs) if len(pair) != 2), None)
        if wrong is not None:
            raise BadInput(f"line {wrong + skip + 1} of {name} is not a class, a tab and a text")
        order = order or sorted({pair[0] for pair in pairs})
        parts.append(as_text_array([text for _, text in pairs]))
        parts.append(number_dataset_classes([label for label, _ in pairs], order))
    return DatasetArrays(*parts)


def read_imdb_json(files: MatchedFiles) -> DatasetArrays:
    """IMDB as a JSON list of ``{"t": text, "s": sentiment}``; half of it is held out."""
    reviews = json.loads(take_dataset_file(files[0])[1])
    texts = as_text_array([str(review["t"]) for review in reviews])
    classes = np.array([int(review["s"]) for review in reviews], dtype=np.int64)
    return hold_out_test_items(texts, classes, len(texts) // 2)


def read_imdb_folders(files: MatchedFiles) -> DatasetArrays:
    """IMDB as published: one file per review in train/neg, train/pos, test/neg and test/pos."""
    parts: list[Arrays] = []
    for sides in (files[:2], files[2:]):
        parts.append(as_text_array([data.decode("utf-8") for side in sides for _, data in side]))
        parts.append(np.repeat(np.arange(2), [len(side) for side in sides]))
    return DatasetArrays(*parts)


def read_text_folders(files: MatchedFiles, *, share: float) -> DatasetArrays:
    """One folder of text files per class; a share of the texts is held out."""
    found = sorted(file for matches in files for file in matches)
    classes = number_dataset_classes([name.split("/")[-2] for name, _ in found])
    texts = as_text_array([data.decode("utf-8", "replace").strip() for _, data in found])
    return hold_out_test_items(texts, classes, round(share * len(texts)))


def read_bundled(name: str, test: int) -> DatasetArrays:
    """A data set that scikit-learn contains."""
    with require_extra(f"{name} needs scikit-learn", "demo"):
        from sklearn import datasets
    if name == "diabetes":
        table = datasets.load_diabetes(scaled=False)
        values = table.target[:, None].astype(np.float32)
        return hold_out_test_items(table.data.astype(np.float32), values, test)
    table = getattr(datasets, f"load_{name}")()
    rows = table.images[:, None] / 16 if name == "digits" else table.data  # pixels are 0 to 16
    return hold_out_test_items(rows.astype(np.float32), table.target.astype(np.int64), test)
