"""Texts with a class each, in the forms in which they are published."""

import json

import pytest

from labelwise.benchmark.datasets import readers
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import matched

HEAD = "Category\tText\nd\tstring\nclass\t\n"


@pytest.mark.parametrize(("head", "skip"), [(HEAD + "\n", 3), (HEAD + "\t\n", 3), ("", 0)])
def test_lines_of_class_and_text_with_and_without_a_head(head, skip):
    files = {
        "x-train.tab": f"{head}ship\ta text\nearn\tanother, ü\nship\tthird\n".encode(),
        "x-test.tab": f"{head}ship\tlast\r\n".encode(),
    }
    found = readers.read_tab_separated(matched(files, "x-train*", "x-test*"), skip=skip)
    assert found.inputs.tolist() == ["a text", "another, ü", "third"]
    assert found.targets.tolist() == [1, 0, 1]
    assert (found.test_inputs.tolist(), found.test_targets.tolist()) == (["last"], [1])


def test_a_line_without_a_class_is_named():
    files = {"x-train.txt": b"a\tb\nno class here\n", "x-test.txt": b"a\tb\n"}
    with pytest.raises(BadInput, match=r"line 2 of x-train.txt"):
        readers.read_tab_separated(matched(files, "x-train*", "x-test*"), skip=0)


def test_a_class_that_only_the_test_has_is_named():
    files = {"x-train.txt": b"a\tb\n", "x-test.txt": b"c\tb\n"}
    with pytest.raises(BadInput, match="'c'"):
        readers.read_tab_separated(matched(files, "x-train*", "x-test*"), skip=0)


def test_reviews_in_json_are_split_into_halves():
    reviews = [{"t": f"review {n}", "s": n % 2} for n in range(20)]
    found = readers.read_imdb_json([[("package/reviews.json", json.dumps(reviews).encode())]])
    assert (len(found.inputs), len(found.test_inputs)) == (10, 10)
    both = [*zip(found.inputs, found.targets, strict=True)]
    both += zip(found.test_inputs, found.test_targets, strict=True)
    assert {text: int(side) for text, side in both} == {r["t"]: r["s"] for r in reviews}


def test_reviews_in_files_keep_their_own_split():
    names = ("train/neg/0_3", "train/pos/0_9", "test/neg/1_2", "test/pos/4_8", "train/unsup/0_0")
    patterns = ("*train/neg/*", "*train/pos/*", "*test/neg/*", "*test/pos/*")
    files = matched({f"aclImdb/{n}.txt": n.encode() for n in names}, *patterns)
    found = readers.read_imdb_folders(files)
    assert (found.inputs.tolist(), found.targets.tolist()) == (list(names[:2]), [0, 1])
    assert (found.test_inputs.tolist(), found.test_targets.tolist()) == (list(names[2:4]), [0, 1])


def test_text_folders_are_classes():
    files = {f"bbc/{name}/{n}.txt": f" {name} {n}\n".encode() for name in "ab" for n in range(5)}
    found = readers.read_text_folders(matched(files, "*/b/*", "*/a/*"), share=0.2)
    assert (len(found.inputs), len(found.test_inputs)) == (8, 2)
    for text, number in zip(found.inputs, found.targets, strict=True):
        assert text[0] == "ab"[number]
