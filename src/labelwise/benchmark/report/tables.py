"""The report's tables as rows of text, for the page; and all numbers as one CSV file.

A cell is text, or text with a second, smaller one beside it (an interval, a deviation).
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelwise.benchmark.report.experiment import Experiment
from labelwise.benchmark.report.figures import band
from labelwise.benchmark.report.findings import Contrast, Costs, Findings, Summary, plain
from labelwise.benchmark.report.papers import PaperTable, Printed
from labelwise.benchmark.report.words import (
    Unit,
    labels_text,
    p_text,
    saving_text,
    seconds_text,
)
from labelwise.benchmark.statistics import Estimate

Cell = str | tuple[str, str]
NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A head and rows of cells; the first cell of a row names it."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def area_table(findings: Findings) -> Table:
    """Areas and last measurements, beside the paper's."""
    experiment, unit = findings.experiment, Unit(findings.experiment.metric)
    printed = {name: findings.printed(name) for name in ("area", "final")}
    models = any(not math.isnan(entry.spread) for entry in findings.costs)
    head = ["strategy", "runs", f"area, {unit.name}"]
    head += [f"paper ({printed['area'].where})"] if printed["area"] else []
    head += [f"{unit.name} at {experiment.labels[-1]:,} {experiment.axis}"]
    head += ["deviation over the models"] if models else []
    head += [f"paper ({printed['final'].where})"] if printed["final"] else []
    rows = []
    for entry, costs in zip(findings.summaries, findings.costs, strict=True):
        row: list[Cell] = [entry.strategy, str(entry.runs)]
        spread = f"± {unit.text(entry.area_deviation)}"
        row.append((unit.text(entry.area.value), spread) if entry.area else NOTHING)
        row += _paper(printed["area"], entry.strategy)
        row.append(_with_interval(entry.final, unit))
        row += [unit.text(costs.spread)] if models else []
        row += _paper(printed["final"], entry.strategy)
        rows.append(tuple(row))
    return Table(tuple(head), tuple(rows))


def differences_table(contrasts: Sequence[Contrast], unit: Unit) -> Table:
    """Paired differences to one baseline."""
    head = (
        "strategy",
        f"area, {unit.difference}",
        f"at the end, {unit.difference}",
        "ahead",
        "p, sign flips",
        "p, t test",
        "verdict",
    )
    rows = tuple(
        (
            entry.strategy,
            _with_interval(entry.area.gain, unit, "+"),
            _with_interval(entry.final.gain, unit, "+"),
            f"{entry.area.ahead} of {entry.area.seeds}",
            p_text(entry.p_flip),
            p_text(entry.p_t),
            "no evidence" if entry.verdict == "unclear" else entry.verdict,
        )
        for entry in contrasts
    )
    return Table(head, rows)


def labels_table(findings: Findings) -> Table:
    """Labels needed, and saved."""
    experiment, unit = findings.experiment, Unit(findings.experiment.metric)
    limit = int(experiment.labels[-1])
    head = ["strategy"]
    shared = not math.isnan(findings.target)
    if shared:
        head += [f"labels to {unit.text(findings.target)} (97 % of the best)"]
        head += ["saved against the best baseline"] if findings.baselines else []
    if findings.baselines:
        head += [f"labels to what {findings.baselines[0]} has at the end"]
    rows = []
    for entry in findings.summaries:
        row: list[Cell] = [entry.strategy]
        if shared:
            row.append(_labels(entry.needed, limit))
            row += [_saving(entry, limit)] if findings.baselines else []
        if findings.baselines:
            row.append(_labels(entry.needed_random, limit))
        rows.append(tuple(row))
    return Table(tuple(head), tuple(rows))


def costs_table(findings: Findings) -> Table:
    """Seconds and memory."""
    printed = findings.printed("seconds")
    head = ["strategy", "first batch, s"]
    head += [f"paper ({printed.where})"] if printed else []
    head += ["a batch, s", "training a round, s", "peak memory, MB"]
    rows = []
    for entry in findings.costs:
        row: list[Cell] = [entry.strategy, seconds_text(entry.first)]
        row += _paper(printed, entry.strategy)
        row += [seconds_text(entry.batch), seconds_text(entry.train)]
        row.append(NOTHING if math.isnan(entry.megabytes) else f"{entry.megabytes:,.0f}")
        rows.append(tuple(row))
    return Table(tuple(head), tuple(rows))


def balance_table(findings: Findings) -> Table:
    """Class imbalance, and how evenly the picks are weighted."""
    printed = findings.printed("imbalance")
    head = ["strategy", f"imbalance at {findings.experiment.labels[-1]:,} labels"]
    head += [f"paper ({printed.where})"] if printed else []
    head += ["effective share of a batch"]
    rows = []
    for entry in findings.costs:
        row: list[Cell] = [entry.strategy, _imbalance(entry)]
        row += _paper(printed, entry.strategy)
        even = NOTHING if math.isnan(entry.effective) else f"{100 * entry.effective:.0f} %"
        rows.append((*row, even))
    return Table(tuple(head), tuple(rows))


CSV_HEAD = (
    *("experiment", "scale", "dataset", "network", "metric", "strategy", "quantity", "against"),
    *("labels", "value", "low", "high", "deviation", "p", "p_holm", "seeds", "paper"),
)


def write_csv(path: Path, findings: Sequence[Findings]) -> None:
    """Write every number of the report, one per line, in the metric's own unit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_HEAD, restval="", lineterminator="\n")
        writer.writeheader()
        for entry in findings:
            head = _columns(entry.experiment)
            writer.writerows(head | line for line in _lines(entry))


def _columns(experiment: Experiment) -> dict[str, object]:
    names = ("scale", "dataset", "network", "metric")
    return {"experiment": experiment.name} | {name: getattr(experiment, name) for name in names}


def _lines(findings: Findings) -> Iterator[dict[str, object]]:
    experiment = findings.experiment
    unit = Unit(experiment.metric)
    printed = {name: findings.printed(name) for name in ("area", "final")}
    for name in findings.names:
        for labels, *numbers in zip(*band(experiment.labels, experiment.curves(name)), strict=True):
            line = {"strategy": name, "quantity": "curve", "labels": int(labels)}
            yield line | dict(zip(("value", "low", "high"), numbers, strict=True))
    for entry in findings.summaries:
        parts = {"area": entry.area, "final": entry.final, "labels_needed": entry.needed}
        parts |= {"label_saving": entry.saved, "labels_needed_for_baseline": entry.needed_random}
        for quantity, estimate in parts.items():
            if estimate is None:
                continue
            line = {"strategy": entry.strategy, "quantity": quantity, "seeds": entry.runs}
            extra: dict[str, object] = {}
            if quantity == "area":
                extra["deviation"] = entry.area_deviation
            cell = _printed(printed.get(quantity), entry.strategy)
            if cell:
                extra["paper"] = cell.value / unit.scale
            yield line | _numbers(estimate) | extra
    for contrasts in findings.contrasts.values():
        for contrast in contrasts:
            yield from _contrast_lines(contrast)
    yield from _other_lines(findings)


def _contrast_lines(contrast: Contrast) -> Iterator[dict[str, object]]:
    line = {"strategy": contrast.strategy, "against": contrast.baseline}
    gain = _numbers(contrast.area.gain) | {"seeds": contrast.area.seeds}
    for test, p, corrected in (
        ("flips", contrast.area.p_flip, contrast.p_flip),
        ("t", contrast.area.p_t, contrast.p_t),
    ):
        yield line | gain | {"quantity": f"area_gain_{test}", "p": p, "p_holm": corrected}
    yield (
        line
        | _numbers(contrast.final.gain)
        | {
            "quantity": "final_gain",
            "seeds": contrast.final.seeds,
            "p": contrast.final.p_flip,
        }
    )


def _other_lines(findings: Findings) -> Iterator[dict[str, object]]:
    for row, first in enumerate(findings.names):
        for column, second in enumerate(findings.names):
            if first != second:
                line: dict[str, object] = {"strategy": first, "against": second}
                yield line | {"quantity": "wins", "value": findings.wins[row, column]}
    for entry in findings.costs:
        names = ("first", "batch", "train", "megabytes", "imbalance", "effective", "spread")
        for name in names:
            quantity = f"seconds_{name}" if name in ("first", "batch", "train") else name
            if not math.isnan(getattr(entry, name)):
                line = {"strategy": entry.strategy, "quantity": quantity}
                yield line | {"value": getattr(entry, name)}


def _numbers(estimate: Estimate) -> dict[str, object]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _with_interval(estimate: Estimate | None, unit: Unit, sign: str = "") -> Cell:
    if estimate is None:
        return NOTHING
    value = unit.text(estimate.value, sign)
    if math.isnan(estimate.low):
        return value
    return value, f"{unit.text(estimate.low, sign)} to {unit.text(estimate.high, sign)}"


def _labels(estimate: Estimate | None, limit: int) -> Cell:
    if estimate is None:
        return NOTHING
    value = labels_text(estimate.value, limit)
    if math.isnan(estimate.low):
        return value
    return value, f"{labels_text(estimate.low, limit)} to {labels_text(estimate.high, limit)}"


def _saving(entry: Summary, limit: int) -> Cell:
    estimate = entry.saved
    if estimate is None:
        return NOTHING
    value = saving_text(estimate.value)
    if estimate.value == 1 and entry.needed is not None:  # the baseline needs more than all labels
        value = f"over {saving_text(1 - entry.needed.value / limit)}"
    if math.isnan(estimate.low):
        return value
    return value, f"{saving_text(estimate.low)} to {saving_text(estimate.high)}"


def _imbalance(entry: Costs) -> str:
    if math.isnan(entry.imbalance):
        return NOTHING
    return f"{entry.imbalance:.2f}" if math.isfinite(entry.imbalance) else "a class is missing"


def _printed(table: PaperTable | None, strategy: str) -> Printed | None:
    return table.values.get(plain(strategy)) if table else None


def _paper(table: PaperTable | None, strategy: str) -> list[Cell]:
    """The paper's cell, if the table has such a column at all."""
    if table is None:
        return []
    cell = _printed(table, strategy)
    if cell is None:
        return [NOTHING]
    value = f"{cell.value:,.0f}" if cell.value >= 1000 else f"{cell.value:.2f}"
    return [(value, f"± {cell.deviation:.2f}") if cell.deviation is not None else value]
