"""Accuracy of a campaign with default settings and no torch, by the number of labels bought.

A folder of images, or a table of texts, is started like by ``labelwise start``, rolling batches
included. There are two ways to label:

``calls``  an automatic annotator answers ``ask`` with the true labels of a batch; ``train`` follows
``page``   it labels an item at a time, and the campaign's schedule trains and selects in between

Held-out labels count as bought. The model is measured on the items that were never labelled. Every
seed draws its own 2,000 images and seeds the campaign; all texts of BBC news are used, so they are
encoded once and only the seed of the campaign differs.

Run: python benchmarks/campaign_accuracy.py cifar10 --out docs/results/campaign_accuracy.jsonl
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import numpy as np


class WithoutTorch(MetaPathFinder):
    """Makes torch impossible to import."""

    def find_spec(self, name, path, target=None):
        """Refuse torch; leave other modules to other finders."""
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


TASKS = {"cifar10": (2000, (100, 200, 400)), "bbc_news": (2000, (50, 100))}
"""Number of items, and numbers of labels at which the model is measured."""


def main() -> None:
    """Run all seeds of a task and append a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--encoder", default="auto")
    parser.add_argument("--strategies", nargs="+", help="instead of the default one and random")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sys.meta_path.insert(0, WithoutTorch())
    with tempfile.TemporaryDirectory() as place:
        started = None
        for seed in range(given.seeds):
            if started is None or given.dataset == "cifar10":
                folder = Path(place) / f"items-{seed}"
                folder.mkdir()
                started = start_campaign(given, seed, folder)
            runs = [(strategy, "calls") for strategy in given.strategies or (None, "random")]
            for strategy, way in [*runs, (runs[0][0], "page")]:
                copy = Path(place) / f"{strategy}-{way}-{seed}.labelwise"
                line = run_campaign(given, strategy, way, seed, *started, copy)
                print(json.dumps(line), flush=True)
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


def start_campaign(given: argparse.Namespace, seed: int, folder: Path) -> tuple[Path, dict, float]:
    """Start a campaign; its folder, the labels by path or text, and the seconds that it took."""
    from labelwise.campaign.project import Project

    source, labels, options = write_items(given.dataset, TASKS[given.dataset][0], seed, folder)
    if given.encoder != "auto":
        options["encoder"] = given.encoder
    begin = time.perf_counter()
    Project.start(
        source,
        home=folder / "c.labelwise",
        classes=sorted(set(labels.values())),
        batch=given.batch,
        rolling=True,
        **options,
    )
    return folder / "c.labelwise", labels, time.perf_counter() - begin


def run_campaign(
    given: argparse.Namespace,
    strategy: str | None,
    way: str,
    seed: int,
    home: Path,
    labels: dict,
    started: float,
    copy: Path,
) -> dict:
    """Label a copy of a campaign; its accuracy by number of labels."""
    from labelwise.campaign.defaults import make_default_settings
    from labelwise.campaign.project import Project
    from labelwise.campaign.runner import CampaignRunner

    shutil.copytree(home, copy)
    project = Project.open(copy)
    project.repoint(home / project.description.source)
    runner = CampaignRunner(project)
    campaign = runner.open_campaign()
    chosen = make_default_settings(strategy, campaign.settings.classes)
    campaign.change(seed=seed, strategy=chosen.strategy, first=chosen.first)
    truth = {item: labels[name_item(project, item)] for item in project.items}
    found = {}
    label = label_batch if way == "calls" else label_items
    for budget in TASKS[given.dataset][1]:
        label(runner, truth, budget)
        known = campaign.labels()
        rest = [item for item in project.items if item not in known]
        predicted = campaign.predict(rest).labels
        hits = sum(mine == truth[item] for mine, item in zip(predicted, rest, strict=True))
        found[len(known)] = round(hits / len(rest), 4)
    settings, trainings = campaign.settings, campaign.ledger().trainings
    return {
        "dataset": given.dataset,
        "items": len(project.items),
        "encoder": given.encoder,
        "strategy": settings.strategy,
        "way": way,
        "batch": given.batch,
        "held_out": settings.validation,
        "seed": seed,
        "accuracy": found,
        "start_seconds": round(started, 1),
        "train_seconds": [round(trained.seconds, 3) for trained in trainings],
        "tuning": trainings[-1].metrics.get("tuning"),
    }


def label_batch(runner: Any, truth: dict, budget: int) -> None:
    """Buy labels batch by batch up to a budget, with a training after each."""
    campaign = runner.open_campaign()
    while left := budget - len(campaign.labels()):
        batch = campaign.ask(budget=min(left, campaign.settings.batch))
        campaign.tell({int(item): truth[int(item)] for item in batch.ids}, by="automatic")
        campaign.train()


def label_items(runner: Any, truth: dict, budget: int) -> None:
    """Label an item at a time up to a budget; the schedule trains and selects in between."""
    while len(runner.record.labels()) < budget:
        run_steps(runner)
        (item,) = runner.record.lend("automatic", 1)
        runner.record.tell({item: truth[item]}, by="automatic")
    run_steps(runner)


def run_steps(runner: Any) -> None:
    """What the labelling page does in the background, until it waits for labels."""
    while (step := runner.choose_step()) is not None:
        runner.run_step(step)


def name_item(project, item: int) -> str:
    """The path or the text of an item."""
    entry = project.items.entry(item)
    return entry.get("path") or entry["text"]


def write_items(dataset: str, count: int, seed: int, folder: Path) -> tuple[Path, dict, dict]:
    """Write images to a folder, or texts to a table; labels by path or text, and options."""
    from labelwise.benchmark.datasets import load

    data = load(dataset)
    order = np.random.default_rng(seed).permutation(len(data.inputs))
    if dataset != "cifar10":
        texts = [str(text) for text in data.inputs[order]]
        known = {
            text.strip(): f"class {data.targets[place]}"
            for text, place in zip(texts, order, strict=True)
        }
        unique = list(known)[:count]
        path = folder / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in unique))
        return path, known, {"text": "text"}
    from PIL import Image

    source = folder / "images"
    source.mkdir()
    known = {}
    for number, place in enumerate(order[:count]):
        pixels = np.asarray(data.inputs[place]).transpose(1, 2, 0)
        if pixels.dtype != np.uint8:
            pixels = (255 * pixels).round().astype(np.uint8)
        Image.fromarray(pixels).save(source / f"{number:04d}.png")
        known[f"{number:04d}.png"] = f"class {data.targets[place]}"
    return source, known, {}


if __name__ == "__main__":
    main()
