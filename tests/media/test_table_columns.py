"""Columns of a table as numbers: categories, missing values and strings."""

import json

import numpy as np
import pytest

from labelwise.campaign.project import Project
from labelwise.campaign.trained_model import open_campaign_model
from labelwise.errors import BadInput
from labelwise.media.table_columns import TableColumns
from labelwise.media.tables import choose_columns


def test_later_rows_get_the_columns_of_the_start(tmp_path):
    table = {"size": [1.0, None, 4.0, 9.0], "kind": ["oak", "fir", "oak", None]}
    plan = TableColumns.plan(tmp_path, table, ["size", "kind"], ["kind"])
    assert plan.fills == {"size": 4.0} and plan.categories == {"kind": ("oak", "fir")}
    later = {"size": [2.0], "kind": ["elm"]}
    assert plan.convert(tmp_path, later, ["size", "kind"]).tolist() == [[2.0, 0.0, 0.0, 0.0]]
    again = TableColumns(**json.loads(json.dumps(vars(plan))))
    np.testing.assert_array_equal(
        again.convert(tmp_path, table, ["size", "kind"]),
        plan.convert(tmp_path, table, ["size", "kind"]),
    )


def test_repeated_values_are_categories_next_to_numbers(tmp_path):
    table = {
        "height": ["1", "2", "3", "4"],
        "kind": ["oak", "fir", "oak", "fir"],
        "name": ["a", "b", "c", "d"],
    }
    chosen = choose_columns(tmp_path, table)
    assert chosen.columns == ("height", "kind") and chosen.categorical == ("kind",)
    assert chosen.notes[-1] == "left out, not numeric: name"
    assert choose_columns(tmp_path, table, columns=["kind"]).categorical == ("kind",)
    with pytest.raises(BadInput, match=r"column 'name' .* too many different ones for categories"):
        choose_columns(tmp_path, table, columns=["height", "name"])


def test_a_campaign_learns_from_categories_and_missing_numbers(tmp_path):
    kinds = [("oak", "fir", "elm")[number % 3] for number in range(60)]
    lines = [f"{n % 7 if n % 5 else ''},{kind}\n" for n, kind in enumerate(kinds)]
    (tmp_path / "t.csv").write_text("age,kind\n" + "".join(lines))
    home = tmp_path / "c"
    project = Project.start(tmp_path / "t.csv", home=home, classes=["tall", "small"], batch=30)
    assert project.inputs.shape == (60, 5)  # age, whether it is missing, three categories
    campaign = project.campaign()
    truth = {n: "tall" if kind == "oak" else "small" for n, kind in enumerate(kinds)}
    campaign.tell({int(item): truth[int(item)] for item in campaign.ask().ids}, by="ann")
    campaign.train()
    (tmp_path / "new.csv").write_text("kind,age\noak,\nfir,3\nash,4\n")
    model = open_campaign_model(Project.open(home))
    assert model.predict(tmp_path / "new.csv")[:2].tolist() == ["tall", "small"]
    with (tmp_path / "t.csv").open("a") as file:
        file.write(",fir\n")
    project.refresh()
    assert len(project.items) == 61 and project.inputs.shape == (61, 5)
