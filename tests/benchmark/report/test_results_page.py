"""The pages of results, and the pages drawn from them, against the committed lines."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.results import read_results
from labelwise.benchmark.statistics import paired_difference
from labelwise.errors import BadInput

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "results"
PAGES = [*FOLDER.glob("papers_*.md"), FOLDER / "benchmark.md"]
PAGE = "\n".join(path.read_text() for path in sorted(PAGES))
AREA = re.compile(r"\d+\.\d+ ± \d+\.\d+")
GAIN = re.compile(r"[+-]\d+\.\d+ \([+-]\d+\.\d+ to [+-]\d+\.\d+\)")
LINES = re.compile(r"\(benchmark/([\w-]+\.jsonl)\)")
COMPARED = {"random", "badge", "lewis (one_shot=True, weights=none)"}
"""What strategies are compared with on these pages where an experiment has many."""
CUT_OFF = (1600, 2000, 4000)
"""Labels up to which runs of different lengths are compared on these pages."""


def sections():
    """Parts under a heading that have lines of their own, without tables written from them."""
    written = re.sub(r"<!-- papers .*?<!-- end -->", "", PAGE, flags=re.S)
    parts = re.split(r"^##+ ", written, flags=re.M)[1:]
    return [
        pytest.param(part, id=part.splitlines()[0][:50]) for part in parts if LINES.search(part)
    ]


def gain(own, baseline, higher_is_better, times, digits):
    """A paired difference of areas as the page writes it, or nothing."""
    shared = np.isfinite(own) & np.isfinite(baseline)
    if not shared.any():
        return set()
    found = paired_difference(own[shared], baseline[shared], higher_is_better=higher_is_better)
    numbers = found.gain.value, found.gain.low, found.gain.high
    value, low, high = (f"{number * times:+.{digits}f}" for number in numbers)
    return {f"{value} ({low} to {high})"}


@cache
def numbers(name, limit):
    """All areas and gains that a results file holds up to so many labels."""
    found = set()
    try:
        parts = group_experiments(read_results(FOLDER / "benchmark" / name), up_to=limit)
    except BadInput:  # nothing has so few labels
        return found
    for part in parts:
        times, digits = (100, 2) if part.metric == "accuracy" else (1, 4)
        areas = {strategy: part.areas(strategy) for strategy in part.strategies}
        few = len(areas) <= 6  # where differences between any two are on the page
        for name, own in areas.items():
            whole = own[np.isfinite(own)] * times
            if len(whole) > 1:
                found.add(f"{whole.mean():.{digits}f} ± {whole.std(ddof=1):.{digits}f}")
            for baseline in areas if few else COMPARED & areas.keys():
                if baseline != name:
                    found |= gain(own, areas[baseline], part.higher_is_better, times, digits)
    return found


def cells(section):
    """The cells of all tables, but for what is the paper's."""
    header = None
    for line in section.splitlines():
        if not line.startswith("|"):
            header = None
            continue
        row = [cell.strip() for cell in line.strip("|").split("|")]
        header = header or row
        yield from (
            cell for name, cell in zip(header, row, strict=False) if "paper" not in name.lower()
        )


@pytest.mark.parametrize("section", sections())
def test_areas_and_gains_are_those_of_the_lines(section):
    limits = [None, *{int(a + b) for a, b in re.findall(r"(\d+),(\d{3})\b", section)}]
    there = set().union(
        *(numbers(name, limit) for name in LINES.findall(section) for limit in limits)
    )
    written = [
        found
        for cell in cells(section)
        for pattern in (AREA, GAIN)
        for found in pattern.findall(cell)
    ]
    wrong = [number for number in written if number not in there]
    assert not wrong, f"these are not in the lines: {wrong}"


@pytest.mark.parametrize("page", ["results/papers.md", "decisions/defaults-from-results.md"])
def test_gains_on_the_pages_drawn_from_it_are_those_of_some_lines(page):
    files = [path.name for path in (FOLDER / "benchmark").glob("*.jsonl")]
    there = set().union(*(numbers(name, limit) for name in files for limit in (None, *CUT_OFF)))
    written = GAIN.findall(" ".join((FOLDER.parent / page).read_text().split()))
    wrong = [number for number in written if number not in there]
    assert len(written) > 8 and not wrong, f"these are not in the lines: {wrong}"


def test_with_the_papers_alphas_the_first_batch_is_that_of_uncertainty_alone():
    first = [
        line
        for line in read_results(FOLDER / "benchmark" / "sparse-fig4-ablation-medium.jsonl")
        if line.round == 0 and line.strategy != "random"
    ]
    for seed in range(5):
        picks = {
            (line.strategy, line.options.get("alpha")): set(line.picks)
            for line in first
            if line.seed == seed
        }
        alone = picks["sparse_greedy", 1e8]
        assert picks["sparse_greedy", 2.0] == alone == picks["sparse_iht", 1.0]
        assert picks["sparse_greedy", 0.0] != alone != picks["sparse_iht", 0.0]


def test_the_page_has_many_such_numbers_and_every_file_is_linked():
    assert len(AREA.findall(PAGE)) > 100 and len(GAIN.findall(PAGE)) > 120
    files = {path.name for path in (FOLDER / "benchmark").glob("*.jsonl")}
    assert set(LINES.findall(PAGE)) == files


def test_total_weights_of_50_networks_are_those_of_the_lines():
    lines = read_results(FOLDER / "benchmark" / "lewis-fig1-growth-many-medium.jsonl")
    (runs,) = group_experiments(lines)
    section = PAGE.split("**50 networks.**")[1].split("##")[0]
    rows = [line.split("|")[2:-1] for line in section.splitlines() if line.startswith("|")]
    places = [runs.labels.tolist().index(n) for n in (1, 2, 5, 10, 15, 20, 30, 40, 50)]
    names = [f"lewis ({options})" for options in ("p=2.0", "p=1.0", "curve=ranks, p=2.0")]
    for name, row in zip(names, rows[2:], strict=True):
        means = runs.curves(name).mean(axis=0)[places]
        assert [f"{value:.1f}" for value in means] == [cell.strip() for cell in row]
