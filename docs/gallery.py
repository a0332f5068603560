"""Pages that are generated from the strategies: a gallery of their picks and their reference.

Every strategy selects 12 items of the same two-dimensional pool: three classes, one of them small.
A logistic model trained on 9 labelled items provides the probabilities, and 8 models trained on
bootstrap samples of these items are the members.

Run: python docs/gallery.py FOLDER (the documentation build does).
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import labelwise

BUDGET, SEED, COLUMNS = 12, 1, 3


class GalleryPool:
    """240 points ``(n, 2)`` of three classes, 9 of them labelled, with every representation."""

    def __init__(self) -> None:
        """Draw the points and fit the models."""
        rng = np.random.default_rng(5)
        centers = np.array([[-2.0, 0.0], [1.6, 1.4], [1.4, -1.8]])
        sizes = (120, 85, 35)
        self.points = np.concatenate(
            [
                rng.normal(center, 0.75, size=(size, 2))
                for center, size in zip(centers, sizes, strict=True)
            ]
        )
        self.classes = np.repeat(np.arange(3), sizes)
        self.labelled = np.concatenate(
            [rng.choice(np.flatnonzero(self.classes == label), 3, False) for label in range(3)]
        )
        self.model = self._fit(self.labelled)
        self.rows = self._represent(rng)

    def _represent(self, rng: np.random.Generator) -> Mapping[str, NDArray[np.float64]]:
        probabilities = self.model.predict_proba(self.points)
        resamples = []
        while len(resamples) < 8:
            drawn = rng.choice(self.labelled, len(self.labelled))
            if len(set(self.classes[drawn])) == 3:
                resamples.append(drawn)
        members = np.stack(
            [self._fit(drawn).predict_proba(self.points) for drawn in resamples], axis=1
        )
        # Last-layer gradients of the loss for the most likely class: (p - onehot) times (x, 1).
        errors = probabilities - np.eye(3)[probabilities.argmax(axis=1)]
        inputs = np.column_stack([self.points, np.ones(len(self.points))])
        gradients = (errors[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
        return {
            "features": self.points,
            "logits": self.model.decision_function(self.points),
            "probabilities": probabilities,
            "member_probabilities": members,
            "member_votes": members.argmax(axis=2),
            "gradient_norms": (gradients**2).sum(axis=1),
            "gradient_products": gradients @ gradients[self.labelled].sum(axis=0),
            "gradient_sketch": gradients,
            "duals": 1 - probabilities.max(axis=1),
            "outputs": self.model.decision_function(self.points),
        }

    def _fit(self, items: NDArray[np.int64]) -> LogisticRegression:
        return LogisticRegression().fit(self.points[items], self.classes[items])

    def select(self, name: str) -> labelwise.Selection:
        """The picks of a strategy from the first set of representations that it reads."""
        strategy = labelwise.strategies()[name]
        if "temperature" in strategy.options:  # as a campaign would set it from held-out items
            strategy = strategy.with_options(temperature=2.0)
        rows = {need: self.rows[need] for need in strategy.needs} or {"features": self.points}
        return labelwise.select(strategy, BUDGET, **rows, labelled=self.labelled, seed=SEED)

    def draw(self, picks: labelwise.Selection, file: Path) -> None:
        """Draw pool, model, labelled items and picks; the area of a pick follows its weight."""
        figure = Figure(figsize=(3.2, 2.5), layout="constrained")
        axes = figure.subplots()
        low, high = self.points.min(axis=0) - 0.3, self.points.max(axis=0) + 0.3
        across, up = np.meshgrid(*(np.linspace(*ends, 200) for ends in zip(low, high, strict=True)))
        predicted = self.model.predict(np.column_stack([across.ravel(), up.ravel()]))
        regions = predicted.reshape(across.shape)
        axes.contourf(
            across, up, regions, [-0.5, 0.5, 1.5, 2.5], colors=["C0", "C1", "C2"], alpha=0.1
        )
        axes.contour(across, up, regions, [0.5, 1.5], colors="gray", linewidths=0.6)
        axes.scatter(
            *self.points.T, c=[f"C{label}" for label in self.classes], s=7, alpha=0.7, lw=0
        )
        axes.scatter(*self.points[self.labelled].T, marker="x", c="black", s=30, lw=1.4)
        sizes = 45 if picks.weights is None else 45 * picks.training_weights().clip(0.2, 6)
        axes.scatter(*self.points[picks.ids].T, s=sizes, c="crimson", edgecolors="white", lw=0.8)
        axes.set(xticks=[], yticks=[], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        figure.savefig(file, dpi=170)


def write_pages(folder: Path) -> None:
    """Write ``strategies.md`` with its pictures into a folder."""
    pool = GalleryPool()
    cells, sections = [], []
    for name, strategy in labelwise.strategies().items():
        pool.draw(pool.select(name), folder / f"{name}.png")
        cells.append(f"![{name}]({name}.png) [{name}](#{name.replace('_', '-')})")
        sections.append(
            f"## {name}\n\nGood for {strategy.good_for}.\n\n"
            f"{_describe_inputs(strategy)}\n\n{_document(strategy)}\n"
        )
    cells += [""] * (-len(cells) % COLUMNS)
    rows = [cells[start : start + COLUMNS] for start in range(0, len(cells), COLUMNS)]
    lines = ["| | | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    write_if_changed(
        folder / "strategies.md",
        f"# Strategies\n\nWhat each strategy picks ({BUDGET} red circles) from one pool with two "
        "features. Small dots are items, colored by their true class, which no strategy sees. "
        "Crosses are the nine labelled items, and the background shows what a model trained on "
        "them predicts. Where a strategy gives weights, the area of a circle follows the weight. "
        "See also [which strategy](../which_strategy.md) to use.\n\n"
        + "\n".join([*lines, "", *sections]),
    )


def _describe_inputs(strategy: labelwise.Strategy) -> str:
    """Representations, weights and options in a short list."""
    sets = " or ".join(" + ".join(f"`{name}`" for name in names) for names in strategy.input_sets)
    options = ", ".join(f"`{name}={value!r}`" for name, value in strategy.options.items())
    return (
        f"- reads: {sets or 'nothing'}\n"
        f"- weights: {'yes' if strategy.weighted else 'no'}\n"
        f"- options: {options or 'none'}"
    )


def _document(strategy: labelwise.Strategy) -> str:
    """The docstring of the strategy's module."""
    return f"```{{eval-rst}}\n.. automodule:: labelwise.strategies.{strategy.name}\n```"


def write_if_changed(file: Path, text: str) -> None:
    """Leave an unchanged page alone, so that a rebuild does not read it again."""
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
