"""Orders of tasks as scores: against sorting, and against a slow twin."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.label_studio.tasks import ORDER, ServingOrder, find_newest_version

numbers = st.lists(st.integers(1, 10**9), unique=True, max_size=30)


@given(numbers.filter(len), st.lists(st.floats(0, 1), max_size=5))
def test_sorting_by_score_gives_the_order_and_puts_all_others_behind_it(tasks, confidences):
    order = ServingOrder(1, tuple(tasks))
    scores = {task: order.score_task(task) for task in tasks}
    assert sorted(scores, key=scores.__getitem__) == tasks
    assert len(set(scores.values())) == len(tasks)
    others = [order.score_task(-1, sure) for sure in confidences] + [order.score_task(-1)]
    assert all(0 <= score < 0.5 for score in scores.values())
    assert all(0.5 <= score <= 1 for score in others)


def test_the_least_sure_of_the_others_comes_first_and_the_unknown_last():
    order = ServingOrder(1, (4,))
    assert order.score_task(5, 0.2) < order.score_task(6, 0.9) < order.score_task(7)


@given(st.lists(st.integers(0, 5), unique=True), st.lists(st.integers(0, 5), unique=True))
def test_an_order_serves_what_is_left_of_it(tasks, wanted):
    slow = any(list(some) == wanted for some in combinations(tasks, len(wanted)))
    assert ServingOrder(1, tuple(tasks)).serves_tasks(wanted) == slow


def test_an_order_is_kept_whole_and_a_damaged_one_is_named(tmp_path):
    assert ServingOrder.load(tmp_path) == ServingOrder()
    order = ServingOrder(3, (7, 5, 9), guesses=True, done=False)
    order.score_task(7)
    order.save(tmp_path)
    assert ServingOrder.load(tmp_path) == order
    assert [path.name for path in tmp_path.iterdir()] == [ORDER]
    for damaged in ("{", "[]", '{"number": 1}'):
        (tmp_path / ORDER).write_text(damaged)
        with pytest.raises(BadInput, match=r"order\.json"):
            ServingOrder.load(tmp_path)


def test_other_peoples_versions_are_not_ours():
    assert find_newest_version(["labelwise-7x", "my-labelwise-9", "labelwise-", "labelwise-3"]) == 3
    assert find_newest_version([]) == 0
