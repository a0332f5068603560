"""Sources that change after the start: what is new, gone, back or broken."""

import json

import numpy as np
import pytest
from PIL import Image

import labelwise
from labelwise.campaign.folder.ingest import lock_campaign_ingest
from labelwise.campaign.project import Project
from labelwise.errors import BadInput
from tests.campaign.sources import DIGITS, TOPICS, content, write_digits, write_texts


def test_new_files_get_new_ids_and_gone_ones_are_not_asked_for(digits):
    names = [digits.items.describe(item)["name"] for item in digits.items]
    inputs = np.array(digits.inputs)
    picks = digits.campaign(device="cpu").ask().ids.tolist()
    digits.open_record().tell({picks[0]: "1"}, by="ann")
    for item in picks[:2]:
        digits.items.path(item).unlink()
    write_digits(digits.source, range(100, 104))
    grown = digits.refresh()
    assert grown.new == 4 and set(grown.missing) == set(picks[:2]) and not grown.returned
    again = Project.open(digits.home)
    assert [again.items.describe(item)["name"] for item in range(60)] == names
    assert sorted(again.items.describe(i)["name"][-8:-4] for i in range(60, 64)) == [
        *("0100", "0101", "0102", "0103")
    ]
    np.testing.assert_array_equal(again.inputs[:60], inputs)
    ledger = again.open_record().ledger()
    assert ledger.items == 64 and dict(ledger.labels) == {picks[0]: "1"}
    assert list(ledger.skipped) == [picks[1]] and picks[1] not in ledger.waiting
    assert again.refresh().new == 0


def test_a_file_that_comes_back_is_asked_for_again(digits):
    picks = digits.campaign(device="cpu").ask().ids.tolist()
    path = digits.items.path(picks[0])
    whole = path.read_bytes()
    path.unlink()
    digits.refresh()
    assert picks[0] not in digits.open_record().ledger().waiting
    path.write_bytes(whole)
    assert digits.refresh().returned == (picks[0],)
    assert picks[0] in digits.open_record().ledger().waiting


def test_rows_added_to_a_table_are_embedded_like_those_before(tmp_path):
    write_texts(tmp_path / "notes.jsonl", 40)
    project = Project.start(
        tmp_path / "notes.jsonl", home=tmp_path / "c", encoder="tfidf", classes=list(TOPICS)
    )
    before = np.array(project.inputs)
    lines = (tmp_path / "notes.jsonl").read_text().splitlines()
    added = [lines[5], json.dumps({"text": "soup with bread"})]  # a row of before, and a new one
    (tmp_path / "notes.jsonl").write_text("\n".join([*added, *lines[1:]]) + "\n")
    grown = project.refresh()
    assert grown.new == 2 and grown.missing == (0,)
    assert [project.items.entry(item)["text"][:4] for item in (40, 41)] == [
        "soup",
        project.items.entry(5)["text"][:4],
    ]
    np.testing.assert_array_equal(project.inputs[:40], before)
    np.testing.assert_allclose(project.inputs[41], before[5], atol=1e-5)


def test_a_feature_file_may_only_grow_at_its_end(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 4))
    np.save(tmp_path / "f.npy", rows)
    project = Project.start(tmp_path / "f.npy", home=tmp_path / "c")
    np.save(tmp_path / "f.npy", np.concatenate([rows, rows[:2] + 1]))
    assert project.refresh().new == 2 and len(Project.open(tmp_path / "c").items) == 32
    np.save(tmp_path / "f.npy", rows)
    with pytest.raises(BadInput, match="has 30 rows but had 32"):
        project.refresh()
    np.save(tmp_path / "f.npy", np.concatenate([rows[::-1], rows[:2]]))
    with pytest.raises(BadInput, match="rows may only be added at the end"):
        project.refresh()


def test_broken_pictures_are_listed_and_left_out_only_if_asked(tmp_path):
    source = write_digits(tmp_path / "digits", range(9))
    (source / "part0" / "bad.png").write_text("no picture")
    noise = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8)
    Image.fromarray(noise).save(source / "cut.png")
    (source / "cut.png").write_bytes((source / "cut.png").read_bytes()[:70])
    (tmp_path / "out.png").write_bytes(b"")
    (source / "link.png").symlink_to(tmp_path / "out.png")
    with pytest.raises(BadInput, match=r"cannot be used .*link\.png: a link .*--skip-broken"):
        Project.start(source, home=tmp_path / "c")
    (source / "link.png").unlink()
    with pytest.raises(BadInput, match=r"1 of 11 items .*bad\.png: not an image in a known"):
        Project.start(source, home=tmp_path / "c")
    assert not [path.name for path in tmp_path.iterdir() if path.name.strip(".").startswith("c")]
    for encoder in ("none", "auto"):
        project = Project.start(source, home=tmp_path / encoder, encoder=encoder, skip_broken=True)
        assert set(project.ingested.broken) == {"part0/bad.png", "cut.png"}
        assert len(project.items) == len(project.inputs) == project.ingested.new == 9
        for item in project.items:
            number = int(project.items.describe(item)["name"][-8:-4])
            pixels = (DIGITS[number].reshape(1, 8, 8) * 15).astype(np.uint8)
            wanted = pixels if encoder == "none" else labelwise.encode(pixels)[0]
            np.testing.assert_allclose(project.inputs[item], wanted, atol=1e-4)


def test_a_failed_refresh_changes_nothing(digits):
    before = content(digits.home)
    (digits.source / "new.png").write_text("no picture")
    with pytest.raises(BadInput, match="1 of 1 items cannot be used"):
        digits.refresh()
    after = content(digits.home)
    assert {path: after[path] for path in before if path.suffix not in (".db-wal", ".db-shm")} == {
        path: held for path, held in before.items() if path.suffix not in (".db-wal", ".db-shm")
    }
    assert not list(digits.home.glob("*.partial"))


def test_inputs_written_before_a_crash_do_not_count(digits):
    write_digits(digits.source, [200])
    items = (digits.home / "items.jsonl").read_bytes()
    digits.refresh()
    (digits.home / "items.jsonl").write_bytes(items)  # as if the list had not been reached
    again = Project.open(digits.home)
    assert len(again.inputs) == len(again.items) == 60
    again.refresh()
    assert len(again.inputs) == len(again.items) == 61
    assert again.open_record().ledger().items == 61


def test_two_refreshes_at_once_do_not_write_over_one_another(digits):
    write_digits(digits.source, range(60, 70))
    before = content(digits.home)
    with (
        lock_campaign_ingest(digits.home),
        pytest.raises(BadInput, match="another process adds items to"),
    ):
        digits.refresh()
    assert content(digits.home) == before
    assert digits.refresh().new == 10
