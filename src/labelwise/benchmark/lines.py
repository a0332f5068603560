"""Result lines: fields that follow from the experiment, the machine and the code."""

import datetime
import hashlib
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.files import JsonObject

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def make_result_line(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    *,
    values: tuple[float, ...],
    seconds: Mapping[str, float],
    device: str | None = None,
    peak_megabytes: float | None = None,
    **fields: Any,
) -> RoundResult:
    """A result line of one measurement per model; the device is the CPU if None."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return RoundResult(
        **_identify_run(protocol, entrant, seed),
        metric=protocol.metric,
        value=float(np.mean(values)),
        values=values,
        higher_is_better=protocol.higher_is_better,
        reduced=protocol.reduced,
        seconds={name: round(value, 6) for name, value in seconds.items()},
        peak_megabytes=peak_process_memory() if peak_megabytes is None else peak_megabytes,
        device=device or f"cpu, {platform.machine()}",
        versions=list_package_versions(),
        code=describe_code_version(),
        **{"started": now, **fields},
    )


def make_run_key(protocol: Protocol, entrant: Entrant, seed: int) -> RunKey:
    """The key of a run in a results file."""
    fields = _identify_run(protocol, entrant, seed)
    return RoundResult(**fields, round=0, labels=0, metric="", value=0.0).key


def _identify_run(protocol: Protocol, entrant: Entrant, seed: int) -> JsonObject:
    """The fields of a line that identify its run."""
    entrant = replace(entrant, one_shot=entrant.one_shot or protocol.frozen)
    return {
        "experiment": protocol.name,
        "scale": protocol.scale,
        "dataset": protocol.dataset,
        "network": protocol.network,
        "strategy": entrant.strategy,
        "options": entrant.facts,
        "seed": seed,
    }


def list_package_versions() -> dict[str, str]:
    """Versions of the installed packages that results depend on."""
    found = {}
    for name in ("labelwise", "torch", "numpy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def describe_code_version() -> str:
    """Version and digest of the source of this package, computed once per process.

    Without the version where the source is used as it is, not installed.
    """
    version = list_package_versions().get("labelwise", "")
    return f"{version}+{digest_source_code(Path(__file__).resolve().parents[1])}"


def digest_source_code(folder: Path) -> str:
    """Twelve digits that depend on the names and contents of all Python files under a folder."""
    parts = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        parts.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return parts.hexdigest()[:12]


def reset_process_memory() -> None:
    """Measure the peak memory of the process from now on, where that is possible."""
    with suppress(OSError):
        _CLEAR.write_text("5")


def peak_process_memory() -> float | None:
    """Peak memory of the process in megabytes; None where it is unknown."""
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None
