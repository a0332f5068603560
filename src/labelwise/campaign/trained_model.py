"""The model of a campaign, for predictions of its items and of new ones; saved without pickles.

A saved model is a folder:

==============  ===================================================================================
file            contents
==============  ===================================================================================
campaign.json   kind of the items, and the encoder that makes their features
model.json      classes, task, and the width of prediction intervals
embedding.npz   scale of numbers, or TF-IDF of texts; not for pretrained encoders
head/           the head, as its learner writes it
==============  ===================================================================================
"""

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import Floats, HostArray, to_numpy
from labelwise.campaign.folder.description import DESCRIPTION, EMBEDDING, TFIDF, CampaignDescription
from labelwise.campaign.folder.encoders import encode_new_items, shorten_encoder_spec
from labelwise.campaign.folder.ingest import read_feature_rows
from labelwise.campaign.project import Project, make_campaign_learner
from labelwise.encoders.encoding import encode
from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput, UnknownName, first_line
from labelwise.files import JsonObject, read_json, write_json
from labelwise.learner import Label, Learner
from labelwise.learners.committee import ColumnLearner, Committee
from labelwise.learners.embedding import Standardizer
from labelwise.media.folders import find_images
from labelwise.media.images import read_images
from labelwise.media.tables import (
    ARRAYS,
    TABLES,
    Columns,
    convert_table,
    join_texts,
    read_keys,
    read_table,
)
from labelwise.rounds import LabelEncoding, measure_out_of_fold
from labelwise.rounds.measures import CONFIDENCE_LEVEL

FACTS, HEAD, FORMAT = "model.json", "head", 1


@dataclass(frozen=True)
class ItemPredictions:
    """Predictions of ``n`` items."""

    labels: list[Label]  # the predicted classes or values
    classes: tuple[Label, ...] = ()  # of the columns of the probabilities; empty for a regression
    probabilities: Floats | None = None  # ``(n, K)``, calibrated; None for a regression
    # half the width of the interval of a value; None if unknown or for classes
    half_width: float | None = None

    @property
    def confidence(self) -> list[float] | None:
        """Probability of every predicted class."""
        return None if self.probabilities is None else self.probabilities.max(axis=1).tolist()


class TrainedModel:
    """A trained model with what turns items into its inputs; see `load_model`.

    Attributes:
        description: of the items and their encoder.
        encoding: of the labels.
        half_width: half the width of the interval that holds 95 % of values out of fold.
        columns: first and last (excluded) column of the campaign's inputs that it reads; None for
            all of them.
    """

    def __init__(
        self,
        home: Path,
        description: CampaignDescription,
        learner: Learner,
        encoding: LabelEncoding,
        half_width: float | None = None,
        columns: tuple[int, int] | None = None,
    ) -> None:
        """Use `load_model`."""
        self.home, self.description = home, description
        self.encoding, self.half_width, self.columns = encoding, half_width, columns
        self._learner = learner

    def predict(self, items: Any) -> HostArray:
        """The classes or values of new items, ``(n,)``; see `encode`."""
        return np.array(self.evaluate(self.encode(items)).labels)

    def predict_proba(self, items: Any) -> Floats:
        """Calibrated probabilities of the classes of new items, ``(n, K)``."""
        found = self.evaluate(self.encode(items)).probabilities
        if found is None:
            raise BadInput("a regression has no probabilities; use predict")
        return found

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes in the order of the columns of `predict_proba`; empty for a regression."""
        return self.evaluate(_make_blank_model_input(self.home, self.description)).classes

    def evaluate(self, rows: Any) -> ItemPredictions:
        """Predictions for ``(n, ...)`` inputs of the model."""
        if self.encoding.regression:
            values = to_numpy(self._learner.represent(rows, ["outputs"])["outputs"])
            labels: list[Label] = [float(value) for value in values[:, 0]]
            return ItemPredictions(labels, half_width=self.half_width)
        found = self._learner.represent(rows, ["probabilities"])["probabilities"]
        chances = np.asarray(to_numpy(found), dtype=np.float64)
        names = self.encoding.names
        if names is not None:  # a network may have more outputs than classes
            chances = chances[:, : len(names)]
        classes = tuple(self.encoding.decode(number) for number in range(chances.shape[1]))
        labels = [classes[column] for column in chances.argmax(axis=1)]
        return ItemPredictions(labels, classes, chances)

    def encode(self, items: Any) -> Any:
        """Inputs of the model for new items.

        Args:
            items: paths of images, texts, or rows of numbers like those of the campaign; a table
                in memory (pandas, polars, pyarrow, a list of mappings) with the campaign's columns,
                by name; or the path of a folder of images, of such a table, or of an array.
        """
        return self.encode_values(read_values(self.description, items)[1])

    def encode_values(self, values: Any) -> Any:
        """Inputs of the model for the values that `read_values` gave."""
        description, embedding = self.description, self.home / EMBEDDING
        if description.encoders:
            return encode_new_items(self.home, description, values)
        if description.shape:
            rows = np.zeros((len(values), *description.shape), dtype=np.uint8)
            broken = read_images([Path(path) for path in values], rows)
            if broken:
                path, reason = next(iter(broken.items()))
                raise BadInput(f"{len(broken)} images cannot be read ({path}: {reason})")
            return rows
        if description.kind == "texts" and not description.features:
            if description.embedding == TFIDF:
                return TfidfEncoder.load(embedding).encode_batch(values)
            values = encode(values, f"st:{description.embedding}")
        scale = self._load_scale()
        try:
            rows = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BadInput(f"the model reads rows of numbers ({first_line(error)})") from error
        if rows.ndim != 2 or rows.shape[1] != scale.mean.shape[1]:
            raise BadInput(
                f"the model reads {scale.mean.shape[1]} numbers per item; got {rows.shape}"
            )
        return scale(rows)

    def _load_scale(self) -> Standardizer:
        """The scale of the columns that the model reads."""
        scale = Standardizer.load(self.home / EMBEDDING)
        own = slice(*(self.columns or (0, scale.mean.shape[1])))
        return Standardizer(scale.mean[:, own], scale.spread[:, own])

    def select_columns(self, inputs: Any) -> Any:
        """The part of a campaign's inputs that the model reads."""
        return inputs if self.columns is None else inputs[:, slice(*self.columns)]

    def save(self, folder: str | Path) -> None:
        """Write the model to a new folder: encoder reference, head and classes."""
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not (path / FACTS).is_file():
                raise BadInput(f"{path} exists and is not a saved model; give another folder")
        if not hasattr(self._learner, "save"):
            raise BadInput(f"{type(self._learner).__name__} cannot be saved; take another model")
        path.mkdir(parents=True, exist_ok=True)
        self._learner.save(path / HEAD)
        if (self.home / EMBEDDING).is_file():
            shutil.copyfile(self.home / EMBEDDING, path / EMBEDDING)
        replace(self.description, source="", storage=None).write(path)
        facts: JsonObject = {
            "format": FORMAT,
            "regression": self.encoding.regression,
            "classes": None if self.encoding.names is None else list(self.encoding.names),
            "half_width": self.half_width,
            "columns": None if self.columns is None else list(self.columns),
        }
        write_json(path / FACTS, facts, indent=1)


def zip_trained_model(project: Project) -> bytes:
    """The last model of a campaign as a .zip file of the folder that `TrainedModel.save` writes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        open_campaign_model(project).save(folder)
        return Path(shutil.make_archive(str(folder), "zip", place, "model")).read_bytes()


def load_model(path: str | Path, *, representation: str | None = None) -> TrainedModel:
    """The model of a campaign, or one that ``labelwise train --save`` wrote.

    Args:
        path: of the campaign's folder or of the saved model.
        representation: the encoder (or file of features) whose model is used, where there are
            several; the one with the best out-of-fold predictions if None.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> np.save(place / "f.npy", np.arange(20.0)[:, None])
        >>> project = Project.start(place / "f.npy", home=place / "c", classes=["small", "large"])
        >>> campaign = project.campaign()
        >>> labels = {int(i): "large" if i > 9 else "small" for i in campaign.ask(20).ids}
        >>> _ = campaign.tell(labels), campaign.train()
        >>> load_model(place / "c").predict([[-5.0], [30.0]]).tolist()
        ['small', 'large']
    """
    folder = Path(path)
    if (folder / FACTS).is_file():
        return _read_saved_model(folder)
    return open_campaign_model(Project.open(folder), representation)


def _make_blank_model_input(home: Path, description: CampaignDescription) -> HostArray:
    """A blank row of the inputs of a model, ``(1, ...)``."""
    if description.shape and not description.encoders:
        return np.zeros((1, *description.shape), dtype=np.uint8)
    width = sum(description.widths) or Standardizer.load(home / EMBEDDING).mean.size
    return np.zeros((1, width), dtype=np.float32)


def _read_saved_model(folder: Path) -> TrainedModel:
    facts = read_json(folder / FACTS)
    if facts.get("format") != FORMAT:
        raise BadInput(f"{folder} was written by another version; save the model again")
    if not (folder / DESCRIPTION).is_file():
        raise BadInput(f"{folder} has no {DESCRIPTION}; save the model again")
    names = facts.get("classes")
    regression = bool(facts.get("regression"))
    encoding = LabelEncoding(regression, None if names is None else tuple(names))
    description = CampaignDescription.read(folder)
    example, classes = (
        _make_blank_model_input(folder, description),
        None if names is None else len(names),
    )
    learner = make_campaign_learner(folder, description, example, classes, regression)
    if not hasattr(learner, "load"):
        raise BadInput(f"{type(learner).__name__} cannot be loaded; take another model")
    learner.load(folder / HEAD)
    held = facts.get("columns")
    columns = None if held is None else (int(held[0]), int(held[1]))
    return TrainedModel(folder, description, learner, encoding, facts.get("half_width"), columns)


def open_campaign_model(project: Project, representation: str | None = None) -> TrainedModel:
    """The last model of a campaign; see `load_model`."""
    model = project.campaign().load_model()
    learner: Learner = getattr(model.learner, "made", model.learner)
    description, columns = project.description, None
    if isinstance(learner, Committee):
        members = [
            one.learner for one in learner.learners.values() if isinstance(one, ColumnLearner)
        ]
        choice = choose_representation(members, description, model.encoding, representation)
        learner = members[choice]
        columns = list(pairwise(accumulate(description.widths, initial=0)))[choice]
        description = replace(
            description,
            encoders=description.encoders[choice : choice + 1],
            features=description.features[choice : choice + 1],
            widths=description.widths[choice : choice + 1],
        )
    elif representation is not None:
        raise BadInput("the campaign has a single representation; leave the choice out")
    half_width = _measure_half_width(learner) if model.encoding.regression else None
    return TrainedModel(project.home, description, learner, model.encoding, half_width, columns)


def list_representations(description: CampaignDescription) -> list[str]:
    """The names of encoders or files of features, without their folders."""
    names = [used.spec for used in description.encoders] or description.features
    return [shorten_encoder_spec(name) for name in names]


def choose_representation(
    learners: Sequence[Learner],
    description: CampaignDescription,
    encoding: LabelEncoding,
    named: str | None,
) -> int:
    """The position of the named encoder or file of features, or of the best one out of fold."""
    if named is not None:
        known = list_representations(description)
        places = [n for n, name in enumerate(known) if name == shorten_encoder_spec(named)]
        if len(places) != 1:
            raise UnknownName(
                f"no representation is called {named!r}; choose from {', '.join(known)}"
            )
        return places[0]
    scores = []
    for learner in learners:
        held = getattr(learner, "out_of_fold", None)
        if held is None:
            scores.append(-math.inf)
            continue
        found = measure_out_of_fold(held.logits, held.targets, regression=encoding.regression)
        scores.append(-found["mse"] if encoding.regression else found["accuracy"])
    return int(np.argmax(scores))


def _measure_half_width(learner: Learner) -> float | None:
    """Half the width of the interval that holds 95 % of the out-of-fold values.

    It is the quantile of split conformal prediction; None with too few labels.
    """
    held = getattr(learner, "out_of_fold", None)
    if held is None:
        return None
    errors = np.sort(np.abs(held.logits - held.targets).ravel())
    place = math.ceil(CONFIDENCE_LEVEL * (len(errors) + 1))
    return float(errors[place - 1]) if place <= len(errors) else None


def read_item_keys(
    description: CampaignDescription, path: Path, column: str | None = None
) -> list[int | str] | None:
    """The ids of new items in a table: of the given column, or of the campaign's if it is there."""
    if path.is_dir() or path.suffix.lower() not in TABLES:
        if column is not None:
            raise BadInput(f"{path} is not a table and has no column {column!r} with ids")
        return None
    table, own = read_table(path), column or description.id_column
    if own is None or (column is None and own not in table):
        return None
    return read_keys(path, table, own)


def read_values(description: CampaignDescription, items: Any) -> tuple[list[str], Any]:
    """Names and values of new items: paths of images, texts, or rows of numbers."""
    if not isinstance(items, str | Path):
        table, columns = convert_table(items), {*description.text, *description.columns}
        if table is not None and columns:
            unnamed = all(name.isdigit() for name in table) and not columns <= set(table)
            if not unnamed:
                return _read_columns(description, "the table", table)
        if not hasattr(items, "__iter__"):
            raise BadInput(f"the model reads a list of items or a table; got {items!r:.60}")
        values = items if hasattr(items, "ndim") else list(items)
        named = description.kind != "numbers" and not description.features
        return [str(v) if named else str(n) for n, v in enumerate(values)], values
    path, images = Path(items), description.kind == "images" and not description.features
    if path.is_dir() and images:
        found = find_images(path).paths
        if not found:
            raise BadInput(f"{path} has no images")
        return list(found), [path / name for name in found]
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        rows = read_feature_rows(path)
        return [str(number) for number in range(len(rows))], rows
    if suffix in TABLES and (description.text or description.columns):
        return _read_columns(description, path, read_table(path))
    if images and path.is_file():
        return [path.name], [path]
    wanted = "a folder of images" if images else "a .npy file of features"
    if not description.features and (description.text or description.columns):
        wanted = "a table with the columns of the campaign"
    raise BadInput(f"the model cannot read {path}; give {wanted}")


def _read_columns(
    description: CampaignDescription, path: Path | str, table: Columns
) -> tuple[list[str], Any]:
    """Names and values of the rows of a table with the campaign's columns."""
    for name in (*description.text, *description.columns):
        if name not in table:
            raise BadInput(f"{path} has no column {name!r}; it has {', '.join(table)}")
    if description.text:
        texts = join_texts(table, description.text)
        return texts, texts
    rows = description.table_columns.convert(path, table, description.columns)
    return [str(number) for number in range(len(rows))], rows
