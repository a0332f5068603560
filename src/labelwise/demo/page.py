"""The demo's page: one HTML file with its curves, pictures and numbers inside."""

import base64
import html
import io
import math
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import sklearn
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from labelwise.arrays import Floats
from labelwise.benchmark.statistics import Estimate
from labelwise.demo.comparison import Comparison, band
from labelwise.demo.runs import BASELINE, Plan, Run, accuracies_by_strategy

# Colours that matplotlib writes and the page replaces by its own, light or dark.
_INK, _GRID, _BASE, _LINE = "#010101", "#010102", "#010103", "#010104"
_COLOURS = {
    _INK: "currentColor",
    _GRID: "var(--rule)",
    _BASE: "var(--base)",
    _LINE: "var(--line)",
}


def write_report(
    path: Path, plan: Plan, runs: Sequence[Run], comparisons: Sequence[Comparison], seconds: float
) -> None:
    """Write the page; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(page(plan, runs, comparisons, seconds), encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def page(plan: Plan, runs: Sequence[Run], comparisons: Sequence[Comparison], seconds: float) -> str:
    """The whole page as text."""
    curves = accuracies_by_strategy(runs)
    rivals = [entry for entry in comparisons if entry.strategy != BASELINE]
    panels = "".join(f"<figure>{_panel(plan, entry, curves)}</figure>" for entry in rivals)
    return _PAGE.format(
        style=_STYLE,
        lede=_lede(plan, comparisons),
        table=_table(plan, comparisons),
        panels=panels,
        picks=_picks(runs),
        facts=_facts(plan, seconds),
        command=html.escape(command(plan)),
        start=plan.start,
        seeds=plan.seeds,
        batch=plan.batch,
    )


def command(plan: Plan) -> str:
    """The command that repeats the run."""
    strategies = " ".join(f"--strategy {name}" for name in plan.strategies)
    return f"labelwise demo {strategies} --seeds {plan.seeds} --labels {plan.labels}"


def labels_text(estimate: Estimate, limit: int) -> tuple[str, str]:
    """Labels needed and their interval, in words where the accuracy was not reached."""

    def number(value: float) -> str:
        return f"{value:.0f}" if math.isfinite(value) else f">{limit}"

    return number(estimate.value), f"{number(estimate.low)}..{number(estimate.high)}"


def verdict(entry: Comparison, limit: int) -> str:
    """What the interval of the labels needed allows to say."""
    if entry.strategy == BASELINE:
        return ""
    if entry.needed.high < limit:
        return "fewer labels"
    return "more labels" if entry.needed.low > limit else "unclear"


def percent(estimate: Estimate, sign: str = "") -> tuple[str, str]:
    """An accuracy, or a difference of two, with its interval."""
    low, high = (f"{100 * value:{sign}.1f}" for value in (estimate.low, estimate.high))
    return f"{100 * estimate.value:{sign}.1f}", f"{low}..{high}"


def _lede(plan: Plan, comparisons: Sequence[Comparison]) -> str:
    target = next(entry for entry in comparisons if entry.strategy == BASELINE).final.value
    fewer = [e for e in comparisons if verdict(e, plan.labels).startswith("fewer")]
    text = f"With {plan.labels} labels picked at random the network reads {100 * target:.1f} % of "
    text += "unseen digits correctly. "
    if not fewer:
        return text + "In this run no strategy reached that with clearly fewer labels."
    best = min(fewer, key=lambda entry: entry.needed.value)
    needed, interval = labels_text(best.needed, plan.labels)
    interval = interval.replace("..", " to ")
    return text + f"The fewest were needed with <b>{best.strategy}</b>: {needed} ({interval})."


def table(plan: Plan, comparisons: Sequence[Comparison]) -> list[list[str]]:
    """The result as lines of text, the first of them the head."""
    lines = [["strategy", "labels needed", "final accuracy", "gain", "against random"]]
    for entry in comparisons:
        pairs = [labels_text(entry.needed, plan.labels), percent(entry.final)]
        cells = [f"{value} ({interval})" for value, interval in pairs]
        gain, interval = percent(entry.gain, "+")
        cells.append("" if entry.strategy == BASELINE else f"{gain} ({interval})")
        lines.append([entry.strategy, *cells, verdict(entry, plan.labels)])
    return lines


def _table(plan: Plan, comparisons: Sequence[Comparison]) -> str:
    _, *lines = table(plan, comparisons)
    return "\n".join(f"<tr>{''.join(_cell(text) for text in line)}</tr>" for line in lines)


def _cell(text: str) -> str:
    value, bracket, interval = html.escape(text).partition(" (")
    return (
        f"<td>{value} <small>{interval.rstrip(')').replace('..', ' to ')}</small></td>"
        if bracket
        else f"<td>{value}</td>"
    )


def _panel(plan: Plan, entry: Comparison, curves: dict[str, Floats]) -> str:
    """One strategy's learning curve beside random's, with the bands of their means."""
    fonts: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": entry.strategy, "font.size": 9}
    with rc_context(fonts):
        figure = Figure(figsize=(3.6, 2.7), layout="constrained")
        axes = figure.add_subplot()
        for name, colour in ((BASELINE, _BASE), (entry.strategy, _LINE)):
            axes.plot(plan.counts, 100 * curves[name].mean(axis=0), color=colour, lw=2)
            low, high = band(curves[name])
            axes.fill_between(plan.counts, 100 * low, 100 * high, color=colour, alpha=0.2, lw=0)
        target = 100 * curves[BASELINE].mean(axis=0)[-1]
        axes.axhline(target, color=_INK, lw=0.8, ls=(0, (4, 3)))
        if math.isfinite(entry.needed.value):
            axes.plot([entry.needed.value], [target], "o", color=_LINE, ms=6)
        axes.set_title(entry.strategy, color=_INK, loc="left", fontweight="bold")
        axes.set_xlabel("labels", color=_INK)
        axes.set_ylabel("accuracy, %", color=_INK)
        axes.tick_params(colors=_INK, color=_GRID)
        axes.grid(color=_GRID, lw=0.6)
        axes.spines[:].set_visible(False)
        low, high = 100 * min(c.mean(axis=0)[0] for c in curves.values()), target
        axes.set_ylim(low - 6, high + 6)
        text = io.StringIO()
        nothing = dict.fromkeys(["Date", "Creator", "Format", "Type"])
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    svg = text.getvalue()
    for written, wanted in _COLOURS.items():
        svg = svg.replace(written, wanted)
    needed, interval = labels_text(entry.needed, plan.labels)
    label = html.escape(f"{entry.strategy}: {needed} labels needed ({interval})")
    return svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _picks(runs: Sequence[Run]) -> str:
    """The first labels, and the first batch that each strategy bought after them."""
    images, digits = load_digits(return_X_y=True)
    first = [run for run in runs if run.seed == runs[0].seed]
    strips: list[tuple[str, Any, Any]] = [
        ("first labels, drawn at random", first[0].first[0], None)
    ]
    strips += [(run.strategy, run.first[1], run.weights) for run in first]
    lines = []
    for name, rows, weights in strips:
        tiles = [
            _tile(images[row], digits[row], None if weights is None else weights[place])
            for place, row in enumerate(rows)
        ]
        lines.append(f"<h3>{html.escape(name)}</h3><div class=strip>{''.join(tiles)}</div>")
    return "\n".join(lines)


def _tile(image: Floats, digit: int, weight: float | None) -> str:
    file = io.BytesIO()
    matplotlib.image.imsave(file, image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16, format="png")
    data = base64.b64encode(file.getvalue()).decode()
    caption = f"{digit}" if weight is None else f"{digit} <small>&times;{weight:.0f}</small>"
    return f'<span><img alt="a {digit}" src="data:image/png;base64,{data}">{caption}</span>'


def _facts(plan: Plan, seconds: float) -> str:
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, "
    versions += f"torch {metadata.version('torch')}, "
    versions += f"scikit-learn {sklearn.__version__}, labelwise {metadata.version('labelwise')}"
    facts = [
        f"scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels. In every run "
        f"{plan.held_out} of them are held out, and accuracy is measured on those alone.",
        f"A network with one hidden layer of 64 is trained anew after every batch of {plan.batch} "
        "labels, with the weights of the picks where a strategy gives them (scaled to mean 1 "
        "within a batch). ally reads a second network, trained under constraints on the same "
        "labels; what is measured is the same plain training for all strategies.",
        f"{plan.seeds} seeds. A seed fixes the split, the first {plan.start} labels and the start "
        "of the training, the same for all strategies.",
        "Labels needed: where the mean curve first reaches the accuracy that random has with all "
        "its labels. Intervals are 95 % bootstrap intervals over the seeds, all strategies "
        "resampled together, with tails widened for few seeds. The best of several strategies "
        "looks a little better than it is.",
        f"All of it was computed in {seconds:.0f} s by {plan.workers} processes "
        f"({os.cpu_count()} cores), with {versions}.",
    ]
    return "".join(f"<li>{html.escape(fact)}</li>" for fact in facts)


_STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1d2228; --soft: #5d6670;
  --rule: #dde1e4; --base: #7d8790; --line: #1f5fd0; --card: #f3f4f2; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e8ea; --soft: #9aa4ad;
  --rule: #30363c; --base: #8e99a3; --line: #7db0ff; --card: #1c2024; }
  .strip img { filter: invert(1); } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 66rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1rem 0 .3rem; }
p { max-width: 44rem; margin: .4rem 0; }
.lede { font-size: 1.1rem; }
.note, small, li { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .45rem .7rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:first-child { font-weight: 600; }
td:last-child { white-space: normal; }
@media (max-width: 40rem) { td small { display: block; } th, td { padding: .35rem .4rem; } }
th { font-weight: 500; color: var(--soft); font-size: .85rem; vertical-align: bottom; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; background: var(--card); border-radius: .5rem; padding: .6rem; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, sans-serif !important; }
.strip { display: flex; flex-wrap: wrap; gap: .4rem; }
.strip span { display: flex; flex-direction: column; align-items: center; font-size: .8rem; }
.strip img { width: 2.8rem; height: 2.8rem; image-rendering: pixelated; border-radius: .25rem; }
ul { padding-left: 1.1rem; max-width: 46rem; }
code { background: var(--card); padding: .15rem .35rem; border-radius: .25rem;
  overflow-wrap: anywhere; }
.key i { display: inline-block; width: 1.6rem; height: .2rem; vertical-align: middle;
  margin: 0 .3rem 0 .8rem; background: var(--line); }
.key i:first-child { background: var(--base); margin-left: 0; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>labelwise demo: labels for handwritten digits</title>
<style>{style}</style>
<h1>How many labels do handwritten digits need?</h1>
<p class="lede">{lede}</p>
<div class="scroll"><table>
<thead><tr><th>strategy</th><th>labels needed</th><th>final accuracy, %</th>
<th>gain, points</th><th>against random</th></tr></thead>
<tbody>
{table}
</tbody></table></div>
<p class="note">Small figures are 95&nbsp;% intervals.</p>
<h2>Learning curves</h2>
<p class="note key"><i></i>random <i></i>the strategy. Lines are means over {seeds} seeds, bands
their 95&nbsp;% intervals; the dashed line is what random reaches in the end, and the dot is where
the strategy gets there.</p>
<div class="panels">{panels}</div>
<h2>What each strategy bought first</h2>
<p class="note">All start from the same {start} labels (of the first seed) and buy {batch}. Under
each image is its label; &times; is the weight where the strategy gives one: how many images of the
pool the pick stands for.</p>
{picks}
<h2>What was run</h2>
<ul>{facts}</ul>
<p>To repeat it: <code>{command}</code></p>
</html>
"""
