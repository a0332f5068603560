"""The papers' own numbers, as printed, to stand beside ours.

Methods go by our names: KCenter and Coreset are ``k_center``, Marg ``margin``, Conf ``confidence``,
ALBL ``bandit``, QBC ``committee``, DIAM ``disagreement``, Greedy and IHT ``sparse_greedy`` and
``sparse_iht``, dynamicAL ``dynamics``, and the lewis paper's own method ``lewis``. A cell is a
mean, with the standard deviation over the paper's runs where one is printed. The dynamics paper
prints the accuracy of every round; the area under those means is computed here, by our definition.
The ally paper prints no tables.

References. sparse: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the
Perspective of Sparse Approximation", 2022. dynamics: H. Wang, W. Huang, Z. Wu, H. Tong, A.
Margenot, J. He, "Deep Active Learning by Leveraging Training Dynamics", NeurIPS 2022. lewis:
S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from labelwise.benchmark.statistics import area
from labelwise.errors import BadInput

FIRST_LABELS = 500
"""Of every experiment of the dynamics paper."""

QUANTITIES = ("area", "final", "seconds", "imbalance")


@dataclass(frozen=True)
class Printed:
    """A mean as printed, and its standard deviation over runs or None."""

    value: float
    deviation: float | None = None


@dataclass(frozen=True)
class PaperTable:
    """One quantity of one experiment in a paper.

    Attributes:
        where: paper and table, in words.
        quantity: area and final (accuracy in %), seconds (of the first batch), or imbalance.
        values: per strategy.
        note: what one has to know to compare, or nothing.
    """

    where: str
    quantity: str
    values: Mapping[str, Printed]
    note: str = ""


@dataclass(frozen=True)
class PaperCurves:
    """Accuracies in % after every round; ``labels`` are ``(r,)``, and so is every curve."""

    where: str
    labels: tuple[int, ...]
    curves: Mapping[str, tuple[Printed, ...]]


def paper_table(experiment: str, dataset: str, quantity: str) -> PaperTable | None:
    """What a paper prints for an experiment, or None if it prints nothing.

    Args:
        experiment: name of the protocol; one that adds to a known name after a dash counts too.
        dataset: name of the data set.
        quantity: area, final, seconds or imbalance.

    Example:
        >>> paper_table("sparse-table2-mnist", "mnist", "area").values["badge"]
        Printed(value=91.24, deviation=0.48)
    """
    if quantity not in QUANTITIES:
        raise BadInput(f"quantity must be one of {', '.join(QUANTITIES)}; got {quantity!r}")
    for names, table in _tables().get((dataset, quantity), ()):
        if any(_same(experiment, name) for name in names):
            return table
    return None


def paper_curves(experiment: str, dataset: str) -> PaperCurves | None:
    """The curves that a paper prints as a table for an experiment, or None.

    Example:
        >>> found = paper_curves("dynamics-table4", "cifar10")
        >>> found.labels[:3], found.curves["random"][0]
        ((500, 1000, 1500), Printed(value=28.75, deviation=1.78))
    """
    for name, (own, _, _) in _DYNAMICS.items():
        if own == dataset and _same(experiment, name):
            return _printed_curves(name)
    return None


def _printed_curves(name: str) -> PaperCurves:
    _, batch, text = _DYNAMICS[name]
    columns = _columns(text)
    labels = tuple(FIRST_LABELS + batch * number for number in range(len(columns["random"])))
    return PaperCurves(f"dynamics, Table {name.removeprefix('dynamics-table')}", labels, columns)


@lru_cache(maxsize=1)
def _tables() -> dict[tuple[str, str], list[tuple[tuple[str, ...], PaperTable]]]:
    """Per data set and quantity: the names of experiments, and their table."""
    found: dict[tuple[str, str], list[tuple[tuple[str, ...], PaperTable]]] = {}

    def add(dataset: str, names: tuple[str, ...], table: PaperTable) -> None:
        found.setdefault((dataset, table.quantity), []).append((names, table))

    for number, (text, note) in _SPARSE_AREAS.items():
        for dataset, values in _rows(text).items():
            short = dataset.removesuffix("_mnist")
            table = PaperTable(f"sparse, Table {number}", "area", values, note)
            add(
                dataset, (f"sparse-table{number}-{short}", f"sparse-table{number}-{dataset}"), table
            )
    for dataset, values in _rows(_SPARSE_SECONDS).items():
        table = PaperTable("sparse, Table 3", "seconds", values, "VGG-16 on one V100")
        add(dataset, ("sparse-table3-time", "sparse-table3", f"sparse-table2-{dataset}"), table)
    for dataset, values in _rows(_LEWIS_IMBALANCE).items():
        note = "after 12,000 labels, 50 models; its entropy baseline is likely random by an error"
        add(
            dataset,
            ("lewis-table5-imbalance", "lewis-table5", "lewis-fig2-vanilla"),
            PaperTable("lewis, Table 5", "imbalance", values, note),
        )
    for name, (dataset, network, text) in _DYNAMICS_BATCHES.items():
        note = f"{network}; 1,000 labels bought in batches of that size"
        for batch, cell in zip(*_lines(text), strict=True):
            table = PaperTable("dynamics, Table 1", "final", {"dynamics": _cell(cell)}, note)
            add(dataset, (f"{name}-{batch}",), table)
    for name, (dataset, _, _) in _DYNAMICS.items():
        for table in _summaries(_printed_curves(name)):
            add(dataset, (name,), table)
    return found


def _summaries(printed: PaperCurves) -> list[PaperTable]:
    """Area and final accuracy of printed curves."""
    areas = {
        strategy: Printed(float(area(printed.labels, [cell.value for cell in cells])))
        for strategy, cells in printed.curves.items()
    }
    finals = {strategy: cells[-1] for strategy, cells in printed.curves.items()}
    note = "computed from the means it prints for every round"
    best = "its code reports the best epoch on the test set"
    return [
        PaperTable(printed.where, "area", areas, f"{note}; {best}"),
        PaperTable(printed.where, "final", finals, best),
    ]


def _same(experiment: str, name: str) -> bool:
    return experiment == name or experiment.startswith(f"{name}-")


def _cell(text: str) -> Printed:
    value, _, deviation = text.partition("±")
    return Printed(float(value), float(deviation) if deviation else None)


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _columns(text: str) -> dict[str, tuple[Printed, ...]]:
    """A table with strategies above its columns."""
    head, *lines = _lines(text)
    cells = [tuple(map(_cell, column)) for column in zip(*lines, strict=True)]
    return dict(zip(head, cells, strict=True))


def _rows(text: str) -> dict[str, dict[str, Printed]]:
    """A table with strategies above its columns and data sets before its rows."""
    head, *lines = _lines(text)
    return {dataset: dict(zip(head, map(_cell, cells), strict=True)) for dataset, *cells in lines}


# fmt: off
_SPARSE_AREAS = {
    1: ("""
    bayesian_coreset sparse_greedy sparse_iht bald       batchbald  random
    fashion_mnist 89.53±0.25 89.83±0.26 89.97±0.23 89.72±0.23 88.85±0.22 88.39±0.32
    cifar10       77.73±0.70 78.28±0.53 77.55±0.83 77.61±0.59 76.12±0.35 76.36±0.59
    cifar100      42.40±0.29 42.53±0.34 42.30±0.29 41.99±0.60 42.63±0.40 42.10±0.24
    """, "Bayesian ResNet-18; the paper does not define its area"),
    2: ("""
    badge sparse_greedy sparse_iht k_center entropy random
    mnist   91.24±0.48 90.89±0.38 91.07±0.45 89.57±1.02 90.68±0.81 86.48±1.11
    svhn    86.92±0.71 87.23±0.47 86.84±0.57 87.04±0.80 86.28±1.05 85.52±0.51
    cifar10 68.20±0.56 68.01±0.66 67.80±0.69 67.98±0.63 67.94±0.64 67.05±0.59
    """, "the paper does not define its area"),
}

_SPARSE_SECONDS = """
    badge sparse_greedy sparse_iht k_center entropy random
    svhn    732.18±26.29   201.65±3.54 211.04±10.65 309.99±0.81 16.46±0.29 0.81±0.02
    cifar10 1207.19±121.09 333.67±3.53 174.28±3.27  258.29±1.75 11.76±0.03 1.42±0.02
"""

_LEWIS_IMBALANCE = """
    disagreement committee k_center random entropy lewis
    mnist          2.007  1.867 3.561 1.262 1.331 1.217
    fashion_mnist  3.250  6.721 3.708 1.091 1.077 1.081
    kmnist         1.472  1.987 2.116 1.067 1.091 1.050
    svhn           2.121  4.474 2.330 3.008 3.052 2.993
    cifar10        1.525  5.212 1.871 1.062 1.087 1.098
    cifar100       4.390 13.607 6.000 1.511 1.439 1.440
    emnist_letters 2.216  9.178 5.375 1.092 1.088 1.109
    emnist_digits  2.811 10.664 4.491 1.222 1.166 1.209
"""

# Test accuracy in % after 1,000 labels, by the size of the batches (its CNN row contradicts Tables
# 2 and 3). For cifar10 there is a ResNet-18 row too: 40.92 40.78 40.46 40.09.
_DYNAMICS_BATCHES = {
    "dynamics-table1": ("cifar10", "CNN", """
    100 250 500 1000
    36.84 36.72 36.71 36.67
    """),
    "dynamics-table1-svhn": ("svhn", "VGG-11", """
    100 250 500 1000
    76.34 75.26 74.10 70.04
    """),
    "dynamics-table1-caltech101": ("caltech101", "ResNet-18", """
    100 250 500 1000
    37.06 36.48 35.91 33.82
    """),
}

# Test accuracy in %, mean and deviation over 5 runs; the first row is that of the first labels.
_DYNAMICS = {
    # Table 2: cifar10, CNN, first labels 500, batches of 250
    "dynamics-table2": ("cifar10", 250, """
    random     margin     entropy    k_center   confidence bandit     dynamics
    32.50±1.31 32.40±1.29 32.44±1.27 32.30±1.28 32.55±1.27 32.60±1.26 32.32±1.18
    32.98±1.18 33.47±1.17 32.86±1.62 32.70±1.31 33.15±1.70 32.88±1.18 33.46±1.81
    34.35±1.32 34.52±1.13 34.18±1.55 33.77±1.01 34.67±1.43 33.68±1.39 34.73±1.48
    35.08±1.51 35.77±1.30 35.22±1.68 34.38±0.94 35.14±1.34 34.95±1.23 35.77±1.02
    35.69±1.95 36.47±1.25 35.97±1.65 34.91±1.40 36.58±1.51 35.59±1.18 36.26±0.79
    """),
    # Table 3: cifar10, CNN, first labels 500, batches of 500
    "dynamics-table3": ("cifar10", 500, """
    random     margin     entropy    k_center   confidence bandit     dynamics
    32.38±1.16 32.40±1.44 32.29±1.40 32.41±1.33 32.51±1.29 32.40±1.43 32.58±1.05
    34.91±1.29 35.11±1.57 34.31±1.66 33.95±1.37 34.79±1.50 34.18±1.37 35.15±1.56
    36.48±0.84 36.69±1.46 36.19±1.46 35.95±1.67 36.71±1.74 35.58±1.54 36.50±1.18
    37.19±0.77 37.95±1.36 37.31±1.22 36.17±1.09 38.02±1.66 36.32±1.33 38.11±1.15
    37.91±0.88 39.06±1.06 38.24±0.88 36.61±1.01 39.08±1.34 37.04±1.38 39.27±0.71
    """),
    # Table 4: cifar10, ResNet-18, first labels 500, batches of 500
    "dynamics-table4": ("cifar10", 500, """
    random     margin     entropy    k_center   confidence bandit     badge      dynamics
    28.75±1.78 28.75±0.37 28.63±1.39 28.63±1.12 28.31±1.01 28.75±0.96 28.95±1.04 28.52±0.69
    34.11±3.09 34.62±2.02 34.42±0.85 34.57±0.99 33.49±1.27 34.42±2.08 34.26±1.74 35.58±2.86
    39.63±2.16 39.63±0.31 40.08±1.02 38.94±1.41 38.23±1.45 40.16±2.57 39.78±1.38 40.46±0.96
    41.38±2.36 42.15±0.81 42.18±1.27 40.96±0.96 40.87±0.86 42.26±2.35 41.74±1.23 42.51±0.80
    43.18±1.81 44.09±1.17 44.09±1.15 42.60±1.09 43.10±1.32 43.52±3.06 43.76±1.36 44.36±0.98
    44.73±2.25 45.57±1.11 45.00±0.73 43.86±1.37 44.83±1.39 44.64±3.10 44.73±1.68 46.02±0.75
    46.00±2.19 47.17±0.93 46.74±1.12 45.08±1.55 45.83±1.43 46.22±2.60 46.38±1.61 47.34±1.03
    46.80±2.13 48.18±1.23 47.69±1.25 46.02±1.59 47.47±1.42 47.18±2.38 47.17±1.40 48.48±1.45
    47.91±1.72 49.26±0.65 49.05±1.11 47.14±1.88 48.40±1.18 48.18±2.50 48.11±1.05 49.58±1.67
    48.84±1.58 49.75±1.34 49.46±1.28 48.07±1.48 49.35±1.27 49.45±2.53 49.06±0.85 50.50±1.30
    """),
    # Table 5: cifar10, ResNet-18, first labels 500, batches of 1000
    "dynamics-table5": ("cifar10", 1000, """
    random     margin     entropy    k_center   confidence bandit     badge      dynamics
    28.34±1.47 28.07±2.60 28.24±1.76 28.41±0.72 29.05±1.14 29.06±0.85 28.43±1.18 28.48±2.06
    40.08±0.33 39.57±1.55 39.09±2.18 38.95±1.05 39.50±2.34 39.67±1.49 39.46±3.02 40.09±1.79
    45.63±1.25 45.43±0.44 44.48±1.82 43.78±0.99 45.62±1.88 43.58±1.33 44.55±3.65 45.77±2.29
    47.90±1.26 47.96±0.73 48.15±2.51 45.93±0.68 48.82±1.80 47.24±1.93 47.39±4.19 49.22±1.70
    50.13±1.21 50.49±0.81 49.97±2.82 48.14±0.57 50.79±1.87 49.05±1.83 49.13±4.05 51.50±1.93
    52.14±1.52 52.24±0.78 52.00±2.76 49.85±1.07 52.59±2.20 50.59±1.64 50.94±3.63 53.24±1.93
    53.33±1.30 53.87±0.64 53.57±3.12 52.01±0.77 53.99±2.39 52.69±1.60 52.36±3.92 55.06±1.70
    54.84±1.24 55.19±1.14 54.79±3.14 52.99±1.15 55.60±2.00 54.20±1.69 53.77±3.98 56.33±1.61
    55.86±1.16 56.90±0.73 56.23±3.18 54.45±0.82 56.79±2.03 55.20±1.87 54.91±4.10 57.76±1.80
    56.84±0.98 57.73±0.50 57.29±3.23 55.42±0.95 57.70±2.04 56.67±1.78 56.02±3.94 58.56±1.57
    """),
    # Table 6: svhn, VGG-11, first labels 500, batches of 500
    "dynamics-table6": ("svhn", 500, """
    random     margin     entropy    k_center   confidence bandit     badge      dynamics
    25.94±7.16 26.15±6.29 26.41±8.99 25.83±5.84 26.52±7.49 25.31±5.03 26.38±9.10 26.30±5.50
    61.23±4.81 63.93±3.13 59.02±4.72 57.02±3.67 61.99±2.61 62.14±5.53 58.70±5.62 63.01±12.29
    71.35±2.36 74.08±0.93 71.25±1.46 67.95±2.87 73.31±2.83 71.75±2.56 74.74±2.98 74.10±4.56
    76.34±1.63 79.17±1.06 76.74±1.52 73.76±2.84 78.02±1.94 77.65±1.52 77.75±2.10 79.20±2.65
    78.86±1.38 82.18±0.50 79.67±0.81 78.14±2.49 81.32±1.90 81.09±1.00 80.16±1.35 82.33±2.13
    80.56±1.15 83.85±0.75 81.87±0.64 80.34±2.34 83.31±1.53 83.37±1.23 82.94±0.83 84.19±1.94
    81.98±1.33 85.61±0.62 83.56±0.54 82.32±1.59 84.94±0.86 85.19±0.99 83.69±0.97 85.80±1.50
    83.00±1.05 86.62±0.61 84.94±0.08 83.98±1.39 85.97±1.18 86.31±0.98 85.15±0.76 86.75±1.43
    83.59±0.94 87.57±0.62 85.78±0.07 85.26±1.43 87.13±0.68 87.55±0.83 86.61±0.48 87.91±1.26
    84.42±0.74 88.23±0.60 87.11±0.44 86.18±0.89 87.87±0.60 87.89±0.78 87.29±0.44 88.52±1.24
    """),
    # Table 7: svhn, VGG-11, first labels 500, batches of 1000
    "dynamics-table7": ("svhn", 1000, """
    random     margin     entropy    k_center   confidence bandit     badge      dynamics
    25.90±3.48 26.20±5.41 26.85±4.40 26.18±6.85 27.21±8.72 26.60±4.69 26.88±6.25 26.43±8.05
    70.26±3.15 69.06±3.65 68.72±2.16 68.46±1.11 69.85±3.48 70.51±3.49 70.09±2.69 70.04±1.65
    77.91±1.06 78.24±2.24 78.56±0.49 77.66±1.78 78.89±2.81 78.14±1.49 78.67±1.80 78.86±1.71
    81.25±0.81 83.68±1.66 82.83±0.53 82.34±1.46 83.75±2.17 83.50±1.67 83.07±1.33 83.11±1.27
    83.63±0.75 86.12±1.25 85.80±0.74 85.34±1.13 85.91±1.13 86.18±0.98 86.50±1.09 85.70±1.18
    85.17±0.87 88.04±1.02 87.66±0.68 87.19±0.93 87.61±1.04 87.65±1.03 88.03±0.74 87.46±1.05
    86.06±0.82 89.13±0.71 88.96±0.40 88.65±0.51 88.90±0.84 88.93±0.81 88.41±0.78 88.89±1.27
    87.30±0.95 90.36±0.53 90.00±0.26 89.65±0.49 90.18±0.71 89.83±0.75 90.53±0.49 90.09±1.15
    87.69±0.89 90.95±0.38 90.67±0.39 90.15±0.41 90.96±0.68 90.75±0.57 91.25±0.43 90.95±0.78
    88.28±0.72 91.59±0.42 91.25±0.35 90.64±0.31 91.66±0.76 91.41±0.67 91.76±0.37 91.67±0.84
    """),
    # Table 8: caltech101, ResNet-18, first labels 500, batches of 500
    "dynamics-table8": ("caltech101", 500, """
    random     margin     entropy    k_center   confidence bandit     dynamics
    21.19±1.30 21.61±1.26 21.88±1.15 21.98±0.99 21.41±1.09 21.99±1.00 21.87±1.69
    26.44±2.13 28.49±0.96 27.70±0.94 29.75±0.92 27.55±1.14 28.84±1.28 29.67±0.76
    35.20±2.07 34.78±1.63 32.13±0.68 35.69±0.79 32.43±0.78 35.79±0.93 35.92±0.81
    37.82±1.48 38.89±1.32 36.71±1.26 40.04±0.41 37.13±0.87 39.95±1.39 40.77±1.60
    43.99±1.98 43.24±0.96 40.45±0.79 45.40±0.62 41.88±0.50 45.07±2.05 46.15±0.33
    """),
    # Table 9: caltech101, ResNet-18, first labels 500, batches of 1000
    "dynamics-table9": ("caltech101", 1000, """
    random     margin     entropy    k_center   confidence bandit     dynamics
    22.13±1.05 22.05±1.01 21.83±0.72 20.98±0.63 22.03±1.36 22.05±0.63 21.42±1.74
    33.91±1.33 33.80±1.00 31.98±1.00 33.40±0.96 32.43±0.90 33.66±2.17 33.83±1.44
    42.08±0.56 41.22±0.73 39.23±0.98 43.24±0.96 40.05±0.99 43.28±2.36 43.27±2.28
    47.43±0.70 47.16±0.66 46.26±0.97 50.51±0.71 47.87±0.70 50.10±2.08 50.43±1.63
    52.77±0.98 54.52±1.29 54.11±1.35 56.15±1.28 53.76±1.20 56.96±1.73 57.52±1.19
    """),
}
# fmt: on
