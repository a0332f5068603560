"""Small files in the formats in which data sets are published, written from given arrays."""

import io
import struct
import tarfile
import zipfile

import numpy as np

from labelwise.benchmark.datasets import matches_pattern


def some_images(n, channels, side, seed=0):
    shape = (n, channels, side, side)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def some_classes(n, classes, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) % classes)


def idx(array):
    """An IDX file of bytes."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def matched(files, *patterns):
    """Files as a reader gets them: for each pattern, the matching ones by path."""
    return [
        [(name, files[name]) for name in sorted(files) if matches_pattern(name, pattern)]
        for pattern in patterns
    ]


def put(folder, name, data):
    """Write a file, with the folders that lead to it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def tarred(members, mode="w:gz"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def debian(members):
    """A Debian package: an ar archive of a version, an empty control part, and the data."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tarred({"./control": b"x"}, "w:xz"),
        "data.tar.xz": tarred(members, "w:xz"),
    }
    file = b"!<arch>\n"
    for name, data in parts.items():
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        file += head + data + b"\n" * (len(data) % 2)
    return file


def python_2_batch(images, labels, key="labels"):
    """A pickle as Python 2 wrote CIFAR's: protocol 2, byte strings, NumPy's old module names."""

    def text(value):
        return b"U" + bytes([len(value)]) + value.encode()

    def integer(value):
        return b"J" + struct.pack("<i", value)

    rows = images.reshape(len(images), -1)
    raw = rows.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + integer(0) + b"\x85"
    array += text("b") + b"tR(" + integer(1) + integer(rows.shape[0]) + integer(rows.shape[1])
    array += b"\x86cnumpy\ndtype\n(" + text("u1") + integer(0) + integer(1) + b"tR("
    array += integer(3) + text("|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb\x89"
    array += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(integer(int(label)) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + array + text(key) + numbers + b"u."
