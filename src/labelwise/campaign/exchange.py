"""Labels and open picks of images as files of COCO, CVAT and FiftyOne, and back.

=========  ============================================  =================================
format     labelled image                                image that waits for a label
=========  ============================================  =================================
COCO       annotation whose box is the whole image       image without annotation
CVAT       ``<tag>`` (CVAT for images 1.1)               ``<image>`` without tag
FiftyOne   entry of ``labels`` by path without ending    not listed
=========  ============================================  =================================

Images are named by their paths in the campaign's folder of images.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.etree import ElementTree

from labelwise.errors import BadInput, LabelwiseError, require_extra
from labelwise.files import Json, JsonObject, write_json, write_text

EXCHANGE_FORMATS = {"coco": ".json", "cvat": ".xml", "fiftyone": ".json"}
"""Endings of the files by format."""


class ImageLabel(NamedTuple):
    """An image and its label."""

    path: str  # in the folder of images, with ``/``
    label: str | None  # None for an image without one
    facts: Mapping[str, object] = {}  # further values, such as its weight


def write_image_labels(
    path: Path, form: str, images: Sequence[ImageLabel], classes: Sequence[str], folder: Path
) -> None:
    """Write labels and open picks.

    Labels that are not among the classes follow them. COCO and CVAT need the sizes of the images in
    ``folder``.
    """
    if path.suffix != EXCHANGE_FORMATS[form]:
        raise BadInput(f"a {form} file ends in {EXCHANGE_FORMATS[form]}; got {path.name!r}")
    labels = [image.label for image in images if image.label is not None]
    names = list(dict.fromkeys([*classes, *labels]))
    if form == "fiftyone":
        write_json(path, _make_fiftyone_labels(images, names), indent=1)
    elif form == "coco":
        write_json(path, _make_coco_labels(images, names, folder), indent=1)
    else:
        root = _make_cvat_labels(images, names, folder)
        ElementTree.indent(root)
        write_text(path, ElementTree.tostring(root, "unicode") + "\n")


def _make_fiftyone_labels(images: Iterable[ImageLabel], names: Sequence[str]) -> JsonObject:
    labels = {
        str(PurePosixPath(image.path).with_suffix("")): names.index(image.label)
        for image in images
        if image.label is not None
    }
    return {"classes": list(names), "labels": labels}


def _make_coco_labels(
    images: Sequence[ImageLabel], names: Sequence[str], folder: Path
) -> JsonObject:
    listed: list[JsonObject] = []
    annotations: list[JsonObject] = []
    for number, image in enumerate(images, 1):
        width, height = _read_image_size(folder / image.path)
        listed.append({"id": number, "file_name": image.path, "width": width, "height": height})
        if image.label is not None:
            corners = [0, 0, width, 0, width, height, 0, height]
            box = {"bbox": [0, 0, width, height], "area": width * height, "iscrowd": 0}
            box["segmentation"] = [corners]
            entry = {"id": number, "image_id": number, "category_id": names.index(image.label) + 1}
            annotations.append({**entry, **box, "attributes": dict(image.facts)})
    categories = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
    return {"images": listed, "annotations": annotations, "categories": categories}


def _make_cvat_labels(
    images: Sequence[ImageLabel], names: Sequence[str], folder: Path
) -> ElementTree.Element:
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    labels = ElementTree.SubElement(task, "labels")
    for name in names:
        ElementTree.SubElement(ElementTree.SubElement(labels, "label"), "name").text = name
    for number, image in enumerate(images):
        width, height = _read_image_size(folder / image.path)
        about = {"name": image.path, "width": str(width), "height": str(height)}
        entry = ElementTree.SubElement(root, "image", {"id": str(number), **about})
        if image.label is not None:
            ElementTree.SubElement(entry, "tag", label=image.label, source="manual")
    return root


def _read_image_size(path: Path) -> tuple[int, int]:
    with require_extra("sizes of images need pillow", "web"):
        from PIL import Image
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise BadInput(f"the size of {path} cannot be read ({error}); restore the file") from error


def read_image_labels(path: Path) -> list[ImageLabel]:
    """Read the labels of a COCO, CVAT or FiftyOne file; images without a label are left out.

    Raises:
        BadInput: the file has another form, or an image has several labels.
    """
    try:
        if path.suffix == ".xml":
            found = list(_read_cvat_labels(ElementTree.parse(path).getroot()))
        else:
            found = list(_read_coco_or_fiftyone_labels(json.loads(path.read_bytes())))
    except LabelwiseError:
        raise
    except (
        ElementTree.ParseError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise BadInput(
            f"{path} is not a file of labels of COCO, CVAT for images or FiftyOne "
            f"({type(error).__name__}: {error})"
        ) from None
    first: dict[str, str | None] = {}
    for image in found:
        if first.setdefault(image.path, image.label) != image.label:
            raise BadInput(f"{path} has several labels for {image.path}; items have one label")
    return [ImageLabel(name, label) for name, label in first.items()]


def _read_cvat_labels(root: ElementTree.Element) -> Iterable[ImageLabel]:
    if root.tag != "annotations":
        raise KeyError("annotations")
    for image in root.iter("image"):
        for tag in image.iter("tag"):
            yield ImageLabel(image.attrib["name"], tag.attrib["label"])


def _read_coco_or_fiftyone_labels(content: Json) -> Iterable[ImageLabel]:
    if "labels" in content:
        classes = content.get("classes")
        for name, entry in content["labels"].items():
            label = entry["label"] if isinstance(entry, dict) else entry
            if label is not None:
                own = classes[label] if classes is not None else label
                yield ImageLabel(str(name), str(own))
        return
    names = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
    files = {entry["id"]: str(entry["file_name"]) for entry in content["images"]}
    for entry in content["annotations"]:
        yield ImageLabel(files[entry["image_id"]], names[entry["category_id"]])
