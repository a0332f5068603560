"""Items under ids that never change, and files that are served only from their own folder."""

import json
import os
from threading import Thread

import numpy as np
import pytest

from labelwise.campaign.folder import items as module
from labelwise.campaign.folder.items import MANIFEST, CampaignItems, write_items
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.embedding import Standardizer
from tests.record.listed import pictures


def test_ids_are_the_numbers_of_the_lines_and_the_list_only_grows(tmp_path):
    path = tmp_path / MANIFEST
    texts = ["a\nb", "ü", "", '"quoted"', "\ud83d"]
    assert write_items(path, [{"text": text} for text in texts]) == 5
    before = path.read_bytes()
    assert write_items(path, [{"text": "new"}], after=5) == 6
    assert path.read_bytes().startswith(before)
    items = CampaignItems(tmp_path, "texts", tmp_path)
    assert [items.entry(item)["text"] for item in items] == [*texts, "new"]
    assert len(items) == 6 and np.int64(5) in items
    assert not any(item in items for item in (6, -1, 1.0, True, "1"))


def test_a_list_that_grows_under_a_running_server_is_read_again(tmp_path):
    write_items(tmp_path / MANIFEST, [{"text": "a"}])
    items = CampaignItems(tmp_path, "texts", tmp_path)
    write_items(tmp_path / MANIFEST, [{"text": "b"}], after=1)
    assert items.describe(1) == {"id": 1, "kind": "texts", "text": "b"} and len(items) == 2
    with pytest.raises(UnknownName, match="no item 2; ids are 0 to 1"):
        items.describe(2)


def test_many_threads_read_the_right_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 1000)  # line ends on both sides of a block
    write_items(tmp_path / MANIFEST, [{"text": f"{n} " * (n % 50)} for n in range(2000)])
    items, wrong = CampaignItems(tmp_path, "texts", tmp_path), []

    def check(first):
        for item in range(first, 2000, 4):
            if items.entry(item)["text"] != f"{item} " * (item % 50):
                wrong.append(item)

    threads = [Thread(target=check, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(items) == 2000 and not wrong


def test_a_list_that_was_edited_or_emptied_is_refused(tmp_path):
    write_items(tmp_path / MANIFEST, [{"text": "a"}, {"text": "b"}])
    lines = (tmp_path / MANIFEST).read_bytes().splitlines(keepends=True)
    (tmp_path / MANIFEST).write_bytes(b"".join(reversed(lines)))
    with pytest.raises(BadInput, match=r"line 1 of .* does not describe item 0"):
        CampaignItems(tmp_path, "texts", tmp_path).entry(0)
    (tmp_path / MANIFEST).write_bytes(b"no line break")
    with pytest.raises(BadInput, match=r"line 1 of .* does not describe item 0"):
        CampaignItems(tmp_path, "texts", tmp_path).has_keys  # noqa: B018
    (tmp_path / MANIFEST).write_bytes(b"")
    with pytest.raises(BadInput, match="is empty"):
        CampaignItems(tmp_path, "texts", tmp_path)


def test_a_picture_is_found_by_its_id_alone(tmp_path):
    home, source = pictures(tmp_path, "a.png", "deep/er/b.png")
    items = CampaignItems(home, "images", source)
    assert items.path(1) == (source / "deep/er/b.png").resolve()
    assert items.describe(1) == {"id": 1, "kind": "images", "name": "deep/er/b.png"}
    (source / "a.png").unlink()
    with pytest.raises(UnknownName, match=r"the file of item 0 is gone: a\.png"):
        items.path(0)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "a/../../secret.png"])
def test_a_path_out_of_the_folder_is_refused(path, tmp_path):
    home, source = pictures(tmp_path, "a.png")
    (tmp_path / "secret.png").write_bytes(b"")
    write_items(home / MANIFEST, [{"path": path}])
    with pytest.raises(BadInput, match="the path of item 0 leads out of"):
        CampaignItems(home, "images", source).path(0)


@pytest.mark.parametrize("how", ["file", "folder"])
def test_a_link_out_of_the_folder_is_refused_even_if_it_comes_later(how, tmp_path):
    home, source = pictures(tmp_path, "sub/a.png")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.png").write_bytes(b"secret")
    (source / "sub" / "a.png").unlink()
    if how == "file":
        (source / "sub" / "a.png").symlink_to(tmp_path / "other" / "a.png")
    else:
        (source / "sub").rmdir()
        (source / "sub").symlink_to(tmp_path / "other")
    with pytest.raises(BadInput, match="leads out of"):
        CampaignItems(home, "images", source).path(0)


def test_a_source_that_moved_says_how_to_go_on(tmp_path):
    home, source = pictures(tmp_path, "a.png")
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(UnknownName, match="labelwise start NEW_PLACE --moved --out"):
        CampaignItems(home, "images", source).path(0)


def test_names_that_are_no_text_are_found_and_can_be_shown(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    home, source = pictures(tmp_path, name)
    items = CampaignItems(home, "images", source)
    assert items.path(0).name == name
    assert json.dumps(items.describe(0), ensure_ascii=False).encode()
    assert items.describe(0)["name"] == "caf?.png"


def test_rows_of_a_feature_file_are_shown_as_they_were(tmp_path):
    rows = np.random.default_rng(0).normal(50, 20, size=(4, 30))
    scale = Standardizer.fit(rows)
    scale.save(tmp_path / "embedding.npz")
    np.save(tmp_path / "inputs.npy", scale(rows))
    items = CampaignItems(tmp_path, "numbers", tmp_path)
    shown = items.describe(2)["columns"]
    assert list(shown) == [str(column) for column in range(20)] and len(items) == 4
    np.testing.assert_allclose(list(shown.values()), rows[2, :20], rtol=1e-4)
