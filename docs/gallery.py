"""Pages that are generated from the strategies: a gallery of their picks and their reference.

Every strategy selects 12 items of the same two-dimensional pool: three classes, one of them small,
with a dense group and a few outliers. A logistic model trained on 9 labelled items provides the
probabilities, and 8 bootstrap models the members.

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

BUDGET, SEED = 12, 1


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
        self.rows = self._represent(rng)

    def _represent(self, rng: np.random.Generator) -> Mapping[str, NDArray[np.float64]]:
        model = self._fit(self.labelled)
        probabilities = model.predict_proba(self.points)
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
            "logits": model.decision_function(self.points),
            "probabilities": probabilities,
            "member_probabilities": members,
            "member_votes": members.argmax(axis=2),
            "gradient_norms": (gradients**2).sum(axis=1),
            "gradient_products": gradients @ gradients[self.labelled].sum(axis=0),
            "gradient_sketch": gradients,
            "duals": 1 - probabilities.max(axis=1),
            "outputs": model.decision_function(self.points),
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
        """Draw pool, labelled items and picks; the area of a pick follows its weight."""
        figure = Figure(figsize=(4.2, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.scatter(*self.points.T, c=[f"C{label}" for label in self.classes], s=9, alpha=0.35)
        axes.scatter(*self.points[self.labelled].T, marker="x", c="black", s=28, linewidths=1.2)
        sizes = 60 if picks.weights is None else 60 * picks.training_weights().clip(0.2, 6)
        axes.scatter(
            *self.points[picks.ids].T,
            s=sizes,
            facecolors="none",
            edgecolors="black",
            linewidths=1.5,
        )
        axes.set(xticks=[], yticks=[])
        figure.savefig(file, metadata={"Date": None})


def write_pages(folder: Path) -> None:
    """Write ``gallery.md`` with its figures and ``strategy_reference.md`` into a folder."""
    folder.mkdir(exist_ok=True)
    pool = GalleryPool()
    gallery = [
        "# Gallery of strategies\n\n"
        f"What each strategy picks ({BUDGET} circles) from the same two-dimensional pool. Colors "
        "are the true classes, which no strategy sees; crosses are the nine labelled items. Where "
        "a strategy gives weights, the area of a circle follows the weight.\n"
    ]
    reference = [
        "# Strategy reference\n\n"
        "What every strategy computes, what it costs and where it comes from. Options are keyword "
        "arguments of `labelwise.select`.\n"
    ]
    for name, strategy in labelwise.strategies().items():
        pool.draw(pool.select(name), folder / f"{name}.svg")
        gallery.append(f"## {name}\n\nGood for {strategy.good_for}.\n\n![{name}]({name}.svg)\n")
        reference.append(f"## {name}\n\n{_describe_inputs(strategy)}\n\n{_document(strategy)}\n")
    _write_if_changed(folder / "gallery.md", "\n".join(gallery))
    _write_if_changed(folder / "strategy_reference.md", "\n".join(reference))


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


def _write_if_changed(file: Path, text: str) -> None:
    """Leave an unchanged page alone, so that a rebuild does not read it again."""
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
