"""Errors as the API tells them: ``{"error": ...}``, one line, and never what is inside.

422 is a request that does not fit the description of the API, 400 one that does not fit the
campaign (a label that is no class), 404 an item or a path that is not there, 409 a race that the
caller may try again, 503 a record that cannot be read or written at the moment.
"""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from labelwise.errors import Conflict, LabelwiseError, MissingDependency, StorageFailed, UnknownName
from labelwise.web.security import refuse

log = logging.getLogger("labelwise.web")

CODES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownName, 404),
    (Conflict, 409),
    (StorageFailed, 503),
    (MissingDependency, 501),
    (LabelwiseError, 400),
)
"""The status of an error raised on purpose: of the first kind that fits."""


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error as JSON."""
    app.add_exception_handler(LabelwiseError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: Exception) -> int:
    """The status with which an error is answered.

    >>> status_of(UnknownName("no item 7"))
    404
    """
    return next((code for kind, code in CODES if isinstance(error, kind)), 500)


def _ours(request: Request, error: Exception) -> Response:
    status = status_of(error)
    if status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return refuse(status, str(error))


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said: dict[str, str] = {}
    for wrong in error.errors():
        parts = [str(part) for part in wrong["loc"] if part != "body"]
        words = wrong["msg"][:1].lower() + wrong["msg"][1:]
        if "label" in parts:  # of a value that fits none of several kinds, one word is enough
            parts = parts[: parts.index("label") + 1]
            words = "a label is a number, or a text of 1 to 200 letters"
        said.setdefault(".".join(parts) or "the body", words)
    return refuse(422, "; ".join(f"{where}: {words}" for where, words in list(said.items())[:3]))


def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    words = {"Not Found": "there is nothing at this address"}.get(detail, detail)
    return refuse(error.status_code, words, dict(error.headers or {}))


def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return refuse(500, f"the server failed ({type(error).__name__}); its terminal says more")
