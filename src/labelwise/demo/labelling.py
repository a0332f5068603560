"""The labelling page on scikit-learn's handwritten digits, with a simulated second annotator.

Run: python -m labelwise.demo.labelling (make label-demo does)

Writes the 1,797 digits as PNG files into ``demo/label/digits``, starts a campaign on them, and
opens its page. Robin, who knows the answers, labels slowly at the same time. Once in a while Robin
gives an item of yours another label, so that there is something to settle under Review. Run again,
the demo goes on where it was.
"""

import argparse
import importlib.util
import os
import struct
import sys
import threading
import webbrowser
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.desk import Desk
from labelwise.campaign.project import Project
from labelwise.errors import LabelwiseError, MissingDependency
from labelwise.record.ledger import Ledger

HOME = Path("demo") / "label"
CLASSES = tuple("0123456789")
ROBIN = "Robin (simulated)"
SECOND_OPINION = 8
"""After so many labels of their own, Robin contradicts someone else once."""


def load_digits() -> tuple[NDArray[np.uint8], list[str]]:
    """The digits, ``(n, 8, 8)``, dark on white, and what they are.

    Read from the file that comes with scikit-learn, without the second that its import takes.

    >>> images, names = load_digits()
    >>> images.shape, names[:4]
    ((1797, 8, 8), ['0', '1', '2', '3'])
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingDependency(
            "the demo's digits come with scikit-learn; run pip install 'labelwise[demo]'"
        )
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    pixels = 255 - np.rint(table[:, :64] * 255 / 16)
    return pixels.reshape(-1, 8, 8).astype(np.uint8), [str(int(kind)) for kind in table[:, 64]]


def png(pixels: NDArray[np.uint8]) -> bytes:
    r"""A grey picture, ``(height, width)``, as a PNG file.

    >>> png(np.zeros((2, 2), dtype=np.uint8))[:4]
    b'\x89PNG'
    """

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    height, width = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: the row is not filtered
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def open_demo(home: Path) -> Project:
    """The demo's campaign, started if it is not there yet."""
    campaign = home / "digits.labelwise"
    if campaign.exists():
        return Project.open(campaign)
    folder = home / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    for place, pixels in enumerate(load_digits()[0]):
        (folder / f"{place:04d}.png").write_bytes(png(pixels))
    return Project.start(
        folder, home=campaign, classes=CLASSES, batch=30, validation=0.3, budget_labels=400
    )


class Robin(threading.Thread):
    """Labels one item after another, slowly.

    Args:
        desk: Of the demo's campaign.
        truth: What each item is, by id.
        pace: Seconds per label.
    """

    def __init__(self, desk: Desk, truth: Sequence[str], *, pace: float) -> None:
        super().__init__(daemon=True)
        self._desk, self._truth, self._pace = desk, truth, pace
        self._end = threading.Event()

    def run(self) -> None:
        """Label until told to stop."""
        done = 0
        while not self._end.wait(self._pace):
            try:
                done += self._label()
                if done >= SECOND_OPINION:
                    done -= SECOND_OPINION * self._contradict()
            except LabelwiseError:  # the record is busy or gone; Robin has time
                continue

    def stop(self) -> None:
        """End after the label in hand."""
        self._end.set()
        self.join()

    def _label(self) -> int:
        """Label one item, if one waits; how many that were."""
        ids = self._desk.lend(ROBIN, 1)
        self._desk.tell({item: self._truth[item] for item in ids}, by=ROBIN, seconds=self._pace)
        return len(ids)

    def _contradict(self) -> int:
        """Say something else of the last item that only someone else labelled, if there is one."""
        item = self._desk.look(_last_of_others)
        if item is None:
            return 0
        (said,) = self._desk.look(lambda ledger: set(ledger.votes[item].values()))
        other = CLASSES[(CLASSES.index(str(said)) + 1) % len(CLASSES)]
        self._desk.tell({item: other}, by=ROBIN, seconds=self._pace)
        return 1


def _last_of_others(ledger: Ledger) -> int | None:
    found = reversed(ledger.votes.items())
    return next((item for item, votes in found if len(votes) == 1 and ROBIN not in votes), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Open the page and label along until Ctrl-C."""
    from labelwise.web.serve import serve

    parser = argparse.ArgumentParser(prog="label_demo", description="The labelling page on digits.")
    parser.add_argument("--home", type=Path, default=HOME, help="where the demo's files go")
    parser.add_argument("--port", type=int, default=8600, help="0 for any free one")
    parser.add_argument("--pace", type=float, default=5.0, help="seconds Robin takes per label")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    given = parser.parse_args(arguments)
    try:
        project = open_demo(given.home)
        robin = Robin(project.desk(), load_digits()[1], pace=given.pace)
        robin.start()
        try:
            serve(project, port=given.port, ready=lambda address: _ready(address, given.no_open))
        finally:
            robin.stop()
    except KeyboardInterrupt:  # none comes where the shell had signals ignored
        pass
    except LabelwiseError as error:
        sys.exit(f"label_demo: {error}")
    print(f"Stopped. make label-demo goes on; remove {given.home} to begin anew.")


def _ready(address: str, no_open: bool) -> None:
    print(f"Label digits at {address} with the keys 0 to 9; ? lists all keys.", flush=True)
    print(f"{ROBIN} labels along, and sometimes disagrees. Ctrl-C ends the demo.", flush=True)
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if screen and not no_open:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


if __name__ == "__main__":
    main()
