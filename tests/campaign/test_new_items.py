"""What is new in a folder or a table, and what of it cannot be used."""

import pytest

from labelwise.campaign.folder.new_items import find_new_images, find_new_rows
from labelwise.errors import BadInput
from labelwise.media.folders import find_images
from tests.record.listed import pictures


def test_links_hidden_files_and_campaigns_are_not_taken_for_pictures(tmp_path):
    _, source = pictures(
        tmp_path, "b.PNG", "a/c.jpg", ".hidden.png", ".git/x.png", "p.labelwise/m.png", "n.txt", "N"
    )
    (tmp_path / "out.png").write_bytes(b"")
    (source / "out.png").symlink_to(tmp_path / "out.png")
    (source / "in.png").symlink_to(source / "b.PNG")
    (source / "up").symlink_to(tmp_path)
    (source / "loop").symlink_to(source)
    found = find_images(source)
    assert found.paths == ["a/c.jpg", "b.PNG", "in.png"]
    assert set(found.refused) == {"out.png", "up"}
    assert found.others == {".txt": 1, "no suffix": 1}


def test_a_folder_without_pictures_says_what_it_has(tmp_path):
    (tmp_path / "a.heic").write_bytes(b"")
    with pytest.raises(BadInput, match=r"has no images; it has 1 \.heic"):
        find_new_images(tmp_path, [])


def test_find_new_images_are_those_whose_path_is_new(tmp_path):
    _, source = pictures(tmp_path, "a.png", "c.png", "d.png")
    found = find_new_images(source, [{"path": "b.png"}, {"path": "c.png"}])
    assert found.values == ["a.png", "d.png"] and found.missing == [0]


def test_rows_are_known_by_what_they_hold_and_twice_is_two(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text\nnew\nsame\nsame\nold\n")
    known = [{"text": text} for text in ("old", "same", "lost")]
    found, chosen, _ = find_new_rows(path, known)
    assert found.values == ["new", "same"] and list(found.missing) == [2]
    assert chosen.text == ("text",) and found.kind == "texts"


def test_rows_of_numbers_are_known_by_their_numbers_alone(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y,name,added\n1,2,a,p\n3,4,b,q\n5,6,c,r\n")
    known = [{"row": {"x": "3", "y": "4", "name": "old"}}, {"row": {"x": "1", "y": "2"}}]
    found, *_ = find_new_rows(path, known, columns=["x", "y"])
    assert found.values.tolist() == [[5, 6]] and not found.missing
    assert found.entries[0]["row"]["added"] == "r"


def test_rows_that_cannot_be_used_are_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a"}\n{"text": " "}\n{"text": null}\n')
    found, *_ = find_new_rows(path, [], text=["text"])
    assert found.broken == {"row 2": "an empty text", "row 3": "an empty text"}
    assert found.values == ["a"]
    path.write_text('{"x": 1, "d": "y"}\n{"x": Infinity, "d": "z"}\n')
    found, *_ = find_new_rows(path, [])
    assert found.broken == {"row 2": "an infinite number"} and found.values.tolist() == [[1.0]]
    assert found.entries == [{"row": {"x": 1, "d": "y"}}]
    path.write_text('{"x": 1}\n{"x": -1e200}\n')
    found, *_ = find_new_rows(path, [])
    assert found.broken == {"row 2": "a number beyond 1e+100"}


def test_texts_beside_numbers_are_not_passed_over_in_silence(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f"{row},the food was rather good {row},{row % 5}" for row in range(20)]
    path.write_text("\n".join(["id,review,stars", *rows]))
    with pytest.raises(BadInput, match=r"texts \(review\) and numbers \(id, stars\); choose what"):
        find_new_rows(path, [])
    assert find_new_rows(path, [], text=["review"])[0].kind == "texts"
    assert find_new_rows(path, [], columns=["stars"])[0].values.shape == (20, 1)
    assert find_new_rows(path, [], without=["review"])[0].values.shape == (20, 2)


def test_names_of_rows_are_no_texts(tmp_path):
    path = tmp_path / "plants.csv"
    path.write_text("plant,height\n" + "".join(f"common oak {n},{n}\n" for n in range(9)))
    assert find_new_rows(path, [])[0].kind == "numbers"


def test_a_text_with_half_a_character_cannot_be_used(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "whole"}\n{"text": "half \\ud800"}\n')
    found = find_new_rows(path, [])[0]
    assert found.values == ["whole"]
    assert found.broken == {"row 2": "half a character, which is not valid text"}


def test_what_a_page_could_not_be_sent_of_a_row_is_left_out(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "b": NaN, "c": "x\\ud800"}\n{"a": 2, "b": 1.5, "c": "y"}\n')
    found = find_new_rows(path, [], columns=["a"])[0]
    assert found.entries == [
        {"row": {"a": 1, "b": None, "c": "x?"}},
        {"row": {"a": 2, "b": 1.5, "c": "y"}},
    ]
