"""The model in the background: its curve, its advice, its failures, and the next batch."""

import time

import pytest

from labelwise.record.events import Trained, Training, TrainingFailed
from tests.web.page.browsing import press_and_see, shown, until, wait_saved, wait_told
from tests.web.page.conftest import KINDS


def trained(labelling, points, held_out=40):
    """Trainings with these validation accuracies, by number of labels."""
    now, events = time.time(), []
    for number, (labels, accuracy) in enumerate(points.items(), start=1):
        metrics = {
            "accuracy": accuracy,
            "interval": [accuracy - 0.05, min(1.0, accuracy + 0.04)],
            "validation_labels": held_out,
        }
        events += [Training(now, number, labels), Trained(now, number, labels, 1.0, metrics)]
    labelling.append(*events)  # at once, so that the page never sees a part of them


def test_the_learning_curve_grows_while_the_page_is_open(make, visit):
    labelling = make(10)
    page = visit(labelling.url)
    shown(page)
    assert page.locator(".curve").count() == 0
    trained(labelling, {50: 0.71, 100: 0.83, 150: 0.885})
    curve = page.get_by_role("img", name="Learning curve, accuracy")
    curve.wait_for()
    name = curve.get_attribute("aria-label")
    name = name.replace("\u00a0", " ")
    assert name.endswith("71 % with 50 labels, 83 % with 100 labels, 88.5 % with 150 labels")
    heights = [float(one.get_attribute("cy")) for one in curve.locator("circle").all()]
    assert heights == sorted(heights, reverse=True)
    words = "Trained on 110 labels; accuracy 88.5 % (83.5 % to 92.5 %) on 40 held-out labels"
    page.get_by_text(words).wait_for()


def test_a_score_from_few_labels_is_not_shown(make, visit):
    labelling = make(10)
    page = visit(labelling.url)
    shown(page)
    trained(labelling, {17: 1.0}, held_out=7)
    page.get_by_text("Trained on 10 labels; evaluating: 7 of 30 held-out labels").wait_for()
    assert page.locator(".curve").count() == 0
    assert page.get_by_text("100 %").count() == 0


def test_advice_and_budget_are_shown(make, visit):
    labelling = make(10, budget_labels=40)
    page = visit(labelling.url)
    press_and_see(page, "1")
    page.locator(".batch").get_by_text("1 of 40 labels").first.wait_for()
    page.locator(".advice li").first.wait_for(state="attached")


def test_progress_of_rolling_batches_counts_all_labels(make, visit):
    labelling = make(10, rolling=True)
    page = visit(labelling.url)
    press_and_see(page, "1")
    page.locator(".batch").get_by_text("1 of 10").first.wait_for()
    page.locator(".batch").get_by_text("Labelled").wait_for()


def test_a_failed_training_shows_its_error_and_labelling_goes_on(make, visit):
    labelling = make(10)
    now = time.time()
    labelling.append(
        Training(now, 1, 50), TrainingFailed(now, 1, "the loss became <i>NaN</i> in epoch 3")
    )
    page = visit(labelling.url)
    first = shown(page)
    page.get_by_text("Training failed. No label is lost.").wait_for()
    page.get_by_text("the loss became <i>NaN</i> in epoch 3").wait_for()
    press_and_see(page, "1")
    wait_saved(page)
    assert set(labelling.votes()) == {first}
    page.get_by_role("button", name="Try again").click()  # this server does not train, and says so
    wait_told(page, "his server does not train")


def test_a_complete_batch_says_what_happens_next(make, visit):
    labelling = make(20, asked=2)
    page = visit(labelling.url)
    press_and_see(page, "1")
    page.keyboard.press("2")
    page.locator(".stage").get_by_text("Batch 1 is complete").wait_for()
    labelling.ask(range(2, 6))
    assert shown(page) == 2


def test_a_page_without_items_says_who_has_them(make, visit):
    labelling = make(20, asked=4)
    with labelling.open_record() as record:
        record.lend("Bob", 4)
    page = visit(labelling.url)
    page.locator(".stage").get_by_text(
        "The last 4 items of this batch are with other people"
    ).wait_for()


def test_who_labels_alone_is_never_told_of_other_people(make, visit):
    labelling = make(20, asked=2, overlap=2)
    script = """new MutationObserver(() => {
      globalThis.lied ??= document.body?.textContent.includes("with other people") || undefined;
    }).observe(document, { childList: true, subtree: true, characterData: true });"""
    page = visit(labelling.url, script=script)
    press_and_see(page, "1")
    page.keyboard.press("2")
    page.locator(".stage").get_by_text("2 items still need a label from another person").wait_for()
    assert page.evaluate("globalThis.lied") is None


def test_items_whose_loan_lapsed_come_to_who_waits_for_them(make, visit):
    labelling = make(20, asked=4, lend_seconds=3.0)
    with labelling.open_record() as record:
        record.lend("Bob", 4)
    page = visit(labelling.url)
    assert shown(page) in range(4)


@pytest.mark.slow
def test_from_an_empty_campaign_to_a_trained_model_and_the_second_batch(make, visit):
    labelling = make(120, asked=0, process=True, trains=True, batch=20, validation=0.2)
    page = visit(labelling.url)
    page.set_default_timeout(300_000)
    for _ in range(20):
        page.locator(".stage[data-item]").wait_for()
        page.keyboard.press(str(KINDS[shown(page)]))
    until(lambda: len(labelling.ledger().batches) >= 2, 300)
    page.get_by_text("Trained on").wait_for()
    item = shown(page)
    assert labelling.ledger().batch_of(item) == 2
    page.keyboard.press("m")
    page.get_by_text("The model's guess").first.wait_for()
    with page.expect_download() as found:
        page.get_by_role("link", name="CSV", exact=True).click()
    assert len(found.value.path().read_text().splitlines()) >= 17
