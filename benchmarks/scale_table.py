"""Turn the lines of the scale benchmark into a page and a plot.

Run: python benchmarks/scale_table.py docs/results/scale.jsonl

Writes scale.md and scale.svg beside the file. Of several lines about the same run the last counts.
"""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

Line = dict[str, Any]

COLOURS = {
    "entropy": "#56b4e9",
    "lewis p=2": "#0072b2",
    "lewis p=1": "#d55e00",
    "bss": "#009e73",
    "badge": "#cc79a7",
    "k_center": "#e69f00",
    "sparse_iht": "#777777",
}
LIMITS = {
    "entropy": "logarithms: `n K` of them in float64, on all cores",
    "lewis p=2": "float64 products: `n d^2` for the Gram matrix, `2 n d^2` for the scores",
    "lewis p=1": "float64 products: `3 n d^2` a round",
    "bss": "float64 products, as lewis p=2; then a cost per draw that does not depend on n",
    "badge": "reading, and 0.2 microseconds an item: residuals, norms, clocks",
    "k_center": "distances of rows that may be the next picks to the new ones, and their minima",
    "sparse_iht": "widening every row to float64, and `4 n d K` flops, an iteration",
}


def main() -> None:
    """Write the page and the plot for the file that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    texts = source.read_text(encoding="utf-8").splitlines()
    lines = newest([json.loads(text) for text in texts])
    text = "\n".join(page(lines))
    source.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    draw(lines, source.with_suffix(".svg"))


def newest(lines: list[Line]) -> list[Line]:
    """The last line of each run, in the order of width, size and strategy."""
    found = {(line["d"], line["n"], line["case"]): line for line in lines}
    order = list(COLOURS)
    return sorted(found.values(), key=lambda x: (-x["d"], x["n"], order.index(x["case"])))


def page(lines: list[Line]) -> Iterator[str]:
    """All of it."""
    yield "# Up to a hundred million items\n"
    yield from circumstances(lines)
    yield "\n![seconds by number of items](scale.svg)\n"
    for d in sorted({line["d"] for line in lines}, reverse=True):
        for n in sorted({line["n"] for line in lines if line["d"] == d}, reverse=True):
            some = [line for line in lines if (line["n"], line["d"]) == (n, d)]
            yield f"\n## {n:,} items, {d} features\n"
            yield from table(some)
    yield "\n## How it grows\n"
    yield from growth(lines)
    yield "\n## What limits each\n"
    yield "| strategy | limited by |\n|---|---|"
    for case in COLOURS:
        if any(line["case"] == case for line in lines):
            yield f"| {case} | {LIMITS[case]} |"


def circumstances(lines: list[Line]) -> Iterator[str]:
    """The machine, and how to read the tables."""
    first = lines[0]
    loads = [line["load_average"] for line in lines]
    threads = " and ".join(str(count) for count in sorted({line["threads"] for line in lines}))
    yield (
        f"{first['cpu']}, {first['cores']} cores, {threads} thread(s) of BLAS, Python "
        f"{first['python']}, NumPy {first['numpy']}, {first['blas']}; {first['started'][:10]}. "
        f"Load average {min(loads):g} to {max(loads):g}, the benchmark itself included. Processor "
        "seconds stand beside seconds. Raw lines: "
        "[scale.jsonl](scale.jsonl). To repeat:\n\n"
        f"    python benchmarks/scale.py --folder FOLDER --threads {first['threads']} "
        "--out docs/results/scale.jsonl\n"
        "    python benchmarks/scale_table.py docs/results/scale.jsonl\n\n"
        "Pools are float32 .npy files that look like the last layer of a trained classifier, with "
        f"{first['classes']} classes; every run is a process of its own that calls "
        "`labelwise.select` with the paths. *Passes*: rows read from the files, over the rows they "
        "have. *Floor*: reading the files once and multiplying every row by one matrix of the "
        "strategy's shape in its precision, in the same process; its columns are given. *Times "
        "floor*: seconds / (passes x floor), in brackets the same of processor seconds. *Times "
        "square*: the same with a matrix of d columns, whatever the strategy's has. *Memory*: "
        "the most the process had allocated (anonymous memory), then the most that was resident "
        "with the pages of the mapped files, both above the interpreter with everything imported."
    )


def table(lines: list[Line]) -> Iterator[str]:
    """One row per strategy."""
    yield (
        "| strategy | picks | seconds (processor) | passes | floor of a pass, s (processor) | "
        "columns | times floor (processor) | times square | memory, MB (with pages) |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for line in lines:
        if "error" in line:
            yield f"| {line['case']} | | {line['error']} | | | | | | |"
            continue
        floor = min(line["floor_seconds"])
        processor = min(line["floor_processor_seconds"])
        columns = f"{line['floor_columns']}, {line['floor_precision']}"
        if line["floor_columns"] == "d" and line["case"] == "entropy":
            columns = f"{line['classes']}, {line['floor_precision']}"
        yield (
            f"| {line['case']} | {line['picks']:,} "
            f"| {digits(line['seconds'])} ({digits(line['processor_seconds'])}) "
            f"| {line['passes']:.2f} | {digits(floor)} ({digits(processor)}) | {columns} "
            f"| {line['times_floor']:.2f} ({line['times_floor_processor']:.2f}) "
            f"| {line['times_square_floor']:.2f} "
            f"| {line['peak_anonymous_megabytes']:,.0f} ({line['peak_megabytes']:,.0f}) |"
        )


def digits(value: float) -> str:
    """Three digits, or whole seconds."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def growth(lines: list[Line]) -> Iterator[str]:
    """Processor seconds per million items, and how much more ten times the items cost."""
    sizes = sorted({line["n"] for line in lines})
    head = " | ".join(f"{n:,}" for n in sizes)
    yield "Processor microseconds per item; linear growth keeps them where they are:\n"
    yield f"| strategy | features | {head} | times the cost for ten times the items |"
    yield "|---|---|" + "---|" * (len(sizes) + 1)
    for d in sorted({line["d"] for line in lines}, reverse=True):
        for case in COLOURS:
            costs = curve(lines, case, d)
            if len(costs) < 2:
                continue
            cells = [f"{1e6 * costs[n] / n:.3g}" if n in costs else "" for n in sizes]
            ratios = [
                f"{(costs[b] / costs[a]) ** (1 / np.log10(b / a)):.1f}"
                for a, b in pairwise(sorted(costs))
            ]
            yield f"| {case} | {d} | {' | '.join(cells)} | {', '.join(ratios)} |"


def curve(lines: list[Line], case: str, d: int) -> dict[int, float]:
    """Processor seconds by number of items."""
    return {
        line["n"]: line["processor_seconds"]
        for line in lines
        if line["case"] == case and line["d"] == d and "processor_seconds" in line
    }


def draw(lines: list[Line], path: Path) -> None:
    """Seconds against items on logarithmic axes, one panel per width."""
    widths = sorted({line["d"] for line in lines}, reverse=True)
    with rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "scale"}):
        figure = Figure(figsize=(4.6 * len(widths), 4.2), layout="constrained")
        panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
        for axes, d in zip(panels, widths, strict=True):
            panel(axes, lines, d)
        panels[0].set_ylabel("processor seconds")
        figure.savefig(path, metadata={"Date": None})


def panel(axes: Any, lines: list[Line], d: int) -> None:
    """The strategies over pools of one width, with a straight line for linear growth."""
    for case, colour in COLOURS.items():
        costs = curve(lines, case, d)
        if not costs:
            continue
        sizes = sorted(costs)
        axes.plot(sizes, [costs[n] for n in sizes], "o-", color=colour, label=case, markersize=4)
    low, high = 1e5, 1e7 if d > 64 else 1e8
    for start in (0.004, 0.04, 0.4):
        axes.plot([low, high], [start, start * high / low], ":", color="#bbbbbb", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("items")
    axes.set_title(f"{d} features; dotted: linear growth", loc="left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


if __name__ == "__main__":
    main()
