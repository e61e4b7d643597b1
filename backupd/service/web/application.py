"""The web application: its routes put together, with the guard around all of them.

Knows: which part serves which paths.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI
from jinja2 import Environment
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from backupd import __version__
from backupd.report import svg
from backupd.service.machine_view import MachineView
from backupd.service.metrics import Metrics
from backupd.service.site import Site
from backupd.service.web import api, archive_page, pages, rendering, run_page
from backupd.service.web.guard import WebGuard, allowed_hosts
from backupd.service.web.refusals import explain_failures, refuse

THREADS = 8  # that read the catalogue at a time; each has a connection of its own


class Application(FastAPI):
    """An ASGI application that shows one site. Its state has the `templates` of its pages, those of refusals too."""

    guard: WebGuard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The guard answers, or lets the routes answer."""
        await self.guard(super().__call__, {**scope, "app": self}, receive, send)


def application(site: Site, outlook: MachineView, *, token: str | None = None) -> Application:
    """All pages, `/api`, `/metrics` and `/healthz` over this site.

    Without a token nobody sees a page; whoever reaches the port may read `/metrics` and `/healthz`, but only by the
    names of this machine's own addresses and of `service.address`.

    Raises:
        ValueError: the token is empty.
    """
    made = guarded(
        token,
        address=site.configuration.service.address,
        templates=rendering.environment(),
        title="backupd",
        description="What the catalogue knows of runs, jobs and schedules. Read-only.",
    )
    made.state.site, made.state.outlook = site, outlook
    made.state.metrics = Metrics(site, live=outlook.live, rooms=outlook.rooms)
    made.include_router(pages.router)
    made.include_router(run_page.router)
    made.include_router(archive_page.router)
    made.include_router(api.router)
    return made


def guarded(
    token: str | None, *, address: str, table: str = "service", templates: Environment, title: str, description: str
) -> Application:
    """An application without a page yet: the guard around it, its refusals, and `/static`.

    `table` is the one of the configuration that the address and the token are from.

    Raises:
        ValueError: the token is empty.
    """
    if token == "":
        raise ValueError("an empty token would let anybody in")
    made = Application(
        title=title,
        version=__version__,
        description=description,
        lifespan=_few_threads,
        docs_url=None,  # they load their scripts from elsewhere; `/api` lists the same
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=rendering.AsciiJsonResponse,
    )
    made.guard = WebGuard(token, allowed_hosts(address), refuse, table)
    made.state.templates = templates
    explain_failures(made)
    made.add_api_route("/static/colours.css", _colours, include_in_schema=False)
    made.mount("/static", StaticFiles(directory=rendering.STATIC), name="static")
    return made


async def _colours() -> Response:
    return Response(svg.page_style(), media_type="text/css")


@asynccontextmanager
async def _few_threads(_application: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield
