"""The page and the files beside it: whole, and with the numbers that were found."""

import csv
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from labelwise.benchmark.report.figures import LIGHT, draw_gain_curves, draw_learning_curves
from labelwise.benchmark.report.page import list_repeat_commands, write_results_report
from labelwise.benchmark.report.texts import MetricUnit, describe_comparison
from tests.benchmark.report.made_up import LABELS, as_errors, drop, find, make_rounds
from tests.benchmark.report.outline import outline


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page on two group_experiments, its numbers and its pictures."""
    folder = tmp_path_factory.mktemp("report")
    gains = {"random": 0.0, "badge": 0.1, "lewis": 0.0}
    rounds = make_rounds(gains, validation_labels=500, options={"note": "<b>"})
    rounds += as_errors(make_rounds(gains, name="ally-fig3", dataset="casp"))
    rounds = drop(rounds, lambda e: e.dataset == "casp" and e.strategy == "lewis" and e.seed == 4)
    found = write_results_report(
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
    for comparison in mnist.comparisons["random"]:
        assert describe_comparison(comparison, MetricUnit("accuracy")) in texts
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
    assert texts == list_repeat_commands(found)
    assert texts[0] == (
        "labelwise benchmark run sparse-table2-mnist --scale small "
        "--strategies random,badge,lewis --seeds 5 --out results.jsonl"
    )
    assert len(texts) == 2  # the other experiment is none of the papers'


def test_the_command_names_the_data_set_where_it_is_another():
    found = find(make_rounds({"random": 0.0}, 3, dataset="digits"))
    assert (
        "--scale small --dataset digits --strategies random --seeds 3"
        in (list_repeat_commands([found])[0])
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
    assert float(line["p_holm"]) == mnist.comparisons["random"][0].p_t
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


@pytest.mark.parametrize("draw", [draw_learning_curves, draw_gain_curves])
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
    write_results_report(
        make_rounds(gains, 1), tmp_path / "report.html", title="mine <1>", commands=()
    )
    found = outline(tmp_path / "report.html")
    assert ("h1", "mine <1>") in found.texts
    assert any("With one seed there is no interval" in text for _, text in found.texts)


def test_a_single_round_is_reported(tmp_path):
    rounds = [entry for entry in make_rounds({"random": 0.0, "badge": 0.1}) if entry.round == 0]
    (found,) = write_results_report(rounds, tmp_path / "report.html")
    assert found.summaries[0].area == found.summaries[0].final
    assert np.isnan(found.wins).all()


def test_studies_over_models_or_epochs_do_not_speak_of_labels(tmp_path):
    rounds = make_rounds({"lewis": 0.1}, 2, name="lewis-fig1-growth", metric="lewis_total")
    write_results_report(
        drop(rounds, lambda e: e.seed == 1 and e.round == 3), tmp_path / "report.html"
    )
    texts = [text for _, text in outline(tmp_path / "report.html").texts]
    assert any("40 to 320 models" in text for text in texts)
    assert (
        "lewis, seed 1: stops at 160 of 320 models; shown in figures, but not in areas and tests."
        in texts
    )
    assert "Labels needed" not in [
        text for tag, text in outline(tmp_path / "report.html").texts if tag == "h2"
    ]


def test_the_page_names_the_code_what_is_mixed_and_what_is_not_tested(tmp_path):
    rounds = make_rounds({"random": 0.0, "badge": 0.1, "lewis": 0.1}, code="0.1.0+aaa")
    rounds = drop(rounds, lambda e: e.strategy == "lewis" and e.labels > 160)
    write_results_report(rounds, tmp_path / "one.html")
    texts = [text for _, text in outline(tmp_path / "one.html").texts]
    assert "Code: 0.1.0+aaa." in texts and not any("versions of the code" in t for t in texts)
    assert any(text.startswith("lewis has no run up to 320 labels") for text in texts)
    write_results_report(rounds + make_rounds({"margin": 0.1}), tmp_path / "two.html")
    texts = [text for _, text in outline(tmp_path / "two.html").texts]
    assert "Code: 0.1.0+aaa; not recorded." in texts
    assert any("2 versions of the code: 0.1.0+aaa" in text for text in texts)


def test_markup_in_names_is_shown_as_text(tmp_path):
    name = "<script>alert(1)</script>"
    rounds = make_rounds({"random": 0.0, "<b>bold</b>": 0.1}, dataset=name, network="<i>net</i>")
    write_results_report(rounds, tmp_path / "report.html", title=name, baselines=("random",))
    text = (tmp_path / "report.html").read_text()
    assert "<script" not in text and "<b>bold" not in text and "<i>net" not in text
    texts = [text for _, text in outline(tmp_path / "report.html").texts]
    assert name in texts and "<b>bold</b>" in texts
