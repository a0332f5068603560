"""Predictions of a campaign's model: in a fresh process, for new items, saved, and as files."""

import importlib
import json
import operator
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import labelwise
from labelwise.campaign.project import Project
from labelwise.campaign.runner import CampaignRunner
from labelwise.campaign.trained_model import open_campaign_model
from labelwise.cli import run
from labelwise.errors import BadInput, UnknownName


def label_and_train(project, truth, count=24):
    campaign = project.campaign()
    while len(campaign.labels()) < count:
        campaign.tell({int(item): truth[int(item)] for item in campaign.ask().ids}, by="ann")
    campaign.train()
    return campaign


def make_rows(seed=0, count=60):
    rows = np.random.default_rng(seed).normal(size=(count, 3))
    return rows, ["up" if row[0] > 0 else "down" for row in rows]


@pytest.fixture
def rows_campaign(tmp_path):
    rows, kinds = make_rows()
    lines = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "t.csv").write_text("a,b,c\n" + lines)
    home = tmp_path / "t.labelwise"
    project = Project.start(tmp_path / "t.csv", home=home, classes=["up", "down"], batch=12)
    label_and_train(project, kinds)
    return project, rows, kinds


def test_a_campaign_predicts_new_rows_in_a_fresh_process(rows_campaign):
    project, _, _ = rows_campaign
    new, kinds = make_rows(seed=1)
    here = labelwise.load_model(project.home)
    assert here.classes == ("up", "down")
    code = (
        "import sys, numpy as np, labelwise\n"
        "new = np.random.default_rng(1).normal(size=(60, 3))\n"
        f"model = labelwise.load_model({str(project.home)!r})\n"
        "print(*model.predict(new))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == here.predict(new).tolist()
    assert np.mean(here.predict(new) == np.array(kinds)) > 0.7
    np.testing.assert_allclose(here.predict_proba(new).sum(axis=1), 1)
    with pytest.raises(BadInput, match="reads 3 numbers per item"):
        here.predict(new[:, :2])


def test_a_saved_model_needs_no_campaign(rows_campaign, tmp_path):
    project, rows, _ = rows_campaign
    expected = labelwise.load_model(project.home).predict_proba(rows)
    assert run(["train", "--save", str(tmp_path / "m"), "-c", str(project.home)]) == 0
    expected = labelwise.load_model(project.home).predict_proba(rows)
    saved = labelwise.load_model(tmp_path / "m")
    np.testing.assert_allclose(saved.predict_proba(rows), expected, atol=1e-9)
    assert saved.classes == ("up", "down")
    names = {path.suffix for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert names <= {".json", ".npz"}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="not a saved model"):
        saved.save(tmp_path / "full")


def test_predict_writes_every_item_with_its_label(rows_campaign, tmp_path):
    project, rows, _ = rows_campaign
    home = ["-c", str(project.home)]
    assert run(["predict", "--out", str(tmp_path / "p.jsonl"), *home]) == 0
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    known = project.open_record().labels()
    assert [row["id"] for row in found] == list(range(len(rows)))
    assert {row["id"]: row["label"] for row in found if row["label"]} == known
    for row in found:
        assert row["confidence"] == max(row["p:up"], row["p:down"])
        assert row["prediction"] == max(("up", "down"), key=lambda name: row[f"p:{name}"])
    (tmp_path / "new.csv").write_text("c,b,a\n0,0,9\n0,0,-9\n")
    out = tmp_path / "new_p.csv"
    assert run(["predict", str(tmp_path / "new.csv"), "--out", str(out), *home]) == 0
    assert [line.split(",")[3] for line in out.read_text().splitlines()[1:]] == ["up", "down"]
    assert run(["predict", "--out", str(tmp_path / "p.parquet"), *home]) == 0
    tasks = tmp_path / "tasks.json"
    assert run(["export", "--predictions", "--out", str(tasks), *home]) == 0
    held = json.loads(tasks.read_text())
    assert len(held) == len(rows) and sum("annotations" in task for task in held) == len(known)
    one = held[0]["predictions"][0]
    assert one["result"][0]["value"]["choices"] == [found[0]["prediction"]]
    assert one["score"] == pytest.approx(found[0]["confidence"])
    assert run(["predict", "nowhere/", "--out", str(out), *home]) == 1


def test_values_come_with_an_interval_that_holds_most_of_them(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 2))
    values = rows[:, 0] + 0.1 * rng.normal(size=120)
    np.save(tmp_path / "f.npy", rows)
    home = tmp_path / "v.labelwise"
    project = Project.start(tmp_path / "f.npy", home=home, regression=True, batch=30)
    label_and_train(project, values.tolist(), 60)
    model = open_campaign_model(project)
    found = model.evaluate(project.inputs)
    assert model.half_width > 0 and found.probabilities is None and model.classes == ()
    inside = np.abs(np.array(found.labels) - values) <= model.half_width
    assert inside.mean() > 0.8
    model.save(tmp_path / "m")
    again = labelwise.load_model(tmp_path / "m")
    np.testing.assert_allclose(again.predict(rows), found.labels, rtol=1e-5, atol=1e-6)
    assert again.half_width == model.half_width
    with pytest.raises(BadInput, match="no probabilities"):
        again.predict_proba(rows)


def test_a_table_of_values_has_intervals_between_two_cross_validations(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 2))
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    home = tmp_path / "v.labelwise"
    options = {"regression": True, "validation": 0, "strategy": "random"}
    project = Project.start(tmp_path / "t.csv", home=home, batch=40, **options)
    values = (rows[:, 0] + rows[:, 1] ** 2).tolist()
    label_and_train(project, values, 40)
    project.open_record().change(batch=4)
    campaign = label_and_train(project, values, 44)
    assert [trained.metrics["tuning"]["labels"] for trained in campaign.ledger().trainings] == [
        40,
        40,
    ]
    before = open_campaign_model(project).half_width
    assert before > 0 and labelwise.load_model(home).half_width == before
    assert run(["status", "-c", str(home)]) == 0
    assert "labels by cross-validation" in capsys.readouterr().out


def test_new_items_of_another_kind_are_refused(tmp_path, rows_campaign):
    np.save(tmp_path / "f.npy", np.arange(12.0).reshape(6, 2))
    (tmp_path / "photos").mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    options = {"features": tmp_path / "f.npy", "classes": ["up", "down"], "batch": 6}
    project = Project.start(tmp_path / "photos", home=tmp_path / "p.labelwise", **options)
    label_and_train(project, ["up", "down"] * 3, 6)
    for campaign, new, wanted in [
        (project, "photos", "give a .npy file of features"),
        (project, "t.csv", "give a .npy file of features"),
        (rows_campaign[0], "photos", "give a table with the columns of the campaign"),
    ]:
        with pytest.raises(BadInput, match=f"the model cannot read .*{new}; {wanted}"):
            open_campaign_model(campaign).predict(tmp_path / new)


def tables_of(columns):
    """The same table in every library, columns in reverse order."""
    columns = dict(reversed(columns.items()))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    yield from [columns, rows]
    for library, name in [
        ("pandas", "DataFrame"),
        ("polars", "DataFrame"),
        ("pyarrow", "table"),
        ("datasets.arrow_dataset", "Dataset.from_dict"),
    ]:
        pytest.importorskip(library.partition(".")[0])
        yield operator.attrgetter(name)(importlib.import_module(library))(columns)


def test_tables_in_memory_are_read_by_the_names_of_their_columns(rows_campaign):
    model = open_campaign_model(rows_campaign[0])
    new = make_rows(seed=1, count=3)[0]  # as many rows as columns, so a transposed table fits too
    wanted = model.predict_proba(new)
    for table in tables_of({name: new[:, n].tolist() for n, name in enumerate("abc")}):
        np.testing.assert_array_equal(model.predict_proba(table), wanted)
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(model.predict_proba(pandas.DataFrame(new)), wanted)


def test_texts_and_categories_of_a_table_in_memory_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [f"{word} story {n}" for n, word in enumerate(["good", "bad"] * 12)]
    (tmp_path / "r.csv").write_text("review\n" + "\n".join(texts))
    project = Project.start(tmp_path / "r.csv", text=["review"], classes=["a", "b"], batch=12)
    label_and_train(project, ["a", "b"] * 12, 12)
    model = open_campaign_model(project)
    for table in tables_of({"review": texts, "other": ["x"] * 24}):
        np.testing.assert_array_equal(model.predict_proba(table), model.predict_proba(texts))


def test_rows_of_a_table_with_gaps_and_categories_equal_those_of_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pandas = pytest.importorskip("pandas")
    numbers = [None if n % 5 == 0 else n / 3 for n in range(40)]
    table = pandas.DataFrame({"size": numbers, "kind": ["u", "v"] * 20})
    table.to_csv(tmp_path / "t.csv", index=False)
    project = Project.start(tmp_path / "t.csv", classes=["a", "b"], batch=12)
    label_and_train(project, ["a", "b"] * 20, 12)
    model = open_campaign_model(project)
    wanted = model.predict_proba(tmp_path / "t.csv")
    converted = table.convert_dtypes().assign(kind=pandas.Categorical(table["kind"]))
    np.testing.assert_array_equal(model.predict_proba(converted), wanted)
    np.testing.assert_array_equal(model.predict_proba(table.to_dict("records")), wanted)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (None, "reads a list of items or a table; got None"),
        ({"a": [1.0], "b": [2.0]}, "the table has no column 'c'; it has a, b"),
        ([{"a": 1.0, "b": 2.0, "c": None}], "column 'c' of the table has no number in 1 of 1 rows"),
        ([{"a": 1.0}, 3], "give one mapping per item"),
        ([["x", "y", "z"]], "reads rows of numbers"),
    ],
)
def test_items_that_the_model_cannot_read_are_named(rows_campaign, items, said):
    with pytest.raises(BadInput, match=said):
        open_campaign_model(rows_campaign[0]).predict(items)


def test_the_best_of_several_representations_predicts_or_the_named_one(tmp_path, capsys):
    rng = np.random.default_rng(0)
    good, noise = rng.normal(size=(80, 4)), rng.normal(size=(80, 4))
    kinds = ["up" if row[0] > 0 else "down" for row in good]
    np.save(tmp_path / "noise.npy", noise)
    np.save(tmp_path / "good.npy", good)
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(80))
    )
    project = Project.start(
        tmp_path / "t.jsonl",
        home=tmp_path / "s.labelwise",
        text="text",
        features=[tmp_path / "noise.npy", tmp_path / "good.npy"],
        classes=["up", "down"],
        strategy="random",
        batch=40,
    )
    label_and_train(project, kinds, 40)
    best = open_campaign_model(project)
    assert best.description.features[0].endswith("good.npy")
    named = open_campaign_model(project, str(tmp_path / "noise.npy"))
    assert named.description.features == ("../noise.npy",)
    out = tmp_path / "p.jsonl"
    assert run(["predict", "--out", str(out), "-c", str(project.home)]) == 0
    assert "80 predictions by the model of good.npy written" in capsys.readouterr().out
    found = [json.loads(line)["prediction"] for line in out.read_text().splitlines()]
    assert np.mean(np.array(found) == np.array(kinds)) > 0.8
    assert found == best.predict(good).tolist() != named.predict(noise).tolist()
    with pytest.raises(UnknownName, match=r"called 'x'; choose from noise\.npy, good\.npy"):
        open_campaign_model(project, "x")


def test_self_training_is_a_setting_of_the_campaign(tmp_path):
    rng = np.random.default_rng(1)
    kinds = rng.integers(2, size=80)
    np.save(tmp_path / "f.npy", rng.normal(size=(80, 8)) + 2 * kinds[:, None])
    (tmp_path / "t.jsonl").write_text("".join(f'{{"text": "text {n}"}}\n' for n in range(80)))
    options = {"features": tmp_path / "f.npy", "classes": ["up", "down"], "batch": 12}
    project = Project.start(tmp_path / "t.jsonl", home=tmp_path / "s.labelwise", **options)
    runner = CampaignRunner(project)
    campaign = runner.open_campaign()
    campaign.tell({int(n): ("up", "down")[kinds[n]] for n in campaign.ask().ids})
    campaign.train()
    plain = open_campaign_model(project).evaluate(project.inputs).probabilities
    project.open_record().change(self_training=True)
    runner.open_campaign().train()
    more = open_campaign_model(project).evaluate(project.inputs).probabilities
    assert not np.allclose(plain, more)


def test_images_are_encoded_by_the_campaigns_encoder(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(24):
        colour = (200, 30, 30) if number % 2 else (30, 30, 200)
        pixels = np.clip(rng.normal(colour, 20, size=(16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    home = tmp_path / "photos.labelwise"
    project = Project.start(folder, home=home, classes=["red", "blue"], batch=8)
    truth = ["red" if item % 2 else "blue" for item in range(24)]
    label_and_train(project, truth, 16)
    model = labelwise.load_model(home)
    assert model.predict([folder / "05.png", folder / "06.png"]).tolist() == ["red", "blue"]
    assert model.predict(folder).tolist() == model.evaluate(project.inputs).labels


def test_a_campaign_without_a_model_says_so(tmp_path):
    np.save(tmp_path / "f.npy", make_rows()[0])
    project = Project.start(tmp_path / "f.npy", home=tmp_path / "c.labelwise")
    with pytest.raises(BadInput, match="no model yet"):
        labelwise.load_model(project.home)
