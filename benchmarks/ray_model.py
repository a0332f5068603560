"""What a selection costs on a Ray cluster, as a sum of few terms fitted to measured lines.

With :math:`n` items, :math:`A` actors and :math:`B` blocks of 64 MiB, for every strategy:

    calls   C = c0 n^c1                      picks, and so calls, do not depend on the actors
    bytes     = b0 C + b1 C A + b2 C B + b3 C m    messages to actors, answers block by block
    actors'   = a0 n + a1 C A + a2 C B       processor seconds of all actors together
    driver's  = d0 C + d1 C A + d2 bytes     processor seconds of the process that selects
    seconds   = actors' / min(A, cores) + driver's + C w + bytes / bandwidth

``m`` is ``n``, but no more than 13 million: rows that may be the next picks of k_center travel, one
in 200 and at most 65,536. All weights are at least 0, and errors count in proportion to what was
measured. ``w`` is how long a call takes beyond the processor time of both sides: from the call that
does nothing to one actor. In one machine bytes are copied by the processors, and the last term is
left out.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from ray_scaling import BUDGET, count_blocks
from scipy.optimize import nnls

from labelwise.kernels.loop.picking import MOST_ROWS, ROWS_SHARE

Line = dict[str, Any]

CASE = ("kind", "strategy", "n", "actors", "blocks")
COSTS = (
    "seconds",
    "driver_seconds",
    "actor_seconds",
    "here_seconds",
    "here_processor_seconds",
)
TERMS = {
    "bytes": ("C", "C A", "C B", "C m"),
    "actor_seconds": ("n", "C A", "C B"),
    "driver_seconds": ("C", "C A", "bytes"),
}


def read_lines(path: Path) -> list[Line]:
    """The raw lines of a file; several of one case become one, with the least of every cost.

    A line with another number of calls than those before it is of other code and replaces them.
    """
    found: dict[tuple[Any, ...], Line] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if "bytes_sent" in line:
            line["bytes"] = line["bytes_sent"] + line["bytes_received"]
        case = tuple(line.get(key) for key in CASE)
        if case in found and found[case].get("calls") != line.get("calls"):
            del found[case]
        known = found.setdefault(case, line | {"loads": []})
        known["loads"].append(line["load"])
        for cost in COSTS:
            if cost in line:
                known[cost] = min(known[cost], line[cost])
        known["turns"] = known.get("turns", 0) + line.get("repeats", 1)
    return list(found.values())


def waiting_seconds(lines: list[Line]) -> float:
    """How long a call takes beyond processor time."""
    line = next(line for line in lines if line["kind"] == "call" and line["actors"] == 1)
    return max(line["seconds"] - line["driver_seconds"] - line["actor_seconds"], 0.0)


class Model:
    """The cost model of one strategy."""

    def __init__(self, lines: list[Line], waiting: float) -> None:
        """Fit all weights to the measured lines of one strategy."""
        self.waiting, self.row_bytes = waiting, lines[0]["row_bytes"]
        calls = np.log([line["calls"] for line in lines])
        sizes = np.log([line["n"] for line in lines])
        power, level = np.polyfit(sizes, calls, 1)
        self.power, self.level = (power, level) if power > 0.01 else (0.0, calls.mean())
        terms = [self._terms(line["n"], line["actors"], line["blocks"]) for line in lines]
        for row, line in zip(terms, lines, strict=True):
            row["bytes"] = line["bytes"]
        self.weights = {name: fitted(terms, lines, name) for name in TERMS}

    def calls(self, n: int) -> float:
        """At worst one pick at a time, with two calls each."""
        return min(float(np.exp(self.level + self.power * np.log(n))), 2.0 * BUDGET)

    def _terms(self, n: int, actors: int, blocks: int) -> dict[str, float]:
        calls = self.calls(n)
        few = min(n, ROWS_SHARE * MOST_ROWS)
        return {"n": n} | {
            "C": calls,
            "C A": calls * actors,
            "C B": calls * blocks,
            "C m": calls * few,
        }

    def costs(
        self,
        n: int,
        actors: int,
        *,
        cores: int,
        blocks: int | None = None,
        bandwidth: float = np.inf,
    ) -> dict[str, float]:
        """What a selection takes, and of what it is made up."""
        blocks = blocks or count_blocks(n, self.row_bytes, actors)
        terms = self._terms(n, actors, blocks)
        found = {"calls": terms["C"]}
        for name, weights in self.weights.items():
            found[name] = sum(weight * terms[term] for term, weight in weights.items())
            terms[name] = found[name]
        found["compute"] = found["actor_seconds"] / min(actors, cores)
        found["waiting"] = found["calls"] * self.waiting
        found["network"] = found["bytes"] / bandwidth
        parts = ("compute", "driver_seconds", "waiting", "network")
        return found | {"seconds": sum(found[part] for part in parts)}


def fitted(terms: list[dict[str, float]], lines: list[Line], quantity: str) -> dict[str, float]:
    """The weights of the terms of one quantity."""
    names = TERMS[quantity]
    values = np.array([line[quantity] for line in lines])
    table = np.array([[row[name] for name in names] for row in terms]) / values[:, None]
    found, _ = nnls(table, np.ones(len(values)))
    return dict(zip(names, found.tolist(), strict=True))
