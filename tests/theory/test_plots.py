"""The picture of a plan."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.theory.planning import plan
from labelwise.theory.plots import plan_figure, save_plan
from tests.conftest import make_features


def pools(models):
    return [make_features(200, 3 + model, seed=model) for model in range(models)]


def test_several_models_show_their_total_and_its_bound():
    found = plan(pools(4))
    axes = next(
        a
        for a in plan_figure(found).axes
        if a.get_title(loc="left") == "What a further model costs"
    )
    bound, total, ranks = (line.get_ydata() for line in axes.get_lines())
    np.testing.assert_allclose(bound, [model.bound for model in found.models])
    np.testing.assert_allclose(total, [model.total for model in found.models])
    np.testing.assert_allclose(ranks, [3, 4, 5, 6])


@pytest.mark.parametrize("models", [1, 3, 12])
@pytest.mark.parametrize("error", [0.002, 0.1])
def test_every_panel_is_named_and_has_units(models, error):
    figure = plan_figure(plan(pools(models), error=error))
    assert len(figure.axes) == (3 if models == 1 else 4)
    for axes in figure.axes:
        assert axes.get_title(loc="left") and axes.get_xlabel() and axes.get_ylabel()
        assert axes.get_legend() is not None


@pytest.mark.parametrize(
    ("name", "begins"),
    [("plan.png", b"\x89PNG"), ("plan.pdf", b"%PDF"), ("plan.svg", b"<?xml")],
)
def test_a_picture_is_written_whole(tmp_path, name, begins):
    save_plan(plan(pools(1)), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_page_holds_the_picture_the_readings_and_the_budgets(tmp_path):
    found = plan(pools(2))
    save_plan(found, tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text()
    assert "<svg" in text and "model 1: all 3 features are independent" in text
    for budget in found.budgets:
        assert f"{budget.method}</th><td>{budget.labels:,.0f}</td>" in text


def test_names_of_models_are_escaped(tmp_path):
    save_plan(plan(pools(2)), tmp_path / "plan.html", ["<script>x</script>.npy", '"&.npy'])
    text = (tmp_path / "plan.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;x&lt;/script&gt;.npy" in text and "&#34;&amp;.npy" in text


def test_a_name_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"cannot write 'plan.txt'"):
        save_plan(plan(pools(1)), tmp_path / "plan.txt")
    with pytest.raises(BadInput, match="there is no folder"):
        save_plan(plan(pools(1)), tmp_path / "no" / "plan.png")
