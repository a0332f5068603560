"""Tables of the papers' experiments, computed from their committed lines; see `update.py`."""

import math
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import ExperimentRuns, group_experiments
from labelwise.benchmark.report.findings import (
    analyse_experiment,
    combine_findings,
    estimate_needed_for_baseline,
    strip_strategy_options,
)
from labelwise.benchmark.report.papers import PaperTable, find_paper_table
from labelwise.benchmark.report.texts import describe_mean_ranks
from labelwise.benchmark.results import read_results
from labelwise.benchmark.statistics import (
    LEVEL,
    PairedDifference,
    correct_holm,
    curve_area,
    paired_difference,
)

FOLDER = Path(__file__).resolve().parent / "results"


def format_overview(paper: str) -> str:
    """All figures and tables of a paper: how it was run, outcome, and what could be detected.

    Args:
        paper: a table of ``results/papers.toml``.
    """
    lines = [
        "| in the paper | run | verdict | difference | p | detectable | lines |",
        "|---" * 7 + "|",
    ]
    for row in read_settings()[paper]:
        cells = [row["item"], row["run"], row.get("verdict", ""), "", "", "", ""]
        if "file" in row:
            cells[6] = f"[lines](benchmark/{row['file']}.jsonl)"
        if "entrant" in row:
            cells[3:6] = compare_row(row)
        lines.append(format_row(cells))
    return "\n".join(lines) + "\n"


def compare_row(row: dict[str, Any]) -> tuple[str, str, str]:
    """The difference behind a verdict, its p, and the smallest one that would have been found.

    An entrant is compared with a ``baseline`` (random if left out), with a number, the
    ``reference``, or, where the file has several experiments, with itself in the last of them. The
    ``measure`` is one of those of `read_values`.
    """
    file, entrant, measure = row["file"], row["entrant"], row.get("measure", "areas")
    found = read_experiments(file, row.get("up_to"))
    runs, baseline = found[0], row.get("baseline", "random")
    text, higher = f"`{entrant}` over `{baseline}`", measure in ("areas", "finals")
    own = read_values(runs, find_name(runs, entrant), measure)
    if "reference" in row:
        base, text = np.full(len(own), row["reference"]), f"`{entrant}` minus {row['reference']:g}"
    elif len(found) > 1:
        base = read_values(found[-1], find_name(found[-1], entrant), measure)
        text = f"`{entrant}`, `{runs.name}` over `{found[-1].name}`"
    elif higher:
        difference, least, p_value = compare_runs(runs, baseline, measure)[find_name(runs, entrant)]
        gain = format_difference(difference, runs)
        return f"{text}: {gain}", f"{p_value:.2g}", format_number(least, runs)
    else:
        base = read_values(runs, find_name(runs, baseline), measure)
    higher = higher or "reference" in row
    scale, digits = get_unit(runs) if measure == "finals" else (1, 2)
    unit = " s" if measure == "picking" else ""
    difference = paired_difference(own * scale, base * scale, higher_is_better=higher)
    least = detectable_difference((own - base) * scale)
    gain = format_gain(difference, 1, digits)
    return f"{text}: {gain}{unit}", f"{difference.p_t:.2g}", f"{least:.{digits}f}{unit}"


def detectable_difference(differences: ArrayLike, *, comparisons: int = 1) -> float:
    """Smallest mean difference that a paired t test at 5 % would have found with 80 % probability.

    For ``n`` differences of deviation ``s``: ``(t(1 - 0.05 / 2 m) + t(0.8)) s / sqrt(n)``, with
    ``m`` comparisons (the first step of Holm's method) and quantiles of ``n - 1`` degrees. Infinity
    for fewer than 2 differences.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2:
        return math.inf
    quantile = stats.t(len(values) - 1).ppf
    reach = quantile(1 - LEVEL / (2 * comparisons)) + quantile(0.8)
    return float(reach * values.std(ddof=1) / math.sqrt(len(values)))


def read_values(runs: ExperimentRuns, name: str, measure: str) -> Floats:
    """One number per seed, ``(s,)``.

    Measures: ``"areas"`` and ``"finals"`` of whole curves, the ``"last"`` measurement of any curve,
    the ``"rise"`` to it from the first one, ``"imbalance"`` of all labels in the end, and seconds
    of ``"picking"``.
    """
    last = runs.curves(name)[:, -1]
    if measure in ("last", "rise"):
        return last if measure == "last" else last - runs.curves(name)[:, 0]
    if measure in ("areas", "finals"):
        return getattr(runs, measure)(name)
    found: dict[int, float] = {}
    for line in runs.rounds[name]:
        if measure == "imbalance" and line.imbalance is not None:
            found[line.seed] = line.imbalance  # that of the last round
        elif measure == "picking":
            spent = line.seconds["represent"] + line.seconds["select"]
            found[line.seed] = found.get(line.seed, 0.0) + spent
    return np.array([found[seed] for seed in runs.seeds])


def format_table(file: str, up_to: int | None = None) -> str:
    """Areas of all strategies of a results file, compared with random picks.

    Columns of the printed areas and of the best epochs appear where they are known.
    """
    runs = read_runs(file, up_to)
    found = compare_runs(runs, "random")
    printed = find_paper_table(runs.name, runs.dataset, "area")
    best = {name: find_best_epochs(runs, name) for name in runs.strategies}
    extra = [
        *(["in the paper"] if printed else []),
        *(["best epochs"] if any(best.values()) else []),
    ]
    heads = ["strategy", "area", *extra, f"with {runs.labels[-1]:,} {runs.axis}", "over random"]
    lines = [format_row([*heads, "", "detectable"]), "|---" * (len(heads) + 2) + "|"]
    means = {name: runs.sign * float(np.nanmean(runs.areas(name))) for name in runs.strategies}
    for name in sorted(means, key=lambda name: -means[name]):
        areas, finals = runs.areas(name), runs.finals(name)
        scale, digits = get_unit(runs)
        kept = areas[np.isfinite(areas)] * scale
        cells = [f"`{name}`", f"{kept.mean():.{digits}f} ± {kept.std(ddof=1):.{digits}f}"]
        if printed:
            cells.append(format_printed(printed, name))
        if any(best.values()):
            cells.append(f"{100 * float(np.mean(best[name])):.2f}" if best[name] else "")
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
        lines.append(format_row(cells))
    seeds = int(np.isfinite(runs.areas(find_name(runs, "random"))).sum())
    lines.append(f"\n{seeds} seeds, {runs.labels[0]:,} to {runs.labels[-1]:,} {runs.axis}.")
    return "\n".join(lines) + "\n"


def find_best_epochs(runs: ExperimentRuns, name: str) -> list[float]:
    """Area of the test accuracies at the best epochs of every run; empty if not recorded."""
    curves: dict[int, list[float]] = {}
    for line in runs.rounds[name]:
        if "best_epoch_accuracy" in line.measures:
            curves.setdefault(line.seed, []).append(line.measures["best_epoch_accuracy"])
    whole = [curve for curve in curves.values() if len(curve) == len(runs.labels)]
    return curve_area(runs.labels, np.array(whole)).tolist() if whole else []


def format_printed(printed: PaperTable, name: str) -> str:
    """The printed value of a strategy, whatever its options here."""
    value = printed.values.get(strip_strategy_options(name))
    if value is None:
        return ""
    mean = f"{value.value:.2f}"
    return mean if value.deviation is None else f"{mean} ± {value.deviation:.2f}"


def format_rounds(file: str, counts: Sequence[int] = ()) -> str:
    """Mean and standard deviation of a study's metric in every round, by strategy and options.

    Args:
        file: results file.
        counts: numbers of labels, models, ... to show; all if empty.
    """
    runs = read_runs(file, None)
    scale, _ = get_unit(runs)
    shown = [place for place, count in enumerate(runs.labels) if not counts or count in counts]
    lines = [
        format_row([runs.axis, *(f"{runs.labels[place]:,}" for place in shown)]),
        "|---" * (len(shown) + 1) + "|",
    ]
    for name in runs.strategies:
        curves = runs.curves(name)[:, shown] * scale
        curves = curves[np.isfinite(curves).any(axis=1)]
        cells = [
            f"{mean:.4g} ± {spread:.2g}" if mean else "0"
            for mean, spread in zip(
                np.nanmean(curves, axis=0), np.nanstd(curves, axis=0, ddof=1), strict=True
            )
        ]
        lines.append(format_row([f"`{name}`", *cells]))
    return "\n".join(lines) + f"\n\n{len(runs.seeds)} seeds.\n"


def format_pairs(key: str) -> str:
    """Differences between pairs of entrants, listed in the table ``pairs`` of ``papers.toml``.

    The test of a pair is corrected for all comparisons with its second entrant.
    """
    entry = read_settings()["pairs"][key]
    lines = ["| | over | area | with all labels | p | detectable |", "|---|---|---|---|---|---|"]
    for first, second in entry["rows"]:
        runs = read_runs(entry.get("file", key), entry.get("up_to"))
        difference, least, p_value = compare_runs(runs, second)[find_name(runs, first)]
        last = compare_values(runs, first, second, "finals")
        cells = [f"`{first}`", f"`{second}`", format_difference(difference, runs)]
        cells += [format_difference(last, runs), f"{p_value:.2g}", format_number(least, runs)]
        lines.append(format_row(cells))
    return "\n".join(lines) + "\n"


def format_imbalance(key: str) -> str:
    """Largest over smallest class among the labels, by strategy; see ``imbalance`` in the TOML."""
    entries = read_settings()["imbalance"][key]
    columns = {}
    for entry in entries:
        runs = read_runs(entry["file"], entry["labels"])
        found = group_values(runs, "imbalance")
        head = f"{entry['title']}, {entry['labels']:,} labels"
        columns[head] = {name: f"{np.mean(values):.2f}" for name, values in found.items()}
        if printed := find_paper_table(runs.name, runs.dataset, "imbalance"):
            columns[f"{entry['title']} in the paper"] = {
                name: f"{value.value:g}" for name, value in printed.values.items()
            }
    return format_columns(columns)


def format_picking(key: str) -> str:
    """Seconds of picking in a whole run, by strategy; see ``picking`` in the TOML.

    Training is left out: networks of several runs were trained as one model.
    """
    columns = {}
    for entry in read_settings()["picking"][key]:
        runs = read_runs(entry["file"], entry.get("labels"))
        found: dict[str, list[float]] = {}
        found = group_values(runs, "picking")
        columns[f"{entry['title']}, seconds of picking"] = {
            name: f"{np.median(values):.2g}" for name, values in found.items()
        }
        if "printed" in entry:
            columns[f"{entry['title']} in the paper, hours with training"] = {
                name: f"{value:g}" for name, value in entry["printed"].items()
            }
    return format_columns(columns)


def group_values(runs: ExperimentRuns, measure: str) -> dict[str, list[float]]:
    """Values of all seeds by strategy, whatever its options."""
    found: dict[str, list[float]] = {}
    for name in runs.strategies:
        found.setdefault(strip_strategy_options(name), []).extend(read_values(runs, name, measure))
    return found


def format_initial(key: str) -> str:
    """Accuracies of the networks with the first labels; see ``initial`` in the TOML."""
    lines = ["| | networks | labels | mean | deviation | highest | lowest |", "|---" * 7 + "|"]
    for entry in read_settings()["initial"][key]:
        if "printed" in entry:
            lines.append(format_row([entry["title"], *map(str, entry["printed"])]))
            continue
        runs = read_runs(entry["file"], None)
        rounds = [line for line in runs.rounds[find_name(runs, "random")] if line.round == 0]
        values = 100 * np.array([line.values for line in rounds])
        spread = values.std(axis=1, ddof=1).mean()
        ends = values.max(axis=1).mean(), values.min(axis=1).mean()
        cells = [entry["title"], str(values.shape[1]), f"{rounds[0].labels:,}"]
        cells += [f"{values.mean():.2f}", f"{spread:.2f}", *(f"{end:.2f}" for end in ends)]
        lines.append(format_row(cells))
    return "\n".join(lines) + "\n"


def format_batches(file: str) -> str:
    """Several experiments in one file that buy the same labels in batches of different sizes."""
    found = read_experiments(file)
    heads = [f"{runs.labels[1] - runs.labels[0]:,} at a time" for runs in found]
    lines = [format_row(["", *heads]), "|---" * (len(found) + 1) + "|"]
    for name in found[0].strategies:
        cells = [f"{100 * np.nanmean(runs.finals(name)):.2f}" for runs in found]
        lines.append(format_row([f"`{name}`, accuracy with all labels", *cells]))
        printed = [find_paper_table(runs.name, runs.dataset, "final") for runs in found]
        if all(table is not None and name in table.values for table in printed):
            cells = [format_printed(table, name) for table in printed if table]
            lines.append(format_row([f"`{name}` in the paper", *cells]))
    for name in found[0].strategies[1:]:
        pairs = [compare_values(runs, name, "random", "finals") for runs in found]
        cells = [format_difference(pair, found[0]) for pair in pairs]
        lines.append(format_row([f"`{name}` over random, accuracy with all labels", *cells]))
        comparisons = [compare_runs(runs, "random")[name] for runs in found]
        cells = [format_difference(pair, found[0]) for pair, _, _ in comparisons]
        lines.append(format_row([f"`{name}` over random, area", *cells]))
        cells = [format_number(least, found[0]) for _, least, _ in comparisons]
        lines.append(format_row(["detectable difference of areas", *cells]))
    return "\n".join(lines) + f"\n\n{len(found[0].seeds)} seeds.\n"


def format_seconds(key: str) -> str:
    """Seconds of the first batch, by strategy; see ``seconds`` in the TOML."""
    columns: dict[str, dict[str, str]] = {}
    for entry in read_settings()["seconds"][key]:
        runs = read_runs(entry["file"], None)
        whole, alone, first = {}, {}, {}
        for name in runs.strategies:
            lines = runs.rounds[name]
            totals = [line.seconds["represent"] + line.seconds["select"] for line in lines]
            earliest = min(lines, key=lambda line: line.started)
            whole[strip_strategy_options(name)] = f"{np.median(totals):.2g}"
            alone[strip_strategy_options(name)] = (
                f"{np.median([line.seconds['select'] for line in lines]):.2g}"
            )
            took = earliest.seconds["represent"] + earliest.seconds["select"]
            first[strip_strategy_options(name)] = f"{took:.2g}"
        columns[entry["title"]] = whole
        columns[f"{entry['title']}, picking alone"] = alone
        if len(runs.seeds) > 1:
            columns[f"{entry['title']}, first in the process"] = first
    if printed := find_paper_table(runs.name, runs.dataset, "seconds"):
        values = printed.values.items()
        columns["in the paper, V100"] = {name: f"{value.value:g}" for name, value in values}
    return format_columns(columns)


def format_ranks(key: str) -> str:
    """Mean ranks of areas over experiments, and shares of rounds won; see ``ranks`` in the TOML."""
    files = read_settings()["ranks"][key]
    found = combine_findings([analyse_experiment(read_runs(file, None)) for file in files])
    names = found.names[: len(found.ranks.names)] if found.ranks else ()
    places = [found.names.index(name) for name in names]
    heads = ["better than, in % of rounds", *(f"`{name}`" for name in names)]
    lines = [describe_mean_ranks(found), "", format_row(heads), "|---" * len(heads) + "|"]
    for row in places:
        cells = [
            f"{100 * found.wins[row, column]:.0f}" if row != column else "" for column in places
        ]
        lines.append(format_row([f"`{found.names[row]}`", *cells]))
    return "\n".join(lines) + "\n"


def format_claims(key: str) -> str:
    """A list of rows whose texts have measured numbers in braces; see ``claims`` in the TOML.

    ``{gain FILE | ENTRANT | BASELINE}`` is a difference of areas with its interval, ``{last ...}``
    one of the last measurements; ``{area FILE | ENTRANT}`` is a mean area, ``{final ...}`` a last
    measurement; ``{labels FILE | ENTRANT | BASELINE}`` is the number of labels with which an
    entrant reaches the baseline's last measurement. The baseline is random if it is left out, and
    ``FILE@LABELS`` ends the curve there.
    """
    entry = read_settings()["claims"][key]
    lines = [format_row(entry["head"]), "|---" * len(entry["head"]) + "|"]
    lines += [format_row([fill_numbers(cell) for cell in row]) for row in entry["rows"]]
    return "\n".join(lines) + "\n"


def format_text(key: str) -> str:
    """A paragraph with measured numbers in braces; see ``texts`` in the TOML."""
    return fill_numbers(read_settings()["texts"][key]) + "\n"


def fill_numbers(text: str) -> str:
    """A text with its measured numbers."""
    return re.sub(r"\{(\w+) ([^}]+)\}", lambda found: _compute_number(found[1], found[2]), text)


def _compute_number(kind: str, arguments: str) -> str:
    where, entrant, *rest = (part.strip() for part in arguments.split("|"))
    file, _, limit = where.partition("@")
    runs = read_runs(file, int(limit) if limit else None)
    scale, _ = get_unit(runs)
    if kind == "labels":
        needed = estimate_needed_for_baseline(
            runs, find_name(runs, entrant), (rest or ["random"])[0]
        )
        return "more than were bought" if needed is None else f"{needed.value:,.0f}"
    if kind in ("area", "final"):
        part = "areas" if kind == "area" else "last"
        values = read_values(runs, find_name(runs, entrant), part)
        return f"{np.nanmean(values) * scale:.{'2f' if scale > 1 else '3g'}}"
    part = {"gain": "areas", "last": "finals"}[kind]
    return format_difference(compare_values(runs, entrant, (rest or ["random"])[0], part), runs)


def compare_values(runs: ExperimentRuns, first: str, second: str, part: str) -> PairedDifference:
    """The difference of ``areas`` or ``finals`` of two entrants over the seeds of both."""
    one, two = (getattr(runs, part)(find_name(runs, name)) for name in (first, second))
    both = np.isfinite(one) & np.isfinite(two)
    return paired_difference(one[both], two[both], higher_is_better=runs.higher_is_better)


def format_columns(columns: dict[str, dict[str, str]]) -> str:
    """Columns of cells by the name of their row."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    lines = [format_row(["", *columns]), "|---" * (len(columns) + 1) + "|"]
    for name in names:
        lines.append(format_row([f"`{name}`", *(own.get(name, "") for own in columns.values())]))
    return "\n".join(lines) + "\n"


def format_row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


@cache
def read_settings() -> dict[str, Any]:
    """The settings of all tables."""
    return tomllib.loads((FOLDER / "papers.toml").read_text("utf-8"))


def read_runs(file: str, up_to: int | None) -> ExperimentRuns:
    """The only experiment in a results file."""
    (runs,) = read_experiments(file, up_to)
    return runs


@cache
def read_experiments(file: str, up_to: int | None = None) -> list[ExperimentRuns]:
    """All experiments in a results file."""
    return group_experiments(read_results(FOLDER / "benchmark" / f"{file}.jsonl"), up_to=up_to)


def find_name(runs: ExperimentRuns, wanted: str) -> str:
    """The strategy of that name, or the only one whose name begins with it."""
    found = [name for name in runs.strategies if name == wanted or name.startswith(f"{wanted} (")]
    if wanted not in runs.strategies and len(found) != 1:
        raise SystemExit(f"{runs.name} has no single {wanted!r}: {', '.join(runs.strategies)}")
    return wanted if wanted in runs.strategies else found[0]


def compare_runs(
    runs: ExperimentRuns, baseline: str, part: str = "areas"
) -> dict[str, tuple[PairedDifference, float, float]]:
    """Difference of areas to a baseline, detectable difference and corrected p, by strategy."""
    base = getattr(runs, part)(find_name(runs, baseline))
    others = [name for name in runs.strategies if name != find_name(runs, baseline)]
    found = []
    for name in others:
        own = getattr(runs, part)(name)
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
    digits = {"accuracy": 2, "lewis_total": 0}.get(runs.metric, 4)
    return 100 if runs.metric == "accuracy" else 1, digits


def format_number(value: float, runs: ExperimentRuns) -> str:
    """A number in the unit of the experiment."""
    scale, digits = get_unit(runs)
    return f"{value * scale:.{digits}f}"


def format_difference(difference: PairedDifference, runs: ExperimentRuns) -> str:
    """A difference with its interval."""
    return format_gain(difference, *get_unit(runs))


def format_gain(difference: PairedDifference, scale: float, digits: int) -> str:
    """A difference with its interval, times the scale."""
    gain = difference.gain
    value, low, high = (f"{part * scale:+.{digits}f}" for part in (gain.value, gain.low, gain.high))
    return f"{value} ({low} to {high})"
