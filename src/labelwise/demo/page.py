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
from labelwise.benchmark.labelling_run import can_start_without_labels
from labelwise.benchmark.protocol import Protocol
from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.report.figures import (
    DARK,
    LIGHT,
    PAGE,
    draw_strategy_panel,
    format_palette_css,
    render_figure_svg,
)
from labelwise.benchmark.report.findings import ExperimentFindings, analyse_experiment
from labelwise.benchmark.results import RoundResult
from labelwise.pages import render_page
from labelwise.rounds.default_strategies import BASELINE
from labelwise.simulate.savings import LabelSaving, compute_savings, make_saving_rows
from labelwise.strategies import get


def render_demo_page(plan: Protocol, lines: Sequence[RoundResult], seconds: float) -> str:
    """The page as text."""
    findings = analyse_experiment(group_experiments(lines)[0], (BASELINE,))
    savings = compute_savings(lines)
    head, *rows = make_saving_rows(savings)
    seeds, labels = len(findings.experiment.seeds), int(findings.experiment.labels[-1])
    strategies = " ".join(f"--strategy {saving.strategy}" for saving in savings)
    return render_page(
        "demo.html",
        labels=labels,
        seeds=seeds,
        batch=plan.batch,
        target=f"{100 * findings.experiment.finals(BASELINE).mean():.1f}",
        best=next((saving for saving in savings if saving.clear), None),
        head=head,
        rows=rows,
        panels=[_draw_demo_panel(findings, saving) for saving in savings],
        strips=_list_first_batches(lines),
        facts=_list_demo_facts(plan, seeds, seconds),
        command=f"labelwise demo {strategies} --seeds {seeds} --labels {labels}",
        light=format_palette_css(LIGHT),
        dark=format_palette_css(DARK),
    )


def _draw_demo_panel(findings: ExperimentFindings, saving: LabelSaving) -> str:
    """The curves of a strategy and of random, and where it reaches random's final accuracy."""
    figure = draw_strategy_panel(findings, saving.strategy, PAGE)
    axes, target = figure.axes[0], 100 * saving.target
    axes.axhline(target, color=PAGE.ink, lw=0.8, ls=(0, (4, 3)))
    if math.isfinite(saving.needed.value):
        axes.plot([saving.needed.value], [target], "o", color=PAGE.ink, ms=6)
    return render_figure_svg(figure, saving.sentence)


def _list_first_batches(
    lines: Sequence[RoundResult],
) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """The first batch that each strategy picked itself: image, digit and weight."""
    images, digits = load_digits(return_X_y=True)
    found = []
    for line in lines:
        own = 0 if can_start_without_labels(get(line.strategy)) else 1
        if (line.seed, line.round) == (0, own):
            shares = [f"{weight:.0f}" for weight in line.weights or ()] or [""] * len(line.picks)
            tiles = [
                (_encode_digit_png(images[row]), int(digits[row]), share)
                for row, share in zip(line.picks, shares, strict=True)
            ]
            found.append((line.strategy, tiles))
    return found


def _encode_digit_png(image: Floats) -> str:
    file = io.BytesIO()
    matplotlib.image.imsave(file, image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16, format="png")
    return base64.b64encode(file.getvalue()).decode()


def _list_demo_facts(plan: Protocol, seeds: int, seconds: float) -> list[str]:
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("scikit-learn", "labelwise")
    )
    return [
        f"scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels. In every run "
        f"{plan.test} of them are held out, and accuracy is measured on those alone.",
        f"A linear model on the pixels is trained after every batch of {plan.batch} labels, with "
        "the weights of the picks where a strategy gives them (scaled to mean 1 within a batch). "
        "The first batch is picked by the strategy, or at random if it needs a model. Strategies "
        "that read gradients or dual variables read a small network trained on the same labels; "
        "the measured model is trained alike for all strategies.",
        f"{seeds} seeds. A seed fixes the split and the training for all strategies.",
        "Labels needed: where the mean curve first reaches the final accuracy of random. Intervals "
        "are 95 % bootstrap intervals over the seeds, all strategies resampled together, with "
        "tails widened for few seeds. The verdict compares the whole curves, corrected for the "
        "number of strategies. The best of several strategies looks a little better than it is.",
        f"Computed in {seconds:.0f} s ({os.cpu_count()} cores), with "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {versions}.",
    ]
