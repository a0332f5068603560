"""Small files in the formats in which data sets are published, written from given arrays."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
from PIL import Image
from scipy.io import savemat

from labelwise.benchmark.datasets import matches_file_pattern


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
        [(name, files[name]) for name in sorted(files) if matches_file_pattern(name, pattern)]
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


def write_idx(folder, images, classes, train, prefix="", test="t10k"):
    """Four IDX files, compressed."""
    for part, rows in (("train", slice(train)), (test, slice(train, None))):
        for kind, array in (("images", images[rows, 0]), ("labels", classes[rows])):
            name = f"{prefix}{part}-{kind}-idx{array.ndim}-ubyte.gz"
            put(folder, name, gzip.compress(idx(array)))


def write_svhn(folder, images, digits, train):
    """Cropped digits: MATLAB files in which 10 stands for 0."""
    for part, rows in (("train", slice(train)), ("test", slice(train, None))):
        labels = np.where(digits == 0, 10, digits)[rows, None].astype(np.uint8)
        file = io.BytesIO()
        savemat(file, {"X": images[rows].transpose(2, 3, 1, 0), "y": labels})
        put(folder, f"{part}_32x32.mat", file.getvalue())


def write_cifar_100(folder, images, fine, train, old=False):
    """Two pickles, those of Python 2 if ``old``."""
    for part, rows in (("train", slice(train)), ("test", slice(train, None))):
        data = images[rows].reshape(-1, 3072)
        batch = pickle.dumps({b"data": data, b"fine_labels": fine[rows].tolist()})
        if old:
            batch = python_2_batch(images[rows], fine[rows], "fine_labels")
        put(folder, f"cifar-100-python/{part}", batch)


def write_stl_10(folder, images, classes, train):
    """An archive with the unlabelled part too; images are stored column by column."""
    members = {"stl10_binary/unlabeled_X.bin": b"never read"}
    for part, rows in (("train", slice(train)), ("test", slice(train, None))):
        members[f"stl10_binary/{part}_X.bin"] = images[rows].transpose(0, 1, 3, 2).tobytes()
        members[f"stl10_binary/{part}_y.bin"] = (classes[rows] + 1).astype(np.uint8).tobytes()
    put(folder, "stl10_binary.tar.gz", tarred(members))


def picture(image, form="PNG"):
    """An image file of a ``(3, h, w)`` array of bytes."""
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, form)
    return file.getvalue()


def write_caltech_101(folder, images, classes, train):  # the reader divides the items itself
    """An archive inside an archive; class folders in the order of their numbers."""
    members = {"101_ObjectCategories/BACKGROUND_Google/image_0000.jpg": picture(images[0], "JPEG")}
    for number, (image, kind) in enumerate(zip(images, classes, strict=True)):
        name = f"101_ObjectCategories/{chr(97 + kind)}/image_{number:04}.jpg"
        members[name] = picture(image, "JPEG")
    inside = tarred(members)
    put(folder, "caltech-101.zip", zipped({"caltech-101/101_ObjectCategories.tar.gz": inside}))


def write_tiny_imagenet(folder, images, classes, train):
    """A folder of images per class, and a table for the validation images, the test items here."""
    root, listed = folder / "tiny-imagenet-200", []
    put(root, "wnids.txt", "".join(f"n{kind}\n" for kind in range(max(classes) + 1)).encode())
    for number, (image, kind) in enumerate(zip(images, classes, strict=True)):
        data = picture(image, "JPEG")
        if number < train:
            put(root, f"train/n{kind}/images/n{kind}_{number}.JPEG", data)
        else:
            put(root, f"val/images/val_{number}.JPEG", data)
            listed.append(f"val_{number}.JPEG\tn{kind}\t0\t32\t44\t62\n")
    put(root, "val/val_annotations.txt", "".join(listed).encode())


def write_celeba(folder, images, points, train):
    """Images in an archive, ten coordinates each, and the parts: 0 to train, 2 to test."""
    names = [f"{number:06}.jpg" for number in range(len(images))]
    rows = [f"{name} {' '.join(map(str, row))}" for name, row in zip(names, points, strict=True)]
    head = [str(len(names)), "names"]
    put(folder, "list_landmarks_align_celeba.txt", "\n".join([*head, *rows]).encode())
    parts = [f"{name} {2 * (number >= train)}" for number, name in enumerate(names)]
    put(folder, "list_eval_partition.txt", "\n".join(parts).encode())
    pictures = {f"img_align_celeba/{n}": picture(im) for n, im in zip(names, images, strict=True)}
    put(folder, "img_align_celeba.zip", zipped(pictures))


def write_fld(folder, images, points, train):
    """Images with a box and five points each, listed for training and for testing."""
    lines = []
    for number, (image, row) in enumerate(zip(images, points, strict=True)):
        put(folder, f"lfw/A_{number:04}.jpg", picture(image))
        lines.append(f"lfw\\A_{number:04}.jpg 0 31 0 31 {' '.join(map(str, row))}")
    put(folder, "trainImageList.txt", "\r\n".join(lines[:train]).encode())
    put(folder, "testImageList.txt", "\r\n".join(lines[train:]).encode())


def write_biwi(folder, images, turns, train):  # the reader divides the items itself
    """Frames of one person with a rotation matrix and a position each."""
    for number, (image, turn) in enumerate(zip(images, turns, strict=True)):
        put(folder, f"01/frame_{number:05}_rgb.png", picture(image))
        lines = [" ".join(map(str, row)) for row in turn] + ["", "1 2 900"]
        put(folder, f"01/frame_{number:05}_pose.txt", "\n".join(lines).encode())


def write_parkinsons(folder, table, train):  # the reader divides the items itself
    """The table of the UCI repository, 22 columns."""
    names = ["subject#", "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS"]
    names += [f"measure{number}" for number in range(16)]
    lines = [",".join(names), *(",".join(map(str, row)) for row in table)]
    put(folder, "parkinsons_updrs.data", "\n".join(lines).encode())
