"""What is answered where there is no page: one sentence and a hint, as a page or as JSON, and never a traceback.

Knows: which status each kind of failure has in HTTP.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from pydantic.dataclasses import dataclass
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from backupd.service.web.rendering import AsciiJsonResponse, page
from backupd.vocabulary.errors import BackupdError, CatalogueError, ConfigurationError, UsageError

log = logging.getLogger(__name__)

JSON_PREFIXES = ("/api/", "/openapi.json")


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer."""

    message: Annotated[str, Field(description="What is wrong, in one sentence.")]
    hint: Annotated[str, Field(description="What to do about it; may be empty.")]


class NotFound(BackupdError):
    """There is no such page, or nothing of that name."""


class BadQuestion(BackupdError):
    """A parameter is invalid."""


_STATUSES: dict[type[BackupdError], int] = {
    NotFound: 404,
    UsageError: 404,
    BadQuestion: 400,
    CatalogueError: 503,
    ConfigurationError: 503,
}
_TO_STRANGERS = (401, 403, 421)  # who may be anybody: neither the machine's name nor our version is theirs to know
_MEANINGS = {
    400: "Invalid request",
    401: "Token needed",
    403: "No token configured",
    404: "Not found",
    405: "Not here",
}


def refuse(scope: Scope, status: int, message: str, hint: str) -> Response:
    """The answer with this status, in the way that was asked for."""
    if str(scope["path"]).startswith(JSON_PREFIXES):
        return AsciiJsonResponse({"message": message, "hint": hint}, status_code=status)
    title = _MEANINGS.get(status, "Not now" if status >= 500 else "Invalid request")
    hidden = {"host": "", "version": ""} if status in _TO_STRANGERS else {}
    return page(Request(scope), "refusal.html", status=status, title=title, message=message, hint=hint, **hidden)


def explain_failures(application: FastAPI) -> None:
    """From now on whatever the application's routes raise becomes such an answer."""
    for kind, status in _STATUSES.items():
        application.add_exception_handler(kind, _explaining(status))
    application.add_exception_handler(HTTPException, _of_http)
    application.add_exception_handler(RequestValidationError, _of_parameters)
    application.add_exception_handler(Exception, _of_bugs)


def _explaining(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        message, hint = (error.message, error.hint) if isinstance(error, BackupdError) else (str(error), "")
        if status >= 500:
            log.error("%s: %s", request.url.path, message)
        return refuse(request.scope, status, message, hint)

    return answer


async def _of_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return refuse(request.scope, 404, "there is no such page", "start at the overview")
    return refuse(request.scope, status, str(getattr(error, "detail", error)).lower(), "")


async def _of_parameters(request: Request, error: Exception) -> Response:
    """The first that is wrong; its value is not repeated."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    name, said = (str(faults[0]["loc"][-1]), str(faults[0]["msg"])) if faults else ("a parameter", str(error))
    return refuse(request.scope, 422, f"{name} is invalid: {said}", "/openapi.json describes all parameters")


async def _of_bugs(request: Request, _error: Exception) -> Response:
    """The server logs it with its traceback, for Starlette raises it again once this is sent; then uvicorn hangs up."""
    answer = refuse(request.scope, 500, "this is a bug in backupd", "please report it with the daemon's log")
    answer.headers["Connection"] = "close"
    return answer
