"""Turn the lines of the load benchmark into a page.

Run: python benchmarks/labelling_load_table.py docs/results/labelling_load.jsonl \
         > docs/results/labelling_load.md

Of several lines about the same run the last one counts.
"""

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]

NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
FLAWS = {
    "lost": "acknowledged labels that are not in the record",
    "never_sent": "labels in the record that nobody sent",
    "lent_twice": "items lent to a second person while the first had them, or once labelled",
    "labelled_twice": "items labelled by two people",
    "labelled_without_a_loan": "labels of items that the person had not on loan",
}


def main() -> None:
    """Print the page for the file that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    texts = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    print("\n".join(page([json.loads(text) for text in texts])))


def page(lines: list[Line]) -> Iterator[str]:
    """All of it."""
    loads = newest([line for line in lines if line["part"] == "load"], ("storage", "way"))
    grown = [line for line in lines if line["part"] == "growth"]
    lengths = sorted({_near(line["events"]) for line in grown})
    grown = newest([line | {"near": _near(line["events"])} for line in grown], ("storage", "near"))
    yield "# Fifty annotators at once\n"
    yield from circumstances([*loads, *grown])
    if loads:
        yield from load_table(loads)
        yield from limits(loads)
    if grown:
        yield from growth_table(grown, lengths)


def newest(lines: list[Line], names: tuple[str, ...]) -> list[Line]:
    """The last line of each run."""
    return list({tuple(line[name] for name in names): line for line in lines}.values())


def circumstances(lines: list[Line]) -> Iterator[str]:
    """On what it was measured, and how."""
    one, loads = lines[0], sorted(line["load_average"] for line in lines)
    yield (
        f"{one['annotators']} simulated annotators speak HTTP over loopback to `labelwise label "
        f"--no-training`, with a pool of {one['items']:,} items. {one['cpu']}, {one['cores']} "
        f"cores for server, database and annotators together, Python {one['python']}; "
        f"{one['started'][:10]}, load average {loads[0]:g} to {loads[-1]:g} while it ran. Raw "
        "lines: [labelling_load.jsonl](labelling_load.jsonl). To repeat:\n"
    )
    yield "    python benchmarks/labelling_load.py --folder /tmp --out FILE"
    yield "    python benchmarks/labelling_load_table.py FILE\n"


def head(*cells: str) -> Iterator[str]:
    """The first two rows of a table."""
    yield f"| {' | '.join(cells)} |"
    yield f"|{'---|' * len(cells)}"


def load_table(loads: list[Line]) -> Iterator[str]:
    """Speed, and what the record said afterwards."""
    yield "## Labels per second, and the time from a label to the next items\n"
    yield (
        "All items were asked for. Each annotator has a session, 10 items on loan as the page has, "
        "and sends one label per call, which answers with the next items once the label is on "
        "disk; a second connection waits for news of the state. *Full speed*: the next label "
        "follows at once. *People's pace*: after 1.5 s on average. *Killed*: full speed, until "
        "the server is ended by SIGKILL.\n"
    )
    yield from head(
        "",
        "labels/s",
        "p50",
        "p99",
        "longest",
        "labels acknowledged",
        "lost",
        "lent twice",
    )
    for line in loads:
        cells = [
            f"{NAMES[line['storage']]}, {line['way']}",
            f"{line['labels_per_second']:,.0f}",
            *(f"{line[name]:,.0f} ms" for name in ("p50_ms", "p99_ms", "max_ms")),
            f"{line['acknowledged']:,}",
            str(line["lost"]),
            str(line["lent_twice"]),
        ]
        yield f"| {' | '.join(cells)} |"
    flaws = ", ".join(f"{sum(line[n] for line in loads)} {words}" for n, words in FLAWS.items())
    errors = sum(len(line["errors"]) for line in loads)
    yield f"\nRead back from the records of all runs: {flaws}; {errors} calls were refused.\n"


def limits(loads: list[Line]) -> Iterator[str]:
    """What the server waits for."""
    yield "What limits it, from the same runs:\n"
    yield from head(
        "",
        "commits/s",
        "labels per commit",
        "bare disk syncs/s",
        "commits per sync",
        "cores: server",
        "database",
        "annotators",
        "server CPU per label",
    )
    for line in loads:
        if line["way"] == "killed":
            continue
        cpu = 1000 * line["server_cores"] / line["labels_per_second"]
        cells = [
            f"{NAMES[line['storage']]}, {line['way']}",
            f"{line['commits_per_second']:,.0f}",
            f"{line['labels_per_commit']:.1f}",
            f"{line['disk_syncs_per_second']:,.0f}",
            f"{line['commits_per_disk_sync']:.2f}",
            f"{line['server_cores']:.2f}",
            "-" if line["database_cores"] is None else f"{line['database_cores']:.2f}",
            f"{line['annotators_cores']:.2f}",
            f"{cpu:.1f} ms",
        ]
        yield f"| {' | '.join(cells)} |"
    yield (
        "\nA commit waits for the disk, but all labels that come meanwhile share the next one, so "
        "that at full speed the disk is not what is waited for: one Python process is, most of "
        "it HTTP and JSON. At people's pace hardly anyone shares a commit and the disk has time "
        "for all.\n"
    )


def growth_table(grown: list[Line], lengths: list[int]) -> Iterator[str]:
    """How times depend on the length of the record."""
    yield "## As the record grows\n"
    yield (
        "One person's calls to a running server, by turns, each after the record has changed "
        "(medians); and `labelwise status` in a fresh process, imports and all, just before a new "
        "snapshot is due. In brackets: times the value at 1,000 events.\n"
    )
    yield from head(
        "",
        "events",
        "`/api/state`",
        "label and next items",
        "first loan",
        "server CPU per call",
        "`labelwise status`",
        "CPU of it",
        "keeping a snapshot",
        "server memory",
    )
    for storage in dict.fromkeys(line["storage"] for line in grown):
        lines = {line["near"]: line for line in grown if line["storage"] == storage}
        base = lines.get(1_000) or lines[max(lengths)]
        for near in lengths:
            if near in lines:
                yield f"| {' | '.join(_growth_cells(lines[near], base))} |"
    yield (
        "\nThe server's calls do not depend on the length. A fresh process loads the snapshot, "
        "which grows with the items that were asked for and labelled, and replays at most 10,000 "
        "events, or a twentieth of the record. Keeping a snapshot holds up everyone; it comes as "
        "often."
    )


def _growth_cells(line: Line, base: Line) -> list[str]:
    cells = [NAMES[line["storage"]], f"{line['near']:,}"]
    for name in ("state_ms", "label_and_next_ms", "lend_ms", "server_cpu_ms_per_call"):
        cells.append(_timed(line.get(name), base.get(name), "ms", 1))
    for name in ("status_seconds", "status_cpu_seconds"):
        cells.append(_timed(statistics.median(line[name]), statistics.median(base[name]), "s", 2))
    kept, memory = line.get("snapshot_seconds"), line.get("server_megabytes")
    cells += ["" if kept is None else f"{kept:.2f} s", "" if memory is None else f"{memory:.0f} MB"]
    return cells


def _timed(value: float | None, base: float | None, unit: str, digits: int) -> str:
    if value is None or base is None:
        return ""
    return f"{value:.{digits}f} {unit} ({value / base:.1f})"


def _near(events: int) -> int:
    """The length that was meant: a power of ten."""
    return 10 ** len(str(events - 1)) if events > 1 else 1


if __name__ == "__main__":
    main()
