"""Labels and open picks of images in files of COCO, CVAT and FiftyOne."""

import json
from xml.etree import ElementTree

import pytest
from PIL import Image

from labelwise.campaign.exchange import (
    EXCHANGE_FORMATS,
    ImageLabel,
    read_image_labels,
    write_image_labels,
)
from labelwise.errors import BadInput

IMAGES = [
    ImageLabel("a/1.png", "cat", {"weight": 2.0}),
    ImageLabel("a/2.png", None),
    ImageLabel("3.png", "<dog> & co", {"weight": None}),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for image, size in zip(IMAGES, [(4, 3), (5, 2), (6, 6)], strict=True):
        Image.new("L", size).save(tmp_path / image.path)
    return tmp_path


@pytest.mark.parametrize("form", EXCHANGE_FORMATS)
def test_labels_come_back(folder, form):
    path = folder / f"labels{EXCHANGE_FORMATS[form]}"
    write_image_labels(path, form, IMAGES, ["dog", "cat"], folder)
    ending = slice(None, -4 if form == "fiftyone" else None)
    expected = [(image.path[ending], image.label) for image in IMAGES if image.label]
    assert [(image.path, image.label) for image in read_image_labels(path)] == expected


def test_coco_lists_open_picks_and_all_classes(folder):
    write_image_labels(folder / "c.json", "coco", IMAGES, ["dog", "cat"], folder)
    content = json.loads((folder / "c.json").read_text())
    assert [(i["file_name"], i["width"], i["height"]) for i in content["images"]][1] == (
        *("a/2.png", 5),
        2,
    )
    assert [entry["name"] for entry in content["categories"]] == ["dog", "cat", "<dog> & co"]
    assert [(a["image_id"], a["category_id"], a["bbox"]) for a in content["annotations"]] == [
        (1, 2, [0, 0, 4, 3]),
        (3, 3, [0, 0, 6, 6]),
    ]
    assert content["annotations"][0]["segmentation"] == [[0, 0, 4, 0, 4, 3, 0, 3]]


def test_cvat_has_one_tag_per_labelled_image(folder):
    write_image_labels(folder / "c.xml", "cvat", IMAGES, [], folder)
    root = ElementTree.parse(folder / "c.xml").getroot()
    assert [name.text for name in root.findall("meta/task/labels/label/name")] == [
        "cat",
        "<dog> & co",
    ]
    images = root.findall("image")
    assert [len(image.findall("tag")) for image in images] == [1, 0, 1]
    assert images[1].attrib == {"id": "1", "name": "a/2.png", "width": "5", "height": "2"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.xml", "<images/>", "is not a file of labels"),
        ("a.xml", "<a", "is not a file of labels"),
        ("a.json", '{"images": 3}', "is not a file of labels"),
        ("a.json", '{"labels": {"x": {"label": 4}}, "classes": ["a"]}', "is not a file of labels"),
        (
            "a.xml",
            '<annotations><image name="1"><tag label="a"/><tag label="b"/></image></annotations>',
            "several labels for 1; items have one label",
        ),
    ],
)
def test_another_file_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        read_image_labels(tmp_path / name)
