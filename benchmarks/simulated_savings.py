"""Accuracy by number of labels on images and texts, default against random, by labelwise simulate.

Run: python benchmarks/simulated_savings.py --out docs/results

Writes 2,000 images of CIFAR-10 to folders named like their classes, and all texts of BBC news to a
table, then runs the commands below with the encoders that need no download. The lines of all rounds
and the figure of the README go to ``--out``; an interrupted run continues.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from labelwise.benchmark.datasets import load
from labelwise.benchmark.report.figures import LIGHT, compute_mean_band
from labelwise.cli import run

COMMANDS = {
    "simulate_images": "photos --strategies uherding --seeds 10 --budget 400 --batch 20",
    "simulate_texts": "texts.csv --labels topic --text text --encoder tfidf --strategies uherding "
    "--seeds 10 --budget 100 --batch 5",
}
TITLES = {
    "simulate_images": "2,000 images of CIFAR-10, 10 classes",
    "simulate_texts": "BBC news, 5 topics",
}


def write_photos(folder: Path) -> None:
    """A random 2,000 of the images of CIFAR-10, in a folder per class."""
    data = load("cifar10")
    for place in np.random.default_rng(0).permutation(len(data.inputs))[:2000].tolist():
        file = folder / f"class {data.targets[place]}" / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = (255 * data.inputs[place]).round().astype(np.uint8)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(file)


def write_texts(file: Path) -> None:
    """All texts of BBC news, each once, with their topics."""
    data = load("bbc_news")
    texts = dict(zip(map(str, data.inputs), data.targets.tolist(), strict=True))
    texts |= dict(zip(map(str, data.test_inputs), data.test_targets.tolist(), strict=True))
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "topic"])
        rows.writerows((text, f"topic {topic}") for text, topic in texts.items())


def read_curves(file: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numbers of labels ``(r,)``, and by strategy accuracies ``(s, r)``."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    labels = sorted({line["labels"] for line in lines})
    found = {}
    for name in ("random", "uherding"):
        own = {
            (line["seed"], line["labels"]): line["value"]
            for line in lines
            if line["strategy"] == name
        }
        found[name] = np.array(
            [[own[seed, n] for n in labels] for seed in sorted({s for s, _ in own})]
        )
    return np.array(labels), found


def draw_curves(out: Path) -> Figure:
    """Mean curves with 95 % bands, a panel per data set."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), COMMANDS, strict=True):
        labels, curves = read_curves(out / f"{name}.jsonl")
        for strategy, colour, words in (
            ("uherding", LIGHT.series[0], "labelwise default"),
            ("random", LIGHT.base, "random"),
        ):
            shown, mean, low, high = compute_mean_band(labels, 100 * curves[strategy])
            axes.plot(shown, mean, color=colour, lw=2, label=words)
            axes.fill_between(shown, low, high, color=colour, alpha=0.15, lw=0)
        axes.set(title=TITLES[name], xlabel="labels", ylabel="accuracy, %")
        axes.grid(color=LIGHT.grid)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    """Simulate both data sets and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_photos(folder / "photos")
        write_texts(folder / "texts.csv")
        for name, command in COMMANDS.items():
            data, *options = command.split()
            files = ["--results", str(given.out / f"{name}.jsonl"), "--out", str(folder / "p.html")]
            workers = ["--workers", str(given.workers)]
            run(["simulate", str(folder / data), *options, *files, *workers])
    file = given.out / "pictures" / "simulate_curves.png"
    draw_curves(given.out).savefig(file, dpi=150)
    print(f"figure: {file}")


if __name__ == "__main__":
    main()
