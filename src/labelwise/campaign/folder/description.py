"""A campaign's files, what its ``campaign.json`` says, and how paths are written there.

`labelwise.campaign.project` lists what the files hold.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from labelwise.errors import BadInput
from labelwise.media.tables import ARRAYS, TABLES

FORMAT = 1
FACTS, INPUTS, EMBEDDING, RECORD = "campaign.json", "inputs.npy", "embedding.npz", "record.db"

ENVIRONMENT = "LABELWISE_STORAGE"
"""The variable whose storage takes the place of the campaign's own."""

TFIDF = "tfidf"


@dataclass(frozen=True)
class Facts:
    """What ``campaign.json`` says.

    Attributes:
        name: of the campaign.
        form: of the source: ``"folder"``, ``"table"`` or ``"array"``.
        source: the folder or file; as seen from the campaign's folder where both are near.
        kind: ``"images"``, ``"texts"`` or ``"numbers"``.
        text: columns of texts.
        columns: columns of numbers.
        features: a file of features given for the items, or None.
        embedding: of texts: ``"tfidf"``, or a model of sentence-transformers.
        module: ``package.module:function`` that builds the network, or None for the usual one.
        shape: of one picture as the network sees it.
        storage: a URL without a password; None for the file in the folder.
    """

    name: str
    form: str
    source: str
    kind: str = ""
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    features: str | None = None
    embedding: str = TFIDF
    module: str | None = None
    shape: tuple[int, ...] = ()
    storage: str | None = None

    def write(self, home: Path) -> None:
        """Write the file, whole or not at all."""
        partial = home / f"{FACTS}.partial"
        partial.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
        partial.replace(home / FACTS)

    @classmethod
    def read(cls, home: Path) -> "Facts":
        """Read the file of a campaign's folder."""
        try:
            held: dict[str, Any] = json.loads((home / FACTS).read_text())
            number = int(held.pop("format"))
            held |= {name: tuple(held[name]) for name in ("text", "columns", "shape")}
            if number <= FORMAT:
                return cls(**held)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{home / FACTS} does not describe a campaign ({error})") from error
        raise BadInput(f"{home} was made by a newer labelwise (format {number}); update labelwise")


def form_of(path: Path) -> str:
    """Folder, table or array."""
    if path.is_dir():
        return "folder"
    if not path.is_file():
        raise BadInput(f"there is no file or folder {path}")
    if path.suffix.lower() in TABLES:
        return "table"
    if path.suffix.lower() in ARRAYS:
        return "array"
    known = ", ".join((*TABLES, *ARRAYS))
    raise BadInput(f"{path} is no folder, and its kind is unknown; give one of {known}")


def seen_from(home: Path, path: Path) -> str:
    """A path as the campaign's folder writes it: what is beside it may move along with it."""
    near = path.absolute().is_relative_to(home.absolute().parent)
    return os.path.relpath(path.absolute(), home.absolute()) if near else str(path.absolute())


def place_of(home: Path, path: str) -> Path:
    """The path that `seen_from` wrote."""
    return Path(os.path.normpath(home.absolute() / path))


def without_password(url: str) -> str:
    """A storage's URL as it may be written down.

    Example:
        >>> without_password("postgresql+psycopg://ann:secret@db.example/labels")
        'postgresql+psycopg://ann@db.example/labels'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    kept = [(name, value) for name, value in parse_qsl(parts.query) if "pass" not in name.lower()]
    netloc = user.partition(":")[0] + at + host
    if not parts.netloc:  # urlunsplit would lose slashes of sqlite:////path
        return url
    return urlunsplit((parts.scheme, netloc, parts.path, urlencode(kept), ""))


def storage_url(url: str | None) -> str | None:
    """The storage that a new campaign shall have; a file's path does not depend on where one is."""
    url = url or os.environ.get(ENVIRONMENT)
    if url is None:
        return None
    if url.startswith("memory:"):
        raise BadInput("a campaign in a folder needs a storage that stays; leave out memory://")
    file = url.removeprefix("sqlite:///")
    return f"sqlite:///{Path(file).absolute()}" if file != url else url
