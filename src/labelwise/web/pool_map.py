"""The map of a pool and its near-duplicates: a process computes them once, the server reads them.

``python -m labelwise.web.pool_map HOME`` writes the file of the map into a campaign's folder. The
server starts it when the items are first listed, and again when there are new items.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.project import Project
from labelwise.encoders.pool_map import make_map
from labelwise.errors import LabelwiseError
from labelwise.files import ARRAY_ERRORS, write_atomically

FILE = "map.npz"
SCALE = 65_535  # Places are kept as 16-bit numbers from 0 to this one


class StoredMap(NamedTuple):
    """Places ``(n, 2)`` of items, their groups ``(n,)``, and a number that changes with the file.

    A group has at least two near-duplicates; -1 stands for an item without any.
    """

    version: int
    places: NDArray[np.uint16]
    groups: NDArray[np.int32]


class MapSource:
    """The map of a campaign, and the process that computes it."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._lock = threading.Lock()
        self._known: StoredMap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._tried = -1  # the number of items for which the process was started

    def read_map(self) -> StoredMap | None:
        """The newest map; None if there is none yet. It may lack items that are new."""
        path = self._project.home / FILE
        with self._lock:
            try:
                version = path.stat().st_mtime_ns
                if self._known is None or self._known.version != version:
                    with np.load(path, allow_pickle=False) as file:
                        self._known = StoredMap(version, file["places"], file["groups"])
            except (*ARRAY_ERRORS, KeyError):
                return None
            return self._known

    def prepare_map(self, n: int) -> str:
        """Start the process unless the map has ``n`` items; what the page says meanwhile."""
        known = self.read_map()
        if known is not None and len(known.places) >= n:
            return ""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return "the map is being computed"
            if self._tried == n:
                return "the map could not be computed; see the server's terminal"
            self._tried = n
            command = [sys.executable, "-m", "labelwise.web.pool_map", str(self._project.home)]
            environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
            return "the map is being computed"

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()


def write_map(project: Project) -> None:
    """Compute the map of a campaign and write it into its folder."""
    found = make_map(project.inputs, table=project.kind == "numbers")
    places = np.round(found.places * SCALE).astype(np.uint16)
    with write_atomically(project.home / FILE) as part, part.open("wb") as file:
        np.savez(file, places=places, groups=found.groups)


def main(arguments: Sequence[str]) -> None:
    """Compute the map with low priority: people are labelling meanwhile."""
    with suppress(AttributeError, OSError):  # Windows has no priorities of this kind
        os.nice(10)
    try:
        write_map(Project.open(Path(arguments[0])))
    except (LabelwiseError, OSError) as error:
        print(f"labelwise: the map could not be computed: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
