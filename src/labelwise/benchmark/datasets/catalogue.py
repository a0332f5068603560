"""The table of data sets, read from ``catalogue.toml``."""

import tomllib
from functools import partial
from importlib.resources import files

from labelwise.benchmark.datasets import readers
from labelwise.benchmark.datasets.entries import DatasetEntry, FileLayout
from labelwise.files import JsonObject
from labelwise.media.packages import DataPackage


def _parse_catalogue(text: str) -> dict[str, DatasetEntry]:
    table = tomllib.loads(text)
    packages = {name: DataPackage(**fields) for name, fields in table["packages"].items()}
    return {name: _parse_entry(name, fields, packages) for name, fields in table["sets"].items()}


def _parse_entry(name: str, fields: JsonObject, packages: dict[str, DataPackage]) -> DatasetEntry:
    fields.setdefault("classes", None)
    for key in ("train_counts", "test_counts"):
        if isinstance(fields.get(key), int):  # the same count for every class
            fields[key] = [fields[key]] * fields["classes"]
    layouts = tuple(map(_parse_layout, fields.pop("layouts", ())))
    used = tuple(packages[key] for key in fields.pop("packages", ()))
    other = tuple(map(tuple, fields.pop("other_counts", ())))
    values: JsonObject = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return DatasetEntry(name, layouts=layouts, packages=used, other_counts=other, **values)


def _parse_layout(fields: JsonObject) -> FileLayout:
    form, patterns = fields.pop("form"), tuple(fields.pop("files"))
    return FileLayout(form, patterns, partial(getattr(readers, fields.pop("reader")), **fields))


CATALOGUE = _parse_catalogue(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
"""All data sets by name."""
