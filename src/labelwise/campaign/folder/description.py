"""The files of a campaign's folder, its description in ``campaign.json``, and paths in it.

`labelwise.campaign.project` lists the contents of the files.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from labelwise.errors import BadInput
from labelwise.files import JsonObject, write_text
from labelwise.media.table_columns import TableColumns
from labelwise.media.tables import ARRAYS, TABLES

FORMAT = 2
DESCRIPTION, INPUTS, EMBEDDING, RECORD = "campaign.json", "inputs.npy", "embedding.npz", "record.db"

STORAGE_VARIABLE = "LABELWISE_STORAGE"
"""Environment variable with a storage URL that replaces the campaign's own."""

TFIDF = "tfidf"


@dataclass(frozen=True)
class UsedEncoder:
    """An encoder of a campaign."""

    spec: str  # what opens it, such as ``"efficientnet_lite0"``; paths as from `make_path_relative`
    checksum: str  # of the encoder when the campaign was started


@dataclass(frozen=True)
class CampaignDescription:
    """The contents of ``campaign.json``."""

    name: str
    form: str  # of the source: ``"folder"``, ``"table"`` or ``"array"``
    source: str  # path of the source, relative to the campaign's folder if both are nearby
    kind: str = ""  # ``"images"``, ``"texts"`` or ``"numbers"``
    text: tuple[str, ...] = ()  # columns of texts
    columns: tuple[str, ...] = ()  # columns of numbers and categories
    id_column: str | None = None  # the column with the user's ids, or None
    # by column of categories, their names
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # by column of numbers with missing values, what they are filled with
    fills: Mapping[str, float] = field(default_factory=dict)
    features: tuple[str, ...] = ()  # paths of files with features for the items
    # that the inputs were made by; none for numbers, for given features and for images that a
    # network sees as pixels
    encoders: tuple[UsedEncoder, ...] = ()
    # number of columns of each representation in ``inputs.npy``, one per encoder or file of
    # features; empty for a single representation of another origin
    widths: tuple[int, ...] = ()
    # of texts, in campaigns without encoders (format 1): ``"tfidf"``, or a model of sentence-
    # transformers
    embedding: str = TFIDF
    # ``package.module:function`` that builds the network, or None for the default
    module: str | None = None
    shape: tuple[int, ...] = ()  # of one image as the network sees it
    storage: str | None = None  # URL without a password; None for the file in the folder

    @property
    def encoder(self) -> str | None:
        """The specification of the first encoder; None if there is none."""
        return self.encoders[0].spec if self.encoders else None

    @property
    def table_columns(self) -> TableColumns:
        """The conversion of table columns to numbers."""
        return TableColumns(self.categories, self.fills)

    def write(self, home: Path) -> None:
        """Write the file atomically. ASCII also holds file names that are not valid text."""
        content = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
        write_text(home / DESCRIPTION, content + "\n")

    @classmethod
    def read(cls, home: Path) -> "CampaignDescription":
        """Read the file of a campaign's folder."""
        try:
            content: JsonObject = json.loads((home / DESCRIPTION).read_text())
            number = int(content.pop("format"))
            if number == 1:  # at most one file of features
                content["features"] = [] if content["features"] is None else [content["features"]]
            if number <= FORMAT:
                encoders = [UsedEncoder(**entry) for entry in content.get("encoders", ())]
                lists = {name: tuple(content.get(name, ())) for name in _LISTS}
                return cls(**content | lists | {"encoders": tuple(encoders)})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            path = home / DESCRIPTION
            raise BadInput(f"{path} does not describe a campaign ({error})") from error
        raise BadInput(f"{home} was made by a newer labelwise (format {number}); update labelwise")


_LISTS = ("text", "columns", "shape", "features", "widths")


def find_source_form(path: Path) -> str:
    """The form of a source: ``"folder"``, ``"table"`` or ``"array"``."""
    if path.is_dir():
        return "folder"
    if not path.is_file():
        raise BadInput(f"there is no file or folder {path}")
    if path.suffix.lower() in TABLES:
        return "table"
    if path.suffix.lower() in ARRAYS:
        return "array"
    known = ", ".join((*TABLES, *ARRAYS))
    raise BadInput(f"{path} has an unknown file type; give a folder or one of {known}")


def make_path_relative(home: Path, path: Path) -> str:
    """Make a path relative if it is near the campaign's folder, so that both can move together."""
    near = path.absolute().is_relative_to(home.absolute().parent)
    return os.path.relpath(path.absolute(), home.absolute()) if near else str(path.absolute())


def resolve_campaign_path(home: Path, path: str) -> Path:
    """The absolute path of one written by `make_path_relative`."""
    return Path(os.path.normpath(home.absolute() / path))


def remove_storage_password(url: str) -> str:
    """Remove the password from a storage URL.

    Example:
        >>> remove_storage_password("postgresql+psycopg://ann:secret@db.example/labels")
        'postgresql+psycopg://ann@db.example/labels'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    kept = [(name, value) for name, value in parse_qsl(parts.query) if "pass" not in name.lower()]
    netloc = user.partition(":")[0] + at + host
    if not parts.netloc:  # urlunsplit would lose slashes of sqlite:////path
        return url
    return urlunsplit((parts.scheme, netloc, parts.path, urlencode(kept), ""))


def choose_storage_url(url: str | None) -> str | None:
    """URL of the record of a new campaign, with the absolute path of an SQLite file."""
    url = url or os.environ.get(STORAGE_VARIABLE)
    if url is None:
        return None
    if url.startswith("memory:"):
        raise BadInput("a campaign in a folder needs a persistent storage; leave out memory://")
    file = url.removeprefix("sqlite:///")
    return f"sqlite:///{Path(file).absolute()}" if file != url else url
