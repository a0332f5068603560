"""The pages of results, recomputed from the committed lines without the code that wrote them."""

import json
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from labelwise.benchmark.protocols import read_experiments

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "results"
PAGE = "\n".join(path.read_text() for path in sorted(FOLDER.glob("papers_*.md")))
GENERATED = re.compile(r"<!-- papers (\w+) (\S+)([\d ]*) -->\n(.*?)<!-- end -->", re.S)
MEASURED = re.compile(r"\d ± \d|[+-]\d+\.\d+ \([+-]\d+\.\d+ to [+-]\d+\.\d+\)")


@cache
def read_lines(file):
    """Lines of a results file as dictionaries."""
    text = (FOLDER / "benchmark" / f"{file}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def read_curves(file, up_to):
    """Measurements of every strategy by seed and number of labels."""
    curves = defaultdict(lambda: defaultdict(dict))
    for line in read_lines(file):
        if line["labels"] <= up_to:
            options = json.dumps(line["options"], sort_keys=True)
            curves[line["strategy"], options][line["seed"]][line["labels"]] = line["value"]
    return curves


def find_complete(curves):
    """The runs that reach every number of labels."""
    labels = {count for runs in curves.values() for run in runs.values() for count in run}
    return {
        name: {seed: run for seed, run in runs.items() if run.keys() == labels}
        for name, runs in curves.items()
    }


def compute_area(run):
    """The mean height of a curve."""
    pairs = list(pairwise(sorted(run)))
    height = sum((high - low) * (run[low] + run[high]) / 2 for low, high in pairs)
    return height / (pairs[-1][1] - pairs[0][0])


def find_parts(form):
    """Generated parts of that form: a results file, numbers and the rows of the table."""
    return [
        pytest.param(
            found[2],
            [int(number) for number in found[3].split()],
            [
                [cell.strip() for cell in line.strip("|").split("|")]
                for line in found[4].splitlines()
                if line.startswith("| `")
            ],
            id=found[2],
        )
        for found in GENERATED.finditer(PAGE)
        if found[1] == form
    ]


@pytest.mark.parametrize(("file", "limit", "rows"), find_parts("table"))
def test_areas_and_differences_to_random_are_those_of_the_lines(file, limit, rows):
    complete = find_complete(read_curves(file, *(limit or [10**9])))
    areas = {
        name: {seed: compute_area(run) for seed, run in runs.items()}
        for name, runs in complete.items()
    }
    accuracy = read_lines(file)[0]["metric"] == "accuracy"
    scale, digits = (100, 2) if accuracy else (1, 4)
    sign = 1 if read_lines(file)[0]["higher_is_better"] else -1
    (random,) = (runs for (strategy, _), runs in areas.items() if strategy == "random")
    expected = []
    for (strategy, _), runs in areas.items():
        values = scale * np.array(list(runs.values()))
        both = runs.keys() & random.keys()
        gain = sign * scale * np.mean([runs[seed] - random[seed] for seed in both])
        numbers = [values.mean(), values.std(ddof=1), 0 if strategy == "random" else gain]
        expected.append((strategy, *numbers))
    written = []
    for row in rows:
        gains = (cell.split()[0] for cell in row[2:] if re.match(r"[+-]\d.* to ", cell))
        numbers = [*row[1].split(" ± "), next(gains, "0")]
        written.append((re.split("[ `]", row[0].strip("`"))[0], *map(float, numbers)))
    rounding = 0.5 * 10.0**-digits + 1e-9  # Python's sum rounds differently since 3.12
    for name, *shown in written:
        same = [row for row in expected if row[0] == name]
        found = [row for row in same if shown == pytest.approx(row[1:], abs=rounding)]
        assert found, f"{name}: {shown} is none of {same}"
        expected.remove(found[0])
    assert not expected


@pytest.mark.parametrize(("file", "counts", "rows"), find_parts("rounds"))
def test_means_of_rounds_are_those_of_the_lines(file, counts, rows):
    scale = 100 if read_lines(file)[0]["metric"] == "accuracy" else 1
    expected = []
    for runs in read_curves(file, 10**9).values():
        columns = defaultdict(list)
        for run in runs.values():
            for count, value in run.items():
                columns[count].append(scale * value)
        shown = counts or sorted(columns)
        expected.append([f"{np.mean(columns[count]):.4g}" for count in shown])
    assert sorted([cell.split()[0] for cell in row[1:]] for row in rows) == sorted(expected)


OVERVIEW = "".join(found[4] for found in GENERATED.finditer(PAGE) if found[1] == "overview")
ROWS = [row[2:-2].split(" | ") for row in OVERVIEW.splitlines() if row.count(" | ") == 6]
VERDICTS = [row for row in ROWS if row[2] not in ("", "verdict") and "no claim" not in row[2]]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}: {row[2]}") for row in VERDICTS])
def test_a_verdict_has_a_detectable_difference_and_a_test(row):
    _, _, verdict, difference, p_value, detectable, lines = row
    assert difference and float(detectable.split()[0]) > 0 and ".jsonl" in lines
    if verdict.startswith(("holds", "does not", "below")):
        assert float(p_value) <= 0.05


@pytest.mark.parametrize("row", [row for row in ROWS if ".jsonl" in row[6]], ids=lambda row: row[0])
def test_a_row_says_how_many_runs_are_complete(row):
    (file,) = re.findall(r"\(benchmark/([\w-]+)\.jsonl\)", row[6])
    labels = re.search(r"([\d,]+) of [\d,]+ labels", row[1])
    limit = int(labels[1].replace(",", "")) if labels else 10**9
    counts = {len(runs) for runs in find_complete(read_curves(file, limit)).values()}
    if len({line["experiment"] for line in read_lines(file)}) == 1:
        assert {int(number) for number in re.findall(r"(\d+) seeds", row[1])} == counts


def test_experiments_on_the_pages_exist():
    named = re.findall(r"`([a-z]+-(?:fig|table)[\w-]+)", " ".join(row[1] for row in ROWS))
    named += re.findall(r"benchmark run\s+([a-z][\w-]+)", PAGE)
    assert len(named) > 30 and set(named) <= set(read_experiments())


@pytest.mark.parametrize("page", ["results/benchmark.md", "decisions/defaults-from-results.md"])
def test_measured_differences_stand_in_generated_parts(page):
    assert not MEASURED.search(GENERATED.sub("", (FOLDER.parent / page).read_text()))


def test_with_the_papers_alphas_the_first_batch_is_that_of_uncertainty_alone():
    picks = {
        (line["seed"], line["strategy"], line["options"].get("alpha")): set(line["picks"])
        for line in read_lines("sparse-fig4-ablation-medium")
        if line["round"] == 0
    }
    for seed in range(5):
        alone = picks[seed, "sparse_greedy", 1e8]
        assert picks[seed, "sparse_greedy", 2.0] == alone == picks[seed, "sparse_iht", 1.0]
        assert alone not in (picks[seed, "sparse_greedy", 0.0], picks[seed, "sparse_iht", 0.0])


def test_both_terms_matter_in_the_ablation_on_the_digits():
    text = (FOLDER / "sparse_terms.jsonl").read_text()
    ratios, like_one = defaultdict(list), []
    for line in map(json.loads, text.splitlines()):
        ratios[line["strategy"]].append(line["ratio"])
        like_one.append(10 in (line["as_approximation"], line["as_uncertainty"]))
    assert 2 < min(ratios["sparse_greedy"]) < max(ratios["sparse_greedy"]) < 4.1
    assert 0.14 < min(ratios["sparse_iht"]) < max(ratios["sparse_iht"]) < 0.6
    assert sum(like_one) == 1 and len(like_one) == 18


def test_every_results_file_is_linked():
    files = {path.name for path in (FOLDER / "benchmark").glob("*.jsonl")}
    assert set(re.findall(r"\(benchmark/([\w-]+\.jsonl)\)", PAGE)) == files
