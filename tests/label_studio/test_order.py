"""Orders of tasks as scores: against sorting, and against a slow twin."""

import doctest
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.label_studio import order
from labelwise.label_studio.order import ORDER, Order, newest

numbers = st.lists(st.integers(1, 10**9), unique=True, max_size=30)


def test_examples_in_the_docstrings_are_right():
    results = doctest.testmod(order)
    assert results.attempted > 0 and results.failed == 0


@given(numbers.filter(len), st.lists(st.floats(0, 1), max_size=5))
def test_sorting_by_score_gives_the_order_and_puts_all_others_behind_it(tasks, confidences):
    order = Order(1, tuple(tasks))
    scores = {task: order.score(task) for task in tasks}
    assert sorted(scores, key=scores.__getitem__) == tasks
    assert len(set(scores.values())) == len(tasks)
    others = [order.score(-1, sure) for sure in confidences] + [order.score(-1)]
    assert all(0 <= score < 0.5 for score in scores.values())
    assert all(0.5 <= score <= 1 for score in others)


def test_the_least_sure_of_the_others_comes_first_and_the_unknown_last():
    order = Order(1, (4,))
    assert order.score(5, 0.2) < order.score(6, 0.9) < order.score(7)


@given(st.lists(st.integers(0, 5), unique=True), st.lists(st.integers(0, 5), unique=True))
def test_an_order_serves_what_is_left_of_it(tasks, wanted):
    slow = any(list(some) == wanted for some in combinations(tasks, len(wanted)))
    assert Order(1, tuple(tasks)).serves(wanted) == slow


def test_an_order_is_kept_whole_and_a_damaged_one_is_named(tmp_path):
    assert Order.read(tmp_path) == Order()
    order = Order(3, (7, 5, 9), guesses=True, done=False)
    order.score(7)
    order.write(tmp_path)
    assert Order.read(tmp_path) == order
    assert [path.name for path in tmp_path.iterdir()] == [ORDER]
    for damaged in ("{", "[]", '{"number": 1}'):
        (tmp_path / ORDER).write_text(damaged)
        with pytest.raises(BadInput, match=r"order\.json"):
            Order.read(tmp_path)


def test_other_peoples_versions_are_not_ours():
    assert newest(["labelwise-7x", "my-labelwise-9", "labelwise-", "labelwise-3"]) == 3
    assert newest([]) == 0
