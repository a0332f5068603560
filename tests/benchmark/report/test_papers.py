"""The papers' numbers are those printed."""

import pytest

from labelwise.benchmark.report.papers import find_paper_curves, find_paper_table
from labelwise.errors import BadInput


@pytest.mark.parametrize(
    ("experiment", "dataset", "quantity", "strategy", "value", "deviation"),
    [
        ("sparse-table2-mnist", "mnist", "area", "random", 86.48, 1.11),
        ("sparse-table2-mnist", "mnist", "area", "sparse_iht", 91.07, 0.45),
        ("sparse-table2-cifar10", "cifar10", "area", "k_center", 67.98, 0.63),
        ("sparse-table1-fashion", "fashion_mnist", "area", "bayesian_coreset", 89.53, 0.25),
        ("sparse-table1-cifar100", "cifar100", "area", "batchbald", 42.63, 0.40),
        ("sparse-table3-time", "cifar10", "seconds", "badge", 1207.19, 121.09),
        ("sparse-table2-svhn", "svhn", "seconds", "sparse_iht", 211.04, 10.65),
        ("lewis-table5-imbalance", "cifar100", "imbalance", "committee", 13.607, None),
        ("lewis-table5-imbalance", "emnist_digits", "imbalance", "lewis", 1.209, None),
        ("dynamics-table1-250", "cifar10", "final", "dynamics", 36.72, None),
        ("dynamics-table2", "cifar10", "final", "confidence", 36.58, 1.51),
        ("dynamics-table7", "svhn", "final", "badge", 91.76, 0.37),
        ("dynamics-table9", "caltech101", "final", "dynamics", 57.52, 1.19),
    ],
)
def test_the_papers_numbers_are_those_printed(
    experiment, dataset, quantity, strategy, value, deviation
):
    printed = find_paper_table(experiment, dataset, quantity).values[strategy]
    assert (printed.value, printed.deviation) == (value, deviation)


def test_every_table_of_the_dynamics_paper_is_whole():
    rounds = {2: 5, 3: 5, 4: 10, 5: 10, 6: 10, 7: 10, 8: 5, 9: 5}
    sets = {2: "cifar10", 3: "cifar10", 4: "cifar10", 5: "cifar10", 6: "svhn", 7: "svhn"}
    for table, count in rounds.items():
        found = find_paper_curves(f"dynamics-table{table}", sets.get(table, "caltech101"))
        assert len(found.labels) == count and found.labels[0] == 500
        assert {len(curve) for curve in found.curves.values()} == {count}
        assert len(found.curves) == (8 if 4 <= table <= 7 else 7)


def test_the_area_of_a_printed_curve_follows_our_definition():
    means = [32.50, 32.98, 34.35, 35.08, 35.69]  # Table 2, random
    expected = (sum(means) - (means[0] + means[-1]) / 2) / 4
    found = find_paper_table("dynamics-table2", "cifar10", "area").values["random"]
    assert found.value == pytest.approx(expected) and found.deviation is None


def test_what_no_paper_prints_is_none():
    assert find_paper_table("ally-fig2-mnist", "mnist", "area") is None
    assert find_paper_table("sparse-table2-mnist", "cifar10", "area") is None
    assert find_paper_curves("dynamics-table40", "cifar10") is None
    with pytest.raises(BadInput, match="quantity must be one of"):
        find_paper_table("x", "mnist", "aera")
