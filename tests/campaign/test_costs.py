"""What labels cost, worked out by hand."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.campaign.costs import campaign_cost, compute_label_cost, summarize_label_times
from labelwise.campaign.settings import Settings
from labelwise.record.events import Asked, Started, Told
from labelwise.record.ledger import replay
from labelwise.record.votes import RECENT


def told(seconds, by="ann"):
    """A ledger in which one person gave a label per entry."""
    ids = tuple(range(len(seconds)))
    events = [Started(0.0, {}, 10_000), Asked(1.0, 1, ids)]
    return replay(events + [Told(2.0, i, "a", by, s) for i, s in zip(ids, seconds, strict=True)])


# Times.


def test_a_lunch_with_the_page_open_is_not_an_hour_of_work():
    found = summarize_label_times([4.0] * 99 + [3600.0])
    assert found.typical == 4.0
    assert found.worked_seconds == pytest.approx(99 * 4 + 40)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1e6, 1e12))
def test_no_single_time_can_move_the_work_by_more_than_ten_medians(seconds, outlier):
    with_it = summarize_label_times([*seconds, *seconds, outlier])
    cut = [min(s, 10 * with_it.typical) for s in seconds]
    if with_it.typical > 0:
        assert with_it.worked_seconds <= (2 * sum(cut) + 10 * with_it.typical) * (1 + 1e-9)


def test_times_of_nothing_cut_nothing():
    assert summarize_label_times([0.0, 0.0, 5.0]).worked_seconds == pytest.approx(5.0)


# Costs.


def test_labels_without_a_time_count_as_the_median():
    found = compute_label_cost(10, summarize_label_times([6.0, 6.0, 12.0]), Settings())
    assert found.hours == pytest.approx((6 + 6 + 12 + 7 * 6) / 3600)


def test_prices_per_label_and_per_hour_add_up():
    found = compute_label_cost(
        200, summarize_label_times([18.0] * 200), Settings(price=0.05, hourly=12.0)
    )
    assert found.hours == 1.0 and found.money == pytest.approx(200 * 0.05 + 12.0)


def test_no_price_is_no_money():
    found = compute_label_cost(200, summarize_label_times([18.0]), Settings())
    assert found.money is None and found.left is None and found.share is None


def test_the_tightest_of_several_budgets_counts():
    settings = Settings(price=0.5, budget_labels=500, budget_money=100.0, budget_hours=10.0)
    found = compute_label_cost(150, summarize_label_times([36.0] * 150), settings)
    assert found.share == pytest.approx(0.75)  # 75 of 100 in money
    assert found.left == 50


def test_a_budget_in_hours_is_told_in_labels_at_the_median():
    found = compute_label_cost(100, summarize_label_times([36.0] * 100), Settings(budget_hours=1.5))
    assert found.left == 50 and found.share == pytest.approx(2 / 3)


@pytest.mark.parametrize("price, count", [(0.1, 3), (0.07, 10), (1 / 3, 7)])
def test_a_budget_for_so_many_labels_pays_for_so_many(price, count):
    found = compute_label_cost(
        2, summarize_label_times([]), Settings(price=price, budget_money=price * (2 + count))
    )
    assert found.left == count


def test_a_spent_budget_leaves_none():
    found = compute_label_cost(12, summarize_label_times([]), Settings(budget_labels=10))
    assert found.left == 0 and found.share == pytest.approx(1.2)
    assert found.says == "12 of 10 labels; 120 % is spent, 0 labels are left"


def test_a_budget_is_not_called_spent_before_it_is():
    assert (
        "; 99 % is spent, 1 label is left"
        in compute_label_cost(999, summarize_label_times([]), Settings(budget_labels=1000)).says
    )


def test_hours_that_were_never_measured_are_not_guessed():
    found = compute_label_cost(
        30, summarize_label_times([]), Settings(hourly=10.0, budget_hours=2.0, budget_money=50.0)
    )
    assert found.hours is None and found.money is None and found.share is None
    assert "without measured times" in found.says


def test_before_the_first_label_nothing_is_spent():
    found = compute_label_cost(
        0, summarize_label_times([]), Settings(hourly=10.0, budget_hours=2.0, budget_money=50.0)
    )
    assert found.hours == 0.0 and found.money == 0.0 and found.share == 0.0
    assert found.left is None  # nobody knows how long a label takes


def test_a_price_of_nothing_never_spends_a_budget():
    class Free:
        price, hourly, budget_labels, budget_money, budget_hours = 0.0, None, None, 10.0, None

    found = compute_label_cost(1000, summarize_label_times([1.0]), Free())
    assert found.money == 0.0 and found.share == 0.0 and found.left is None


def test_a_budget_of_nothing_is_spent():
    class Nothing:
        price, hourly, budget_labels, budget_money, budget_hours = 0.0, None, None, 0.0, None

    found = compute_label_cost(0, summarize_label_times([]), Nothing())
    assert found.share == 1.0 and found.left == 0


# From a record.


def test_a_record_tells_its_costs():
    found = campaign_cost(told([4.0] * 90), Settings(price=0.1, budget_money=10.0))
    assert found.labels == 90 and found.money == pytest.approx(9.0) and found.left == 10
    assert found.hours == pytest.approx(0.1)


def test_a_changed_label_took_its_time_twice_and_is_paid_once():
    ledger = told([5.0])
    ledger.extend([Told(3.0, 0, "b", "ann", 7.0)])
    found = campaign_cost(ledger, Settings(price=1.0))
    assert found.labels == 1 and found.money == 1.0 and found.hours == pytest.approx(12 / 3600)


def test_of_a_long_record_the_last_times_stand_for_all():
    seconds = np.random.default_rng(0).lognormal(1.0, 0.8, size=3000).tolist()
    ledger = told(seconds)
    assert isinstance(ledger.recent_seconds, deque) and len(ledger.recent_seconds) == RECENT
    assert campaign_cost(ledger, Settings()).hours == pytest.approx(sum(seconds) / 3600, rel=0.05)
