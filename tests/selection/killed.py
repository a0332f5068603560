"""A selection that ends itself with SIGKILL after some calls of its blocks; run by a test.

Arguments: the folder to write to, the call after which to end (0 for never), the features' file.
Prints how many calls reached the rows, how many were answered from the folder, and the picks.
"""

import json
import os
import signal
import sys
from pathlib import Path

import labelwise
from labelwise.pool.blocks import LocalShards, open_shards
from labelwise.pool.representations import open_sources
from labelwise.selection import checkpoint, run


def main() -> None:
    """Select, or die half-way."""
    folder, deadly, path = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    calls = 0

    class Mortal(LocalShards):
        def settle(self, state):
            nonlocal calls
            calls += 1
            if deadly and calls > deadly:  # in the middle of a pass: some blocks have moved on
                os.kill(os.getpid(), signal.SIGKILL)

    shards, _ = open_shards(open_sources({"features": path}), block_bytes=20_000)
    mortal = Mortal(shards._shards)
    mortal._spill = mortal
    strategy = labelwise.strategies()["design"]
    with checkpoint.record_calls(mortal, folder, {"path": path}, seconds=0.0) as pool:
        picks = run.select(strategy, pool, 20)
        replayed = pool.replayed
    print(json.dumps([calls, replayed, picks.ids.tolist(), picks.scores.tolist()]))


if __name__ == "__main__":
    main()
