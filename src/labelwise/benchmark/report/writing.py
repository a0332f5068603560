"""The report on results files: one HTML page, and on request a CSV file and pictures.

It compares strategies under the same seeds, says plainly which do not beat random, and puts the
papers' own numbers beside ours where there are any. It also works on unfinished results: it pairs
what is there, and says what is missing.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from labelwise.benchmark import protocols
from labelwise.benchmark.report.experiment import Experiment, experiments
from labelwise.benchmark.report.figures import (
    LIGHT,
    curves_figure,
    differences_figure,
    gains_figure,
    panel_figure,
    ranks_figure,
)
from labelwise.benchmark.report.findings import Findings, Overall, analyse, overall
from labelwise.benchmark.report.page import page
from labelwise.benchmark.report.tables import write_csv
from labelwise.benchmark.report.words import Unit
from labelwise.benchmark.results import Round

BASELINES = ("random", "badge")
"""What strategies are compared with, where it was run; the first speaks in the plain sentences."""


def write_report(
    rounds: Iterable[Round],
    out: Path | str,
    *,
    baselines: Sequence[str] = BASELINES,
    up_to: int | None = None,
    title: str | None = None,
    commands: Sequence[str] | None = None,
    csv: Path | str | None = None,
    figures: Path | str | None = None,
) -> list[Findings]:
    """Write the report; the page appears whole or not at all.

    Args:
        rounds: what ``results.read`` gives.
        out: the page.
        baselines: what to compare with; those that were not run are left out.
        up_to: leave out what was measured with more labels.
        title: of the page; otherwise the experiment's name.
        commands: that repeat it; otherwise the benchmark commands.
        csv: a file for all numbers.
        figures: a folder for the pictures, as .svg and .png.

    Returns:
        What the page says, one entry per experiment.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rounds = [
        ...     Round("toy", "small", "digits", "mlp", name, seed, at, 10 + 10 * at, "accuracy", y)
        ...     for name, gain in (("random", 0.0), ("margin", 0.05))
        ...     for seed in range(5)
        ...     for at, y in enumerate((0.5, 0.6 + gain, 0.7 + gain))
        ... ]
        >>> (found,) = write_report(rounds, folder / "report.html")
        >>> found.contrasts["random"][0].verdict
        'likely better'
    """
    found = [analyse(entry, baselines) for entry in experiments(rounds, up_to=up_to)]
    together = overall(found)
    names = dict.fromkeys(entry.experiment.name for entry in found)
    text = page(
        found,
        together,
        title=title or (next(iter(names)) if len(names) == 1 else f"{len(found)} experiments"),
        commands=repeat_commands(found) if commands is None else commands,
    )
    _write_whole(Path(out), text)
    if csv is not None:
        write_csv(Path(csv), found)
    if figures is not None:
        write_figures(Path(figures), found, together)
    return found


def repeat_commands(findings: Sequence[Findings], results: str = "results.jsonl") -> list[str]:
    """The commands that run the experiments of the papers again and report on them."""
    known = protocols.experiments()
    runs: dict[str, tuple[dict[str, None], int]] = {}
    for entry in findings:
        experiment = entry.experiment
        if experiment.name not in known:
            continue
        words = f"labelwise benchmark run {experiment.name} --scale {experiment.scale}"
        if experiment.dataset != known[experiment.name].dataset:
            words += f" --dataset {experiment.dataset}"
        chosen = dict.fromkeys(r.strategy for rs in experiment.rounds.values() for r in rs)
        names, seeds = runs.get(words, ({}, 0))
        runs[words] = (names | chosen, max(seeds, max(experiment.seeds) + 1))  # seeds are from 0
    commands = [
        f"{words} --strategies {','.join(names)} --seeds {seeds} --out {results}"
        for words, (names, seeds) in runs.items()
    ]
    return [*commands, f"labelwise benchmark report {results} --out report.html"]


def write_figures(folder: Path, findings: Sequence[Findings], together: Overall) -> list[Path]:
    """Write the pictures, each as .svg and .png, and name them."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure | None] = {}
    for entry in findings:
        stem = _stem(entry.experiment)
        drawn[f"{stem}_curves"] = curves_figure(entry, LIGHT)
        drawn[f"{stem}_gains"] = gains_figure(entry, LIGHT)
        for name in entry.names:
            drawn[f"{stem}_curve_{_safe(name)}"] = panel_figure(entry, name, LIGHT)
        for baseline, contrasts in entry.contrasts.items():
            if contrasts:
                unit = Unit(entry.experiment.metric)
                figure = differences_figure(contrasts, unit, LIGHT)
                drawn[f"{stem}_differences_{_safe(baseline)}"] = figure
    if together.ranks is not None:
        drawn["critical_difference"] = ranks_figure(together.ranks, LIGHT)
    paths = []
    for name, drawing in drawn.items():
        if drawing is not None:
            for suffix in (".svg", ".png"):
                paths.append(folder / f"{name}{suffix}")
                drawing.savefig(paths[-1], dpi=200)
    return paths


def _stem(experiment: Experiment) -> str:
    parts = (experiment.name, experiment.scale, experiment.dataset, experiment.network)
    return "_".join(_safe(part) for part in parts)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-")


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
