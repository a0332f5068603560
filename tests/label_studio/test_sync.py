"""Whole syncs with a stand-in server: texts and pictures, again and again, and interrupted."""

import base64
import io
import json

import numpy as np
import pytest

from labelwise.campaign.project import Project
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.label_studio import (
    LabelStudioClient,
    ProjectSync,
    SyncOptions,
    sync_project,
)
from labelwise.label_studio.client import LabelStudioFailed
from labelwise.label_studio.tasks import ServingOrder, TaskFolder
from labelwise.media.images import read_image
from tests.label_studio.twin import PICTURES, TEXTS, TOKEN, fail, texts

PREDICTIONS = "/api/projects/5/import/predictions"


def picture(value, ending="PNG"):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((8, 8), value, dtype=np.uint8)).save(file, ending)
    return file.getvalue()


@pytest.fixture
def go(tmp_path):
    """Sync a server, and give what was done."""

    def run(twin, **wishes):
        wanted = SyncOptions(**{"strategy": "margin", "batch": 6, **wishes})
        return sync_project(
            LabelStudioClient(twin.url, TOKEN), 5, home=tmp_path / "c", options=wanted
        )

    return run


@pytest.fixture
def project(tmp_path):
    return lambda: Project.open(tmp_path / "c.labelwise")


def label_all(twin, by=1):
    """Label what the queue has, as it is; the tasks in the order in which they were served."""
    served = []
    while queue := twin.queue():
        served.append(queue[0])
        twin.annotate(queue[0], twin.tasks[queue[0]]["kind"], by=by)
    return served


def task_of(project, item, twin):
    text = project.items.entry(item)["text"]
    return next(number for number, data in twin.tasks.items() if data["body"] == text)


def test_the_queue_serves_the_batch_in_the_order_of_picking(twin, go, project):
    done = go(twin)
    assert (done.started, done.new, done.asked, done.waiting) == (True, 30, [1], 6)
    assert twin.project["sampling"] == "Uncertainty sampling"
    assert twin.project["model_version"] == "labelwise-1" == done.version
    asked = project().open_record().ledger().batches[0].asked
    assert twin.queue() == [task_of(project(), item, twin) for item in asked.ids]
    assert all(p["result"] == [] for p in twin.predictions)  # nobody is shown a guess


def test_a_second_sync_without_news_changes_nothing(twin, go, project):
    go(twin)
    length, writes = project().open_record().ledger().length, twin.writes()
    done = go(twin)
    assert not done.changed and done.waiting == 6
    assert (project().open_record().ledger().length, twin.writes()) == (length, writes)


def test_rounds_of_labels_train_choose_and_bump_the_version(twin, go, project):
    go(twin)
    first = label_all(twin)
    done = go(twin, guesses=True)
    assert done.words == {"new": 6} and len(done.trained) == 1 and done.asked == [2]
    assert done.version == twin.project["model_version"] == "labelwise-2"
    ledger = project().open_record().ledger()
    assert ledger.per_annotator["ann@example.org"].labels == 6 and ledger.seconds_spent == 12.0
    second = twin.queue()
    assert len(second) == 6 and not set(second) & set(first)
    mine = [p for p in twin.predictions if p["model_version"] == "labelwise-2"]
    guesses = {label: sure for label, sure in ledger.batches[1].asked.guesses}
    assert {p["result"][0]["value"]["choices"][0] for p in mine} == set(guesses)
    assert all(0 < p["result"][0]["score"] <= 1 and p["score"] < 0.5 for p in mine)


def test_the_tail_of_a_batch_stays_in_front_of_the_next_one(twin, go):
    go(twin)
    queue = twin.queue()
    for task in queue[:5]:
        twin.annotate(task, twin.tasks[task]["kind"])
    go(twin)
    assert twin.queue()[0] == queue[5] and len(twin.queue()) == 7


def test_labels_that_were_there_first_are_learned_from(twin, go, project):
    for task in list(twin.tasks)[:8]:
        twin.annotate(task, twin.tasks[task]["kind"], by=2)
    done = go(twin)
    assert done.words == {"new": 8} and len(done.trained) == 1 and done.asked == [1]
    assert project().open_record().ledger().batches[0].asked.strategy == "margin"
    assert not set(twin.queue()) & set(list(twin.tasks)[:8])


def test_skips_changes_and_withdrawals_are_followed(twin, go, project):
    go(twin)
    one, two, three = twin.queue()[:3]
    kept, gone = twin.annotate(one, "food"), twin.annotate(two, "sport")
    twin.annotate(three, None, by=2)
    assert go(twin).words == {"new": 2, "skipped": 1}
    twin.annotate(one, "sport", change=kept)
    del twin.annotations[gone]
    done = go(twin)
    assert done.words == {"changed": 1, "withdrawn": 1}
    ledger = project().open_record().ledger()
    assert list(ledger.labels.values()) == ["sport"] and len(ledger.skipped) == 1
    assert two in twin.queue() and not go(twin).changed


def test_a_label_withdrawn_after_its_batch_is_asked_for_again(twin, go):
    go(twin)
    served = label_all(twin)
    go(twin)
    number = next(n for n, held in twin.annotations.items() if held["task"] == served[0])
    del twin.annotations[number]
    done = go(twin)
    assert done.written and done.version == "labelwise-3"
    assert twin.queue()[0] == served[0]


def test_deleted_tasks_go_and_new_ones_come(twin, go, project):
    go(twin)
    first, *rest = twin.queue()
    twin.annotate(rest[0], "food")
    go(twin)
    for task in (first, rest[0], min(set(twin.tasks) - {first, *rest})):
        twin.delete_task(task)
    new = twin.add(*texts(4, seed=1))
    done = go(twin)
    assert (done.gone, done.new, done.words) == (3, 4, {"withdrawn": 1})
    assert twin.queue() == rest[1:]
    assert len(project().items) == 34 and not project().open_record().ledger().labels
    assert (
        TaskFolder.open(project().home.with_name("c.tasks")).index_tasks(project().items).tasks[-4:]
        == new
    )
    assert not go(twin).changed


def test_an_interrupted_order_is_written_anew(twin, go):
    fail(twin, "PATCH", "/api/projects/5/", 500)  # predictions are there, the version is not used
    with pytest.raises(LabelStudioFailed):
        go(twin)
    assert len(twin.predictions) == 6 and not twin.queue()
    done = go(twin)
    assert done.written and len(twin.queue()) == 6
    assert len(twin.predictions) == 6 and done.version == "labelwise-2"


def test_predictions_that_someone_removed_are_written_again(twin, go):
    go(twin)
    twin.predictions.clear()
    twin.project |= {"model_version": "", "sampling": "Sequential sampling"}
    assert go(twin).written and len(twin.queue()) == 6
    twin.project["sampling"] = "Sequential sampling"
    assert go(twin).written and twin.project["sampling"] == "Uncertainty sampling"


def test_versions_of_an_earlier_campaign_are_not_taken_for_ones_own(twin, go):
    twin.predictions = [{"task": 101, "score": 0.0, "model_version": "labelwise-7", "result": []}]
    assert go(twin).version == "labelwise-8"


def test_settings_follow_the_project_and_the_wishes(twin, go, project):
    twin.project["maximum_annotations"] = 2
    go(twin)
    assert project().open_record().settings.overlap == 2
    twin.project["maximum_annotations"] = 1
    twin.project["label_config"] = TEXTS.replace("</Choices>", '<Choice value="art"/></Choices>')
    go(twin, strategy="entropy", batch=9)
    settings = project().open_record().settings
    assert settings.classes == ("sport", "food", "art") and settings.overlap == 1
    assert (settings.strategy, settings.batch) == ("entropy", 9)


def test_annotations_that_are_no_labels_are_warned_of(twin, go):
    twin.annotate(min(twin.tasks), "music")
    with pytest.warns(LabelwiseWarning, match="1 with a choice that the project does not have"):
        done = go(twin)
    assert not any(done.words.values())


def test_a_sync_of_some_tasks_looks_at_no_others(twin, tmp_path):
    bridge = ProjectSync(
        LabelStudioClient(twin.url, TOKEN), 5, tmp_path / "c", options=SyncOptions(batch=6)
    )
    bridge.run()
    one, two = twin.queue()[:2]
    twin.annotate(one, "food")
    twin.annotate(two, "food")
    assert bridge.run([two, 99999]).words == {"new": 1}
    assert bridge.run([]).words == {}
    assert bridge.run().words == {"new": 1}
    bridge.close()


def test_a_failed_training_loses_nothing_and_is_not_repeated(twin, tmp_path, monkeypatch):
    bridge = ProjectSync(
        LabelStudioClient(twin.url, TOKEN), 5, tmp_path / "c", options=SyncOptions(batch=6)
    )
    bridge.run()
    label_all(twin)
    from labelwise.learners.linear_probe import LinearProbe

    def broken(*args, **named):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patched:
        patched.setattr(LinearProbe, "fit", broken)
        done = bridge.run()
        assert "out of luck" in str(done.failure) and done.words == {"new": 6}
        assert bridge.run().failure is None  # not with the same labels
    done = {held["task"] for held in twin.annotations.values()}
    twin.annotate(min(set(twin.tasks) - done), "food")
    done = bridge.run()
    assert done.failure is None and done.trained and len(twin.queue()) == 6
    bridge.close()


def test_a_campaign_belongs_to_one_project_of_one_server(
    twin, go, make_twin, tmp_path, monkeypatch
):
    go(twin)
    another = make_twin()
    another.add(*texts(3))
    with pytest.raises(BadInput, match=r"c\.tasks belongs to project 5 of"):
        go(another)
    twin.project["label_config"] = TEXTS.replace("$body", "$title")
    with pytest.raises(BadInput, match=r"showed texts in \$body, and now texts in \$title"):
        go(twin)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a\n1\n2\n3\n")
    Project.start("t.csv", classes=["x", "y"])
    with pytest.raises(BadInput, match="does not come from Label Studio"):
        sync_project(LabelStudioClient(twin.url, TOKEN), 5, home=tmp_path / "t.labelwise")
    assert not (tmp_path / "t.tasks").exists()


def test_a_project_without_tasks_or_with_another_kind_of_question_leaves_nothing(
    make_twin, tmp_path
):
    empty, other = make_twin(), make_twin(TEXTS.replace("<Choices", '<Choices choice="multiple"'))
    other.add(*texts(3))
    for twin, words in ((empty, "it has no tasks"), (other, "choice='multiple'")):
        with pytest.raises(BadInput, match=words):
            sync_project(LabelStudioClient(twin.url, TOKEN), 5, home=tmp_path / words[:2])
        assert not (tmp_path / f"{words[:2]}.labelwise").exists()


def test_texts_that_are_none_are_refused_or_left_out(twin, go, project):
    odd = twin.add({"body": "  "}, {"other": "x"}, {"body": ["a"]}, {"body": 17})
    with pytest.raises(BadInput, match=f"3 of 34 tasks cannot be used .task {odd[0]}: an empty"):
        go(twin)
    done = go(twin, skip_broken=True)
    assert (done.new, done.left_out) == (31, 3) and "17" == project().items.entry(30)["text"]
    assert not go(twin).changed  # they stay left out
    twin.tasks[odd[0]] = {"body": "now it has words"}
    assert go(twin, skip_broken=True).new == 1
    twin.delete_task(odd[1])
    assert (go(twin).gone, go(twin).gone) == (1, 0)


@pytest.fixture
def pictures(make_twin):
    """A server with pictures behind all kinds of addresses, black and white."""
    made = make_twin(PICTURES)
    for number in range(12):
        made.files[f"/data/upload/5/{number}.bin"] = picture(255 * (number % 2))
    code = base64.b64encode(picture(0, "GIF")).decode()
    made.add(
        *({"image": f"/data/upload/5/{number}.bin"} for number in range(10)),
        {"image": f"{made.url}/data/upload/5/10.bin"},
        {"image": f"data:image/gif;base64,{code}"},
    )
    return made


def test_pictures_become_a_campaign_whatever_their_addresses(pictures, go, project):
    done = go(pictures)
    assert (done.kind, done.new) == ("images", 12)
    opened = project()
    tasks = TaskFolder.open(opened.home.with_name("c.tasks"))
    assert tasks.index_tasks(opened.items).tasks == list(pictures.tasks)
    assert {opened.items.path(item).suffix for item in opened.items} == {".png", ".gif"}
    values = np.array(
        [read_image(opened.items.path(item), 4, grey=True).mean() for item in opened.items]
    )
    assert values.tolist() == [255 * (n % 2) for n in range(10)] + [0, 0]
    names = {0: "zero", 255: "one"}
    for task in pictures.queue():
        item = list(pictures.tasks).index(task)
        pictures.annotate(task, names[int(values[item])])
    assert len(go(pictures).trained) == 1


def test_an_interrupted_start_does_not_fetch_pictures_twice(pictures, go):
    fail(pictures, "GET", "/data/upload/5/9.bin", 401)
    with pytest.raises(BadInput, match=r"1 of 12 tasks cannot be used .*9\.bin answers 401"):
        go(pictures)
    assert go(pictures).new == 12
    calls = {path: count for (_, path), count in pictures.calls.items() if "upload" in path}
    assert calls.pop("/data/upload/5/9.bin") == 2 and set(calls.values()) == {1}


def test_an_interrupted_growth_leaves_no_hole(pictures, go, project):
    go(pictures)
    pictures.files["/data/new.png"] = picture(7)
    new = pictures.add({"image": "/data/late.png"}, {"image": "/data/new.png"})
    with pytest.raises(BadInput, match="answers 404"):
        go(pictures)
    pictures.files["/data/late.png"] = picture(9)
    assert go(pictures).new == 2
    tasks = TaskFolder.open(project().home.with_name("c.tasks"))
    assert tasks.index_tasks(project().items).tasks[12:] == new


def test_what_is_no_picture_is_left_out_if_one_wishes(pictures, go):
    pictures.files |= {"/data/page": b"<html>", "/data/half.png": picture(3)[:45]}
    pictures.add({"image": "/data/page"}, {"image": "/data/half.png"})
    with pytest.raises(BadInput, match="it is not an image"):
        go(pictures)
    done = go(pictures, skip_broken=True)
    assert (done.new, done.left_out) == (12, 2)
    done = go(pictures)
    assert not done.changed and done.left_out == 2


def test_no_file_here_holds_the_token(twin, go, tmp_path):
    go(twin)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) > 5
    assert not [path for path in found if TOKEN.encode() in path.read_bytes()]
    held = json.loads((tmp_path / "c.tasks" / ".label_studio.json").read_text())
    assert held["url"] == twin.url and held["project"] == 5
    assert ServingOrder.load(tmp_path / "c.tasks").done
