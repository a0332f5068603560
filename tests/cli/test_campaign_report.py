"""``labelwise report``: the page of a real campaign."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelwise.campaign.project import Project
from tests.cli.folders import HOSTILE, answer, ask, write


def test_the_page_of_a_campaign_with_models_has_all_its_parts(trained, capsys):
    code, out, err = answer(capsys, "report", "--out", "page.html")
    assert (code, out) == (0, "The report: page.html\n"), err
    page = Path("page.html").read_text()
    for title in ("Learning curve", "Class balance", "Annotators", "Most informative", "Costs"):
        assert f"<h2>{title}" in page
    assert "20 of 60 items have a label" in page
    assert "evaluating: 6 of 30" in page and 'class="dot"' not in page


def test_hostile_texts_and_names_are_escaped(texts, capsys):
    items = [row["id"] for row in ask(capsys)]
    write("l.csv", [{"id": item, "label": "low", "by": HOSTILE} for item in items])
    answer(capsys, "tell", "l.csv")
    answer(capsys, "report", "--picks", "12")
    page = Path("report.html").read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2


def test_pictures_are_in_the_page_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    generator = np.random.default_rng(0)
    for number in range(6):
        pixels = generator.integers(0, 255, (80, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
    Project.start(Path("photos"), classes=("a", "b"), batch=4)
    ask(capsys)
    answer(capsys, "report", "--picks", "3")
    page = Path("report.html").read_text()
    assert page.count('src="data:image/jpeg;base64,') == 3


def test_the_reports_of_campaigns_and_benchmarks_are_two_commands(capsys):
    _, campaign, _ = answer(capsys, "report", "--help")
    _, benchmark, _ = answer(capsys, "benchmark", "report", "--help")
    assert "a page about the campaign" in campaign
    assert "results files" in benchmark and "a page about the campaign" not in benchmark


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "page.pdf"), "cannot write 'page.pdf'; end the name in .html"),
        (("--picks", "-1"), "--picks must be from 0 to 1000; got -1"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, folder, capsys):
    code, _, err = answer(capsys, "report", *arguments)
    assert code == 1 and message in err and len(err.splitlines()) == 1
