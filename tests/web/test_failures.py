"""When something else is wrong, every page says so in a sentence, and the next question is answered again."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from backupd.catalogue.store import Catalogue
from backupd.service.site import Site
from tests.web.conftest import served, shown

ASKED = ("/", "/history", "/schedule", "/targets", "/healthz", "/api/jobs", "/api/runs", "/api/impact", "/api/schedule")


@pytest.fixture
def path(site: Site, folder: Path, path_in_memory: Path) -> Path:
    """A copy of the catalogue that may be spoilt."""
    copy = path_in_memory / "catalogue.sqlite"
    with closing(sqlite3.connect(folder / "catalogue.sqlite")) as whole:
        whole.execute("VACUUM INTO ?", (str(copy),))
    return copy


@pytest.fixture
def unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was well when the daemon began."""
    monkeypatch.setattr("backupd.catalogue.store.prepare", lambda path, **how: None)


@contextmanager
def asked(site: Site, path: Path) -> Iterator[httpx.Client]:
    with (
        Catalogue.open(path, busy_timeout_seconds=0.02) as catalogue,
        served(shown(replace(site, catalogue=catalogue))) as url,
        httpx.Client(base_url=url, timeout=20) as client,
    ):
        yield client


def require_refused(client: httpx.Client, fact: str, hint: str) -> None:
    for question in ASKED:
        answer = client.get(question)
        assert answer.status_code == 503, question
        assert fact in answer.text, question
        assert hint in answer.text, question
        assert "Traceback" not in answer.text


def test_a_locked_catalogue_is_told_and_heals(site: Site, path: Path, unprepared: None) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other, asked(site, path) as client:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        require_refused(client, "is locked by another process", "check which one has it open")
        other.close()
        assert {question: client.get(question).status_code for question in ASKED} == dict.fromkeys(ASKED, 200)


def test_a_damaged_catalogue_is_told(site: Site, path: Path, unprepared: None) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xde\xad" * (path.stat().st_size // 2 - 2048))
    with asked(site, path) as client:
        require_refused(client, "is damaged", "move the file away")


def test_a_catalogue_that_was_taken_away_is_told(site: Site, path: Path, unprepared: None) -> None:
    with asked(site, path.parent / "gone" / "catalogue.sqlite") as client:
        require_refused(client, "cannot be opened", "run backupd as root")


def test_a_catalogue_that_became_another_backupds_is_told(site: Site, path: Path) -> None:
    with asked(site, path) as client:
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE runs RENAME TO attempts")
        for question in ("/", "/api/jobs"):
            answer = client.get(question)
            assert answer.status_code == 503
            assert "refused a statement" in answer.text


def test_metrics_answer_without_a_catalogue(site: Site, path: Path) -> None:
    with asked(site, path) as client:
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE runs RENAME TO attempts")
        answer = client.get("/metrics")

    assert answer.status_code == 200
    assert "backupd_catalogue_up 0.0" in answer.text


def test_a_bug_is_a_page_without_a_traceback_and_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> datetime:
        raise RuntimeError("the clock's secret")

    with (
        caplog.at_level(logging.ERROR),
        served(shown(replace(site, now=broken))) as url,
        httpx.Client(base_url=url) as client,
    ):
        answers = [client.get("/"), client.get("/api/jobs")]
        well = client.get("/history")

    for answer in answers:
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "please report it" in answer.text
        assert answer.headers["content-security-policy"]
    assert well.status_code == 200
    assert "the clock's secret" in caplog.text
