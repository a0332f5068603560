"""The distributions and the commands of the container image, in fresh environments."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The wheel and the source distribution, built from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("source")
    tracked = run("git", "-C", ROOT, "ls-files", "-z").split("\0")
    for name in filter(None, tracked):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder)
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return source, wheel


def test_twine_accepts_the_distributions(distributions):
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions)


def test_the_source_distribution_holds_tests_docs_and_changelog(distributions):
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "CHANGELOG.md",
        "README.md",
        "PYPI.md",
        "Makefile",
        "docs/index.md",
        "tests/test_packaging.py",
    } <= names
    assert {"Dockerfile", "compose.yaml"} <= names


def test_the_wheel_holds_every_data_file_of_the_package(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        packed = set(wheel.namelist())
    tracked = run("git", "-C", ROOT, "ls-files", "src/labelwise").split()
    assert {name.removeprefix("src/") for name in tracked} <= packed
    licences = {name.rpartition("licenses/")[2] for name in packed if "licenses/" in name}
    assert {"LICENSE", "NOTICE"} <= licences


def read_image_commands():
    """The installed requirement and the command of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[(.*?)\]'", text)
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    return extras, json.loads(command)


def test_the_commands_of_the_image_serve_a_campaign_without_torch(distributions, tmp_path):
    extras, command = read_image_commands()
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment)
    pip = (environment / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", ROOT / "constraints.txt", f"{distributions[1]}[{extras}]")
    installed = run(*pip[:3], "list", "--format", "freeze").splitlines()
    assert "torch" not in {line.partition("==")[0] for line in installed}
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    outside |= {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "LABELWISE_TOKEN": "a" * 16}
    outside |= {"LABELWISE_ALLOW_HOST": "labels.example labels.test"}
    rows = np.random.default_rng(0).normal(size=(60, 4))
    np.save(tmp_path / "rows.npy", rows)
    start = ["labelwise", "start", "rows.npy", "--classes", "a,b"]
    run(*start, cwd=tmp_path, env=outside)
    # The image listens on all addresses; the test on loopback only, with the same token.
    command[command.index("0.0.0.0")] = "127.0.0.1"
    server = subprocess.Popen([*command, "--port", "8653"], cwd=tmp_path, env=outside)
    try:
        assert wait_for_page("http://127.0.0.1:8653/api/session", "a" * 16) == 200
        for host, code in [("labels.test", 200), ("evil.example", 421)]:
            assert ask_as("http://127.0.0.1:8653/api/session", "a" * 16, host) == code
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen("http://127.0.0.1:8653/api/session")
    finally:
        server.terminate()
        server.wait(30)


def ask_as(url, token, host):
    """The status of an answer to a request under another name of the server."""
    named = {"Authorization": f"Bearer {token}", "Host": host}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=named)).status
    except urllib.error.HTTPError as error:
        return error.code


def wait_for_page(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    for _ in range(120):
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                raise
            time.sleep(0.5)
    raise AssertionError("the server did not answer within a minute")
