"""Time to open a long record: saving and loading its snapshot, and replaying it without one.

    python benchmarks/snapshot_speed.py --events 1000000

The record has 50 annotators, and for every label a lease and the label, as the web page writes
them (`labelling_load_growth.history`). Times are CPU seconds of one process.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from labelling_load_growth import history

from labelwise.record.events import Started, decode_event, encode_event
from labelwise.record.ledger import replay
from labelwise.record.snapshots import decode_ledger, encode_ledger

T = TypeVar("T")


def measure(function: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of a call, and its result."""
    begin = time.process_time()
    result = function()
    return round(time.process_time() - begin, 2), result


def main(arguments: list[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    events = parser.parse_args(arguments).events
    order = list(range(events))
    record = [Started(0.0, {}, events), *islice(history(order, 0.0), events - 1)]
    lines = [encode_event(event) for event in record]
    del record
    replaying, ledger = measure(lambda: replay(map(decode_event, lines)))
    saving, body = measure(lambda: encode_ledger(ledger))
    loading, again = measure(lambda: decode_ledger(body))
    if again.labels != ledger.labels or again.batches != ledger.batches:
        raise SystemExit("the snapshot differs from the record")
    found = {
        "events": len(lines),
        "labels": len(ledger.labels),
        "replay_seconds": replaying,
        "save_seconds": saving,
        "load_seconds": loading,
        "megabytes": round(len(body) / 1e6, 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
