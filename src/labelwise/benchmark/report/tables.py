"""Tables of the report as rows of text, and all numbers as one CSV file."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelwise.benchmark.report.figures import compute_mean_band
from labelwise.benchmark.report.findings import (
    ExperimentFindings,
    StrategyComparison,
    StrategySummary,
    strip_strategy_options,
)
from labelwise.benchmark.report.papers import PaperTable, PrintedValue
from labelwise.benchmark.report.texts import (
    MetricUnit,
    format_labels_needed,
    format_p_value,
    format_report_seconds,
    format_saving_share,
)
from labelwise.benchmark.statistics import Estimate
from labelwise.files import JsonObject

TableCell = str | tuple[str, str]
"""Text, or text with a smaller addition (an interval, a deviation)."""

NOTHING = "–"


@dataclass(frozen=True)
class ReportTable:
    """A head and rows of cells; the first cell of a row is its name."""

    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def _make_report_table(*columns: tuple[str, Sequence[TableCell] | None]) -> ReportTable:
    """A table from the heads and cells of its columns; those that are None are left out."""
    kept = [(head, cells) for head, cells in columns if cells is not None]
    rows = zip(*(cells for _, cells in kept), strict=True)
    return ReportTable(tuple(head for head, _ in kept), tuple(rows))


def make_area_table(findings: ExperimentFindings) -> ReportTable:
    """Areas and last measurements, with those of the paper."""
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    summaries = findings.summaries
    models = any(not math.isnan(entry.spread) for entry in findings.costs)
    areas: list[TableCell] = [
        (unit.format(entry.area.value), f"± {unit.format(entry.area_deviation)}")
        if entry.area
        else NOTHING
        for entry in summaries
    ]
    finals = [_format_metric_cell(entry.final, unit) for entry in summaries]
    spreads = [unit.format(entry.spread) for entry in findings.costs] if models else None
    return _make_report_table(
        ("strategy", findings.names),
        ("runs", [str(entry.runs) for entry in summaries]),
        (f"area, {unit.name}", areas),
        _make_paper_column(findings, "area"),
        (f"{unit.name} at {experiment.labels[-1]:,} {experiment.axis}", finals),
        ("deviation over the models", spreads),
        _make_paper_column(findings, "final"),
    )


def make_difference_table(
    comparisons: Sequence[StrategyComparison], unit: MetricUnit
) -> ReportTable:
    """Paired differences to one baseline."""
    areas = [_format_metric_cell(entry.area.gain, unit, "+") for entry in comparisons]
    finals = [_format_metric_cell(entry.final.gain, unit, "+") for entry in comparisons]
    return _make_report_table(
        ("strategy", [entry.strategy for entry in comparisons]),
        (f"area, {unit.difference}", areas),
        (f"at the end, {unit.difference}", finals),
        ("ahead", [f"{entry.area.ahead} of {entry.area.seeds}" for entry in comparisons]),
        ("p, sign flips", [format_p_value(entry.p_flip) for entry in comparisons]),
        ("p, t test", [format_p_value(entry.p_t) for entry in comparisons]),
        ("verdict", [entry.verdict.replace("unclear", "no evidence") for entry in comparisons]),
    )


def make_label_table(findings: ExperimentFindings) -> ReportTable:
    """Labels needed and saved."""
    unit, limit = MetricUnit(findings.experiment.metric), int(findings.experiment.labels[-1])
    summaries, shared = findings.summaries, not math.isnan(findings.target)
    needed = [_format_labels_cell(entry.needed, limit) for entry in summaries]
    saved = [_format_saving_cell(entry, limit) for entry in summaries]
    matched = [_format_labels_cell(entry.needed_baseline, limit) for entry in summaries]
    baseline, target = findings.baseline, unit.format(findings.target)
    return _make_report_table(
        ("strategy", findings.names),
        (f"labels to {target} (97 % of the best)", needed if shared else None),
        ("saved against the best baseline", saved if shared and baseline else None),
        (f"labels to the final value of {baseline}", matched if baseline else None),
    )


def make_cost_table(findings: ExperimentFindings) -> ReportTable:
    """Seconds and memory."""
    costs = findings.costs
    return _make_report_table(
        ("strategy", findings.names),
        ("first batch, s", [format_report_seconds(entry.first) for entry in costs]),
        _make_paper_column(findings, "seconds"),
        ("a batch, s", [format_report_seconds(entry.batch) for entry in costs]),
        ("training a round, s", [format_report_seconds(entry.train) for entry in costs]),
        ("peak memory, MB", [_format_known_number(entry.megabytes, "{:,.0f}") for entry in costs]),
    )


def make_balance_table(findings: ExperimentFindings) -> ReportTable:
    """Class imbalance, and how evenly the picks are weighted."""
    costs = findings.costs
    imbalance = [
        "a class is missing"
        if math.isinf(entry.imbalance)
        else _format_known_number(entry.imbalance)
        for entry in costs
    ]
    shares = [_format_known_number(100 * entry.effective, "{:.0f} %") for entry in costs]
    return _make_report_table(
        ("strategy", findings.names),
        (f"imbalance at {findings.experiment.labels[-1]:,} labels", imbalance),
        _make_paper_column(findings, "imbalance"),
        ("effective share of a batch", shares),
    )


def make_gain_table(
    findings: Sequence[ExperimentFindings], names: Sequence[str], titles: Sequence[str]
) -> ReportTable:
    """Gains in area over the first baseline, strategies by experiments; * is significant."""
    rows = []
    for name in names:
        row = [name]
        for entry in findings:
            unit, found = MetricUnit(entry.experiment.metric), entry.comparisons
            own = [c for c in found.get(entry.baseline or "", ()) if c.strategy == name]
            star = "*" if own and own[0].significant else ""
            row.append(f"{unit.format(own[0].area.gain.value, '+')}{star}" if own else NOTHING)
        rows.append(tuple(row))
    return ReportTable(("strategy", *titles), tuple(rows))


CSV_HEAD = (
    *("experiment", "scale", "dataset", "network", "metric", "strategy", "quantity", "against"),
    *("labels", "value", "low", "high", "deviation", "p", "p_holm", "seeds", "paper"),
)


def write_report_csv(path: Path, findings: Sequence[ExperimentFindings]) -> None:
    """Write every number of the report, one per line, in the unit of the metric."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_HEAD, restval="", lineterminator="\n")
        writer.writeheader()
        for entry in findings:
            experiment = entry.experiment
            head = {name: getattr(experiment, name) for name in CSV_HEAD[1:5]}
            head["experiment"] = experiment.name
            writer.writerows(head | line for line in _iterate_report_numbers(entry))


def _iterate_report_numbers(findings: ExperimentFindings) -> Iterator[JsonObject]:
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    printed = {name: findings.printed(name) for name in ("area", "final")}
    for name in findings.names:
        band = compute_mean_band(experiment.labels, experiment.curves(name))
        for labels, value, low, high in zip(*band, strict=True):
            numbers = {"labels": int(labels), "value": value, "low": low, "high": high}
            yield {"strategy": name, "quantity": "curve"} | numbers
    for entry in findings.summaries:
        estimates = {
            "area": entry.area,
            "final": entry.final,
            "labels_needed": entry.needed,
            "label_saving": entry.saved,
            "labels_needed_for_baseline": entry.needed_baseline,
        }
        for quantity, estimate in estimates.items():
            if estimate is None:
                continue
            line = {"strategy": entry.strategy, "quantity": quantity, "seeds": entry.runs}
            if quantity == "area":
                line["deviation"] = entry.area_deviation
            if cell := _find_paper_value(printed.get(quantity), entry.strategy):
                line["paper"] = cell.value / unit.scale
            yield line | vars(estimate)
    for comparisons in findings.comparisons.values():
        for comparison in comparisons:
            yield from _iterate_comparison_numbers(comparison)
    for row, first in enumerate(findings.names):
        for column, second in enumerate(findings.names):
            if first != second:
                value = findings.wins[row, column]
                yield {"strategy": first, "against": second, "quantity": "wins", "value": value}
    for costs in findings.costs:
        for name, value in vars(costs).items():
            if name != "strategy" and not math.isnan(value):
                quantity = f"seconds_{name}" if name in ("first", "batch", "train") else name
                yield {"strategy": costs.strategy, "quantity": quantity, "value": value}


def _iterate_comparison_numbers(comparison: StrategyComparison) -> Iterator[JsonObject]:
    line = {"strategy": comparison.strategy, "against": comparison.baseline}
    area, final = comparison.area, comparison.final
    for quantity, difference, p, corrected in (
        ("area_gain_flips", area, area.p_flip, comparison.p_flip),
        ("area_gain_t", area, area.p_t, comparison.p_t),
        ("final_gain", final, final.p_flip, ""),
    ):
        tests = {"quantity": quantity, "seeds": difference.seeds, "p": p, "p_holm": corrected}
        yield line | vars(difference.gain) | tests


def _format_interval_cell(estimate: Estimate | None, show: Callable[[float], str]) -> TableCell:
    """A value with its interval, if there is one."""
    if estimate is None:
        return NOTHING
    value = show(estimate.value)
    if math.isnan(estimate.low):
        return value
    return value, f"{show(estimate.low)} to {show(estimate.high)}"


def _format_metric_cell(estimate: Estimate | None, unit: MetricUnit, sign: str = "") -> TableCell:
    return _format_interval_cell(estimate, lambda value: unit.format(value, sign))


def _format_labels_cell(estimate: Estimate | None, limit: int) -> TableCell:
    return _format_interval_cell(estimate, lambda value: format_labels_needed(value, limit))


def _format_saving_cell(entry: StrategySummary, limit: int) -> TableCell:
    cell = _format_interval_cell(entry.saved, format_saving_share)
    if entry.saved is None or entry.saved.value != 1 or entry.needed is None:
        return cell
    # The baseline never reached the target.
    value = f"over {format_saving_share(1 - entry.needed.value / limit)}"
    return (value, cell[1]) if isinstance(cell, tuple) else value


def _format_known_number(value: float, pattern: str = "{:.2f}") -> str:
    return NOTHING if math.isnan(value) else pattern.format(value)


def _find_paper_value(table: PaperTable | None, strategy: str) -> PrintedValue | None:
    return table.values.get(strip_strategy_options(strategy)) if table else None


def _make_paper_column(
    findings: ExperimentFindings, quantity: str
) -> tuple[str, list[TableCell] | None]:
    """Head and cells of the paper's values; None if it prints nothing."""
    table = findings.printed(quantity)
    if table is None:
        return "paper", None
    cells: list[TableCell] = []
    for name in findings.names:
        printed = _find_paper_value(table, name)
        if printed is None:
            cells.append(NOTHING)
            continue
        value = f"{printed.value:,.0f}" if printed.value >= 1000 else f"{printed.value:.2f}"
        deviation = printed.deviation
        cells.append(value if deviation is None else (value, f"± {deviation:.2f}"))
    return f"paper ({table.where})", cells
