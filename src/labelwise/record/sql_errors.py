"""What went wrong in a database, in words that say what to do about it."""

import sqlite3
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from labelwise.errors import StorageFailed

_SQLITE = {
    "SQLITE_FULL": "the disk is full; free some space and try again",
    "SQLITE_IOERR": "the disk could not be read or written; is it full or gone?",
    "SQLITE_BUSY": "another process has been writing to it for too long; try again",
    "SQLITE_LOCKED": "another process has been writing to it for too long; try again",
    "SQLITE_READONLY": "it may only be read; change its permissions or its folder's",
    "SQLITE_PERM": "it may not be opened; change its permissions",
    "SQLITE_CANTOPEN": "it cannot be opened; does its folder exist, and may we write there?",
    "SQLITE_NOTADB": "it is not a database; give the record a file of its own",
    "SQLITE_CORRUPT": "its file is damaged; restore it from a copy",
}
"""By the beginning of SQLite's error name."""

_POSTGRESQL = {
    "53100": "the server's disk is full; free some space and try again",
    "53": "the server is out of resources; try again later",
    "55P03": "another process has been writing to it for too long; try again",
    "25006": "the server takes no writes now; is it a standby?",
    "42501": "this user may not do that; ask for the permission",
    "28": "the server did not let us in; check the user and the password",
    "3D000": "there is no such database; create it first",
    "57": "the server stopped; look whether this was recorded, then try again",
    "08": "the connection was lost; look whether this was recorded, then try again",
}
"""By the beginning of PostgreSQL's error code."""


def failure(error: SQLAlchemyError, place: str, secrets: Sequence[str] = ()) -> StorageFailed:
    """The error to raise for one of SQLAlchemy's.

    Args:
        error: what SQLAlchemy raised; its transaction was rolled back.
        place: how to call the database.
        secrets: texts that must not be shown, such as a password.
    """
    original = getattr(error, "orig", None) or error
    said = scrubbed(" ".join(str(original).split()), secrets)
    remedy = _remedy(original)
    if remedy is None and isinstance(error, DBAPIError) and error.connection_invalidated:
        remedy = _POSTGRESQL["08"]
    if remedy is None and isinstance(error, OperationalError) and _code(original) is None:
        remedy = "the server cannot be reached; check that it runs and its address"
    return StorageFailed(f"{place}: {remedy or 'the database failed'} ({said})")


def scrubbed(text: str, secrets: Sequence[str]) -> str:
    """A text with every secret in it, also as it is quoted in a URL, replaced by ***.

    Example:
        >>> scrubbed("no route to postgresql://ann:a%2Fb@host", ["a/b"])
        'no route to postgresql://ann:***@host'
    """
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), quote(secret), quote_plus(secret)):
            text = text.replace(form, "***")
    return text


def _remedy(error: BaseException) -> str | None:
    code, known = _code(error), _SQLITE if isinstance(error, sqlite3.Error) else _POSTGRESQL
    for beginning, words in known.items():
        if code is not None and code.startswith(beginning):
            return words
    return None


def _code(error: BaseException) -> str | None:
    """The database's own name or number for an error, if it had one to say."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", None)
    return getattr(error, "sqlstate", None)
