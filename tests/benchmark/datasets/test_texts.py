"""Texts with a class each, in the forms in which they are published; and Parquet."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from labelwise.benchmark.datasets import texts
from labelwise.benchmark.datasets.parquet import parquet
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import some_classes, some_images

HEAD = "Category\tText\nd\tstring\nclass\t\n"


@pytest.mark.parametrize(("head", "skip"), [(HEAD + "\n", 3), (HEAD + "\t\n", 3), ("", 0)])
def test_lines_of_class_and_text_with_and_without_a_head(head, skip):
    files = {
        "x-train.tab": f"{head}ship\ta text\nearn\tanother, ü\nship\tthird\n".encode(),
        "x-test.tab": f"{head}ship\tlast\r\n".encode(),
    }
    found = texts.tab_separated(files, stem="x-", head=skip)
    assert found.inputs.tolist() == ["a text", "another, ü", "third"]
    assert found.targets.tolist() == [1, 0, 1]
    assert (found.test_inputs.tolist(), found.test_targets.tolist()) == (["last"], [1])


def test_a_line_without_a_class_is_named():
    files = {"x-train.txt": b"a\tb\nno class here\n", "x-test.txt": b"a\tb\n"}
    with pytest.raises(BadInput, match=r"line 2 of x-train.txt"):
        texts.tab_separated(files, stem="x-")


def test_a_class_that_only_the_test_has_is_named():
    files = {"x-train.txt": b"a\tb\n", "x-test.txt": b"c\tb\n"}
    with pytest.raises(BadInput, match="'c'"):
        texts.tab_separated(files, stem="x-")


def test_reviews_in_json_are_split_into_halves():
    reviews = [{"t": f"review {n}", "s": n % 2} for n in range(20)]
    found = texts.imdb_json({"package/reviews.json": json.dumps(reviews).encode()})
    assert (len(found.inputs), len(found.test_inputs)) == (10, 10)
    both = [*zip(found.inputs, found.targets, strict=True)]
    both += zip(found.test_inputs, found.test_targets, strict=True)
    assert {text: int(side) for text, side in both} == {r["t"]: r["s"] for r in reviews}


def test_reviews_in_files_keep_their_own_split():
    names = ("train/neg/0_3", "train/pos/0_9", "test/neg/1_2", "test/pos/4_8", "train/unsup/0_0")
    found = texts.imdb_folders({f"aclImdb/{n}.txt": n.encode() for n in names})
    assert (found.inputs.tolist(), found.targets.tolist()) == (list(names[:2]), [0, 1])
    assert (found.test_inputs.tolist(), found.test_targets.tolist()) == (list(names[2:4]), [0, 1])


def test_text_folders_are_classes():
    files = {f"bbc/{name}/{n}.txt": f" {name} {n}\n".encode() for name in "ab" for n in range(5)}
    found = texts.text_folders(files, share=0.2)
    assert (len(found.inputs), len(found.test_inputs)) == (8, 2)
    for text, number in zip(found.inputs, found.targets, strict=True):
        assert text[0] == "ab"[number]


def png(image):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(file, "PNG")
    return file.getvalue()


def packed(**columns):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@pytest.mark.parametrize("struct", [True, False])
def test_pictures_in_parquet_files(struct):
    images, classes = some_images(6, 3, 8), some_classes(6, 100)
    cells = [{"bytes": png(image), "path": ""} if struct else png(image) for image in images]
    files = {
        "data/train-00000-of-00002.parquet": packed(img=cells[:2], fine_label=classes[:2]),
        "data/train-00001-of-00002.parquet": packed(img=cells[2:5], fine_label=classes[2:5]),
        "data/test-00000-of-00001.parquet": packed(img=cells[5:], fine_label=classes[5:]),
    }
    found = parquet(files, side=8)
    np.testing.assert_array_equal(found.inputs, images[:5])
    np.testing.assert_array_equal(found.test_inputs, images[5:])
    assert [*found.targets, *found.test_targets] == classes.tolist()


def test_grey_pictures_in_parquet_files_in_a_folder_with_a_misleading_name():
    images = some_images(3, 1, 8)
    cells = [png(np.repeat(image, 3, axis=0)) for image in images]
    files = {
        "training/train-0.parquet": packed(image=cells[:2], label=[4, 5]),
        "training/test-0.parquet": packed(image=cells[2:], label=[6]),
    }
    found = parquet(files, side=8, mode="L")
    np.testing.assert_array_equal(found.inputs, images[:2])
    np.testing.assert_array_equal(found.test_inputs, images[2:])
    assert (found.targets.tolist(), found.test_targets.tolist()) == ([4, 5], [6])


def test_texts_in_parquet_files():
    files = {
        "train.parquet": packed(text=["a", "b"], label=[1, 0]),
        "test.parquet": packed(text=["c"], label=[1]),
    }
    found = parquet(files)
    assert (found.inputs.tolist(), found.targets.tolist()) == (["a", "b"], [1, 0])
    assert (found.test_inputs.tolist(), found.test_targets.tolist()) == (["c"], [1])


def test_parquet_files_without_labels_or_content_are_named():
    with pytest.raises(BadInput, match="no column fine_label or label or labels"):
        parquet({"train.parquet": packed(text=["a"], score=[1])})
    with pytest.raises(BadInput, match=r"train.parquet is no Parquet file"):
        parquet({"train.parquet": b"PAR1"})
