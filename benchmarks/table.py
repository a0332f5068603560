"""Turn the lines of the speed benchmarks into a page of Markdown tables.

Run: python benchmarks/table.py docs/results/speed.jsonl > docs/results/speed.md

Several files may be given. Of several lines about the same run the last one counts.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]

POOLS = "n = {n:,}, d = {d}, {classes} classes, {budget:,} picks"
MEMBERS = (
    "n = {n:,}, {members} members (heads over {d} features), {classes} classes, {budget} picks"
)


def main() -> None:
    """Print the page for the files that the command line names."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    lines = [
        json.loads(text)
        for name in sys.argv[1:]
        for text in Path(name).read_text(encoding="utf-8").splitlines()
    ]
    print("\n".join(page(lines)))


def page(lines: list[Line]) -> Iterator[str]:
    """All sections for which there are lines."""
    selections = newest(
        (line for line in lines if line["benchmark"] == "selection_speed"),
        ("strategy", "workload", "implementation"),
    )
    streams = newest((line for line in lines if line["benchmark"] == "streaming"), ("step",))
    yield "# Speed and memory\n"
    yield from circumstances([*selections, *streams])
    yield from pools(selections)
    compared = dict.fromkeys(
        line["strategy"] for line in selections if line["implementation"] != "labelwise"
    )
    for strategy in compared:
        yield from against_peers(
            strategy, [line for line in selections if line["strategy"] == strategy]
        )
    alone = [line for line in selections if line["strategy"] not in compared]
    yield from against_products([line for line in alone if "times_products" in line])
    yield from labelwise_alone([line for line in alone if "times_products" not in line])
    yield from streaming(streams)


def newest(lines: Iterable[Line], names: tuple[str, ...]) -> list[Line]:
    """The last line of each run, in the order in which runs first appear."""
    return list({tuple(line[name] for name in names): line for line in lines}.values())


def circumstances(lines: list[Line]) -> Iterator[str]:
    """On what and when it was measured, once for each machine and day."""
    names = ("cpu", "threads", "python", "numpy", "scipy", "blas")
    text = "{cpu}, {threads} threads, Python {python}, NumPy {numpy}, SciPy {scipy}, {blas}"
    for line in newest(lines, names):
        said = text.format(**line)
        yield f"{said}; {line['started'][:10]}, load average {line['load_average']} at the start."
    yield (
        "Seconds are of the whole call, the median of the repeats; megabytes are the peak above "
        "what the process held with the pool loaded. benchmarks/README.md says how to repeat it.\n"
    )


def pools(lines: list[Line]) -> Iterator[str]:
    """What the names of the pools mean."""
    for line in sorted(newest(lines, ("workload",)), key=lambda line: line["workload"]):
        shape = (MEMBERS if line["members"] else POOLS).format(**line)
        yield f"- **{line['workload']}**: {shape}"
    yield ""


def against_peers(strategy: str, lines: list[Line]) -> Iterator[str]:
    """Seconds, megabytes and ratios, one row per pool and one column per implementation."""
    names = {line["implementation"]: line["version"] for line in lines}
    found = {(line["workload"], line["implementation"]): line for line in lines}
    rows = []
    for pool in sorted({line["workload"] for line in lines}):
        ours = found.get((pool, "labelwise"), {}).get("median_seconds")
        cells = [against(found.get((pool, name)), ours) for name in names]
        rows.append([pool, *cells])
    yield f"## {strategy}\n"
    yield from table(["pool", *(f"{name} {number or ''}" for name, number in names.items())], rows)
    yield from same_job(lines)


def against(line: Line | None, ours: float | None) -> str:
    """A cell: seconds, how many times ours that is, and megabytes; or what went wrong."""
    if line is None:
        return ""
    if "error" in line:
        return str(line["error"])
    times = ""
    if ours and line["implementation"] != "labelwise":
        times = f" ({significant(line['median_seconds'] / ours)}x)"
    return f"{significant(line['median_seconds'])} s{times}, {megabytes(line)}"


def same_job(lines: list[Line]) -> Iterator[str]:
    """What shows that all did the same job."""
    rows = []
    for line in sorted(lines, key=lambda line: line["workload"]):
        if "error" in line:
            continue
        first = line.get("first_picks_as_labelwise", "")
        shared = line.get("picks_as_labelwise", "")
        distance = line.get("mean_squared_distance", "")
        picks = f"{line['distinct_picks']:,} of {line['budget']:,}"
        rows.append([line["workload"], line["implementation"], picks, distance, first, shared])
    head = ["pool", "implementation", "different picks", "mean squared distance to the nearest"]
    yield from table([*head, "first picks as labelwise", "picks as labelwise"], rows)


def against_products(lines: list[Line]) -> Iterator[str]:
    """Kernels beside the matrix products that they cannot do without."""
    if not lines:
        return
    rows = [
        [
            line["strategy"],
            line["workload"],
            f"{significant(line['median_seconds'])} s",
            f"{line['times_products']:.2f}",
            line.get("rounds", ""),
            megabytes(line),
        ]
        for line in lines
    ]
    yield "## Leverage scores and Lewis weights\n"
    yield from table(["kernel", "pool", "time", "times bare products", "rounds", "memory"], rows)


def labelwise_alone(lines: list[Line]) -> Iterator[str]:
    """Strategies that no peer offers in a comparable form."""
    if not lines:
        return
    rows = []
    for line in lines:
        if "error" in line:
            rows.append([line["strategy"], line["workload"], line["error"], "", "", ""])
            continue
        per_round = line.get("seconds_per_round")
        rows.append(
            [
                line["strategy"],
                line["workload"],
                f"{significant(line['median_seconds'])} s",
                line.get("rounds", ""),
                f"{significant(1000 * per_round)} ms" if per_round else "",
                megabytes(line),
            ]
        )
    yield "## Other strategies of labelwise\n"
    yield from table(["strategy", "pool", "time", "rounds", "per round", "memory"], rows)


def streaming(lines: list[Line]) -> Iterator[str]:
    """A pool in a memory-mapped file."""
    if not lines:
        return
    size = lines[0]["bytes"] / 1e9
    rows = []
    for line in lines:
        if "error" in line:
            rows.append([line["step"], line["error"], "", ""])
            continue
        seconds = line["median_seconds"]
        times = f"{line['times_products']:.2f}" if "times_products" in line else ""
        rows.append([line["step"], f"{significant(seconds)} s", times, megabytes(line)])
    yield f"## A file of {size:.1f} GB ({lines[0]['n']:,} rows of {lines[0]['d']} float32)\n"
    yield from table(["step", "time", "times reading and products", "memory"], rows)


def table(head: list[str], rows: list[list[Any]]) -> Iterator[str]:
    """A Markdown table without the columns that would be empty, and an empty line after it."""
    used = [column for column in range(len(head)) if any(row[column] != "" for row in rows)]
    yield f"| {' | '.join(head[column] for column in used)} |"
    yield f"|{' --- |' * len(used)}"
    for row in rows:
        yield f"| {' | '.join(str(row[column]).replace('|', ' ') for column in used)} |"
    yield ""


def megabytes(line: Line) -> str:
    """The peak memory of a line."""
    return f"{line['peak_megabytes']:,.0f} MB"


def significant(value: float) -> str:
    """A number with three significant digits."""
    return f"{float(f'{value:.3g}'):,.10g}"


if __name__ == "__main__":
    main()
