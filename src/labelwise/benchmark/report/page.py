"""The report on results files: one HTML page, and on request a CSV file and figures.

It compares strategies under the same seeds and shows the papers' numbers where there are any. It
also works on incomplete results: it pairs the existing runs and lists the missing ones.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from labelwise.arrays import Floats
from labelwise.benchmark import protocols
from labelwise.benchmark.report.experiment import ExperimentRuns, group_experiments
from labelwise.benchmark.report.figures import (
    DARK,
    LIGHT,
    PAGE,
    draw_area_differences,
    draw_critical_differences,
    draw_gain_curves,
    draw_learning_curves,
    draw_strategy_panel,
    format_palette_css,
    render_figure_svg,
)
from labelwise.benchmark.report.findings import (
    CombinedFindings,
    ExperimentFindings,
    analyse_experiment,
    combine_findings,
)
from labelwise.benchmark.report.papers import find_paper_curves
from labelwise.benchmark.report.tables import (
    make_area_table,
    make_balance_table,
    make_cost_table,
    make_difference_table,
    make_gain_table,
    make_label_table,
    write_report_csv,
)
from labelwise.benchmark.report.texts import (
    MetricUnit,
    describe_code_versions,
    describe_comparison,
    describe_mean_ranks,
    describe_seed_caveats,
    describe_untested_strategies,
    summarise_findings,
)
from labelwise.benchmark.results import RoundResult
from labelwise.files import JsonObject, write_text
from labelwise.pages import render_page
from labelwise.rounds.default_strategies import REPORTED


def write_results_report(
    rounds: Iterable[RoundResult],
    out: Path | str | None,
    *,
    baselines: Sequence[str] = REPORTED,
    up_to: int | None = None,
    title: str | None = None,
    commands: Sequence[str] | None = None,
    csv: Path | str | None = None,
    figures: Path | str | None = None,
) -> list[ExperimentFindings]:
    """Write the report atomically; return the findings, one entry per experiment.

    ``up_to`` leaves out results with more labels; ``csv`` is a file for all numbers, ``figures`` a
    folder for .svg and .png. What is None is not written.
    """
    found = [
        analyse_experiment(entry, baselines) for entry in group_experiments(rounds, up_to=up_to)
    ]
    combined = combine_findings(found)
    if out is not None:
        names = list(dict.fromkeys(entry.experiment.name for entry in found))
        page = render_page(
            "benchmark.html",
            title=title or (names[0] if len(names) == 1 else f"{len(found)} experiments"),
            commands=list_repeat_commands(found) if commands is None else commands,
            sections=[_describe_experiment_section(entry) for entry in found],
            combined=_describe_combined_experiments(found, combined) if len(found) > 1 else None,
            light=format_palette_css(LIGHT),
            dark=format_palette_css(DARK),
        )
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_text(out, page)
    if csv is not None:
        write_report_csv(Path(csv), found)
    if figures is not None:
        write_report_figures(Path(figures), found, combined)
    return found


def list_repeat_commands(findings: Sequence[ExperimentFindings]) -> list[str]:
    """The commands that repeat the papers' experiments and the report."""
    known = protocols.read_experiments()
    runs: dict[str, tuple[dict[str, None], int]] = {}
    for entry in findings:
        experiment = entry.experiment
        if experiment.name not in known:
            continue
        command = f"labelwise benchmark run {experiment.name} --scale {experiment.scale}"
        if experiment.dataset != known[experiment.name].dataset:
            command += f" --dataset {experiment.dataset}"
        chosen = dict.fromkeys(r.strategy for rs in experiment.rounds.values() for r in rs)
        names, seeds = runs.get(command, ({}, 0))
        runs[command] = (names | chosen, max(seeds, max(experiment.seeds) + 1))  # seeds from 0
    commands = [
        f"{command} --strategies {','.join(names)} --seeds {seeds} --out results.jsonl"
        for command, (names, seeds) in runs.items()
    ]
    return [*commands, "labelwise benchmark report results.jsonl --out report.html"]


def write_report_figures(
    folder: Path, findings: Sequence[ExperimentFindings], combined: CombinedFindings
) -> None:
    """Write the figures as .svg and .png files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure | None] = {}
    for entry in findings:
        unit, stem = (
            MetricUnit(entry.experiment.metric),
            _make_experiment_anchor(entry.experiment, "_"),
        )
        drawn[f"{stem}_curves"] = draw_learning_curves(entry, LIGHT)
        drawn[f"{stem}_gains"] = draw_gain_curves(entry, LIGHT)
        for name in entry.names:
            drawn[f"{stem}_curve_{_clean_anchor_name(name)}"] = draw_strategy_panel(
                entry, name, LIGHT
            )
        for baseline, comparisons in entry.comparisons.items():
            if comparisons:
                figure = draw_area_differences(comparisons, unit, LIGHT)
                drawn[f"{stem}_differences_{_clean_anchor_name(baseline)}"] = figure
    if combined.ranks is not None:
        drawn["critical_difference"] = draw_critical_differences(combined.ranks, LIGHT)
    for name, drawing in drawn.items():
        if drawing is not None:
            drawing.savefig(folder / f"{name}.svg")
            drawing.savefig(folder / f"{name}.png", dpi=200)


def _describe_combined_experiments(
    findings: Sequence[ExperimentFindings], combined: CombinedFindings
) -> JsonObject:
    """The data of the section on all experiments."""
    figure = None
    if combined.ranks is not None:
        label = "critical-difference plot: mean ranks of the strategies"
        figure = render_figure_svg(draw_critical_differences(combined.ranks, PAGE), label)
    titles = [_name_experiment_section(entry.experiment) for entry in findings]
    return {
        "ranks": describe_mean_ranks(combined),
        "figure": figure,
        "left_out": ", ".join(combined.left_out),
        "gains": make_gain_table(findings, combined.names, titles),
        "wins": _format_win_matrix(combined.names, combined.wins),
    }


def _describe_experiment_section(findings: ExperimentFindings) -> JsonObject:
    """The data of the section on one experiment."""
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    several = len(experiment.labels) > 1
    main = findings.comparisons.get(findings.baseline or "", ())
    untested = [describe_untested_strategies(findings, name) for name in findings.comparisons]
    comparisons = [
        {
            "baseline": baseline,
            "sentences": [
                (entry.verdict.split()[-1], describe_comparison(entry, unit)) for entry in entries
            ],
            "figure": render_figure_svg(
                draw_area_differences(entries, unit, PAGE), f"differences of areas to {baseline}"
            ),
            "table": make_difference_table(entries, unit),
        }
        for baseline, entries in findings.comparisons.items()
        if entries
    ]
    rounds = [entry for entries in experiment.rounds.values() for entry in entries]
    return {
        "name": _name_experiment_section(experiment),
        "anchor": _make_experiment_anchor(experiment, "-"),
        "summary": summarise_findings(findings),
        "setting": _describe_experiment_setting(experiment),
        "reduced": sorted({entry.reduced for entry in rounds} - {""}),
        "mixed": describe_code_versions(experiment),
        "notes": experiment.notes,
        "comparisons": comparisons,
        "caveats": [*describe_seed_caveats(experiment, main), *filter(None, untested)],
        "curves": _draw_section_curves(findings) if several else None,
        "areas": make_area_table(findings),
        "area_notes": _describe_paper_numbers(findings, ("area", "final")),
        "labels": make_label_table(findings) if several and experiment.axis == "labels" else None,
        "wins": (
            _format_win_matrix(findings.names, findings.wins)
            if several and len(findings.names) > 1
            else None
        ),
        "costs": make_cost_table(findings),
        "cost_notes": _describe_paper_numbers(findings, ("seconds",)),
        "balance": make_balance_table(findings),
        "balance_notes": _describe_paper_numbers(findings, ("imbalance",)),
        "facts": _describe_experiment_facts(experiment, rounds),
    }


def _describe_experiment_setting(experiment: ExperimentRuns) -> str:
    seeds = f"{len(experiment.seeds)} seed{'s' if len(experiment.seeds) > 1 else ''}"
    labels = f"{experiment.labels[0]:,} to {experiment.labels[-1]:,} {experiment.axis}"
    facts = (experiment.dataset, experiment.network, f"scale {experiment.scale}", seeds, labels)
    return " · ".join(facts)


def _draw_section_curves(findings: ExperimentFindings) -> JsonObject:
    gains = draw_gain_curves(findings, PAGE)
    names = [name for name in findings.names if name != findings.baseline] or findings.names
    note = "Above: means over seeds. Below: every strategy "
    note += f"and {findings.baseline} (dashed grey), " if findings.baseline else ""
    note += "with the 95 % interval of each mean."
    printed = find_paper_curves(findings.experiment.name, findings.experiment.dataset)
    note += f" Circles are from the paper ({printed.where})." if printed else ""
    return {
        "means": render_figure_svg(draw_learning_curves(findings, PAGE), "mean curves"),
        "gains": None if gains is None else render_figure_svg(gains, "gains over the baseline"),
        "panels": [
            render_figure_svg(draw_strategy_panel(findings, name, PAGE), f"{name} with its band")
            for name in names
        ],
        "note": note,
    }


def _format_win_matrix(names: Sequence[str], wins: Floats) -> JsonObject:
    """Rows of name and percentages; None where two strategies were never compared."""
    rows = [
        (name, [None if share != share else round(100 * float(share)) for share in row])
        for name, row in zip(names, wins, strict=True)
    ]
    return {"names": names, "rows": rows}


def _describe_experiment_facts(
    experiment: ExperimentRuns, rounds: Sequence[RoundResult]
) -> list[str]:
    def join_distinct(values: Iterable[str]) -> str:
        return "; ".join(sorted(set(values)))

    versions = (
        ", ".join(f"{name} {version}" for name, version in entry.versions.items()) or "not recorded"
        for entry in rounds
    )
    facts = [
        f"{len(rounds):,} rounds of {len({entry.key for entry in rounds})} runs; seeds "
        + f"{', '.join(map(str, experiment.seeds))}.",
        f"Devices: {join_distinct(entry.device for entry in rounds)}. "
        f"Versions: {join_distinct(versions)}.",
        f"Code: {join_distinct(entry.code or 'not recorded' for entry in rounds)}.",
    ]
    times = sorted(entry.started for entry in rounds if entry.started)
    if times:
        first, last = (time[:16].replace("T", " ") for time in (times[0], times[-1]))
        facts.append(f"Run from {first} to {last}.")
    validation = max(entry.validation_labels for entry in rounds)
    if validation:
        facts.append(f"Up to {validation:,} validation labels are used that the axes do not count.")
    for name, entries in experiment.rounds.items():
        if entries[0].options:
            options = ", ".join(f"{key}={value}" for key, value in entries[0].options.items())
            facts.append(f"Options of {name}: {options}.")
    if len(rounds[0].values) > 1:
        facts.append(f"A measurement is the mean over {len(rounds[0].values)} models.")
    return facts


def _describe_paper_numbers(findings: ExperimentFindings, quantities: Sequence[str]) -> list[str]:
    """Notes on the paper's numbers in a table."""
    tables = [table for table in map(findings.printed, quantities) if table]
    notes = list(dict.fromkeys(f"{table.where}: {table.note}." for table in tables if table.note))
    if tables and findings.experiment.scale != "full":
        notes.append(
            f"Our run is at scale {findings.experiment.scale}, so the paper’s numbers are for "
            "orientation only."
        )
    return notes


def _name_experiment_section(experiment: ExperimentRuns) -> str:
    extra = "" if experiment.dataset in experiment.name else f", {experiment.dataset}"
    return f"{experiment.name}{extra}"


def _make_experiment_anchor(experiment: ExperimentRuns, separator: str) -> str:
    parts = [experiment.name, experiment.scale, experiment.dataset, experiment.network]
    if separator == "-":  # an anchor, which must be unique on the page
        parts.append(experiment.metric)
    return separator.join(_clean_anchor_name(part) for part in parts)


def _clean_anchor_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-")
