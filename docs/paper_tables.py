"""Tables of the papers' experiments, computed from their committed lines; see `update.py`."""

import tomllib
from functools import cache
from pathlib import Path

import numpy as np

from labelwise.benchmark.report.experiment import ExperimentRuns, group_experiments
from labelwise.benchmark.results import read_results
from labelwise.benchmark.statistics import (
    PairedDifference,
    correct_holm,
    detectable_difference,
    paired_difference,
)

FOLDER = Path(__file__).resolve().parent / "results"


def format_overview(paper: str) -> str:
    """All figures and tables of a paper: how it was run, outcome, and what could be detected.

    Args:
        paper: a table of ``results/papers.toml``.
    """
    lines = [
        "| in the paper | run | verdict | difference | detectable | lines |",
        "|---|---|---|---|---|---|",
    ]
    for row in tomllib.loads((FOLDER / "papers.toml").read_text("utf-8"))[paper]:
        cells = [row["item"], row["run"], row.get("verdict", ""), "", "", ""]
        if "file" in row:
            cells[5] = f"[lines](benchmark/{row['file']}.jsonl)"
        if "entrant" in row:
            runs = read_runs(row["file"], row.get("up_to"))
            found = compare_runs(runs, row.get("baseline", "random"))
            difference, least, _ = found[find_name(runs, row["entrant"])]
            against = row.get("baseline", "random")
            cells[3] = f"`{row['entrant']}` over `{against}`: {format_difference(difference, runs)}"
            cells[4] = format_number(least, runs)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_table(file: str, up_to: int | None = None) -> str:
    """Areas of all strategies of a results file, compared with random picks."""
    runs = read_runs(file, up_to)
    found = compare_runs(runs, "random")
    lines = [
        f"| strategy | area | with {runs.labels[-1]:,} labels | over random | | detectable |",
        "|---|---|---|---|---|---|",
    ]
    means = {name: runs.sign * float(np.nanmean(runs.areas(name))) for name in runs.strategies}
    for name in sorted(means, key=lambda name: -means[name]):
        areas, finals = runs.areas(name), runs.finals(name)
        scale, digits = get_unit(runs)
        kept = areas[np.isfinite(areas)] * scale
        cells = [f"`{name}`", f"{kept.mean():.{digits}f} ± {kept.std(ddof=1):.{digits}f}"]
        cells.append(f"{np.nanmean(finals) * scale:.{digits}f}")
        if name in found:
            difference, least, p_value = found[name]
            verdict = "**ahead**" if difference.gain.value > 0 else "**behind**"
            cells += [
                format_difference(difference, runs),
                verdict if p_value <= 0.05 else "",
                format_number(least, runs),
            ]
        else:
            cells += ["", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    seeds = int(np.isfinite(runs.areas(find_name(runs, "random"))).sum())
    lines.append(f"\n{seeds} seeds, {runs.labels[0]:,} to {runs.labels[-1]:,} {runs.axis}.")
    return "\n".join(lines) + "\n"


def format_rounds(file: str) -> str:
    """Mean and standard deviation of a study's metric in every round, by strategy and options."""
    runs = read_runs(file, None)
    scale, _ = get_unit(runs)
    lines = [
        f"| {runs.axis} | {' | '.join(f'{count:,}' for count in runs.labels)} |",
        f"|---|{'---|' * len(runs.labels)}",
    ]
    for name in runs.strategies:
        curves = runs.curves(name) * scale
        cells = [
            f"{mean:.3g} ± {spread:.2g}"
            for mean, spread in zip(curves.mean(axis=0), curves.std(axis=0, ddof=1), strict=True)
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\n{len(runs.seeds)} seeds.\n"


@cache
def read_runs(file: str, up_to: int | None) -> ExperimentRuns:
    """The only experiment in a results file."""
    (runs,) = group_experiments(read_results(FOLDER / "benchmark" / f"{file}.jsonl"), up_to=up_to)
    return runs


def find_name(runs: ExperimentRuns, wanted: str) -> str:
    """The strategy of that name, or the only one whose name begins with it."""
    found = [name for name in runs.strategies if name == wanted or name.startswith(f"{wanted} (")]
    return wanted if wanted in runs.strategies else found[0]


def compare_runs(
    runs: ExperimentRuns, baseline: str
) -> dict[str, tuple[PairedDifference, float, float]]:
    """Difference of areas to a baseline, detectable difference and corrected p, by strategy."""
    base = runs.areas(find_name(runs, baseline))
    others = [name for name in runs.strategies if name != find_name(runs, baseline)]
    found = []
    for name in others:
        own = runs.areas(name)
        both = np.isfinite(own) & np.isfinite(base)
        difference = paired_difference(
            own[both], base[both], higher_is_better=runs.higher_is_better
        )
        least = detectable_difference(own[both] - base[both], comparisons=len(others))
        found.append((difference, least))
    corrected = correct_holm([difference.p_t for difference, _ in found])
    return {
        name: (*pair, float(p_value))
        for name, pair, p_value in zip(others, found, corrected, strict=True)
    }


def get_unit(runs: ExperimentRuns) -> tuple[float, int]:
    """Factor and digits: accuracies in %, everything else as it is."""
    return (100, 2) if runs.metric == "accuracy" else (1, 4)


def format_number(value: float, runs: ExperimentRuns) -> str:
    """A number in the unit of the experiment."""
    scale, digits = get_unit(runs)
    return f"{value * scale:.{digits}f}"


def format_difference(difference: PairedDifference, runs: ExperimentRuns) -> str:
    """A difference with its interval."""
    scale, digits = get_unit(runs)
    gain = difference.gain
    value, low, high = (f"{part * scale:+.{digits}f}" for part in (gain.value, gain.low, gain.high))
    return f"{value} ({low} to {high})"
