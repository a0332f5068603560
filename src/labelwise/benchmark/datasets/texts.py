"""Readers of texts with a class each."""

import json

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, Files, Parts, as_texts, held_out, numbered
from labelwise.benchmark.datasets.images import matching, pick
from labelwise.errors import BadInput


def tab_separated(files: Files, *, stem: str, head: int = 0) -> Parts:
    """Lines of class, tab and text, in one file for training and one for testing.

    Args:
        files: ``{stem}train...`` and ``{stem}test...``.
        stem: what the file names begin with.
        head: lines to skip; Orange's .tab files have three.
    """
    read = []
    for part in ("train", "test"):
        name, data = pick(files, f"*{stem}{part}*")
        lines = data.decode("utf-8").split("\n")[head:]
        pairs = [line.rstrip("\r").split("\t", 1) for line in lines if line.strip()]
        wrong = next((number for number, pair in enumerate(pairs) if len(pair) != 2), None)
        if wrong is not None:
            raise BadInput(f"line {wrong + head + 1} of {name} is not a class, a tab and a text")
        read.append(pairs)
    order = sorted({pair[0] for pair in read[0]})
    parts: list[Arrays] = []
    for pairs in read:
        parts += [as_texts([pair[1] for pair in pairs]), numbered([p[0] for p in pairs], order)]
    return Parts(*parts)


def imdb_json(files: Files) -> Parts:
    """IMDB in one JSON file: a list of ``{"t": text, "s": sentiment}``, half of it held out."""
    reviews = json.loads(pick(files, "*reviews.json")[1])
    texts = as_texts([str(review["t"]) for review in reviews])
    classes = np.array([int(review["s"]) for review in reviews], dtype=np.int64)
    return held_out(texts, classes, len(texts) // 2)


def imdb_folders(files: Files) -> Parts:
    """IMDB as published: a file per review in train/neg, train/pos, test/neg and test/pos."""
    parts: list[Arrays] = []
    for part in ("train", "test"):
        found = [matching(files, f"*{part}/{side}/*.txt") for side in ("neg", "pos")]
        texts = [data.decode("utf-8") for side in found for _, data in side]
        parts += [as_texts(texts), np.repeat(np.arange(2), [len(side) for side in found])]
    return Parts(*parts)


def text_folders(files: Files, *, share: float) -> Parts:
    """A folder per class with a file per text, some of them held out."""
    found = sorted(files.items())
    classes = numbered([name.split("/")[-2] for name, _ in found])
    texts = as_texts([data.decode("utf-8", "replace").strip() for _, data in found])
    return held_out(texts, classes, round(share * len(texts)))
