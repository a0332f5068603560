"""The report on made-up learning curves with known answers: numbers, words, page, files."""

import csv
import doctest
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import labelwise.cli.benchmark  # noqa: F401  (adds the commands)
from labelwise.benchmark import papers, report, report_words
from labelwise.benchmark.papers import paper_curves, paper_table
from labelwise.benchmark.report import repeat_commands, write_report
from labelwise.benchmark.report_data import experiments
from labelwise.benchmark.report_figures import LIGHT, curves_figure, gains_figure
from labelwise.benchmark.report_findings import Contrast, analyse, overall
from labelwise.benchmark.report_tables import area_table
from labelwise.benchmark.report_words import Unit, lede, sentence
from labelwise.benchmark.results import Round, append
from labelwise.benchmark.statistics import area, paired_difference
from labelwise.cli import run
from labelwise.errors import BadInput

LABELS = (40, 80, 160, 320)
HEIGHTS = np.array([0.5, 0.6, 0.7, 0.8])


def make_rounds(gains, seeds=5, *, noise=0.01, name="sparse-table2-mnist", **changes):
    """Curves ``HEIGHTS`` plus a gain after the first round, plus noise of the seed and the run."""
    generator = np.random.default_rng(0)
    shared = generator.normal(0, noise, size=seeds)
    rounds = []
    for strategy, gain in gains.items():
        own = generator.normal(0, noise / 3, size=seeds)
        for seed in range(seeds):
            for number, labels in enumerate(LABELS):
                value = HEIGHTS[number] + shared[seed] + (gain + own[seed]) * (number > 0)
                entry = Round(
                    name,
                    "small",
                    "mnist",
                    "lenet5",
                    strategy,
                    seed,
                    number,
                    labels,
                    "accuracy",
                    float(value),
                    seconds={"train": 2.0, "represent": 0.25, "select": 0.5 + number},
                    imbalance=1.0 + number,
                    effective_size=1.5 if strategy == "lewis" else None,
                    picks=(1, 2) if number < 3 else (),
                    reduced="60 epochs",
                    versions={"numpy": "2.4"},
                )
                rounds.append(replace(entry, **changes))
    return rounds


def find(rounds, baselines=("random", "badge")):
    (experiment,) = experiments(rounds)
    return analyse(experiment, baselines)


def as_errors(rounds):
    """The same curves as an error that falls."""
    return [
        replace(entry, metric="mse", value=2 - entry.value, higher_is_better=False)
        for entry in rounds
    ]


@pytest.mark.parametrize("module", [papers, report, report_words])
def test_the_doctests_pass(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


# The papers' numbers


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
    printed = paper_table(experiment, dataset, quantity).values[strategy]
    assert (printed.value, printed.deviation) == (value, deviation)


def test_every_table_of_the_dynamics_paper_is_whole():
    rounds = {2: 5, 3: 5, 4: 10, 5: 10, 6: 10, 7: 10, 8: 5, 9: 5}
    sets = {2: "cifar10", 3: "cifar10", 4: "cifar10", 5: "cifar10", 6: "svhn", 7: "svhn"}
    for table, count in rounds.items():
        found = paper_curves(f"dynamics-table{table}", sets.get(table, "caltech101"))
        assert len(found.labels) == count and found.labels[0] == 500
        assert {len(curve) for curve in found.curves.values()} == {count}
        assert len(found.curves) == (8 if 4 <= table <= 7 else 7)


def test_the_area_of_a_printed_curve_follows_our_definition():
    means = [32.50, 32.98, 34.35, 35.08, 35.69]  # Table 2, random
    expected = (sum(means) - (means[0] + means[-1]) / 2) / 4
    found = paper_table("dynamics-table2", "cifar10", "area").values["random"]
    assert found.value == pytest.approx(expected) and found.deviation is None


def test_what_no_paper_prints_is_none():
    assert paper_table("ally-fig2-mnist", "mnist", "area") is None
    assert paper_table("sparse-table2-mnist", "cifar10", "area") is None
    assert paper_curves("dynamics-table40", "cifar10") is None
    with pytest.raises(BadInput, match="quantity must be one of"):
        paper_table("x", "mnist", "aera")


# What is found


def test_areas_and_finals_are_means_over_seeds():
    rounds = make_rounds({"random": 0.0, "badge": 0.1})
    found = find(rounds)
    curves = {
        seed: [e.value for e in rounds if e.strategy == "badge" and e.seed == seed]
        for seed in range(5)
    }
    areas = [area(LABELS, curve) for curve in curves.values()]
    best = found.summaries[0]
    assert best.strategy == "badge" and best.runs == 5
    assert best.area.value == pytest.approx(np.mean(areas))
    assert best.area_deviation == pytest.approx(np.std(areas, ddof=1))
    assert best.final.value == pytest.approx(np.mean([curve[-1] for curve in curves.values()]))


def test_labels_needed_and_saved_without_noise():
    found = find(make_rounds({"random": 0.0, "badge": 0.1}, noise=0.0))
    badge, random = found.summaries
    assert found.target == pytest.approx(0.97 * 0.9)
    assert badge.needed.value == pytest.approx(160 + 160 * 0.73)
    assert random.needed.value == np.inf
    assert badge.needed_random.value == pytest.approx(160.0)
    assert random.needed_random.value == 320.0
    assert badge.saved.value == 1.0 and random.saved.value == -np.inf


def test_a_saving_is_taken_against_the_best_other_baseline():
    found = find(make_rounds({"random": 0.1, "badge": 0.08, "lewis": 0.09}, noise=0.0))
    saved = {entry.strategy: entry.saved.value for entry in found.summaries}
    needed = {entry.strategy: entry.needed.value for entry in found.summaries}
    assert saved["lewis"] == pytest.approx(1 - needed["lewis"] / needed["random"])
    assert saved["random"] == pytest.approx(1 - needed["random"] / needed["badge"])


def test_a_clear_gain_with_many_seeds_is_better_and_with_few_only_likely():
    gains = {"random": 0.0, "badge": 0.1, "lewis": -0.1}
    many = {c.strategy: c.verdict for c in find(make_rounds(gains, 10)).contrasts["random"]}
    few = {c.strategy: c.verdict for c in find(make_rounds(gains, 5)).contrasts["random"]}
    assert many == {"badge": "better", "lewis": "worse"}
    assert few == {"badge": "likely better", "lewis": "likely worse"}


def test_corrected_p_values_count_all_comparisons_with_the_baseline():
    found = find(make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.1, "margin": 0.1}))
    assert [entry.p_flip for entry in found.contrasts["random"]] == [0.1875] * 3
    assert {entry.family for entry in found.contrasts["random"]} == {3}


def test_errors_turn_every_comparison_round():
    rounds = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.02})
    high, low = find(rounds), find(as_errors(rounds))
    assert high.names == low.names
    for ours, theirs in zip(high.contrasts["random"], low.contrasts["random"], strict=True):
        assert ours.area.gain.value == pytest.approx(theirs.area.gain.value)
        assert ours.verdict == theirs.verdict
    np.testing.assert_array_equal(high.wins, low.wins)
    assert low.target == pytest.approx(low.summaries[0].final.value / 0.97)


def test_costs_are_those_of_rounds_that_bought():
    (random, lewis) = find(make_rounds({"random": 0.01, "lewis": 0.0})).costs
    assert random.first == pytest.approx(0.75)
    assert random.batch == pytest.approx(0.25 + 0.5 + 1.0)
    assert random.train == 2.0 and random.imbalance == 4.0
    assert np.isnan(random.effective) and lewis.effective == 0.75


def test_the_effective_size_in_one_shot_is_a_share_of_all_picks_up_to_now():
    rounds = make_rounds({"random": 0.0})
    size = {0: 1.5, 1: 3.0, 2: 4.5, 3: None}  # of 2, 4 and 6 picks
    weighted = [
        replace(e, strategy="lewis", options={"one_shot": True}, effective_size=size[e.round])
        for e in rounds
    ]
    batches = [replace(e, strategy="bss", effective_size=1.0) for e in rounds]
    shares = {entry.strategy: entry.effective for entry in find(weighted + batches).costs}
    assert shares == pytest.approx({"lewis": 0.75, "bss": 0.5})


def test_several_models_have_a_spread():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1})
    rounds = [replace(e, values=(e.value - 0.02, e.value + 0.02)) for e in rounds]
    assert [entry.spread for entry in find(rounds).costs] == pytest.approx([0.02, 0.02])
    assert "deviation over the models" in area_table(find(rounds)).head


def test_seconds_of_a_first_batch_stand_beside_the_papers():
    rounds = [e for e in make_rounds({"random": 0.0, "badge": 0.1}) if e.round == 0]
    change = {"experiment": "sparse-table3-time", "dataset": "cifar10", "metric": "seconds"}
    rounds = [replace(e, **change, higher_is_better=False) for e in rounds]
    found = area_table(find(rounds))
    assert found.head[-1] == "paper (sparse, Table 3)"
    assert dict((row[0], row[-1]) for row in found.rows)["badge"] == ("1,207", "± 121.09")


def test_several_experiments_are_ranked_over_the_strategies_they_share():
    first = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.2})
    second = make_rounds({"random": 0.0, "badge": 0.1}, dataset="cifar10")
    third = as_errors(make_rounds({"random": 0.0, "badge": 0.1}, dataset="casp"))
    found = overall([analyse(entry) for entry in experiments(first + second + third)])
    assert found.ranks.names == ("badge", "random") and found.ranks.data_sets == 3
    assert found.ranks.ranks.tolist() == [1.0, 2.0]
    assert found.left_out == ("lewis",)
    assert found.wins[0, 1] == 1.0 and found.wins[1, 0] == 0.0


# What is missing


def drop(rounds, test):
    return [entry for entry in rounds if not test(entry)]


def test_a_run_that_stopped_is_left_out_of_pairs_and_named():
    whole = make_rounds({"random": 0.0, "badge": 0.1})
    rounds = drop(whole, lambda e: e.strategy == "badge" and e.seed == 2 and e.labels > 80)
    found = find(rounds)
    (contrast,) = found.contrasts["random"]
    assert contrast.area.seeds == 4
    rest = find(drop(whole, lambda e: e.seed == 2)).contrasts["random"][0]
    assert contrast.area.gain == rest.area.gain
    assert found.experiment.notes == (
        "badge, seed 2: stops at 80 of 320 labels; drawn, but not in areas and tests.",
    )


def test_missing_seeds_holes_and_broken_numbers_are_named():
    rounds = make_rounds({"random": 0.0, "badge": 0.1})
    rounds = drop(rounds, lambda e: e.strategy == "badge" and e.seed in (1, 3))
    rounds = [
        replace(e, value=np.nan) if (e.strategy, e.seed, e.labels) == ("random", 0, 80) else e
        for e in rounds
    ]
    found = find(rounds)
    assert found.experiment.notes == (
        "random, seed 0: has no number at 80 labels; drawn, but not in areas and tests.",
        "badge: there is no run of seed 1, 3.",
    )
    assert found.contrasts["random"][0].area.seeds == 2


def test_a_strategy_that_buys_all_at_once_is_compared_on_what_it_has():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1}, noise=0.0)
    found = find(drop(rounds, lambda e: e.strategy == "lewis" and e.round in (1, 2)))
    lewis = next(entry for entry in found.summaries if entry.strategy == "lewis")
    assert lewis.runs == 5 and lewis.area.value == pytest.approx(area([40, 320], [0.5, 0.9]))
    assert found.experiment.notes == (
        "lewis was measured at 2 of the 4 numbers of labels, so its area is a coarser one.",
    )


def test_only_the_first_labels_can_be_reported_on():
    (experiment,) = experiments(make_rounds({"random": 0.0}), up_to=100)
    assert experiment.labels.tolist() == [40, 80]
    with pytest.raises(BadInput, match="no rounds with 10 labels or fewer"):
        experiments(make_rounds({"random": 0.0}), up_to=10)


def test_a_metric_that_is_better_both_ways_is_refused():
    rounds = make_rounds({"random": 0.0})
    rounds[3] = replace(rounds[3], higher_is_better=False)
    with pytest.raises(BadInput, match="better both high and low"):
        experiments(rounds)


def test_options_tell_runs_of_one_strategy_apart():
    rounds = make_rounds({"random": 0.0, "lewis": 0.1})
    other = [replace(e, options={"p": 1}) for e in rounds if e.strategy == "lewis"]
    assert find(rounds + other).experiment.strategies == ("random", "lewis", "lewis (p=1)")
    assert find(rounds[:20] + other).experiment.strategies == ("random", "lewis")


def slow_pairs(rounds, name, other):
    """Seeds under which both runs have every measurement that they should have."""
    ends = {min(entry.labels for entry in rounds), max(entry.labels for entry in rounds)}

    def whole(strategy):
        wanted = ends | {entry.labels for entry in rounds if entry.strategy == strategy}
        runs = {(entry.seed, entry.labels) for entry in rounds if entry.strategy == strategy}
        return {seed for seed in range(3) if {(seed, labels) for labels in wanted} <= runs}

    return len(whole(name) & whole(other))


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 35), max_size=35), st.booleans())
def test_whatever_is_missing_the_rest_is_paired(lost, lower):
    rounds = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.0}, 3)
    rounds = [entry for place, entry in enumerate(rounds) if place not in lost]
    found = find(as_errors(rounds) if lower else rounds)
    for baseline, contrasts in found.contrasts.items():
        pairs = {contrast.strategy: contrast.area.seeds for contrast in contrasts}
        others = [name for name in found.names if name != baseline]
        slow = {name: slow_pairs(rounds, name, baseline) for name in others}
        assert pairs == {name: count for name, count in slow.items() if count}
        for contrast in contrasts:
            assert sentence(contrast, Unit("accuracy")).endswith(".")
    assert lede(found).endswith(".")


# Words


def test_a_strategy_that_does_not_beat_random_is_said_plainly():
    found = find(make_rounds({"random": 0.0, "lewis": 0.0}))
    (contrast,) = found.contrasts["random"]
    text = sentence(contrast, Unit("accuracy"))
    gain = contrast.area.gain
    assert gain.low < 0 < gain.high
    assert text == (
        f"No evidence that lewis beats random here: {100 * gain.value:+.2f} points, "
        f"95 % interval {100 * gain.low:+.2f} to {100 * gain.high:+.2f}."
    )
    assert "no evidence of beating random: lewis" in lede(found).lower()


def test_one_seed_and_no_baseline_claim_nothing():
    (contrast,) = find(make_rounds({"random": 0.0, "badge": 0.1}, 1)).contrasts["random"]
    assert sentence(contrast, Unit("accuracy")).startswith("One seed shows nothing")
    found = find(make_rounds({"margin": 0.0, "lewis": 0.1}))
    assert found.contrasts == {} and lede(found).startswith("No baseline was run")


def test_a_gain_that_does_not_survive_correction_is_no_evidence():
    differences = np.linspace(-0.3, 0.92, 10)
    measured = paired_difference(differences, np.zeros(10))
    assert measured.gain.low > 0 and 0.05 / 5 < measured.p_flip < 0.05
    tests = 5 * measured.p_flip, 5 * measured.p_t
    contrast = Contrast("lewis", "random", measured, measured, *tests, 5)
    assert contrast.verdict == "unclear"
    text = sentence(contrast, Unit("mse"))
    assert text.startswith("No evidence that lewis beats random here: +0.31 mse")
    assert "excludes 0, but not after correction" in text


# The page and the files


class Outline(HTMLParser):
    """Open tags, and the text of cells, head cells, list items and paragraphs."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values[name] for name in ("src", "href", "xlink:href") if name in values]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "br", "img"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and data.strip():
            self.texts.append((self.open[-1], " ".join(data.split())))


def outline(path):
    found = Outline()
    found.feed(path.read_text(encoding="utf-8"))
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page on two experiments, its numbers and its pictures."""
    folder = tmp_path_factory.mktemp("report")
    gains = {"random": 0.0, "badge": 0.1, "lewis": 0.0}
    rounds = make_rounds(gains, validation_labels=500, options={"note": "<b>"})
    rounds += as_errors(make_rounds(gains, name="ally-fig3", dataset="casp"))
    rounds = drop(rounds, lambda e: e.dataset == "casp" and e.strategy == "lewis" and e.seed == 4)
    found = write_report(
        rounds, folder / "report.html", csv=folder / "all.csv", figures=folder / "pictures"
    )
    return folder, found


def test_the_page_is_whole_and_needs_nothing_else(written):
    folder, _ = written
    found = outline(folder / "report.html")
    assert all(link.startswith("#") for link in found.links)
    text = (folder / "report.html").read_text()
    assert not re.search(r"<script|<link|@import|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text and "#0101" not in text and "#0102" not in text
    assert not list(folder.glob(".*.part"))


def test_the_page_says_what_was_found_missing_and_reduced(written):
    folder, (mnist, casp) = written
    texts = [text for _, text in outline(folder / "report.html").texts]
    for contrast in mnist.contrasts["random"]:
        assert sentence(contrast, Unit("accuracy")) in texts
    assert any("no run of seed 4" in text for text in texts)
    assert any(text == "60 epochs" for text in texts)
    assert any("500 validation labels" in text for text in texts)
    assert any("note=<b>" in text for text in texts)  # escaped, so it comes back as text
    assert any("sign-flip test cannot give a p-value below 0.0625" in text for text in texts)
    assert casp.experiment.metric == "mse" and "area, mse" in texts


def test_the_paper_stands_beside_our_areas_with_a_warning_about_the_scale(written):
    folder, _ = written
    texts = [text for _, text in outline(folder / "report.html").texts]
    assert "paper (sparse, Table 2)" in texts and "91.24" in texts and "± 0.48" in texts
    assert any("scale small" in text and "orientation only" in text for text in texts)


def test_the_page_names_the_commands_that_repeat_it(written):
    folder, found = written
    texts = [text for tag, text in outline(folder / "report.html").texts if tag == "code"]
    assert texts == repeat_commands(found)
    assert texts[0] == (
        "labelwise benchmark run sparse-table2-mnist --scale small "
        "--strategies random,badge,lewis --seeds 5 --out results.jsonl"
    )
    assert len(texts) == 2  # the other experiment is none of the papers'


def test_the_command_names_the_data_set_where_it_is_another():
    found = find(make_rounds({"random": 0.0}, 3, dataset="digits"))
    assert (
        "--scale small --dataset digits --strategies random --seeds 3"
        in (repeat_commands([found])[0])
    )


def test_the_csv_file_holds_every_number(written):
    folder, (mnist, _) = written
    with (folder / "all.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["dataset"] == "mnist"]
    (line,) = [e for e in lines if e["quantity"] == "area" and e["strategy"] == "badge"]
    best = mnist.summaries[0]
    assert float(line["value"]) == best.area.value and float(line["high"]) == best.area.high
    assert float(line["paper"]) == pytest.approx(0.9124)
    (line,) = [e for e in lines if e["quantity"] == "area_gain_t" and e["strategy"] == "badge"]
    assert float(line["p_holm"]) == mnist.contrasts["random"][0].p_t
    curve = [e for e in lines if e["quantity"] == "curve" and e["strategy"] == "random"]
    assert [int(e["labels"]) for e in curve] == list(LABELS)
    assert {"wins", "seconds_first", "imbalance", "labels_needed", "final_gain"} <= {
        e["quantity"] for e in lines
    }


def test_the_pictures_are_written_as_svg_and_png(written):
    folder, _ = written
    stems = {path.stem for path in (folder / "pictures").glob("*.svg")}
    assert stems == {path.stem for path in (folder / "pictures").glob("*.png")}
    assert "critical_difference" in stems
    assert "sparse-table2-mnist_small_mnist_lenet5_differences_random" in stems
    for path in (folder / "pictures").glob("*.png"):
        assert path.read_bytes()[:4] == b"\x89PNG"
    assert "#1f5fd0" in next((folder / "pictures").glob("*_curves.svg")).read_text()


@pytest.mark.parametrize("draw", [curves_figure, gains_figure])
def test_no_line_from_a_curve_to_its_name_crosses_a_name(draw):
    gains = {"random": 0.0, "badge": -0.2}  # and eight that end as good as together
    gains |= {f"a_long_name_{place}": 0.001 * place for place in range(8)}
    figure = draw(find(make_rounds(gains)), LIGHT)
    FigureCanvasAgg(figure).draw()
    names = figure.axes[0].texts
    assert {name.get_text() for name in names} == set(gains)
    left = min(Text.get_window_extent(name).x0 for name in names)
    for name in names:
        line = name.arrow_patch.get_window_extent()
        assert figure.axes[0].bbox.x1 <= line.x0 < line.x1 <= left
        heights = [line.y0, line.y1]
        middle = Text.get_window_extent(name)
        assert min(abs(height - (middle.y0 + middle.y1) / 2) for height in heights) < 6


@pytest.mark.parametrize("gains", [{"margin": 0.0}, {"random": 0.0}, {"margin": 0.0, "lewis": 0.1}])
def test_a_page_without_anything_to_compare_is_written(gains, tmp_path):
    write_report(make_rounds(gains, 1), tmp_path / "report.html", title="mine <1>", commands=())
    found = outline(tmp_path / "report.html")
    assert ("h1", "mine <1>") in found.texts
    assert any("With one seed there is no interval" in text for _, text in found.texts)


def test_a_single_round_is_reported(tmp_path):
    rounds = [entry for entry in make_rounds({"random": 0.0, "badge": 0.1}) if entry.round == 0]
    (found,) = write_report(rounds, tmp_path / "report.html")
    assert found.summaries[0].area == found.summaries[0].final
    assert np.isnan(found.wins).all()


def test_studies_over_models_or_epochs_do_not_speak_of_labels(tmp_path):
    rounds = make_rounds({"lewis": 0.1}, 2, name="lewis-fig1-growth", metric="lewis_total")
    write_report(drop(rounds, lambda e: e.seed == 1 and e.round == 3), tmp_path / "report.html")
    texts = [text for _, text in outline(tmp_path / "report.html").texts]
    assert any("40 to 320 models" in text for text in texts)
    assert "lewis, seed 1: stops at 160 of 320 models; drawn, but not in areas and tests." in texts
    assert "Labels needed" not in [
        text for tag, text in outline(tmp_path / "report.html").texts if tag == "h2"
    ]


# The command


@pytest.fixture
def results_file(tmp_path):
    path = tmp_path / "results.jsonl"
    for entry in make_rounds({"random": 0.0, "badge": 0.1}, 2):
        append(path, entry)
    return path


def test_the_command_writes_a_page_and_says_what_it_found(results_file, capsys):
    out = results_file.with_name("page.html")
    with results_file.open("a") as file:
        file.write('{"format": 1')
    assert run(["benchmark", "report", str(results_file), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "note: line 17 of" in said.err and "unfinished" in said.err
    assert "sparse-table2-mnist (mnist, lenet5): " in said.out and str(out) in said.out
    assert ("h1", "sparse-table2-mnist") in outline(out).texts


def test_the_command_takes_baselines_and_a_limit(results_file, capsys):
    out = results_file.with_name("page.html")
    options = ["--out", str(out), "--baseline", "badge", "--up-to", "160"]
    assert run(["benchmark", "report", str(results_file), *options]) == 0
    texts = [text for _, text in outline(out).texts]
    assert "Against badge" in texts and "Against random" not in texts
    assert any("40 to 160 labels" in text for text in texts)


def test_a_baseline_is_named_as_the_report_names_it(results_file, capsys):
    for entry in make_rounds({"lewis": 0.0, "again": 0.1}, 2):
        p = {"lewis": 1.0, "again": 2.0}[entry.strategy]
        append(results_file, replace(entry, strategy="lewis", options={"p": p}))
    page = results_file.with_name("page.html")
    command = ["benchmark", "report", str(results_file), "--out", str(page), "--baseline"]
    assert run([*command, "lewis (p=2.0)"]) == 0
    texts = [text for _, text in outline(page).texts]
    assert "Against lewis (p=2.0)" in texts and "Against random" not in texts
    page.unlink()
    assert run([*command, "lewis"]) == 1  # there are two of them
    assert "choose from badge, lewis (p=1.0), lewis (p=2.0), random" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.jsonl"], "there is no results file nothing.jsonl"),
        (["RESULTS", "--baseline", "margin"], "margin was run; choose from badge, random"),
        (["RESULTS", "--up-to", "7"], "no rounds with 7 labels or fewer"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, words, results_file, capsys, monkeypatch):
    monkeypatch.chdir(results_file.parent)
    given = [str(results_file) if part == "RESULTS" else part for part in arguments]
    assert run(["benchmark", "report", *given]) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not Path("report.html").exists()
