"""Results printed in the papers, from ``papers.toml``, for comparison with our own.

The area of the dynamics paper is computed here from the accuracies that it prints for every round.
The ally paper prints no tables.

References. sparse: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the
Perspective of Sparse Approximation", 2022. dynamics: H. Wang, W. Huang, Z. Wu, H. Tong, A.
Margenot, J. He, "Deep Active Learning by Leveraging Training Dynamics", NeurIPS 2022. lewis:
S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from labelwise.benchmark.statistics import curve_area
from labelwise.errors import BadInput
from labelwise.files import JsonObject

FIRST_LABELS = 500  # First labels of every experiment of the dynamics paper
QUANTITIES = ("area", "final", "seconds", "imbalance")


class PrintedValue(NamedTuple):
    """A printed mean and its standard deviation over runs, or None."""

    value: float
    deviation: float | None = None


@dataclass(frozen=True)
class PaperTable:
    """One quantity of one experiment in a paper."""

    where: str
    quantity: str  # area or final (accuracy in %), seconds (of the first batch), or imbalance
    values: Mapping[str, PrintedValue]
    note: str = ""


@dataclass(frozen=True)
class PaperCurves:
    """Accuracies in % after every round; ``labels`` and every curve have length r."""

    where: str
    labels: tuple[int, ...]
    curves: Mapping[str, tuple[PrintedValue, ...]]


def find_paper_table(experiment: str, dataset: str, quantity: str) -> PaperTable | None:
    """The printed values for an experiment, or None.

    >>> find_paper_table("sparse-table2-mnist", "mnist", "area").values["badge"]
    PrintedValue(value=91.24, deviation=0.48)
    """
    if quantity not in QUANTITIES:
        raise BadInput(f"quantity must be one of {', '.join(QUANTITIES)}; got {quantity!r}")
    for own, names, table in _list_paper_tables():
        if (own, table.quantity) == (dataset, quantity) and _is_experiment_variant(
            experiment, *names
        ):
            return table
    return None


def find_paper_curves(experiment: str, dataset: str) -> PaperCurves | None:
    """The curves printed as a table for an experiment, or None."""
    for name, entry in _read_paper_results()["dynamics_rounds"].items():
        if entry["dataset"] == dataset and _is_experiment_variant(experiment, name):
            return _parse_paper_curves(name, entry)
    return None


@cache
def _read_paper_results() -> JsonObject:
    return tomllib.loads(files(__package__).joinpath("papers.toml").read_text("utf-8"))


@cache
def _list_paper_tables() -> list[tuple[str, tuple[str, ...], PaperTable]]:
    """Data set, names of experiments, and table."""
    return list(_iterate_paper_tables(_read_paper_results()))


def _iterate_paper_tables(printed: JsonObject) -> Iterator[tuple[str, tuple[str, ...], PaperTable]]:
    names: tuple[str, ...]
    for number, entry in printed["sparse_areas"].items():
        for dataset, values in _parse_paper_rows(entry["table"]).items():
            stem = f"sparse-table{number}-"
            names = (stem + dataset.removesuffix("_mnist"), stem + dataset)
            where = f"sparse, Table {number}"
            yield dataset, names, PaperTable(where, "area", values, entry["note"])
    for dataset, values in _parse_paper_rows(printed["sparse_seconds"]["table"]).items():
        names = ("sparse-table3-time", "sparse-table3", f"sparse-table2-{dataset}")
        yield dataset, names, PaperTable("sparse, Table 3", "seconds", values, "VGG-16 on one V100")
    for dataset, values in _parse_paper_rows(printed["lewis_imbalance"]["table"]).items():
        note = "after 12,000 labels, 50 models; its entropy baseline is likely random by an error"
        names = ("lewis-table5-imbalance", "lewis-table5", "lewis-fig2-vanilla")
        yield dataset, names, PaperTable("lewis, Table 5", "imbalance", values, note)
    for name, entry in printed["dynamics_batches"].items():
        note = f"{entry['network']}; 1,000 labels bought in batches of that size"
        for batch, cell in zip(*_split_paper_table(entry["table"]), strict=True):
            values = {"dynamics": _parse_paper_cell(cell)}
            table = PaperTable("dynamics, Table 1", "final", values, note)
            yield entry["dataset"], (f"{name}-{batch}",), table
    for name, entry in printed["dynamics_rounds"].items():
        for table in _summarise_paper_curves(_parse_paper_curves(name, entry)):
            yield entry["dataset"], (name,), table


def _summarise_paper_curves(printed: PaperCurves) -> list[PaperTable]:
    """Area and final accuracy of printed curves."""
    areas = {
        strategy: PrintedValue(float(curve_area(printed.labels, [cell.value for cell in cells])))
        for strategy, cells in printed.curves.items()
    }
    finals = {strategy: cells[-1] for strategy, cells in printed.curves.items()}
    best = "its code reports the best epoch on the test set"
    note = f"computed from the means it prints for every round; {best}"
    return [
        PaperTable(printed.where, "area", areas, note),
        PaperTable(printed.where, "final", finals, best),
    ]


def _is_experiment_variant(experiment: str, *names: str) -> bool:
    return any(experiment == name or experiment.startswith(f"{name}-") for name in names)


def _parse_paper_curves(name: str, entry: JsonObject) -> PaperCurves:
    head, *lines = _split_paper_table(entry["table"])
    cells = [tuple(map(_parse_paper_cell, column)) for column in zip(*lines, strict=True)]
    labels = tuple(FIRST_LABELS + entry["batch"] * number for number in range(len(lines)))
    where = f"dynamics, Table {name.removeprefix('dynamics-table')}"
    return PaperCurves(where, labels, dict(zip(head, cells, strict=True)))


def _parse_paper_rows(text: str) -> dict[str, dict[str, PrintedValue]]:
    """A table with strategies as columns and data sets as rows."""
    head, *lines = _split_paper_table(text)
    return {
        dataset: dict(zip(head, map(_parse_paper_cell, cells), strict=True))
        for dataset, *cells in lines
    }


def _split_paper_table(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _parse_paper_cell(text: str) -> PrintedValue:
    value, _, deviation = text.partition("±")
    return PrintedValue(float(value), float(deviation) if deviation else None)
