"""Tables from the raw lines of ray_scaling.py, with the cost model fitted to them.

Run: python benchmarks/ray_table.py [docs/results/ray_scaling.jsonl] [--out ray_scaling.md]
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ray_model import Line, Model, read_lines, waiting_seconds
from ray_scaling import BUDGET, STRATEGIES

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "ray_scaling.jsonl"
TEN_GIGABITS, ROUND_TRIP = 1.25e9, 1e-3
CLUSTERS = ((100_000_000, 16), (1_000_000_000, 64), (1_000_000_000, 1024))
"""Items and actors that the model is asked for; 64 nodes with one actor, or with sixteen each."""
OVERHEAD_ACTORS = 8
FITTED_ACTORS = 4
"""The model must predict the largest pool on so many actors without having seen it."""

INTRODUCTION = """# Selections on Ray

{machine}; load average {low:.1f} to {high:.1f} while it ran ({cores} cores, other work beside it).
`python benchmarks/ray_scaling.py` writes the raw lines (ray_scaling.jsonl) and `python
benchmarks/ray_table.py` this page. Pools are {columns} float32 features (entropy: 10
probabilities) in .npy files that are in memory, 1,000 picks. Seconds are the fastest of at least
{repeats} turns; processor seconds the least of them."""

OVERHEAD = """
## What a pick costs more on Ray

{actors} actors in this machine of {cores} cores, against the same call without Ray, turn by turn.
The second figure counts the processor time of all processes, whether they work side by side or not.
The aim is under 1 ms. {verdict}"""
LATE = """Over it: {late}.
k_center brings the rows that may be next to the driver for every block of picks, which is what its
bytes are."""

CALLS = """
A call that does nothing, and the processor time it takes the driver and all actors together:"""

SCALING = """
## One, two, four, eight actors

Seconds of the whole call (processor seconds of all actors + of the driver). Above {cores} actors
the cores are shared, and other work takes its share of them."""

MODEL = """
## The cost model

{formulas}
The line of {n:,} items on {actors} actors was kept from the fit. Weights, in bytes and seconds:
"""

CHECKED = """
### Predicted and measured

Predicted over measured: calls, bytes, processor seconds of all processes together, seconds. The
model's seconds are those of a machine that does nothing else."""

EXTRAPOLATED = """
### 64 nodes and 1,000,000,000 items

What the model says for clusters that were not measured. It assumes a core for every actor, equal
parts, 10 Gbit/s at the driver, 1 ms of waiting a call (in this machine {waiting:.2f} ms beyond
processor time), and rows in the nodes' memory (64 nodes: {share:.0f} GB each; from disks of 2 GB/s
add {disk:.0f} s a pass). It knows no stragglers and no failures. The driver's own work on answers
grows with the actors; where it is the largest part, fewer actors with more items each are better.
"""

TRAVEL = """
## What travels, strategy by strategy

{picks} picks on {actors} actors from {n:,} items; then what {more:,} items more add, in bytes each.
Where that is 0, the traffic does not depend on the size of the pool."""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or arguments.lines.with_suffix(".md")
    out.write_text("\n".join(page(read_lines(arguments.lines))) + "\n", encoding="utf-8")


def page(lines: list[Line]) -> Iterator[str]:
    """All lines of the page."""
    measured = [line for line in lines if line["kind"] == "measured"]
    first, loads = measured[0], [load for line in lines for load in line["loads"]]
    libraries = f"NumPy {first['numpy']}, Ray {first['ray']}, Python {first['python']}"
    yield INTRODUCTION.format(
        machine=f"{first['cpu']}, {libraries}; {first['started'][:10]}",
        low=min(loads),
        high=max(loads),
        cores=first["cores"],
        columns=64,
        repeats=min(line["turns"] for line in measured),
    )
    plain = [line for line in measured if line["blocks"] == least_blocks(line, measured)]
    yield from overhead(plain)
    yield from calls([line for line in lines if line["kind"] == "call"])
    yield from scaling(plain)
    yield from model(lines, measured)
    yield from travel([line for line in lines if line["kind"] == "travel"])


def least_blocks(line: Line, lines: list[Line]) -> int:
    """The blocks of the same case in blocks of the usual size."""
    case = ("strategy", "n", "actors")
    same = [other for other in lines if all(other[key] == line[key] for key in case)]
    return min(other["blocks"] for other in same)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A Markdown table."""
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def overhead(lines: list[Line]) -> Iterator[str]:
    """Milliseconds per pick beyond the call without Ray."""
    some = [line for line in lines if line["actors"] == OVERHEAD_ACTORS]
    extra = {(x["strategy"], x["n"]): 1e3 * (x["seconds"] - x["here_seconds"]) for x in some}
    late = [
        f"{name} at {n:,} items ({spent / BUDGET:.2f} ms)"
        for (name, n), spent in extra.items()
        if spent > BUDGET
    ]
    verdict = LATE.format(late=", ".join(late)) if late else "All are."
    yield OVERHEAD.format(actors=OVERHEAD_ACTORS, cores=some[0]["cores"], verdict=verdict)
    rows = []
    for line in sorted(some, key=lambda line: (STRATEGIES.index(line["strategy"]), line["n"])):
        busy = line["driver_seconds"] + line["actor_seconds"] - line["here_processor_seconds"]
        rows.append(
            (
                line["strategy"],
                f"{line['n']:,}",
                f"{line['here_seconds']:.3f}",
                f"{line['seconds']:.3f}",
                f"{extra[line['strategy'], line['n']] / BUDGET:.3f}",
                f"{1e3 * busy / BUDGET:.3f}",
                line["calls"],
                f"{line['bytes'] / BUDGET:,.0f}",
            )
        )
    head = ("strategy", "items", "s without Ray", "s on Ray", "ms more a pick")
    yield from table((*head, "processor ms more a pick", "calls", "bytes a pick"), rows)


def calls(lines: list[Line]) -> Iterator[str]:
    """What a call costs that does nothing."""
    yield CALLS
    rows = []
    for line in lines:
        times = (line[key] * 1e3 for key in ("seconds", "driver_seconds", "actor_seconds"))
        rows.append((line["actors"], *(f"{value:.2f}" for value in times), f"{line['bytes']:,}"))
    yield from table(("actors", "ms", "driver's", "actors'", "bytes"), rows)


def scaling(lines: list[Line]) -> Iterator[str]:
    """Seconds by the number of actors."""
    yield SCALING.format(cores=lines[0]["cores"])
    counts = sorted({line["actors"] for line in lines})
    found = {(line["strategy"], line["n"], line["actors"]): line for line in lines}
    rows = []
    for name in STRATEGIES:
        for n in sorted({line["n"] for line in lines}):
            cells = [shown(found[name, n, count]) for count in counts]
            without = found[name, n, counts[0]]
            here = f"{without['here_seconds']:.2f} ({without['here_processor_seconds']:.2f})"
            rows.append((name, f"{n:,}", here, *cells))
    yield from table(("strategy", "items", "without Ray", *map(str, counts)), rows)


def shown(line: Line) -> str:
    """Seconds and processor seconds of a line."""
    used = f"{line['actor_seconds']:.2f} + {line['driver_seconds']:.2f}"
    return f"{line['seconds']:.2f} ({used})"


def model(lines: list[Line], measured: list[Line]) -> Iterator[str]:
    """The weights, how well they predict, and what follows for other clusters."""
    waiting, largest = waiting_seconds(lines), max(line["n"] for line in measured)
    hidden = [
        line
        for line in measured
        if (line["n"], line["actors"]) == (largest, FITTED_ACTORS)
        and line["blocks"] == least_blocks(line, measured)
    ]
    fits = {}
    for name in STRATEGIES:
        own = [line for line in measured if line["strategy"] == name and line not in hidden]
        fits[name] = Model(own, waiting)
    text = (Path(__file__).parent / "ray_model.py").read_text().split('"""')[1]
    formulas = text.split("\n\n", 1)[1].replace(":math:", "").rstrip()
    yield MODEL.format(formulas=formulas, n=largest, actors=FITTED_ACTORS)
    rows = [(name, *weights(fit)) for name, fit in fits.items()]
    yield from table(("strategy", "calls", "bytes", "actors'", "driver's"), rows)
    yield from checked(fits, measured, hidden)
    yield from extrapolated(fits, waiting)


def weights(fit: Model) -> Iterator[str]:
    """The weights of a model in words."""
    yield f"{np.exp(fit.level):.3g}" + (f" n^{fit.power:.2f}" if fit.power else "")
    for found in fit.weights.values():
        yield " + ".join(f"{weight:.2g} {term}" for term, weight in found.items() if weight > 0)


def checked(fits: dict[str, Model], measured: list[Line], hidden: list[Line]) -> Iterator[str]:
    """How far the model is off."""
    yield CHECKED
    rows, ratios = [], []
    for line in measured:
        cores = line["cores"]
        case = line["n"], line["actors"]
        found = fits[line["strategy"]].costs(*case, cores=cores, blocks=line["blocks"])
        used = found["actor_seconds"] + found["driver_seconds"]
        pairs = (
            (found["calls"], line["calls"]),
            (found["bytes"], line["bytes"]),
            (used, line["actor_seconds"] + line["driver_seconds"]),
            (found["seconds"], line["seconds"]),
        )
        ratio = [mine / theirs for mine, theirs in pairs]
        ratios.append((line in hidden, *ratio))
        if line in hidden:
            cells = [f"{value:.2f}" for value in ratio]
            seconds = f"{found['seconds']:.3f}", f"{line['seconds']:.3f}"
            rows.append((line["strategy"], f"{line['n']:,}", line["actors"], *cells, *seconds))
    head = ("strategy", "items", "actors", "calls", "bytes", "processor s", "seconds")
    yield from table((*head, "predicted s", "measured s"), rows)
    yield ""
    seen = np.array([ratio[1:] for ratio in ratios])
    low, middle, high = np.percentile(seen, [10, 50, 90], axis=0)
    yield f"Over all {len(seen)} measured lines (10 %, 50 % and 90 % of them are below):"
    names = ("calls", "bytes", "processor s", "seconds")
    spread = zip(names, low, middle, high, strict=True)
    rows = [(name, *(f"{value:.2f}" for value in values)) for name, *values in spread]
    yield from table(("predicted over measured", "10 %", "50 %", "90 %"), rows)


def extrapolated(fits: dict[str, Model], waiting: float) -> Iterator[str]:
    """What the model says for other clusters."""
    pool = 1e9 * fits["lewis"].row_bytes / 64
    yield EXTRAPOLATED.format(waiting=1e3 * waiting, share=pool / 1e9, disk=pool / 2e9)
    rows = []
    for name, fit in fits.items():
        for n, actors in CLUSTERS:
            fit.waiting = ROUND_TRIP
            found = fit.costs(n, actors, cores=actors, bandwidth=TEN_GIGABITS)
            parts = ("compute", "driver_seconds", "waiting", "network", "seconds")
            rows.append(
                (
                    name,
                    f"{n:,}",
                    actors,
                    f"{found['calls']:,.0f}",
                    f"{found['bytes'] / BUDGET:,.0f}",
                    f"{found['bytes'] / found['calls']:,.0f}",
                    *(f"{found[part]:.3g}" for part in parts),
                )
            )
    head = ("strategy", "items", "actors", "calls", "bytes a pick", "bytes a call")
    yield from table((*head, "actors s", "driver s", "waiting s", "network s", "seconds"), rows)


def travel(lines: list[Line]) -> Iterator[str]:
    """Bytes of every strategy, and how they grow."""
    small, large = sorted({line["n"] for line in lines})
    found = {(line["strategy"], line["n"]): line for line in lines}
    yield TRAVEL.format(
        picks=lines[0]["budget"], actors=lines[0]["actors"], n=small, more=large - small
    )
    rows = []
    for name in dict.fromkeys(line["strategy"] for line in lines):
        one, other = found[name, small], found[name, large]
        growth = max(other["bytes"] - one["bytes"], 0) / (large - small)
        cells = (one["calls"], f"{one['bytes_sent']:,}", f"{one['bytes_received']:,}")
        rows.append((name, *cells, f"{growth:.1f}"))
    yield from table(("strategy", "calls", "sent", "received", "bytes an item more"), rows)


if __name__ == "__main__":
    main()
