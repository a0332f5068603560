"""Errors of the API: ``{"error": ...}``, one line, without internal details.

422 means that a request does not fit the description of the API, 400 that it does not fit the
campaign (an unknown class), 404 a missing item or path, 409 a conflict after which the caller may
try again, 503 a record that cannot be read or written at the moment.
"""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

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
"""HTTP status by error type; the first matching type is used."""


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error as JSON."""
    app.add_exception_handler(LabelwiseError, _answer_own_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_request)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_unexpected_error)


def _answer_own_error(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in CODES if isinstance(error, kind)), 500)
    if status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return refuse(status, str(error))


def _answer_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: dict[str, str] = {}
    for wrong in error.errors():
        parts = [str(part) for part in wrong["loc"] if part != "body"]
        text = wrong["msg"][:1].lower() + wrong["msg"][1:]
        if "label" in parts:  # an invalid label has one error per label type
            parts = parts[: parts.index("label") + 1]
            text = "a label is a number, or a text of 1 to 200 letters"
        problems.setdefault(".".join(parts) or "the body", text)
    return refuse(422, "; ".join(f"{where}: {text}" for where, text in list(problems.items())[:3]))


def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    text = {"Not Found": "this address does not exist"}.get(detail, detail)
    headers = dict(error.headers or {})
    if error.status_code == 405:  # Starlette names the methods of the first route at the address
        headers["Allow"] = ", ".join(
            method
            for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
            for route in request.app.routes
            if route.matches({**request.scope, "method": method})[0] is Match.FULL
        )
    return refuse(error.status_code, text, headers)


def _answer_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return refuse(500, f"the server failed ({type(error).__name__}); its terminal says more")
