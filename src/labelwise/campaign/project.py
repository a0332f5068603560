r"""A campaign in a folder: its items, their inputs, the record, and the models.

==================  ===============================================================================
file                contents
==================  ===============================================================================
campaign.json       name, kind, source, storage and embedding; no password
items.jsonl         the items by id; see `labelwise.campaign.folder.items`
inputs.npy          inputs of the model: features of the encoders, numbers, or images as bytes
embedding.npz       TF-IDF of texts, or mean and deviation of numbers
prelabels.json      guesses of labels that were given at the start, if any
record.db           the record, unless the campaign has another storage
models/             a folder per training
==================  ===============================================================================

Starting a campaign ingests all items of the source; a refresh ingests the new ones with the same
steps. The folder is created completely or not at all.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from labelwise.arrays import HostArray
from labelwise.campaign.campaign import Campaign
from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.defaults import make_default_settings
from labelwise.campaign.folder.description import (
    DESCRIPTION,
    INPUTS,
    RECORD,
    STORAGE_VARIABLE,
    CampaignDescription,
    choose_storage_url,
    find_source_form,
    make_path_relative,
    remove_storage_password,
    resolve_campaign_path,
)
from labelwise.campaign.folder.encoders import relocate_encoder_spec
from labelwise.campaign.folder.ingest import WORK, IngestResult, ingest_items, lock_campaign_ingest
from labelwise.campaign.folder.items import CampaignItems
from labelwise.campaign.folder.missing_items import (
    close_missing_items,
    find_missing_items,
    update_missing_items,
)
from labelwise.campaign.folder.uploads import save_upload
from labelwise.campaign.settings import Settings
from labelwise.encoders.registry import AUTO, NONE
from labelwise.errors import BadInput, UnknownName
from labelwise.files import load_npy, read_json, write_json
from labelwise.learner import Learner
from labelwise.learners.committee import make_column_committee
from labelwise.learners.defaults import check_builder, default_learner, load_builder
from labelwise.media.folders import find_images
from labelwise.media.images import SIDE
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.record import open_storage
from labelwise.record.events import Label
from labelwise.record.storage import Storage, check_campaign_name
from labelwise.rounds import DeferredLearner

SUFFIX = ".labelwise"
PRELABELS = "prelabels.json"


class Project:
    r"""A campaign in its folder.

    Attributes:
        home: the folder.
        description: the contents of its ``campaign.json``.
        ingested: the result of the start; None for a campaign that was opened.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> lines = [f"plant {number},{number},{number % 7}\n" for number in range(40)]
        >>> _ = (place / "plants.csv").write_text("name,height,age\n" + "".join(lines))
        >>> project = Project.start(place / "plants.csv", home=place / "c", classes=["oak", "fir"])
        >>> project.kind, len(project.items), project.items.entry(3)["row"]["name"]
        ('numbers', 40, 'plant 3')
        >>> Project.open(place / "c").classes
        ('oak', 'fir')
    """

    def __init__(self, home: Path, description: CampaignDescription) -> None:
        """Use `start` or `open`."""
        self.home, self.description = home, description
        self.ingested: IngestResult | None = None
        self._url: str | None = None
        self._storage: Storage | None = None

    @classmethod
    def start(
        cls,
        source: str | Path,
        *,
        home: str | Path | None = None,
        name: str | None = None,
        classes: Sequence[Label] | None = None,
        text: str | Sequence[str] | None = None,
        columns: Sequence[str] = (),
        without: Sequence[str] = (),
        id_column: str | None = None,
        strategy: str | None = None,
        batch: int = 50,
        storage: str | None = None,
        encoder: str | Sequence[str] = AUTO,
        features: str | Path | Sequence[str | Path] | None = None,
        module: str | None = None,
        side: int = SIDE,
        skip_broken: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> "Project":
        """Start a campaign from a folder of images, a table, or a file of features.

        Args:
            source: a folder of images, with subfolders; a .csv, .tsv, .jsonl or .parquet table; a
                .npy or .npz file of features.
            home: the campaign's folder; NAME.labelwise in the current folder if None.
            name: of the campaign; that of the source if None.
            classes: their names; None to set them later.
            text: columns of texts, which are joined.
            columns: columns of numbers; all numeric ones if empty.
            without: columns that are not used.
            id_column: column of a table with ids of your own, which files and exports then have.
            strategy: selection strategy; see `labelwise.campaign.defaults` if None.
            batch: number of items per batch.
            storage: a URL; a file in the campaign's folder if None. A password is not stored.
            encoder: of images and texts, or several for several representations of the same
                items: see `labelwise.encoders.registry`. ``"none"`` trains a network on the pixels
                of images; so does ``"auto"`` with a ``module``.
            features: a .npy or .npz file with a row per item, used instead of images or texts, or
                several; images are in the alphabetical order of their paths.
            module: ``package.module:function`` that returns a torch module for the shape of an
                item and the number of outputs.
            side: the largest side of scaled images.
            skip_broken: leave out unusable items instead of raising an error.
            progress: called as ``progress(stage, done, total)``.
            **settings: see `Settings` and `labelwise.campaign.defaults`.
        """
        path, url = Path(source), choose_storage_url(storage)
        form = find_source_form(path)
        if id_column is not None and form != "table":
            raise BadInput(f"{path} is not a table and has no column {id_column!r} with ids")
        files = _list_values(features)
        encoders = _choose_campaign_encoders(_list_values(encoder), form, files, module)
        kinds = {"network": module is not None, "several": max(len(files), len(encoders)) > 1}
        chosen = make_default_settings(strategy, classes, batch=batch, **kinds, **settings)
        name = name or _name_campaign_source(path)
        check_campaign_name(name)
        place = Path(home) if home is not None else default_folder(path, name)
        if place.exists():
            raise BadInput(
                f"{place} exists already; continue with labelwise label -c {_quote_path(place)}, "
                f"add new items with labelwise start {_quote_path(source)} --refresh --out "
                f"{_quote_path(place)}, or give another folder with --out"
            )
        description = CampaignDescription(
            name=name,
            form=form,
            source=make_path_relative(place, path),
            text=(text,) if isinstance(text, str) else tuple(text or ()),
            columns=tuple(columns),
            id_column=id_column,
            features=tuple(make_path_relative(place, Path(file)) for file in files),
            module=module,
            storage=None if url is None else remove_storage_password(url),
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        if url is not None:
            _check_new_storage(url, name)  # before hours of encoding
        made = place.parent / f".{place.name}.{uuid4().hex[:8]}"
        work = place.parent / f".{place.name}{WORK}"
        made.mkdir()
        try:
            project = cls(made, description)
            project._url = url
            places = [made.absolute().parent]
            builder = None if module is None else load_builder(module, places=places)
            project.description, ingested = ingest_items(
                made,
                description,
                without=without,
                side=side,
                encoders=[relocate_encoder_spec(place, spec) for spec in encoders],
                work=work,
                skip_broken=skip_broken,
                progress=progress,
            )
            if builder is not None:
                check_builder(builder, project.inputs.shape[1:])
            project._write_start(chosen)
            made.rename(place)
            shutil.rmtree(work, ignore_errors=True)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        started = cls(place, project.description)
        started.ingested, started._url = ingested, url
        return started

    @classmethod
    def open(cls, home: str | Path | None = None) -> "Project":
        """Open the campaign in a folder.

        Args:
            home: the folder, with or without its suffix. If None, the current folder, or the only
                campaign in it.
        """
        place = _find_campaign() if home is None else Path(home)
        with_suffix = place.parent / (place.name + SUFFIX)
        if not (place / DESCRIPTION).is_file() and (with_suffix / DESCRIPTION).is_file():
            place = with_suffix
        if not (place / DESCRIPTION).is_file():
            raise UnknownName(f"{place} is not a campaign's folder; labelwise start makes one")
        return cls(place, CampaignDescription.read(place))

    @property
    def name(self) -> str:
        """The campaign's name in its storage."""
        return self.description.name

    @property
    def kind(self) -> str:
        """``"images"``, ``"texts"`` or ``"numbers"``."""
        return self.description.kind

    @property
    def source(self) -> Path:
        """The source of the items."""
        return resolve_campaign_path(self.home, self.description.source)

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The current classes in order; None if they are not set yet."""
        return self.open_record().settings.classes

    @cached_property
    def items(self) -> CampaignItems:
        """The items of the campaign."""
        return CampaignItems(self.home, self.kind, self.source)

    def describe_item(self, item: int) -> str:
        """An item as text: its text, path or columns; empty if it has been removed."""
        try:
            about = self.items.describe(item)
        except LookupError:
            return ""
        for key in ("text", "name"):
            if key in about:
                return str(about[key])
        return json.dumps(about.get("columns", {}), ensure_ascii=False)

    @property
    def inputs(self) -> HostArray:
        """The inputs of the model, ``(n, ...)``; a mapped file.

        Several representations are side by side; ``description.widths`` has their columns.
        """
        return load_npy(self.home / INPUTS)[: len(self.items)]

    def storage(self) -> Storage:
        """The storage of the record: of the environment variable, or of the campaign."""
        if self._storage is None:
            url = self._url or os.environ.get(STORAGE_VARIABLE) or self.description.storage
            record = (self.home / RECORD).absolute()
            if url is None and not record.is_file():
                raise UnknownName(f"there is no record {record}; was it moved or removed?")
            self._storage = open_storage(url or f"sqlite:///{record}")
        return self._storage

    def close(self) -> None:
        """Close the record; it is opened again when needed."""
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    def open_record(self) -> CampaignRecord:
        """The record of the campaign and the actions of annotators; needs no model."""
        return CampaignRecord(self.name, self.storage())

    def campaign(self, *, progress: Progress | None = None, device: str = "auto") -> Campaign:
        """The campaign with its model, which is made when something is trained."""
        settings, inputs = self.open_record().settings, self.inputs

        def make_learner() -> Learner:
            classes = None if settings.classes is None else len(settings.classes)
            return make_campaign_learner(
                self.home,
                self.description,
                inputs,
                classes,
                settings.regression,
                self_training=settings.self_training,
                device=device,
                progress=progress,
            )

        learner = DeferredLearner(make_learner)
        items: Any = inputs
        return Campaign(
            self.name,
            Pool(items),
            learner,
            self.storage(),
            home=self.home,
            progress=progress,
            prelabels=self.read_prelabels(),
        )

    def read_prelabels(self) -> dict[int, tuple[Label, float]]:
        """Label and confidence by item, as given at the start; empty if there are none."""
        path = self.home / PRELABELS
        if not path.is_file():
            return {}
        held = read_json(path)
        return {int(item): (label, float(share)) for item, (label, share) in held.items()}

    def write_prelabels(self, prelabels: Mapping[int, tuple[Label, float]]) -> None:
        """Keep guesses of the labels, which are shown before there is a model."""
        write_json(self.home / PRELABELS, {str(k): list(v) for k, v in prelabels.items()})

    def refresh(
        self, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> IngestResult:
        """Add new items of the source under new ids, and close missing ones.

        Missing items keep their ids and labels and need no further label; items that return wait
        for labels again.

        With ``skip_broken``, unusable items are left out instead of raising an error.
        """
        self.description, result = ingest_items(
            self.home, self.description, skip_broken=skip_broken, progress=progress
        )
        self.__dict__.pop("items", None)
        record = self.open_record()
        record.start(len(self.items))
        returned = record.commit(
            lambda ledger, now: update_missing_items(ledger, result.missing, now)
        )
        return replace(result, returned=returned)

    def add_upload(self, name: str, content: bytes) -> int:
        """Add a file with new items to the source; `refresh` then adds them to the campaign.

        Returns:
            The number of items in it; 0 for an image that is there already.
        """
        with lock_campaign_ingest(self.home):
            return save_upload(self.description, self.source, name, content)

    def close_missing(self, record: CampaignRecord | None = None) -> list[int]:
        """Close waiting items whose image is missing; they would keep their batch open forever.

        An item keeps its label, if any, and waits again after a `refresh` that finds it.

        Returns:
            The ids of the closed items.
        """
        record = record or self.open_record()
        missing = find_missing_items(self.items, record.look(lambda ledger: list(ledger.waiting)))
        if missing:
            record.commit(lambda ledger, now: (close_missing_items(ledger, missing, now), None))
        return missing

    def repoint(self, source: str | Path) -> int:
        """Set the new place of the source; return the number of items that are not there."""
        path, missing, form = Path(source), 0, self.description.form
        if find_source_form(path) != form:
            raise BadInput(f"the campaign was started from a {form}; {path} is not a {form}")
        if form == "folder":
            found = set(find_images(path).paths)
            missing = sum(self.items.entry(item)["path"] not in found for item in self.items)
            if missing == len(self.items):
                raise BadInput(
                    f"none of the {missing:,} pictures is in {path}; is it the right folder?"
                )
        self.description = replace(self.description, source=make_path_relative(self.home, path))
        self.description.write(self.home)
        self.__dict__.pop("items", None)
        return missing

    def _write_start(self, settings: Settings) -> None:
        """Write the first event; the folder still has a temporary name."""
        record = open_storage(self._url or f"sqlite:///{(self.home / RECORD).absolute()}")
        try:
            _reject_known_campaign(record, self.name)
            CampaignRecord(self.name, record).start(len(self.items), **settings.to_dict())
        finally:
            record.close()


def _check_new_storage(url: str, name: str) -> None:
    """Reject a storage that cannot be opened or has a campaign of this name."""
    try:
        record = open_storage(url, create=False)
    except UnknownName:  # it does not exist yet
        return
    try:
        _reject_known_campaign(record, name)
    finally:
        record.close()


def _reject_known_campaign(record: Storage, name: str) -> None:
    if record.length(name):
        raise BadInput(
            f"the storage already has a campaign called {name!r}; give this one another name "
            "(--name)"
        )


def _list_values(given: Any) -> list[Any]:
    """None, one value or several as a list."""
    if given is None:
        return []
    return [given] if isinstance(given, str | Path) else list(given)


def _choose_campaign_encoders(
    specs: Sequence[str], form: str, features: Sequence[Any], module: str | None
) -> list[str]:
    """The encoders to use for images and texts; empty for none."""
    named = [spec for spec in specs if spec != AUTO]
    if named and named != [NONE] and (features or form == "array"):
        raise BadInput(f"give features or encoders, not both; got --encoder {named[0]}")
    if NONE in specs and len(specs) > 1:
        raise BadInput(f"none means no encoder; got {', '.join(specs)}")
    for kind, given in (("encoder", specs), ("file of features", list(map(str, features)))):
        if len(set(given)) < len(given):
            raise BadInput(f"every {kind} is given once; got {', '.join(given)}")
    whole_network = module is not None and form == "folder" and not named
    return [] if NONE in specs or whole_network else list(specs)


def make_campaign_learner(
    home: Path,
    description: CampaignDescription,
    inputs: Any,
    classes: int | None,
    regression: bool,
    *,
    self_training: bool | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Learner:
    """Make the learner of a campaign; one per representation, if there are several.

    One row of ``inputs`` ``(n, ...)`` is enough to load a saved model.
    """
    name, widths = description.module, description.widths
    module = None if name is None else load_builder(name, places=[home.absolute().parent])

    def make(rows: Any) -> Learner:
        return default_learner(
            description.kind,
            rows,
            classes,
            regression=regression,
            self_training=self_training,
            module=module,
            device=device,
            progress=progress,
        )

    return make(inputs) if len(widths) < 2 else make_column_committee(make, inputs, widths)


def default_folder(source: Path, name: str | None = None) -> Path:
    """The folder of a campaign if none is given.

    Example:
        >>> default_folder(Path("data/reviews.csv")).name
        'reviews.labelwise'
    """
    return Path(re.sub(r"[^\w.-]+", "-", name or _name_campaign_source(source)) + SUFFIX)


def _quote_path(path: str | Path) -> str:
    return shlex.quote(str(path))


def _name_campaign_source(source: Path) -> str:
    whole = source.resolve().name
    return whole if source.is_dir() else Path(whole).stem


def _find_campaign() -> Path:
    """The campaign in or at the current folder."""
    here = Path()
    if (here / DESCRIPTION).is_file():
        return here
    found = sorted(path.parent for path in here.glob(f"*{SUFFIX}/{DESCRIPTION}"))
    if not found:
        raise UnknownName("there is no campaign here; labelwise start makes one")
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise BadInput(
            f"there are several campaigns here: {names}; choose one with --campaign, as in "
            f"-c {_quote_path(found[0])}"
        )
    return found[0]
