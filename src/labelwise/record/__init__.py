"""The record of a campaign: events, the ledger replayed from them, storage, votes and agreement."""

from labelwise.errors import BadInput, MissingDependency
from labelwise.record.storage import MemoryStorage, Storage


def open_storage(url: str, *, create: bool = True) -> Storage:
    """Open the storage at a URL.

    Args:
        url: ``sqlite:///labels.db`` (a file; four slashes for an absolute path),
            ``postgresql+psycopg://user@host/database`` or ``memory://`` (not stored).
        create: create the file and the tables if they do not exist.

    Raises:
        BadInput: if the URL is not valid.
        UnknownName: if there is no record and ``create`` is False.
        MissingDependency: if the driver is not installed.
        StorageFailed: if it cannot be opened.

    Example:
        >>> from labelwise.record.events import Told
        >>> storage = open_storage("memory://")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")])
        1
        >>> storage.read("birds")[0].label
        'owl'
    """
    if not isinstance(url, str) or "://" not in url:
        raise BadInput(
            "a storage is given as a URL: sqlite:///labels.db, "
            "postgresql+psycopg://user@host/database or memory://"
        )
    if url.startswith("memory://"):
        return MemoryStorage()
    try:
        from labelwise.record.sql_storage import open_sql_storage
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sqlalchemy":
            raise
        raise MissingDependency(
            "a campaign needs SQLAlchemy; run pip install 'labelwise[web]'"
        ) from error
    return open_sql_storage(url, create=create)
