"""A campaign as a folder: started from real data, refreshed, moved, trained and gone on with."""

import json
import os
import sys
from subprocess import run as run_process

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

import labelwise
from labelwise.campaign import defaults
from labelwise.campaign.folder.description import STORAGE_VARIABLE, remove_storage_password
from labelwise.campaign.project import Project
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName
from labelwise.strategies import strategies
from tests.campaign.sources import (
    DIGITS,
    NAMES,
    TOPICS,
    content,
    digit_of,
    write_digits,
    write_table,
    write_texts,
)


def test_a_folder_of_pictures_becomes_a_campaign(tmp_path):
    source = write_digits(tmp_path / "digits", range(60))
    digits = Project.start(source, home=tmp_path / "c", classes=NAMES, batch=10)
    assert (digits.name, digits.kind, digits.classes) == ("digits", "images", tuple(NAMES))
    paths = [digits.items.describe(item)["name"] for item in digits.items]
    assert paths == sorted(paths) and len(paths) == 60
    np.testing.assert_allclose(digits.inputs, labelwise.encode(digits.source), atol=1e-4)
    assert digits.ingested.new == 60 and digits.ingested.notes[0] == "60 pictures in 3 folders"
    settings = digits.open_record().settings
    assert (settings.strategy, settings.batch, settings.validation) == ("uherding", 10, 0.2)
    assert not list(tmp_path.glob(".c.*"))
    pixels = Project.start(digits.source, home=tmp_path / "pixels", encoder="none")
    wanted = [(DIGITS[int(path[-8:-4])] * 15).reshape(1, 8, 8) for path in paths]
    np.testing.assert_array_equal(pixels.inputs, wanted)


def test_digits_are_labelled_trained_on_and_gone_on_with_after_a_restart(tmp_path):
    source = write_digits(tmp_path / "digits", range(90))
    Project.start(source, home=tmp_path / "c", classes=NAMES, batch=20)
    asked = []
    for _ in range(2):
        project = Project.open(tmp_path / "c")
        campaign = project.campaign(device="cpu")
        picks = campaign.ask()
        assert not set(picks.ids.tolist()) & set(asked)
        asked += picks.ids.tolist()
        campaign.tell({int(i): digit_of(project, i) for i in picks.ids}, by="ann")
        trained = campaign.train()
    assert picks.info["strategy"] == "uherding" and picks.info["model"] == 1
    assert trained.metrics["validation_labels"] == 8
    again = Project.open(tmp_path / "c").campaign(device="cpu")
    next_ids = set(again.ask().ids.tolist())  # by the model of the checkpoint
    assert len(next_ids) == 20 and not next_ids & set(asked)
    rest = np.setdiff1d(np.arange(90), asked)
    guesses = again.learner.predict(project.inputs[rest])
    np.testing.assert_array_equal(guesses, campaign.learner.predict(project.inputs[rest]))
    assert len(again.ledger().labels) == 40


def test_texts_are_told_apart_after_one_batch(tmp_path):
    names = write_texts(tmp_path / "notes.jsonl")
    project = Project.start(
        tmp_path / "notes.jsonl",
        home=tmp_path / "c",
        text="text",
        encoder="tfidf",
        classes=list(TOPICS),
        batch=30,
    )
    assert project.kind == "texts"
    assert any("soil" in project.items.entry(item)["text"] for item in project.items)
    campaign = project.campaign(device="cpu")
    ids = campaign.ask().ids.tolist()
    campaign.tell({item: names[item] for item in ids}, by="ann")
    campaign.train()
    rest = [item for item in project.items if item not in ids]
    guesses = [list(TOPICS)[place] for place in campaign.learner.predict(project.inputs[rest])]
    assert np.mean([guess == names[i] for guess, i in zip(guesses, rest, strict=True)]) > 0.7


def test_wines_are_labelled_without_classes_told_before(tmp_path):
    rows, kinds = load_wine(return_X_y=True)
    path = write_table(tmp_path / "wine.csv", rows, kinds, [*map(str, range(13)), "kind"])
    project = Project.start(path, home=tmp_path / "c", without=["kind"], batch=30)
    assert project.kind == "numbers" and project.classes is None
    assert project.inputs.shape == (178, 13) and project.items.entry(3)["row"]["kind"] == str(
        kinds[3]
    )
    campaign = project.campaign(device="cpu")
    ids = campaign.ask().ids.tolist()
    campaign.tell({item: f"wine {kinds[item]}" for item in ids}, by="ann")
    campaign.train()
    rest = np.setdiff1d(np.arange(178), ids)
    assert (campaign.learner.predict(project.inputs[rest]) == kinds[rest]).mean() > 0.75
    assert len(campaign.ask()) == 30  # by uherding


def test_amounts_are_predicted_in_their_own_units(tmp_path):
    rows, values = load_diabetes(return_X_y=True, scaled=False)
    path = write_table(tmp_path / "d.csv", rows, values, [*map(str, range(10)), "progress"])
    project = Project.start(
        path, home=tmp_path / "c", without=["progress"], regression=True, batch=150
    )
    campaign = project.campaign(device="cpu")
    for _ in range(2):
        ids = campaign.ask().ids
        campaign.tell({int(item): values[item] for item in ids}, by="ann")
        trained = campaign.train()
    assert campaign.ledger().batches[1].asked.strategy == "mixed_lcmd"
    assert 0 < trained.metrics["mse"] < 0.8 * values.var()


@pytest.mark.filterwarnings("ignore::labelwise.errors.LabelwiseWarning")  # of tiny budgets
@pytest.mark.parametrize("regression", [False, True])
def test_every_strategy_that_start_accepts_can_be_asked(regression, tmp_path):
    rows, kinds = load_wine(return_X_y=True)
    np.save(tmp_path / "f.npy", rows)
    labels = rows[:, 0] if regression else kinds
    accepted = []
    for name in strategies():
        try:
            defaults.check_campaign_strategy(Settings(strategy=name, regression=regression))
            accepted.append(name)
        except BadInput:
            continue
    project = Project.start(
        tmp_path / "f.npy", home=tmp_path / "c", regression=regression, batch=40
    )
    campaign = project.campaign(device="cpu")
    for name in [None, *accepted]:
        picks = campaign.ask(name, 40 if name is None else 2)
        campaign.tell({int(item): labels[item] for item in picks.ids}, by="ann")
        if name is None:
            campaign.train()
    assert len(accepted) >= (9 if regression else 20)
    assert [batch.asked.strategy for batch in campaign.ledger().batches[1:]] == accepted


def test_features_are_read_from_an_array_or_given_for_pictures(tmp_path, digits):
    rows = np.random.default_rng(0).normal(7, 3, size=(60, 5)).astype(np.float32)
    np.save(tmp_path / "f.npy", rows)
    np.savez(tmp_path / "f.npz", features=rows, other=np.zeros(3))
    wanted = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    for name in ("f.npy", "f.npz"):
        project = Project.start(tmp_path / name, home=tmp_path / f"{name}.c")
        np.testing.assert_allclose(project.inputs, wanted, atol=1e-5)
        np.testing.assert_allclose(project.items.entry(7)["row"]["3"], rows[7, 3], rtol=1e-4)
    given = Project.start(digits.source, home=tmp_path / "g", features=tmp_path / "f.npy")
    assert given.kind == "images" and given.items.path(0).is_file()
    np.testing.assert_allclose(given.inputs, wanted, atol=1e-5)
    np.save(tmp_path / "f.npy", rows[:50])
    with pytest.raises(BadInput, match="has 50 rows for 60 items"):
        Project.start(digits.source, home=tmp_path / "h", features=tmp_path / "f.npy")


def test_the_folder_and_its_source_may_move_together_or_be_said_to_have_moved(digits, tmp_path):
    (tmp_path / "far").mkdir()
    for path in (digits.source, digits.home):
        path.rename(tmp_path / "far" / path.name)
    project = Project.open(tmp_path / "far" / "c")
    assert project.items.path(0).is_file()
    project.source.rename(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="if it was moved, give its new place"):
        project.refresh()
    with pytest.raises(BadInput, match=r"has no images|none of the 60 pictures"):
        project.repoint(write_digits(tmp_path / "others", range(300, 302)))
    with pytest.raises(BadInput, match="was started from a folder"):
        project.repoint(write_table(tmp_path / "t.csv", [[1]], [2], ["a", "b"]))
    next((tmp_path / "elsewhere").rglob("*.png")).unlink()
    assert project.repoint(tmp_path / "elsewhere") == 1
    assert len(project.refresh().missing) == 1


def test_a_campaign_is_found_from_the_current_folder(tmp_path, monkeypatch):
    np.save(tmp_path / "f.npy", np.random.default_rng(0).normal(size=(9, 2)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="no campaign here; labelwise start makes one"):
        Project.open()
    project = Project.start("f.npy")
    assert project.home.name == "f.labelwise"
    assert Project.open().home == project.home == Project.open("f").home
    with pytest.raises(UnknownName, match="g is not a campaign's folder"):
        Project.open("g")
    with pytest.raises(BadInput, match=r"f\.labelwise exists already; .*--refresh"):
        Project.start("f.npy")
    Project.start("f.npy", name="two words/more")
    with pytest.raises(BadInput, match=r"several campaigns here: f\.labelwise, two-words-more"):
        Project.open()
    monkeypatch.chdir(project.home)
    assert Project.open().name == "f" and len(Project.open().items) == 9


def test_a_password_is_not_written_down(digits, make_postgres_url, tmp_path):
    secret = make_postgres_url().replace("postgres:@", "postgres:hush@")  # it lets in everyone
    assert "hush" in secret
    project = Project.start(digits.source, home=tmp_path / "p", name="team", storage=secret)
    project.open_record().tell({3: "7"}, by="ann", anything=True)
    project.close()
    assert not any(b"hush" in held for held in content(project.home).values())
    assert not (project.home / "record.db").exists()
    again = Project.open(project.home)
    assert dict(again.open_record().ledger().labels) == {3: "7"}
    again.close()
    with pytest.raises(
        BadInput, match="already has a campaign called 'team'; give this one another"
    ):
        Project.start(digits.source, home=tmp_path / "q", name="team", storage=secret)
    assert not (tmp_path / "q").exists()


def test_the_environment_says_where_the_record_is(digits, sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setenv(STORAGE_VARIABLE, sqlite_url)
    with pytest.raises(UnknownName, match="no campaign called 'digits'"):
        Project.open(digits.home).classes  # noqa: B018
    started = Project.start(digits.source, home=tmp_path / "p", classes=["a", "b"])
    assert not (started.home / "record.db").exists()
    monkeypatch.delenv(STORAGE_VARIABLE)
    assert Project.open(tmp_path / "p").classes == ("a", "b")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("postgresql+psycopg://a:b@h:5/d", "postgresql+psycopg://a@h:5/d"),
        (
            "postgresql+psycopg://a:p%40@h/d?password=x&host=%2Ftmp",
            "postgresql+psycopg://a@h/d?host=%2Ftmp",
        ),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
    ],
)
def test_a_password_is_taken_out_of_a_url(url, kept):
    assert remove_storage_password(url) == kept


def test_a_record_elsewhere_is_found_from_any_folder(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Project.start(digits.source, home="s", storage="sqlite:///labels.db")
    monkeypatch.chdir("/")
    assert Project.open(tmp_path / "s").open_record().ledger().items == 60
    (tmp_path / "c" / "record.db").unlink()
    with pytest.raises(UnknownName, match=r"there is no record .*record\.db"):
        Project.open(tmp_path / "c").open_record()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"strategy": "bagde"}, "bagde"),
        ({"strategy": "ally"}, "ally needs features and duals"),
        ({"strategy": "badge", "regression": True}, "badge needs .* a regression does not give"),
        ({"classes": ["a"]}, "two classes or more"),
        ({"classes": ["a", "caf\udce9"]}, "is not valid UTF-8"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"overlaps": 2}, "no setting 'overlaps'"),
        ({"storage": "memory://"}, "a persistent storage"),
        ({"module": "no_such:thing"}, "no_such cannot be imported"),
        ({"side": 1, "encoder": "none"}, "a side of 4 or more"),
        ({"encoder": "resnet"}, "there is no encoder 'resnet'"),
        ({"encoder": "tfidf"}, "tfidf encodes texts, and these items are images"),
        ({"encoder": ["auto", "none"]}, "none means no encoder; got auto, none"),
        ({"encoder": ["auto", "auto"]}, "every encoder is given once"),
        ({"encoder": ["auto", "efficientnet_lite0"]}, "two encoders are the same"),
        ({"features": ["f.npy", "f.npy"]}, "every file of features is given once"),
        ({"features": __file__}, r"is not a file of features; give one of .npz, .npy"),
        ({"encoder": "auto", "storage": "labels.db"}, "a storage is given as a URL"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(asked, message, digits, tmp_path):
    with pytest.raises((BadInput, UnknownName), match=message):
        Project.start(digits.source, home=tmp_path / "new", **asked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "digits"]


def test_sources_that_are_none_are_refused(tmp_path):
    (tmp_path / "a.pdf").write_text("")
    np.save(tmp_path / "pictures.npy", np.zeros((3, 4, 4)))
    np.save(tmp_path / "nan.npy", np.array([[1.0], [np.nan]]))
    np.save(tmp_path / "huge.npy", np.array([[1.0], [1e300]]))
    for name, message in [
        ("none", "no file or folder"),
        ("a.pdf", "unknown file type"),
        ("pictures.npy", r"shape \(3, 4, 4\); give numbers \(items, features\), or a folder"),
        ("nan.npy", "NaN or infinite numbers, first in row 1"),
        ("huge.npy", r"numbers beyond 1e\+100; scale them"),
    ]:
        with pytest.raises(BadInput, match=message):
            Project.start(tmp_path / name, home=tmp_path / "c")


def test_files_of_newer_or_broken_campaigns_are_refused(digits):
    facts = digits.home / "campaign.json"
    held = json.loads(facts.read_text())
    facts.write_text(json.dumps({**held, "format": 9}))
    with pytest.raises(BadInput, match=r"newer labelwise \(format 9\)"):
        Project.open(digits.home)
    facts.write_text("{}")
    with pytest.raises(BadInput, match="does not describe a campaign"):
        Project.open(digits.home)


def test_a_class_that_is_added_later_is_learned(tmp_path):
    rows, kinds = load_wine(return_X_y=True)
    path = write_table(tmp_path / "w.csv", rows, kinds, [*map(str, range(13)), "kind"])
    project = Project.start(
        path, home=tmp_path / "c", without=["kind"], classes=["0", "1"], batch=20, validation=0.0
    )
    campaign = project.campaign(device="cpu")
    first = [*range(10), *range(60, 70)]
    campaign.tell({item: kinds[item] for item in first}, by="ann", anything=True)
    campaign.train()
    project.open_record().change(classes=["0", "1", "2"])
    campaign.tell({item: 2 for item in range(140, 160)}, by="ann", anything=True)
    campaign.train()
    assert (campaign.learner.predict(project.inputs[160:]) == 2).all()


def test_opening_a_campaign_to_label_imports_no_torch(digits):
    code = (
        "import sys; from labelwise.campaign.project import Project; "
        f"project = Project.open({str(digits.home)!r}); project.items.describe(3); "
        "project.open_record().ledger(); "
        "sys.exit(str([m for m in ('torch', 'sklearn', 'PIL', 'pyarrow') if m in sys.modules]))"
    )
    done = run_process([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.sep)
    assert done.stderr.strip() == "[]"


def test_a_name_that_a_shared_storage_has_is_not_taken_over(digits, sqlite_url, tmp_path):
    Project.start(digits.source, home=tmp_path / "p", name="team", storage=sqlite_url).close()
    other = write_digits(tmp_path / "other", range(5))
    with pytest.raises(
        BadInput, match="already has a campaign called 'team'; give this one another"
    ):
        Project.start(other, home=tmp_path / "q", name="team", storage=sqlite_url)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2]])
@pytest.mark.parametrize("name", ["inputs.npy", "embedding.npz"])
def test_damaged_arrays_of_a_campaign_are_named(name, damage, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 3)))
    Project.start(tmp_path / "rows.npy", home=tmp_path / "rows.labelwise", classes=["a", "b"])
    file = tmp_path / "rows.labelwise" / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BadInput, match=f"{name} is missing or damaged"):
        Project.open(tmp_path / "rows.labelwise").items[3]


def test_a_named_pipe_among_the_images_is_reported_without_waiting(digits, tmp_path):
    os.mkfifo(digits.source / "pipe.png")
    with pytest.raises(BadInput, match=r"pipe\.png: not a regular file"):
        Project.start(digits.source, home=tmp_path / "other.labelwise", encoder="none")


def test_a_function_that_builds_no_network_is_rejected(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 3)))
    for builder, words in [("os:system", "failed with TypeError"), ("os.path:join", "failed with")]:
        with pytest.raises(BadInput, match=words):
            Project.start(tmp_path / "rows.npy", home=tmp_path / "c", classes="ab", module=builder)
    assert not (tmp_path / "c").exists()
