"""Files with new items, added to the source of a campaign."""

import pytest

from labelwise.campaign.project import Project
from labelwise.errors import BadInput


def start(folder, name, text):
    (folder / name).write_text(text)
    return Project.start(folder / name, home=folder / "c")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "name;height\noak;1.5\nfir;2.5"),
        ("a.tsv", "name\theight\noak\t1.5\nfir\t2.5\n"),
        ("a.jsonl", '{"name": "oak", "height": 1.5}\n{"name": "fir", "height": 2.5}\n'),
    ],
)
def test_rows_are_appended_and_become_items(tmp_path, name, text):
    project = start(tmp_path, name, text)
    more = b"height,note,name\n3.5,tall,elm\n4.5,,ash\n"
    assert project.add_upload("more.csv", more) == 2
    assert project.refresh().new == 2
    rows = [project.items.entry(item)["row"] for item in project.items]
    assert [(row["name"], float(row["height"])) for row in rows] == [
        ("oak", 1.5), ("fir", 2.5), ("elm", 3.5), ("ash", 4.5)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("more.csv", b"name,width\noak,1\n", "no column 'height'"),
        ("more.png", b"", "is not a table"),
        ("", b"", "cannot be used"),
        ("more.csv", b"height\n\xff\n", "not a UTF-8 table"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(tmp_path, name, content, words):
    project = start(tmp_path, "a.csv", "name,height\noak,1.5\nfir,2.5\n")
    with pytest.raises(BadInput, match=words):
        project.add_upload(name, content)
    assert (tmp_path / "a.csv").read_text() == "name,height\noak,1.5\nfir,2.5\n"
