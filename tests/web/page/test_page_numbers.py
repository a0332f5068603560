"""Numbers and sentences about the model agree with each other and with the command line."""

import re
import time

import pytest

from labelwise.cli import run
from labelwise.record.events import Asked, Trained, Training
from tests.web.page.browsing import shown, until

SPECTRUM = {"lower": 0.0, "upper": 78.82, "rank": 128, "unseen": 67}


def train(labelling, scores, *, held_out=200, **metrics):
    """Append a model for every number of labels: ``{labels: accuracy}``."""
    events, now = [], time.time()
    for number, (labels, accuracy) in enumerate(scores.items(), start=1):
        measured = {"accuracy": accuracy, "validation_labels": held_out, **metrics}
        events += [Training(now, number, labels), Trained(now, number, labels, 1.0, measured)]
    labelling.append(*events)


def read_advice(page):
    """The advice, and the rules behind a click."""
    page.locator(".advice summary").click()
    parts = (page.locator(".advice p").first, page.locator(".advice details"))
    says, rules = (part.inner_text().replace("\u00a0", " ") for part in parts)
    return says, rules


def test_a_drop_of_the_accuracy_is_not_called_flat(make, visit):
    labelling = make(10)
    train(labelling, {100: 0.90, 110: 0.80, 120: 0.62, 130: 0.482})
    page = visit(labelling.url)
    shown(page)
    page.locator(".curve").wait_for()
    says, rules = read_advice(page)
    assert "ccuracy fell by" in rules and "it got worse, so check the latest labels" in rules
    assert "it is flat" not in rules
    assert not says.startswith("You can stop")
    assert page.get_by_text("You could stop here").count() == 0


@pytest.mark.parametrize("last", [0.412, 0.25], ids=["a lucky model", "an unlucky model"])
def test_the_forecast_starts_from_the_accuracy_that_is_shown(make, visit, last):
    labelling = make(10)
    train(labelling, {100: 0.30, 200: 0.33, 300: 0.34, 400: last})
    page = visit(labelling.url)
    shown(page)
    page.locator(".curve").wait_for()
    shown_now = page.locator(".learning").get_by_text("Trained on").inner_text()
    now = float(re.search(r"accuracy ([\d.]+)\s%", shown_now)[1])
    _, rules = read_advice(page)
    gain, goal = re.search(r"by ([\d.]+) points .*, to ([\d.]+) %", rules).groups()
    assert now == pytest.approx(100 * last)
    assert float(goal) == pytest.approx(now + float(gain), abs=0.11)


def test_the_forecast_of_an_error_starts_from_the_error_that_is_shown(make, visit, tmp_path):
    source = tmp_path / "rows.csv"
    source.write_text("width\n1.5\n2.5\n3.5\n")
    labelling = make.begin(source, asked=3, classes=None, regression=True)
    events, now = [], time.time()
    for number, mse in enumerate((0.9, 0.8, 0.78, 0.594), start=1):
        labels, metrics = 100 * number, {"mse": mse, "validation_labels": 200}
        events += [Training(now, number, labels), Trained(now, number, labels, 1.0, metrics)]
    labelling.append(*events)
    page = visit(labelling.url)
    shown(page)
    page.get_by_text("mean squared error 0.594").first.wait_for()
    _, rules = read_advice(page)
    gain, goal = re.search(r"by ([\d.]+) .*, to (\d+\.\d+)", rules).groups()
    assert float(goal) == pytest.approx(0.594 - float(gain), abs=0.0011)


def test_page_status_and_report_name_the_same_labels_of_a_model(make, visit, tmp_path, capsys):
    labelling = make(100)
    with labelling.open_record() as record:
        record.tell({item: str(item % 10) for item in range(96)}, by="Ada")
    train(labelling, {96: 0.9}, held_out=19, training_labels=77)
    page = visit(labelling.url)
    shown(page)
    sentence = "trained on 77 labels; evaluating: 19 of 30 held-out labels"
    page.locator(".learning").get_by_text(sentence[1:]).wait_for()
    page.locator(".people").get_by_text("96 labels").wait_for()
    home = str(labelling.project.home)
    run(["status", "-c", home])
    assert sentence in " ".join(capsys.readouterr().out.split())
    run(["report", "-c", home, "--out", str(tmp_path / "report.html")])
    report = visit((tmp_path / "report.html").as_uri()).locator("body").inner_text()
    assert "77\t19\tevaluating: 19 of 30" in report
    assert "90 %" not in report


@pytest.mark.parametrize("strategy", ["margin", "badge", "ally", "bait", "uherding"])
def test_an_item_of_which_the_model_is_sure_is_not_called_doubtful(make, visit, strategy):
    known = {"model": 1, "guesses": (("7", 0.97),) * 4, "scores": (0.1,) * 4, "seed": 0}
    labelling = make(4, asked=0)
    labelling.append(Asked(time.time(), 1, (0, 1, 2, 3), strategy=strategy, **known))
    page = visit(labelling.url)
    shown(page)
    page.locator(".why").get_by_text("Why this one?").wait_for()
    assert "97 %" not in page.locator(".why").inner_text()


def test_the_coverage_of_the_pool_is_hidden_and_in_plain_words(make, visit):
    labelling = make(10)
    train(labelling, {100: 0.90}, spectrum=SPECTRUM)
    page = visit(labelling.url)
    shown(page)
    page.locator(".advice").wait_for()
    assert "directions" not in page.locator("aside").inner_text()
    _, rules = read_advice(page)
    assert "our labels do not cover the variety of the pool yet (61 of 128 directions)" in rules
    assert "7882" not in rules and "8 %" not in rules


def test_labels_of_one_class_are_explained_and_labelling_goes_on(make, visit):
    labelling = make(10)
    with labelling.open_record() as record:
        record.tell({0: "7", 1: "7"}, by="Bob")
    page = visit(labelling.url)
    shown(page)
    page.locator(".learning").get_by_text("a model needs two classes").wait_for()
    page.keyboard.press("7")
    until(lambda: len(labelling.votes()) == 3)


def test_classes_of_different_size_get_a_mean_over_the_classes(make, visit):
    labelling = make(10)
    own = {"balanced_accuracy": 0.5, "macro_f1": 0.45}
    train(labelling, {100: 0.9}, held_out=40, **own)
    page = visit(labelling.url)
    shown(page)
    page.get_by_text("Mean over the classes: accuracy 50 %, F1 45 %.").wait_for()
