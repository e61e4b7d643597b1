"""The application behind a real socket, over a real catalogue that has a little of everything."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.live_progress import LiveRuns, Progress
from backupd.service.machine_view import own_eyes
from backupd.service.site import Site
from backupd.service.web.application import application
from backupd.service.web.serving import settings
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.penalty import Bill, Counted, GateOutcome, Losses, PaceChange, Reason, Sample, Verdict
from backupd.vocabulary.records import Check, Drill, Phase
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.servers import LockReceipt
from backupd.vocabulary.storage import Backup
from tests.web.browsing import chromium

NIGHTLY = Backup("disk", "/backups/nightly/good", 5 << 30, 2 << 30, 12, "ab" * 32)
TOKEN = "opensésame"
HOSTILE = "<script>alert('x')</script>\x1b[31m\nand a second line"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    """One for all tests of a worker, for it takes no second; each page has a context of its own."""
    with sync_playwright() as playwright, chromium(playwright) as started:
        yield started


@contextmanager
def server_of(application: ASGIApp) -> Iterator[uvicorn.Server]:
    """It answers while the block lasts, at a free port of this machine's own."""
    server = uvicorn.Server(settings(application))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.005)
    assert server.started
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


def address_of(server: uvicorn.Server) -> str:
    """Its URL."""
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


@contextmanager
def served(application: ASGIApp) -> Iterator[str]:
    """It answers at this address while the block lasts."""
    with server_of(application) as server:
        yield address_of(server)


def shown(site: Site) -> ASGIApp:
    """All pages of this site, to visitors who know the token."""
    pages = application(site, own_eyes(site.configuration), token=TOKEN)

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]}
        await pages(scope, receive, send)

    return known


def configured(folder: Path, **service: Any) -> Configuration:
    """Three jobs: one that is well, one in trouble, one that never ran."""
    read = TypeAdapter(Configuration).validate_python
    return read(
        {
            "paths": {"run": str(folder / "run"), "log": str(folder / "log")},
            "service": {"zone": "Europe/Berlin", **service},
            "hosts": {"db1": {}},
            "targets": {
                "disk": {"type": "directory", "path": str(folder)},
                "cloud": {
                    "type": "s3",
                    "bucket": "safe",
                    "credentials_file": "/etc/backupd/s3.secret",
                    "accept_unencrypted": True,
                },
            },
            "jobs": {
                "nightly": {
                    "host": "db1",
                    "targets": ["disk"],
                    "schedules": {"backup": {"cron": "0 4 * * *"}, "drill": {"cron": "0 5 * * 0"}},
                },
                "shop": {"host": "db1", "targets": ["disk", "cloud"]},
                "new": {"host": "db1", "targets": ["cloud"], "schedules": {"backup": {"cron": "30 1 * * *"}}},
            },
        }
    )


@contextmanager
def told(catalogue: Catalogue, folder: Path) -> Iterator[datetime]:
    """What the pages are to show: a good run, one that failed, and `going`, which runs while the block lasts.

    Yields the instant at which `going` told how far it is.
    """
    with catalogue.open_run("nightly", "db1", run_id="good") as run:
        run.took(Phase.COPY, 100.0)
        run.took(Phase.SETTLE, 61.5)
        run.lock(LockReceipt("backup-stage", 1, 0.2, 0.031, "metadata-locks", stalled=6))
        run.bill(Bill(70.0, penalty_seconds=14.0))
        run.losses(Losses(Counted.LOGGED, 70.0, 400.0, None, 27_000, 300.0))
        run.verdict(Verdict(GateOutcome.START, Reason.SETTLED, "3 windows within 10 %", 61.5))
        run.samples(
            [
                Sample(-2.0, "baseline", iops=400.0),
                Sample(1.0, "settle", iops=100.0, ratio=4.0),
                *(Sample(at, "settle", iops=320.0, ratio=1.25) for at in (2.0, 3.0, 4.0)),
            ]
        )
        run.paced(
            [
                PaceChange(65.0, 0.5, 20 << 20, "any faster, the copy would exceed its budget"),
                PaceChange(130.0, 1.0, 40 << 20, "the server is not writing"),
            ]
        )
        run.complete((NIGHTLY,))
    catalogue.record_drill(Drill("good", True, (Check("starts", True, "yes", "yes"),), 60.0, datetime.now(UTC)))
    with pytest.raises(TargetError), catalogue.open_run("shop", "db1", run_id="bad"):
        raise TargetError(HOSTILE, hint="make room")
    now = datetime.now(UTC)
    missed = Slot("shop", Activity.BACKUP, now, SlotState.MISSED, now, reason="the machine was off")
    catalogue.take_slot(missed)
    drill = Slot("nightly", Activity.DRILL, now - timedelta(days=1), SlotState.STARTED, now)
    catalogue.take_slot(drill)
    catalogue.slot_ended(drill, exit_status=9)
    catalogue.take_slot(replace(drill, due_at=now - timedelta(hours=1)))
    catalogue.pause("new", "the <b>disks</b> are changed")
    with catalogue.open_run("nightly", "db1", run_id="going") as run:
        at = datetime.now(UTC)
        since = at.timestamp() - 50
        LiveRuns(folder / "run").tell("going", Progress(Phase.COPY, since, since + 50, done=25 << 20, total=100 << 20))
        yield at
        run.complete((NIGHTLY,))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="session")
def site(folder: Path) -> Iterator[Site]:
    """Its clock stands 5 seconds later: what `going` still takes is the same for the first test and for the last."""
    with Catalogue.open(folder / "catalogue.sqlite") as catalogue, told(catalogue, folder) as at:
        yield Site(configured(folder), catalogue, lambda: at + timedelta(seconds=5))


@pytest.fixture(scope="session")
def app(site: Site) -> ASGIApp:
    return shown(site)


@pytest.fixture(scope="session")
def address(app: ASGIApp) -> Iterator[str]:
    with served(app) as url:
        yield url


@pytest.fixture(scope="session")
def browser(address: str) -> Iterator[httpx.Client]:
    """What asks as a browser does, and follows nothing by itself."""
    with httpx.Client(base_url=address, timeout=20) as client:
        yield client
