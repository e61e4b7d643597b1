"""What is mailed or handed over, in a real browser: a failure's mail, the digest, an auditor's evidence.

Set BACKUPD_PICTURES to a folder to have pictures of them there.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from backupd.report.evidence import Evidence, EvidenceKind, EvidenceRow
from backupd.report.evidence_html import evidence_page
from backupd.report.notice_html import notice_page
from backupd.service.digest import digest
from backupd.service.machine_view import LiveHere
from backupd.service.site_status import site_status
from backupd.service.target_rooms import SeenTarget
from backupd.vocabulary.records import Check
from backupd.vocabulary.schedule import Notice, NoticeKind
from tests.hostile_words import HOSTILE
from tests.web.browsing import Look, look_at
from tests.web.conftest import served
from tests.web.sample import NOW, sample_site

LONG = f"{HOSTILE} שלום עולם 🐬 `{'a_name_without_an_end_' * 8}`.`{'x' * 120}` {'and an error ' * 25}"
ANSWERS = {
    "run": "20261125-030000-7c1e",
    "hint": LONG,
    "exit status": "6 (server or lock)",
    "another good copy": "NO: no good backup of this job is left",
    "next try": "2026-11-25 03:16 UTC (try 2 of 2)",
    "type now": "backupd log r1  # the run's full log\nbackupd check nightly  # what would stop the next one",
    "page": f"https://db1.example.com:9476/runs/{'r' * 120}",
    "the last 20 lines of its log": "\n".join([LONG] * 20),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name: as they are when all is well, and as a stranger has written them."""
    made = {
        "mail": notice_page(Notice(NoticeKind.FAILED, "nightly", NOW, "r1", LONG, ANSWERS)),
        "mail-good": notice_page(Notice(NoticeKind.RECOVERED, "nightly", NOW, "r1", "it is good again", {"run": "r1"})),
        "evidence": evidence_page(_evidence(*(_row(kind) for kind in EvidenceKind), sound=False), [LONG]),
        "evidence-empty": evidence_page(_evidence(sound=True), ["Not signed"]),
    }
    with sample_site(tmp_path_factory.mktemp("digest")) as site:
        seen = {"vault": SeenTarget(up=True, free=1 << 36, size=1 << 40), "offsite": SeenTarget(up=False)}
        status = site_status(site, LiveHere(site.configuration.paths.run), seen)
        made["digest"] = notice_page(digest(site, status))
    return made


def _row(kind: EvidenceKind) -> EvidenceRow:
    checks = (Check(LONG, False, LONG, LONG),)
    return EvidenceRow(kind, NOW, LONG, LONG, LONG, LONG, False, LONG, 1.0, targets=(LONG,), checks=checks)


def _evidence(*rows: EvidenceRow, sound: bool) -> Evidence:
    since = NOW - timedelta(days=365)
    return Evidence("db1-0a1b2c3d", None, since, None, NOW, rows, (LONG,), chain_sound=sound, chain=(LONG,))


@pytest.mark.parametrize("look", list(Look))
@pytest.mark.parametrize("name", ["mail", "mail-good", "digest", "evidence", "evidence-empty"])
def test_everybody_can_read_it_and_it_loads_nothing(
    chrome: Browser, documents: dict[str, str], name: str, look: Look
) -> None:
    async def document(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await HTMLResponse(documents[name] if scope["path"] == "/" else "")(scope, receive, send)

    folder = os.environ.get("BACKUPD_PICTURES")
    with served(document) as address:
        looked = look_at(chrome, address, look, picture=Path(folder) / f"{name}-{look}.png" if folder else None)
    assert looked.complaints == []
    assert looked.facts["elsewhere"] == []
    assert (looked.facts["overflow"], looked.facts["wide"]) == (0, [])
    assert looked.facts["faint"] == []
    assert looked.facts["texts"] > 3
    assert looked.facts["headings"][0] == 1
