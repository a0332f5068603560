"""The demo: its plan, its runs, and its page."""

import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.datasets import load_digits

from labelwise.benchmark.frozen_run import draw_frozen_pool
from labelwise.benchmark.labelling_run import LabelledPool
from labelwise.demo import list_demo_strategies, make_demo_plan, render_demo_page, run_demo
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.rounds.default_strategies import DEMONSTRATED

pytestmark = pytest.mark.xdist_group("demo")  # one process trains the runs that all tests read
PLAN = make_demo_plan(("margin", "lewis"), labels=40)


@pytest.fixture(scope="module")
def lines():
    return run_demo(PLAN, seeds=2)


@pytest.fixture(scope="module")
def page(lines):
    return render_demo_page(PLAN, lines, 12.3)


def batch_of(lines, strategy, seed, number=0):
    return next(
        line for line in lines if (line.strategy, line.seed, line.round) == (strategy, seed, number)
    )


def test_the_usual_strategies_include_those_that_read_a_network():
    assert list_demo_strategies() == DEMONSTRATED


def test_a_strategy_that_needs_a_model_starts_like_random(lines):
    """The first measurement is that of random's first batch; lewis picks its own."""
    for seed in range(2):
        random, margin, lewis = (batch_of(lines, s, seed) for s in ("random", "margin", "lewis"))
        assert random.value == margin.value and random.picks == margin.picks
        assert lewis.picks != random.picks and len(lewis.weights) == 10


def test_what_is_bought_was_not_held_out(lines):
    images, digits = load_digits(return_X_y=True)
    everything = LabelledPool(np.arange(1797), images, digits, images[:0], digits[:0], 10)
    for seed in range(2):
        pool = draw_frozen_pool(PLAN, seed, everything)
        bought = [row for line in lines if line.seed == seed for row in line.picks]
        assert np.isin(bought, pool.ids).all() and len(pool.test_targets) == PLAN.test == 599


def test_labels_teach_the_model_to_read_digits(lines):
    for strategy in ("random", "margin", "lewis"):
        first, last = (
            np.mean([batch_of(lines, strategy, seed, number).value for seed in range(2)])
            for number in (0, 3)
        )
        assert last > max(0.5, first)


def test_a_strategy_can_read_a_network():
    (random, margin) = run_demo(make_demo_plan(("dynamics",), labels=10), seeds=1)
    assert random.picks == margin.picks  # before there is a network
    second = run_demo(make_demo_plan(("dynamics",), labels=20), seeds=1)[-1]
    assert len(second.picks) == 10 and second.labels == 20


def test_a_strategy_that_warns_is_quoted_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_demo(make_demo_plan(("bss",), labels=40), seeds=2)
    notes = [str(w.message) for w in caught if w.category is LabelwiseWarning]
    assert len(notes) == 1 and notes[0].startswith("bss: budget is 10 but")


def test_more_labels_than_images_are_refused():
    with pytest.raises(BadInput, match="only 1,198 items are left after 599 test items"):
        make_demo_plan(("margin",), labels=1300)


def test_a_wrong_name_is_refused_before_the_work():
    with pytest.raises(UnknownName, match="no strategy is called 'margni'"):
        make_demo_plan(("margni",), labels=130)


def test_the_page_holds_curves_pictures_and_how_to_repeat_it(page):
    assert page.count("<figure>") == 2  # margin and lewis, each with random
    assert page.count("<img ") == 3 * 10
    assert re.search(r"labelwise demo --strategy \w+ --strategy \w+ --seeds 2 --labels 40", page)
    assert not re.search(r"https?://(?!www.w3.org|purl.org)", page)


def test_the_drawings_on_the_page_are_well_formed_and_follow_its_colours(page):
    for part in page.split("<figure>")[1:]:
        svg = part[: part.index("</figure>")]
        ElementTree.fromstring(svg)
        assert "var(--s" in svg and "var(--base)" in svg and "#01010" not in svg


def test_the_pictures_are_labelled_with_what_they_show(page, lines):
    digits = load_digits().target
    strip = page[page.index("<h3>margin</h3>") : page.index("<h3>lewis</h3>")]
    margin = batch_of(lines, "margin", 0, 1)  # the first batch that it picked itself
    assert [f'alt="a {digits[row]}"' in strip for row in margin.picks] == [True] * 10
