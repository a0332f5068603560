r"""A campaign as a folder: what is labelled, how it is embedded, the record, and the models.

==================  ===============================================================================
file                holds
==================  ===============================================================================
campaign.json       name, kind, source, storage and embedding; never a password
items.jsonl         the items by id; see `labelwise.campaign.folder.items`
inputs.npy          what the network sees: pictures as bytes, or rows of numbers
embedding.npz       how texts or numbers become rows; not for pictures
record.db           the record, unless the campaign has another storage
models/             a folder per training
==================  ===============================================================================

Starting is growing from nothing: the same steps find what is new, embed it like what was there
before, and add it under new ids. The folder appears whole or not at all.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.campaign import Campaign
from labelwise.campaign.defaults import make_settings
from labelwise.campaign.desk import Desk
from labelwise.campaign.folder.description import (
    ENVIRONMENT,
    FACTS,
    INPUTS,
    RECORD,
    TFIDF,
    Facts,
    form_of,
    place_of,
    seen_from,
    storage_url,
    without_password,
)
from labelwise.campaign.folder.ingest import Grown, grow
from labelwise.campaign.folder.items import Items
from labelwise.campaign.folder.missing_items import closed, missing, refreshed
from labelwise.campaign.folder.new_items import find_pictures
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.learner import Learner
from labelwise.media.images import SIDE
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.record.events import Label
from labelwise.record.storage import Storage, check_name, open_storage
from labelwise.rounds import DeferredLearner

ENDING = ".labelwise"


class Project:
    r"""A campaign in its folder.

    Attributes:
        home: the folder.
        facts: what its ``campaign.json`` says.
        grown: what the start found; None for a campaign that was opened.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> lines = [f"plant {number},{number},{number % 7}\n" for number in range(40)]
        >>> _ = (place / "plants.csv").write_text("name,height,age\n" + "".join(lines))
        >>> project = Project.start(place / "plants.csv", home=place / "c", classes=["oak", "fir"])
        >>> project.kind, len(project.items), project.items.row(3)["name"]
        ('numbers', 40, 'plant 3')
        >>> Project.open(place / "c").classes
        ('oak', 'fir')
    """

    def __init__(self, home: Path, facts: Facts) -> None:
        """Use `start` or `open`."""
        self.home, self.facts = home, facts
        self.grown: Grown | None = None
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
        strategy: str | None = None,
        batch: int = 50,
        storage: str | None = None,
        features: str | Path | None = None,
        embedding: str = TFIDF,
        module: str | None = None,
        side: int = SIDE,
        skip_broken: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> "Project":
        """Make a campaign from a folder of pictures, a table, or a file of features.

        Args:
            source: a folder of pictures, which may have folders in it; a .csv, .tsv, .jsonl or
                .parquet table; a .npy or .npz file of features.
            home: the campaign's folder; NAME.labelwise in the current folder if None.
            name: of the campaign; that of the source if None.
            classes: their names; None leaves them to be told later.
            text: columns of texts, which are put together.
            columns: columns of numbers; all that are numeric if none are named.
            without: columns that are not used.
            strategy: what chooses the batches; see `labelwise.campaign.defaults` if None.
            batch: how many items a batch has.
            storage: a URL; a file in the campaign's folder if None. A password is not kept.
            features: a .npy or .npz file with a row per item, for the network to see in the place
                of pictures or texts; pictures are in the alphabetical order of their paths.
            embedding: of texts: ``"tfidf"``, or a model of sentence-transformers.
            module: ``package.module:function``; called with the shape of an item and the number
                of outputs, it gives a torch module.
            side: the largest side that pictures are scaled to.
            skip_broken: leave out what cannot be read, in place of refusing it.
            progress: called as ``progress(stage, done, total)``.
            **settings: see `Settings` and `labelwise.campaign.defaults`.
        """
        path, url = Path(source), storage_url(storage)
        form = form_of(path)
        chosen = make_settings(strategy, classes, batch=batch, **settings)
        name = name or _name_of(path)
        check_name(name)
        place = Path(home) if home is not None else folder_of(path, name)
        if place.exists():
            raise BadInput(
                f"{place} is there already; go on with labelwise label -c {_quoted(place)}, add "
                f"new items with labelwise start {_quoted(source)} --refresh --out "
                f"{_quoted(place)}, or give another folder with --out"
            )
        facts = Facts(
            name=name,
            form=form,
            source=seen_from(place, path),
            text=(text,) if isinstance(text, str) else tuple(text or ()),
            columns=tuple(columns),
            features=None if features is None else seen_from(place, Path(features)),
            embedding=embedding,
            module=module,
            storage=None if url is None else without_password(url),
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        made = place.parent / f".{place.name}.{uuid4().hex[:8]}"
        made.mkdir()
        try:
            project = cls(made, facts)
            project._url = url
            project.facts, grown = grow(
                made,
                facts,
                without=without,
                side=side,
                skip_broken=skip_broken,
                progress=progress,
            )
            if module is not None:
                project._builder(module)(project.inputs.shape[1:], 2)  # fails now or never
            project._begin(chosen)
            made.rename(place)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        started = cls(place, project.facts)
        started.grown, started._url = grown, url
        return started

    @classmethod
    def open(cls, home: str | Path | None = None) -> "Project":
        """The campaign in a folder.

        Args:
            home: the folder, with or without its ending. If None, the current folder, or the only
                one in it that is a campaign's.
        """
        place = _find() if home is None else Path(home)
        beside = place.parent / (place.name + ENDING)
        if not (place / FACTS).is_file() and (beside / FACTS).is_file():
            place = beside
        if not (place / FACTS).is_file():
            raise UnknownName(f"{place} is no campaign's folder; labelwise start makes one")
        return cls(place, Facts.read(place))

    @property
    def name(self) -> str:
        """The campaign's name in its storage."""
        return self.facts.name

    @property
    def kind(self) -> str:
        """``"images"``, ``"texts"`` or ``"numbers"``."""
        return self.facts.kind

    @property
    def source(self) -> Path:
        """Where the items come from."""
        return place_of(self.home, self.facts.source)

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The classes in order, as they are now; None where they are not told yet."""
        return self.desk().settings.classes

    @cached_property
    def items(self) -> Items:
        """The items, and what people see of them."""
        return Items(self.home, self.kind, self.source)

    @property
    def inputs(self) -> NDArray[Any]:
        """What the network sees, ``(n, ...)``; a mapped file."""
        held: NDArray[Any] = np.load(self.home / INPUTS, mmap_mode="r", allow_pickle=False)
        return held[: len(self.items)]

    def storage(self) -> Storage:
        """Where the record is: as the environment says, or as the campaign was started."""
        if self._storage is None:
            url = self._url or os.environ.get(ENVIRONMENT) or self.facts.storage
            record = (self.home / RECORD).absolute()
            if url is None and not record.is_file():
                raise UnknownName(f"there is no record {record}; was it moved or removed?")
            self._storage = open_storage(url or f"sqlite:///{record}")
        return self._storage

    def close(self) -> None:
        """Let go of the record; it is opened again when it is needed."""
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    def desk(self) -> Desk:
        """The campaign as the people who label see it; needs no model."""
        return Desk(self.name, self.storage())

    def campaign(self, *, progress: Progress | None = None, device: str = "auto") -> Campaign:
        """The campaign with its model, which is made when something is trained.

        Args:
            progress: called as ``progress(stage, done, total)``.
            device: where to train: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        """
        settings, inputs, module = self.desk().settings, self.inputs, self.facts.module

        def make_learner() -> Learner:
            learner: Learner = _defaults().default_learner(
                self.kind,
                inputs,
                None if settings.classes is None else len(settings.classes),
                regression=settings.regression,
                module=None if module is None else self._builder(module),
                device=device,
                progress=progress,
            )
            return learner

        learner = DeferredLearner(make_learner)
        items: Any = inputs
        return Campaign(
            self.name, Pool(items), learner, self.storage(), home=self.home, progress=progress
        )

    def refresh(self, *, skip_broken: bool = False, progress: Progress | None = None) -> Grown:
        """Add what is new in the source under new ids, and note what is gone.

        Items that are gone keep their ids and labels, and want no further label; those that come
        back are asked for again.

        Args:
            skip_broken: leave out what cannot be read, in place of refusing it.
            progress: called as ``progress(stage, done, total)``.
        """
        self.facts, grown = grow(self.home, self.facts, skip_broken=skip_broken, progress=progress)
        self.__dict__.pop("items", None)
        desk = self.desk()
        desk.start(len(self.items))
        gone, back = desk.commit(lambda ledger, now: refreshed(ledger, grown.gone, now))
        return replace(grown, gone=gone, back=back)

    def close_missing(self, desk: Desk | None = None) -> list[int]:
        """Close what waits for labels and cannot be shown, as its picture is gone.

        Such an item would keep its batch open for ever. It keeps the label that it has, if any,
        and waits again after a `refresh` that finds it.

        Args:
            desk: of this campaign, if there is one at hand that has read the record.

        Returns:
            The ids of what was closed.
        """
        desk = desk or self.desk()
        gone = missing(self.items, desk.look(lambda ledger: list(ledger.waiting)))
        if gone:
            desk.commit(lambda ledger, now: (closed(ledger, gone, now), None))
        return gone

    def repoint(self, source: str | Path) -> int:
        """Say where the source is now.

        Returns:
            How many items are not there.
        """
        path, missing = Path(source), 0
        if form_of(path) != self.facts.form:
            raise BadInput(f"the campaign was started from a {self.facts.form}; {path} is none")
        if self.facts.form == "folder":
            there = set(find_pictures(path).paths)
            missing = sum(self.items.entry(item)["path"] not in there for item in self.items)
            if missing == len(self.items):
                raise BadInput(
                    f"none of the {missing:,} pictures is in {path}; is it the right one?"
                )
        self.facts = replace(self.facts, source=seen_from(self.home, path))
        self.facts.write(self.home)
        self.__dict__.pop("items", None)
        return missing

    def _builder(self, module: str) -> Any:
        """The function that builds networks; files beside the campaign's folder are found too."""
        return _defaults().load_builder(module, places=[self.home.absolute().parent])

    def _begin(self, settings: Settings) -> None:
        """Write the first event; the folder has not got its name yet."""
        record = open_storage(self._url or f"sqlite:///{(self.home / RECORD).absolute()}")
        try:
            if record.length(self.name):
                raise BadInput(
                    f"the storage has a campaign called {self.name!r} already; give this one "
                    "another name (--name)"
                )
            Desk(self.name, record).start(len(self.items), **settings.to_dict())
        finally:
            record.close()


def _defaults() -> Any:
    try:
        from labelwise.learners import defaults
    except ImportError as error:
        raise MissingDependency(
            f"training needs torch ({error}); run pip install 'labelwise[torch]'"
        ) from error
    return defaults


def folder_of(source: Path, name: str | None = None) -> Path:
    """The folder that a campaign gets unless another is given.

    Example:
        >>> folder_of(Path("data/reviews.csv")).name
        'reviews.labelwise'
    """
    return Path(re.sub(r"[^\w.-]+", "-", name or _name_of(source)) + ENDING)


def _quoted(path: str | Path) -> str:
    return shlex.quote(str(path))


def _name_of(source: Path) -> str:
    whole = source.resolve().name
    return whole if source.is_dir() else Path(whole).stem


def _find() -> Path:
    """The campaign's folder that a user means without saying so."""
    here = Path()
    if (here / FACTS).is_file():
        return here
    found = sorted(path.parent for path in here.glob(f"*{ENDING}/{FACTS}"))
    if not found:
        raise UnknownName("there is no campaign here; labelwise start makes one")
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise BadInput(
            f"there are several campaigns here: {names}; choose one with --campaign, as in "
            f"-c {_quoted(found[0])}"
        )
    return found[0]
