"""Drawings and page of a plan; the only module of the theory that uses matplotlib."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labelwise.files import check_output_path, write_atomically
from labelwise.pages import inline_svg, render_page
from labelwise.theory.budgets import label_budgets
from labelwise.theory.planning import SHARES, Plan, describe_plan, effective_dimension

FORMATS = (".png", ".svg", ".pdf", ".html")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_GREY = "#777777"
_GRID = "#e6e6e6"
_FONTS: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "plan",
}
# Colours that occur nowhere else in the drawing; the page replaces them by its own.
_INK, _CARD = "#010101", "#fefefe"
_PAGE_COLOURS: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
    "legend.facecolor": _CARD,
}


def plan_figure(plan: Plan) -> Figure:
    """Three panels for one model, four for several, as a matplotlib figure.

    >>> import numpy as np
    >>> from labelwise.theory import plan
    >>> figure = plan_figure(plan(np.random.default_rng(0).normal(size=(500, 4))))
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['How concentrated the weights are', 'How many directions matter', 'Labels for an error']
    """
    several = len(plan.models) > 1
    shape, size = ((2, 2), (10.4, 7.6)) if several else ((1, 3), (14.0, 4.3))
    with rc_context(_FONTS):
        figure = Figure(figsize=size, layout="constrained")
        for axes, draw in zip(
            np.ravel(figure.subplots(*shape)), _choose_plan_panels(plan), strict=True
        ):
            _draw_plan_panel(axes, draw, plan)
        models = f"{len(plan.models)} models" if several else "one model"
        figure.suptitle(f"{plan.items:,} items, {models}, p = {plan.p:g}", fontsize=12)
    return figure


def _choose_plan_panels(plan: Plan) -> list[Callable[[Axes, Plan], None]]:
    several = len(plan.models) > 1
    return [
        _draw_concentration,
        *([_draw_lewis_growth] if several else []),
        _draw_directions,
        _draw_label_budgets,
    ]


def _draw_plan_panel(axes: Axes, draw: Callable[[Axes, Plan], None], plan: Plan) -> None:
    draw(axes, plan)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def save_plan(plan: Plan, path: Path, names: Sequence[str] | None = None) -> None:
    """Write the drawing, or a page with the drawing and its reading, atomically."""
    check_output_path(path, FORMATS)
    with write_atomically(path) as part:
        if path.suffix == ".html":
            part.write_text(render_plan_page(plan, names), encoding="utf-8")
        else:
            plan_figure(plan).savefig(part, format=path.suffix[1:], dpi=150)


def _draw_concentration(axes: Axes, plan: Plan) -> None:
    shares = np.asarray(SHARES)
    axes.plot(shares, 100 * np.asarray(plan.concentration), color=_COLOURS[0], label="this pool")
    axes.plot(shares, shares, color=_GREY, linestyle="--", label="all items alike")
    axes.set_xscale("log")
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_xlim(0.1, 100)
    axes.set_ylim(0, 102)
    axes.set_title("How concentrated the weights are", loc="left")
    axes.set_xlabel("items with the largest weights (% of the pool)")
    axes.set_ylabel("share of all weight (%)")
    axes.legend(frameon=False, loc="upper left")


def _draw_lewis_growth(axes: Axes, plan: Plan) -> None:
    numbers = np.arange(1, len(plan.models) + 1)
    bound = [model.bound for model in plan.models]
    ranks = [model.rank for model in plan.models]
    total = [model.total for model in plan.models]
    axes.plot(numbers, bound, color=_COLOURS[1], linestyle="--", marker="o", markersize=4)
    axes.plot(numbers, total, color=_COLOURS[0], marker="o", markersize=4)
    axes.plot(numbers, ranks, color=_GREY, linestyle=":", marker="o", markersize=3)
    lines = ("bound: sum of ranks, at most n", "T: sum of largest Lewis weights")
    axes.legend(axes.get_lines(), [*lines, "rank of each model"], frameon=False, loc="upper left")
    axes.set_title("What a further model costs", loc="left")
    axes.set_xlabel("number of models")
    axes.set_ylabel("sum over all items")
    step = max(1, len(numbers) // 10)
    axes.set_xticks(numbers[::step])
    axes.set_ylim(0, 1.35 * max(bound))  # room for the legend above the lines


def _draw_directions(axes: Axes, plan: Plan) -> None:
    fractions = np.geomspace(1e-5, 1, 60)
    for number, model in enumerate(plan.models):
        mean = sum(model.energies) / max(model.rank, 1)
        values = [effective_dimension(model.energies, f * mean) for f in fractions]
        several = len(plan.models) > 1
        label = f"model {number + 1} (rank {model.rank})" if several else f"rank {model.rank}"
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(fractions, values, color=colour, label=label if number < 6 else None)
        if mean > 0:
            place = (model.ridge / mean, model.effective_dimension)
            axes.plot(*place, "o", color=colour, markersize=5)
    axes.set_xscale("log")
    axes.set_ylim(0, None)
    axes.set_title("How many directions matter", loc="left")
    axes.set_xlabel("ridge, as a fraction of the mean eigenvalue")
    axes.set_ylabel("effective dimension")
    axes.legend(frameon=False, loc="lower left")


def _draw_label_budgets(axes: Axes, plan: Plan) -> None:
    least = min(0.01, plan.error / 3)
    errors = np.geomspace(least, 1, 50)
    kinds = {"rule of thumb": "rule of thumb", "bss": "bss, bound"}
    kinds |= {"lewis": "lewis, bound"} if plan.p == 2 else {"lewis, 1/error^2": "lewis, 1/error²"}
    rank = max(model.rank for model in plan.models)
    known: dict[str, Any] = {"rank": rank, "total": plan.total, "items": plan.items, "p": plan.p}
    found = [label_budgets(error=e, directions=plan.joint_rank, **known) for e in errors]
    for colour, (name, label) in zip(_COLOURS, kinds.items(), strict=False):
        draws = [next(b.draws for b in budgets if b.method == name) for budgets in found]
        axes.plot(errors, draws, color=colour, label=label)
    axes.axhline(plan.items, color=_GREY, linestyle="--", label="the whole pool")
    axes.axvline(plan.error, color=_GREY, linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if least == 0.01:
        axes.set_xticks([0.01, 0.03, 0.1, 0.3, 1], ["0.01", "0.03", "0.1", "0.3", "1"])
    axes.set_xlim(least, 1)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend above the lines
    axes.set_title("Labels for an error", loc="left")
    axes.set_xlabel(f"relative excess error (dotted: {plan.error:g})")
    axes.set_ylabel("draws, repeats included")
    axes.legend(loc="upper right", ncols=2, framealpha=1, edgecolor="none")


def render_plan_page(plan: Plan, names: Sequence[str] | None = None) -> str:
    """Render the page of a plan: reading, drawings, models and budgets."""
    drawings = []
    for draw in _choose_plan_panels(plan):
        with rc_context(_FONTS | _PAGE_COLOURS):
            panel = Figure(figsize=(5.2, 3.8), layout="constrained")
            _draw_plan_panel(panel.subplots(), draw, plan)
            title = panel.axes[0].get_title(loc="left")
            written = io.StringIO()
            panel.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        shown = {_INK: "var(--ink)", _CARD: "var(--card)", _GRID: "var(--line)"}
        drawings.append(inline_svg(written.getvalue(), title, shown))
    if names is None:
        names = [f"model {number}" for number in range(1, len(plan.models) + 1)]
    models = [
        (
            name,
            model.columns,
            model.rank,
            f"{model.effective_dimension:.1f}",
            f"{model.condition:,.0f}",
        )
        for name, model in zip(names, plan.models, strict=True)
    ]
    budgets = [
        (
            budget.method,
            f"{budget.labels:,.0f}",
            f"{budget.draws:,.0f}",
            budget.formula,
            budget.guidance,
        )
        for budget in plan.budgets
    ]
    return render_page(
        "plan.html",
        readings=describe_plan(plan),
        drawings=drawings,
        models=models,
        budgets=budgets,
        error=f"{plan.error:g}",
    )
