"""The page of the demo: one HTML file with its curves, images and numbers."""

import base64
import io
import math
import os
import platform
from collections.abc import Sequence
from importlib import metadata

import matplotlib.image
import numpy as np
from sklearn.datasets import load_digits

from labelwise.arrays import Floats
from labelwise.benchmark.report.figures import (
    DARK,
    LIGHT,
    PAGE,
    css_variables,
    make_axes,
    mean_band,
    to_svg,
)
from labelwise.benchmark.report.tables import TableCell
from labelwise.benchmark.statistics import Estimate
from labelwise.demo.runs import DemoComparison, DemoPlan, DemoRun, group_accuracies
from labelwise.pages import render_page
from labelwise.rounds.default_strategies import BASELINE


def render_demo_page(
    plan: DemoPlan, runs: Sequence[DemoRun], comparisons: Sequence[DemoComparison], seconds: float
) -> str:
    """The page as text."""
    curves = group_accuracies(runs)
    target = next(entry for entry in comparisons if entry.strategy == BASELINE).final.value
    fewer = [e for e in comparisons if e.verdict(plan.labels) == "fewer labels"]
    best = min(fewer, key=lambda entry: entry.needed.value, default=None)
    strategies = " ".join(f"--strategy {name}" for name in plan.strategies)
    return render_page(
        "demo.html",
        plan=plan,
        target=f"{100 * target:.1f}",
        best=best and (best.strategy, *format_labels(best.needed, plan.labels)),
        rows=make_rows(plan, comparisons)[1:],
        panels=[
            _draw_panel(plan, entry, curves) for entry in comparisons if entry.strategy != BASELINE
        ],
        strips=_list_picks(runs),
        facts=_list_facts(plan, seconds),
        command=f"labelwise demo {strategies} --seeds {plan.seeds} --labels {plan.labels}",
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
    )


def format_labels(estimate: Estimate, limit: int) -> tuple[str, str]:
    """Labels needed and their interval; ">130" where the accuracy was not reached."""
    value, low, high = (
        f"{end:.0f}" if math.isfinite(end) else f">{limit}"
        for end in (estimate.value, estimate.low, estimate.high)
    )
    return value, f"{low} to {high}"


def _format_percent(estimate: Estimate, sign: str = "") -> tuple[str, str]:
    value, low, high = (
        f"{100 * end:{sign}.1f}" for end in (estimate.value, estimate.low, estimate.high)
    )
    return value, f"{low} to {high}"


def make_rows(plan: DemoPlan, comparisons: Sequence[DemoComparison]) -> list[list[TableCell]]:
    """The results as rows, the head first; a cell is text, or a value with its interval."""
    rows: list[list[TableCell]] = [
        ["strategy", "labels needed", "final accuracy, %", "gain, points", "against random"]
    ]
    for entry in comparisons:
        gain = "" if entry.strategy == BASELINE else _format_percent(entry.gain, "+")
        needed = format_labels(entry.needed, plan.labels)
        final = _format_percent(entry.final)
        rows.append([entry.strategy, needed, final, gain, entry.verdict(plan.labels)])
    return rows


def _draw_panel(plan: DemoPlan, entry: DemoComparison, curves: dict[str, Floats]) -> str:
    """One strategy's learning curve and random's, with the bands of their means."""
    figure, axes = make_axes(PAGE, (3.6, 2.7), "labels", "accuracy, %")
    strategy = PAGE.series[0]
    for name, colour in ((BASELINE, PAGE.base), (entry.strategy, strategy)):
        labels, mean, low, high = mean_band(plan.counts, curves[name])
        axes.plot(labels, 100 * mean, color=colour, lw=2)
        axes.fill_between(labels, 100 * low, 100 * high, color=colour, alpha=0.2, lw=0)
    target = 100 * curves[BASELINE].mean(axis=0)[-1]
    axes.axhline(target, color=PAGE.ink, lw=0.8, ls=(0, (4, 3)))
    if math.isfinite(entry.needed.value):
        axes.plot([entry.needed.value], [target], "o", color=strategy, ms=6)
    axes.set_title(entry.strategy, color=PAGE.ink, loc="left", fontweight="bold")
    lowest = 100 * min(curve.mean(axis=0)[0] for curve in curves.values())
    axes.set_ylim(lowest - 6, target + 6)
    needed, interval = format_labels(entry.needed, plan.labels)
    return to_svg(figure, f"{entry.strategy}: {needed} labels needed ({interval})")


def _list_picks(runs: Sequence[DemoRun]) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """The first batch of each strategy: image, digit and weight."""
    images, digits = load_digits(return_X_y=True)
    found = []
    for run in runs:
        if run.seed != runs[0].seed:
            continue
        shares = [""] * len(run.first)
        if run.weights is not None:
            shares = [f"{weight:.0f}" for weight in run.weights]
        tiles = [
            (_encode_png(images[row]), int(digits[row]), share)
            for row, share in zip(run.first, shares, strict=True)
        ]
        found.append((run.strategy, tiles))
    return found


def _encode_png(image: Floats) -> str:
    file = io.BytesIO()
    matplotlib.image.imsave(file, image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16, format="png")
    return base64.b64encode(file.getvalue()).decode()


def _list_facts(plan: DemoPlan, seconds: float) -> list[str]:
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("scikit-learn", "labelwise")
    )
    return [
        f"scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels. In every run "
        f"{plan.held_out} of them are held out, and accuracy is measured on those alone.",
        f"A linear model on the pixels is trained after every batch of {plan.batch} labels, with "
        "the weights of the picks where a strategy gives them (scaled to mean 1 within a batch). "
        "The first batch is picked by the strategy, or at random if it needs a model. Strategies "
        "that read gradients or dual variables read a small network trained on the same labels; "
        "the measured model is trained alike for all strategies.",
        f"{plan.seeds} seeds. A seed fixes the split and the training for all strategies.",
        "Labels needed: where the mean curve first reaches the final accuracy of random. Intervals "
        "are 95 % bootstrap intervals over the seeds, all strategies resampled together, with "
        "tails widened for few seeds. The best of several strategies looks a little better than "
        "it is.",
        f"Computed in {seconds:.0f} s by {plan.workers} processes ({os.cpu_count()} cores), with "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {versions}.",
    ]
