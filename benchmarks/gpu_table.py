"""The lines of gpu_kernels.py as a page.

Run: python benchmarks/gpu_table.py docs/results/gpu_kernels.jsonl > docs/results/gpu_kernels.md
"""

import json
import sys
from pathlib import Path
from typing import Any

Line = dict[str, Any]
PROTOTYPES = {
    "badge": 96,
    "k_center": 170,
    "leverage_scores, float64": 6,
    "sparse_iht": 35,
    "sparse_greedy": 760,
    "bss": 8100,
}
"""Milliseconds of quick prototypes in plain torch on the same kind of card."""

HEAD = """# Kernels and selections on a GPU

{device}, torch {torch}; {n:,} items, {d} float32 features, {classes} classes, {batch:,} picks,
made up from a seed. [Raw lines](gpu_kernels.jsonl), which `benchmarks/gpu_kernels.py` writes and
`benchmarks/gpu_table.py` turns into this page.

The card in the same run: {copy:.2f} TB/s in a copy (bytes read plus bytes written), {float32:.0f}
TFLOP/s in float32 products (no TF32), {float64:.0f} in float64, {pinned:.0f} GB/s from pinned host
memory.
"""

CALLS = """
## Whole selections

`labelwise.select(...)` from tensors on the card, from the call to the ids: medians of five calls
after one that is thrown away. The prototypes are loops in plain torch on the same kind of card,
without checks, ties, ids or weights; that of `sparse_iht` is 100 iterations alone (here it stands
still after fewer, and its weights are then made the best ones), that of `bss` 3,000 dense rounds.

| strategy | ms | prototype, ms |
|---|---|---|
"""

KERNELS = """
## Kernels

The floor is the longer of two times at the card's own rates: the bytes that must move (every input
once, every output once, rows as they are in float32) and the floating-point operations of full
products (half of a symmetric one would do, but no library multiplies so). The gap is the time over
the floor, with all launches and waits.

Operations count in the precision that is needed. That is float64 for the Gram matrix, where
squaring takes half of the digits, and for thresholding, where the same items must be kept on every
machine. A Lewis pass is shown in both; `lewis` makes it in float64, so that a draw does not depend
on the split into blocks, and on this card loses nothing by it.

A gradient of thresholding is a product with all rows, and its image a second one that needs the
first; each reads the rows once, in float64. The rest of an iteration is about 170 small launches,
recorded as one CUDA graph, each of which waits for the one before.
The eigenvectors of a small matrix are a chain of small steps on any machine.

| kernel | bytes, MB | GFLOP | bound by | floor, ms | ms | gap |
|---|---|---|---|---|---|---|
"""

PICKS = """
## The same picks

How many picks from tensors on the card, and from arrays of the host with `device="cuda"`, are those
of arrays on the CPU, position by position.

| strategy | items | picks | on the card | streamed |
|---|---|---|---|---|
"""

STREAM = """
## Pools larger than the card

A pool of {gigabytes:.1f} GB in host memory, read through two pinned buffers
(`select(..., device="cuda")`). What limits it is memory of the host, not the bus: every byte is
first copied into a pinned buffer, which the threads that do so manage at {fill:.0f} GB/s.

| pass | block, MB | GB/s | of filling buffers | of the pinned copy |
|---|---|---|---|---|
"""


def main() -> None:
    """Print the page."""
    lines = [json.loads(text) for text in Path(sys.argv[1]).read_text().splitlines()]
    kinds: dict[str, list[Line]] = {}
    for line in lines:
        kinds.setdefault(line["line"], []).append(line)
    rates = {
        line["name"]: line.get("bytes_per_second") or line["flops_per_second"]
        for line in kinds["ceiling"]
    }
    scaled = {
        "copy": rates["copy"] / 1e12,
        "float32": rates["float32"] / 1e12,
        "float64": rates["float64"] / 1e12,
        "pinned": rates["pinned"] / 1e9,
    }
    print(HEAD.format(**{**lines[0], **scaled}), end="")
    print(CALLS, end="")
    for line in kinds["call"]:
        print(f"| {line['name']} | {line['ms']:.0f} | {PROTOTYPES.get(line['name'], '')} |")
    print(KERNELS, end="")
    for line in kinds["kernel"]:
        print(
            f"| {line['name']} | {line['bytes'] / 1e6:.0f} | {line['flops'] / 1e9:.2f} | "
            f"{line['bound_by']} | {line['floor_ms']:.3f} | {line['ms']:.3f} | {line['gap']:.1f} |"
        )
    print(PICKS, end="")
    for line in kinds["picks"]:
        equal = f"{line['same']} | {line['streamed']}"
        print(f"| {line['name']} | {line['items']:,} | {line['picks']} | {equal} |")
    gigabytes = kinds["stream"][0]["bytes"] / 1e9
    print(STREAM.format(gigabytes=gigabytes, fill=rates["fill"] / 1e9), end="")
    for line in kinds["stream"]:
        print(
            f"| {line['name']} | {line['block_bytes'] >> 20} | "
            f"{line['bytes_per_second'] / 1e9:.1f} | {line['of_fill']:.0%} | "
            f"{line['of_pinned_copy']:.0%} |"
        )


if __name__ == "__main__":
    main()
