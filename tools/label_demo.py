"""The labelling page on scikit-learn's handwritten digits, with a simulated second annotator.

Run: python tools/label_demo.py (or make label-demo)

Writes the 1,797 digits as PNG files into ``demo/label/digits``, starts a campaign on them, and
opens its page. Robin, who knows the labels, labels slowly at the same time, and sometimes gives an
item of yours another label, so that there is a disagreement under Review. Run again to continue.
"""

import argparse
import importlib.util
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.project import Project
from labelwise.errors import LabelwiseError, MissingDependency
from labelwise.record.ledger import Ledger

HOME = Path("demo") / "label"
CLASSES = tuple("0123456789")
ROBIN = "Robin (simulated)"
SECOND_OPINION = 8  # Number of labels after which Robin contradicts another annotator once


def read_digits() -> tuple[NDArray[np.uint8], list[str]]:
    """The digits, ``(n, 8, 8)``, dark on white, and their labels.

    They are read from the file of scikit-learn, whose import would take a second.

    >>> images, names = read_digits()
    >>> images.shape, names[:4]
    ((1797, 8, 8), ['0', '1', '2', '3'])
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingDependency(
            "the digits of the demo come with scikit-learn; run pip install 'labelwise[demo]'"
        )
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    pixels = 255 - np.rint(table[:, :64] * 255 / 16)
    return pixels.reshape(-1, 8, 8).astype(np.uint8), [str(int(kind)) for kind in table[:, 64]]


def open_demo(home: Path) -> Project:
    """The campaign of the demo, started if it does not exist yet."""
    campaign = home / "digits.labelwise"
    if campaign.exists():
        return Project.open(campaign)
    from PIL import Image

    folder = home / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    for place, pixels in enumerate(read_digits()[0]):
        Image.fromarray(pixels).save(folder / f"{place:04d}.png")
    return Project.start(
        folder, home=campaign, classes=CLASSES, batch=30, validation=0.3, budget_labels=400
    )


class SimulatedAnnotator(threading.Thread):
    """Labels one item after another, slowly."""

    def __init__(self, record: CampaignRecord, truth: Sequence[str], *, pace: float) -> None:
        """Label at ``record`` with the labels ``truth`` by id, taking ``pace`` seconds each."""
        super().__init__(daemon=True)
        self._record, self._truth, self._pace = record, truth, pace
        self._end = threading.Event()

    def run(self) -> None:
        """Label until stopped."""
        done = 0
        while not self._end.wait(self._pace):
            try:
                done += self._label_item()
                if done >= SECOND_OPINION:
                    done -= SECOND_OPINION * self._contradict_label()
            except LabelwiseError:  # the record is busy or gone; try again later
                continue

    def stop(self) -> None:
        """Stop after the current label."""
        self._end.set()
        self.join()

    def _label_item(self) -> int:
        """Label an item if one is available; returns the number of labels."""
        ids = self._record.lend(ROBIN, 1)
        self._record.tell({item: self._truth[item] for item in ids}, by=ROBIN, seconds=self._pace)
        return len(ids)

    def _contradict_label(self) -> int:
        """Give another label to the last item that only someone else labelled, if there is one."""
        item = self._record.look(_find_item_of_others)
        if item is None:
            return 0
        (label,) = self._record.look(lambda ledger: set(ledger.votes[item].values()))
        other = CLASSES[(CLASSES.index(str(label)) + 1) % len(CLASSES)]
        self._record.tell({item: other}, by=ROBIN, seconds=self._pace)
        return 1


def _find_item_of_others(ledger: Ledger) -> int | None:
    found = reversed(ledger.votes.items())
    return next((item for item, votes in found if len(votes) == 1 and ROBIN not in votes), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Open the page and label along until Ctrl-C."""
    from labelwise.web.serve import serve

    parser = argparse.ArgumentParser(prog="label_demo", description="The labelling page on digits.")
    parser.add_argument("--home", type=Path, default=HOME, help="folder of the demo's files")
    parser.add_argument("--port", type=int, default=8600, help="0 for any free one")
    parser.add_argument("--pace", type=float, default=5.0, help="seconds per label of Robin")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    given = parser.parse_args(arguments)
    try:
        project = open_demo(given.home)
        robin = SimulatedAnnotator(project.open_record(), read_digits()[1], pace=given.pace)
        robin.start()
        try:
            serve(project, port=given.port, ready=lambda _, url: _announce_page(url, given.no_open))
        finally:
            robin.stop()
    except KeyboardInterrupt:  # does not come where the shell ignores signals
        pass
    except LabelwiseError as error:
        sys.exit(f"label_demo: {error}")
    print(f"Stopped. make label-demo continues; remove {given.home} to start over.")


def _announce_page(address: str, no_open: bool) -> None:
    print(f"Label digits at {address} with the keys 0 to 9; ? lists all keys.", flush=True)
    print(f"{ROBIN} labels along, and sometimes disagrees. Ctrl-C ends the demo.", flush=True)
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if screen and not no_open:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


if __name__ == "__main__":
    main()
