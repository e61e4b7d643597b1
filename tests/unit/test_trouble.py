"""People are told of what the daemon lacks by who needs no catalogue for that."""

from datetime import UTC, datetime

from backupd.notifications.words import title
from backupd.service.trouble import CATALOGUE, DaemonTrouble
from backupd.vocabulary.errors import CatalogueError
from backupd.vocabulary.schedule import Notice, NoticeKind

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
DAY = 86400.0
FULL = CatalogueError("the catalogue /c cannot be written: no space left", hint="free space on its file system")


def kinds(*looks: float, ends: bool = False) -> list[Notice]:
    """What is told where it cannot be used at each of these looks, in seconds, and then can be."""
    told: list[Notice] = []
    passed = [0.0]
    trouble = DaemonTrouble(CATALOGUE, told.append, lambda: NOW, lambda: passed[0])
    for passed[0] in looks:
        trouble.stands(FULL, ["nightly"])
    if ends:
        trouble.over(["nightly"])
        trouble.over(["nightly"])
    return told


def test_what_passes_within_minutes_wakes_nobody() -> None:
    assert kinds(0, 299, ends=True) == []


def test_what_lasts_is_told_each_day_and_so_is_its_end() -> None:
    first, second, over = kinds(0, 300, 301, 300 + DAY - 1, 300 + DAY, ends=True)
    assert [first.kind, second.kind, over.kind] == [NoticeKind.ALARM, NoticeKind.ALARM, NoticeKind.OVER]
    assert first.text.startswith(f"nothing can be started or recorded: {FULL.message} (seen for ")
    assert first.detail["hint"] == "free space on its file system"
    assert (first.concerns, first.subject) == (("nightly",), over.subject)
    assert title(first).endswith(": the catalogue has an alarm")
