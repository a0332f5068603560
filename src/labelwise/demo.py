"""The demo: how many labels strategies need for handwritten digits, and a page about it.

It is a run of `labelwise.simulate` with a linear model on the pixels. Strategies that read
gradients or dual variables read a small network trained on the same labels. The data come with
scikit-learn, and every number is computed on the spot.
"""

import base64
import io
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata

import matplotlib.image
import numpy as np
from sklearn.datasets import load_digits

from labelwise.arrays import Floats
from labelwise.benchmark.frozen_run import MakeHead, make_batch_chooser
from labelwise.benchmark.labelling_run import BatchChooser, LabelledPool, can_start_without_labels
from labelwise.benchmark.protocol import Entrant, Protocol
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
from labelwise.errors import MissingDependency, require_extra
from labelwise.files import JsonObject
from labelwise.learner import Label, Learner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pages import render_page
from labelwise.pool.blocks import Progress
from labelwise.rounds import Round
from labelwise.rounds.default_strategies import BASELINE, DEMONSTRATED
from labelwise.selection.result import Selection
from labelwise.simulate import make_simulation_plan, run_simulation_plan
from labelwise.simulate.own_data import check_own_data
from labelwise.simulate.savings import LabelSaving, compute_savings, make_saving_rows
from labelwise.strategies import get

BATCH, TEST_SHARE = 10, 1 / 3
TRAINING: JsonObject = {"epochs": 60, "lr": 0.01, "weight_decay": 1e-3, "batch_size": 256}
"""Of the networks that some strategies read; all labels fit in one batch."""


def list_demo_strategies() -> tuple[str, ...]:
    """The strategies of the demo, without torch only those that read no network."""
    found = []
    for name in DEMONSTRATED:
        with suppress(MissingDependency):
            _find_network_reader(name)
            found.append(name)
    return tuple(found)


def make_demo_plan(strategies: Sequence[str], labels: int) -> Protocol:
    """The protocol: batches of 10 up to a number of labels; a third of the images is held out."""
    digits = check_own_data(*load_digits(return_X_y=True), name="digits")
    plan = make_simulation_plan(
        digits,
        strategies=strategies,
        batch=BATCH,
        budget=labels,
        test_share=TEST_SHARE,
        weights="mean",
    )
    return replace(plan, name="demo", learner={"head": "linear"})


def run_demo(
    plan: Protocol, *, seeds: int, workers: int | None = 1, progress: Progress | None = None
) -> list[RoundResult]:
    """Run every strategy under every seed; one result per batch."""
    for entrant in plan.entrants:
        _find_network_reader(entrant.strategy)  # fails before the work if torch is missing
    images, digits = load_digits(return_X_y=True)
    pixels = (images / 16).astype(np.float32)
    ids = np.arange(len(pixels))
    pool = LabelledPool(ids, pixels, digits, pixels[:0], digits[:0], 10)
    return run_simulation_plan(
        pool,
        plan,
        seeds=seeds,
        workers=workers,
        progress=progress,
        make_chooser=make_demo_chooser,
    )


def make_demo_chooser(
    protocol: Protocol, entrant: Entrant, pool: LabelledPool, make_learner: MakeHead
) -> BatchChooser:
    """The chooser of an entrant's batches, with a network if its strategy reads one."""
    chooser = make_batch_chooser(protocol, entrant, pool, make_learner)
    make_reader = _find_network_reader(entrant.strategy)
    return chooser if make_reader is None else NetworkReaderChooser(make_reader, chooser)


@dataclass(frozen=True)
class NetworkReaderChooser:
    """Trains a learner of its own on the labels, which only the strategy reads."""

    make_reader: Callable[[], Learner]
    choose: BatchChooser

    def __call__(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> Selection:
        """The batch that the strategy picks by the other learner."""
        read = Round(round_.pool, self.make_reader())
        if labels:
            read.fit(labels, seed=seed)
        return self.choose(read, labels, budget, seed=seed)


def _find_network_reader(strategy: str) -> Callable[[], Learner] | None:
    """A network for a strategy that reads gradients or dual variables; None for the others."""
    needs = set(get(strategy).needs)
    if needs <= set(LinearProbe().offered()):
        return None
    words = f"{strategy} reads a network and needs torch (choose others with --strategy)"
    with require_extra(words, "torch"):
        from labelwise.learners.default_network import Perceptron
        from labelwise.learners.primal_dual import PrimalDualLearner
        from labelwise.learners.torch_learner import TorchLearner
    make_network = partial(Perceptron, 64, 64, 10)
    if "duals" in needs:
        return partial(PrimalDualLearner, make_network, epsilon=0.2, **TRAINING)
    return partial(TorchLearner, make_network, **TRAINING)


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
