"""Figures of the report: learning curves, gains, differences, critical differences.

A figure is drawn with a palette. The palette of the page has unique placeholder colours, which are
replaced by CSS variables for light and dark mode; files get the light palette.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.report.findings import (
    ExperimentFindings,
    StrategyComparison,
    strip_strategy_options,
)
from labelwise.benchmark.report.papers import find_paper_curves
from labelwise.benchmark.report.texts import MetricUnit
from labelwise.benchmark.statistics import MeanRanks, bootstrap_mean
from labelwise.files import JsonObject
from labelwise.pages import inline_svg


@dataclass(frozen=True)
class ReportPalette:
    """Colours of text, grid and baseline, and of the strategies in turn."""

    ink: str
    grid: str
    base: str
    series: tuple[str, ...]


# fmt: off
LIGHT = ReportPalette("#1d2228", "#dde1e4", "#7d8790", (
    "#1f5fd0", "#c2570c", "#1d7f4b", "#b5329a", "#0b8a94",
    "#8a5a2b", "#6a45c4", "#c3263a", "#7c7a00", "#45566b",
))
DARK = ReportPalette("#e6e8ea", "#30363c", "#8e99a3", (
    "#7db0ff", "#ff9f5c", "#62cf94", "#f08adb", "#4fd0da",
    "#d9a877", "#b79cff", "#ff8c98", "#cfca4a", "#a9bbd0",
))
# fmt: on
PAGE = ReportPalette("#010101", "#010102", "#010103", tuple(f"#0102{n:02d}" for n in range(10)))
"""Placeholders that `render_figure_svg` replaces by the CSS variables of the page."""

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))


def format_palette_css(palette: ReportPalette) -> str:
    """CSS variables of a palette."""
    named = {"rule": palette.grid, "base": palette.base}
    named |= {f"s{place}": colour for place, colour in enumerate(palette.series)}
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())


class LineStyles:
    """Colour and dash of each strategy, the same in all figures of a section."""

    def __init__(self, names: Sequence[str], baseline: str | None, palette: ReportPalette) -> None:
        self.palette = palette
        self._lines = {}
        others = [name for name in names if name != baseline]
        for place, name in enumerate(others):
            colours = palette.series
            dash = _DASHES[place // len(colours) % len(_DASHES)]
            self._lines[name] = {"color": colours[place % len(colours)], "ls": dash, "lw": 2}
        if baseline is not None:
            self._lines[baseline] = {"color": palette.base, "ls": (0, (4, 2)), "lw": 2.4}

    def line(self, name: str) -> JsonObject:
        """Keyword arguments for a line."""
        return self._lines[name]

    def colour(self, name: str) -> str:
        """The strategy's colour."""
        return str(self._lines[name]["color"])


def draw_learning_curves(findings: ExperimentFindings, palette: ReportPalette) -> Figure:
    """Mean curves of all strategies, with their names at the ends."""
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    styles = LineStyles(findings.names, findings.baseline, palette)
    figure, axes = make_figure_axes(palette, (6.4, 4.2), experiment.axis, unit.name)
    ends = {}
    for name in findings.names:
        labels, mean, _, _ = compute_mean_band(experiment.labels, experiment.curves(name))
        if len(labels):
            axes.plot(labels, unit.scale * mean, **styles.line(name))
            ends[name] = float(unit.scale * mean[-1])
    _label_curve_ends(axes, ends, styles)
    _format_axis_thousands(axes)
    return figure


def draw_gain_curves(findings: ExperimentFindings, palette: ReportPalette) -> Figure | None:
    """Gain of every strategy over the first baseline at every number of labels."""
    baseline = findings.baseline
    if baseline is None or len(findings.names) < 2:
        return None
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    styles = LineStyles(findings.names, baseline, palette)
    height = f"gain over {baseline}, {unit.difference}"
    figure, axes = make_figure_axes(palette, (6.4, 4.2), experiment.axis, height)
    axes.axhline(0, **styles.line(baseline))
    ends = {baseline: 0.0}
    for name in findings.names:
        gain = experiment.sign * (experiment.curves(name) - experiment.curves(baseline))
        labels, mean, _, _ = compute_mean_band(experiment.labels, gain)
        if name != baseline and len(labels):
            axes.plot(labels, unit.scale * mean, **styles.line(name))
            ends[name] = float(unit.scale * mean[-1])
    _label_curve_ends(axes, ends, styles)
    _format_axis_thousands(axes)
    return figure


def draw_strategy_panel(findings: ExperimentFindings, name: str, palette: ReportPalette) -> Figure:
    """One strategy and the first baseline with their bands, and the paper's curve if any."""
    experiment, unit = findings.experiment, MetricUnit(findings.experiment.metric)
    baseline = findings.baseline
    styles = LineStyles(findings.names, baseline, palette)
    figure, axes = make_figure_axes(palette, (3.4, 2.6), experiment.axis, unit.name)
    for shown in dict.fromkeys(filter(None, (baseline, name))):
        labels, mean, low, high = compute_mean_band(experiment.labels, experiment.curves(shown))
        axes.plot(labels, unit.scale * mean, **styles.line(shown))
        colour = styles.colour(shown)
        axes.fill_between(
            labels, unit.scale * low, unit.scale * high, color=colour, alpha=0.2, lw=0
        )
    printed = find_paper_curves(experiment.name, experiment.dataset)
    if printed and strip_strategy_options(name) in printed.curves:
        heights = [cell.value for cell in printed.curves[strip_strategy_options(name)]]
        axes.plot(printed.labels, heights, "o", ms=3.5, mfc="none", mec=palette.ink, mew=0.8)
    axes.set_title(name, color=palette.ink, loc="left", fontweight="bold")
    axes.margins(x=0.02)
    _format_axis_thousands(axes)
    return figure


def draw_area_differences(
    comparisons: Sequence[StrategyComparison], unit: MetricUnit, palette: ReportPalette
) -> Figure:
    """Differences of areas to a baseline with their intervals, the best on top."""
    height = 0.9 + 0.3 * len(comparisons)
    baseline = comparisons[0].baseline
    label = f"area minus the area of {baseline}, {unit.difference} (right is better)"
    figure, axes = make_figure_axes(palette, (6.4, height), label, "")
    axes.axvline(0, color=palette.base, lw=1.2, ls=(0, (4, 2)))
    for place, comparison in enumerate(reversed(comparisons)):
        gain = comparison.area.gain
        colour = palette.series[0] if comparison.significant else palette.base
        if comparison.verdict.endswith("worse"):
            colour = palette.series[1]
        if not math.isnan(gain.low):
            ends = [unit.scale * gain.low, unit.scale * gain.high]
            axes.plot(ends, [place, place], color=colour, lw=2.4, solid_capstyle="round")
        axes.plot([unit.scale * gain.value], [place], "o", color=colour, ms=6)
    axes.set_yticks(range(len(comparisons)), [entry.strategy for entry in reversed(comparisons)])
    axes.set_ylim(-0.6, len(comparisons) - 0.4)
    axes.grid(axis="y", visible=False)
    return figure


def draw_critical_differences(ranks: MeanRanks, palette: ReportPalette) -> Figure:
    """Mean ranks on a line, with a bar over those that do not differ by Nemenyi's test."""
    count = len(ranks.names)
    depth = (count + 1) // 2
    figure, axes = make_figure_axes(
        palette, (7.4, 1.3 + 0.26 * depth + 0.12 * len(ranks.groups)), "", ""
    )
    axes.axis("off")
    low, high = 1.0, float(count)
    span = high - low
    ink: JsonObject = {"color": palette.ink, "fontsize": 9}
    axes.plot([low, high], [0, 0], color=palette.ink, lw=1)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, 0.12], color=palette.ink, lw=1)
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom", **ink)
    bars = 0.22 * len(ranks.groups)
    for place, (name, rank) in enumerate(zip(ranks.names, ranks.ranks, strict=True)):
        left = place < depth
        row = place if left else count - 1 - place
        edge = low - 0.03 * span if left else high + 0.03 * span
        height = -0.35 - bars - 0.5 * row
        axes.plot([rank, rank, edge], [0, height, height], color=palette.base, lw=0.9)
        axes.plot([rank], [0], "o", color=palette.series[0], ms=5)
        text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        side = "right" if left else "left"
        axes.text(
            edge + (-0.01 if left else 0.01) * span, height, text, ha=side, va="center", **ink
        )
    for place, (first, last) in enumerate(ranks.groups):
        ends = [ranks.ranks[first] - 0.01 * span, ranks.ranks[last] + 0.01 * span]
        axes.plot(ends, [-0.22 * (place + 1)] * 2, color=palette.ink, lw=3, solid_capstyle="round")
    reach = min(ranks.critical_difference, span)
    axes.plot([low, low + reach], [1.0, 1.0], color=palette.ink, lw=1.4)
    more = "" if reach == ranks.critical_difference else " (longer than the axis)"
    text = f"critical difference {ranks.critical_difference:.2f}{more}"
    axes.text(low, 1.12, text, ha="left", va="bottom", **ink)
    axes.set_xlim(low - 0.45 * span, high + 0.45 * span)
    return figure


def compute_mean_band(labels: Ids, curves: Floats) -> tuple[Ids, Floats, Floats, Floats]:
    """Mean, low and high end of curves ``(s, r)`` over their seeds, and measured label counts."""
    measured = np.isfinite(curves)
    kept = np.flatnonzero(measured.any(axis=0))
    found = [bootstrap_mean(curves[measured[:, place], place]) for place in kept]
    low = [entry.value if math.isnan(entry.low) else entry.low for entry in found]
    high = [entry.value if math.isnan(entry.high) else entry.high for entry in found]
    means = np.array([entry.value for entry in found])
    return np.asarray(labels)[kept], means, np.array(low), np.array(high)


def render_figure_svg(figure: Figure, label: str) -> str:
    """A figure drawn with the page's palette as inline SVG, marked as safe for a page."""
    text = io.StringIO()
    fonts: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": label}
    no_metadata = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    with rc_context(fonts):
        figure.savefig(text, format="svg", transparent=True, metadata=no_metadata)
    colours = {PAGE.ink: "currentColor", PAGE.grid: "var(--rule)", PAGE.base: "var(--base)"}
    colours |= {colour: f"var(--s{place})" for place, colour in enumerate(PAGE.series)}
    return inline_svg(text.getvalue(), label, colours)


def make_figure_axes(
    palette: ReportPalette, size: tuple[float, float], x: str, y: str
) -> tuple[Figure, Axes]:
    """A figure with one plot and light axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x, color=palette.ink)
    axes.set_ylabel(y, color=palette.ink)
    axes.tick_params(colors=palette.ink, color=palette.grid, labelsize=9)
    axes.grid(color=palette.grid, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return figure, axes


def _format_axis_thousands(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _label_curve_ends(axes: Axes, ends: dict[str, float], styles: LineStyles) -> None:
    """Write names right of the plot at the ends of the curves, without overlap."""
    if not ends:
        return
    axes.margins(x=0.01)
    low, high = axes.get_ylim()
    gap = 0.052 * (high - low)
    names = sorted(ends, key=lambda name: ends[name])
    heights = [ends[name] for name in names]
    for _ in range(200):  # push neighbours apart, half each
        for place in range(len(heights) - 1):
            lack = gap - (heights[place + 1] - heights[place])
            if lack > 1e-9:
                heights[place] -= lack / 2
                heights[place + 1] += lack / 2
        if len(heights) * gap < high - low:
            lift = max(0.0, low + gap / 2 - heights[0]) - max(0.0, heights[-1] - high + gap / 2)
            heights = [height + lift for height in heights]
    for name, height in zip(names, heights, strict=True):
        axes.annotate(
            name,
            xy=(1, ends[name]),
            xytext=(1.06, height),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            color=styles.colour(name),
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": styles.colour(name),
                "lw": 0.6,
                "shrinkA": 2,
                "patchA": None,
                "relpos": (0, 0.5),  # the name's left end, so that no line crosses a name
            },
        )
    axes.set_ylim(low, high)
