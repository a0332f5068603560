"""Files are found in folders and archives, and archives cannot write."""

import gzip

import pytest

from labelwise.benchmark.datasets import gather_dataset_files
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import debian, put, tarred, zipped

MEMBERS = {"set/a.bin": b"one", "set/deep/b.bin": b"two", "set/notes.txt": b"no"}


def test_a_folder_is_searched_to_its_depth(tmp_path):
    for name, data in MEMBERS.items():
        put(tmp_path, name, data)
    wanted = {"set/a.bin": b"one", "set/deep/b.bin": b"two"}
    assert gather_dataset_files(tmp_path / "set", ["*.bin"]) == wanted
    found = gather_dataset_files(tmp_path, ["*.bin"])
    assert found == {f"{tmp_path.name}/{name}": data for name, data in wanted.items()}


def test_a_pattern_with_a_slash_is_for_the_path_and_one_without_for_the_name(tmp_path):
    for name, data in MEMBERS.items():
        put(tmp_path, name, data)
    assert list(gather_dataset_files(tmp_path / "set", ["*set/deep/*"])) == ["set/deep/b.bin"]
    assert list(gather_dataset_files(tmp_path / "set", ["b*", "set*", "deep*"])) == [
        "set/deep/b.bin"
    ]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("set.zip", zipped),
        ("set-1.0.whl", zipped),
        ("set.tar.gz", tarred),
        ("set.tgz", tarred),
        ("set.tar", lambda members: tarred(members, "w")),
        ("set.tar.xz", lambda members: tarred(members, "w:xz")),
        ("set.deb", debian),
    ],
)
def test_an_archive_is_read_like_a_folder(name, pack, tmp_path):
    path = put(tmp_path, name, pack(MEMBERS))
    wanted = {"set/a.bin": b"one", "set/deep/b.bin": b"two"}
    assert gather_dataset_files(path, ["*.bin"]) == wanted
    assert gather_dataset_files(tmp_path, ["*.bin"]) == wanted


def test_an_archive_inside_an_archive_is_read(tmp_path):
    put(tmp_path, "caltech-101.zip", zipped({"caltech/pictures.tar.gz": tarred(MEMBERS)}))
    assert gather_dataset_files(tmp_path, ["*/deep/*"]) == {"set/deep/b.bin": b"two"}


def test_a_zip_inside_a_tar_is_read(tmp_path):
    put(tmp_path, "outer.tar.gz", tarred({"inner.zip": zipped(MEMBERS)}))
    assert gather_dataset_files(tmp_path, ["*a.bin"]) == {"set/a.bin": b"one"}


def test_gzip_files_lose_their_ending(tmp_path):
    put(tmp_path, "x/labels-ubyte.gz", gzip.compress(b"12"))
    put(tmp_path, "x/y.zip", zipped({"images-ubyte.gz": gzip.compress(b"34")}))
    found = gather_dataset_files(tmp_path / "x", ["*-ubyte"])
    assert found == {"images-ubyte": b"34", "x/labels-ubyte": b"12"}


def test_upper_case_does_not_matter(tmp_path):
    put(tmp_path, "UCI/CASP.CSV", b"1")
    assert gather_dataset_files(tmp_path / "UCI", ["casp.csv"]) == {"UCI/CASP.CSV": b"1"}


def test_metadata_files_of_macos_are_skipped(tmp_path):
    put(tmp_path, "set.zip", zipped({"a.bin": b"one", "__MACOSX/._a.bin": b"junk"}))
    assert gather_dataset_files(tmp_path, ["*a.bin"]) == {"a.bin": b"one"}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_member_that_points_outside_writes_nothing(pack, tmp_path):
    inside = tmp_path / "inside"
    name = "set.zip" if pack is zipped else "set.tgz"
    put(inside, name, pack({"../../escaped.bin": b"x", "/tmp/escaped.bin": b"y"}))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert set(gather_dataset_files(inside, ["*.bin"]).values()) == {b"x", b"y"}
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.zip", zipped(MEMBERS)[:-30]),
        ("cut.tgz", tarred({"a.bin": bytes(range(256)) * 200})[:-40]),
        ("cut.deb", b"no package"),
        ("cut.bin.gz", gzip.compress(b"one two three", mtime=0)[:-9]),
        ("not.zip", b"hello"),
    ],
    ids=["zip", "tgz", "deb", "gz", "no zip"],  # packed data holds the time of packing
)
def test_a_broken_archive_is_named(name, data, tmp_path):
    put(tmp_path, name, data)
    with pytest.raises(BadInput, match=rf"{name} cannot be read .*download it again"):
        gather_dataset_files(tmp_path, ["*.bin"])


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"there is no folder or archive .*nowhere"):
        gather_dataset_files(tmp_path / "nowhere", ["*"])
