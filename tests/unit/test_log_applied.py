"""How far a log is applied, as a person is told; and where what is gone on with begins."""

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from backupd.cli.progress import ApplyingLines, log_applied
from backupd.mysql.binlog.applying import ApplyingProgress
from backupd.operations.restore.moment.log_to_moment import first_place
from backupd.policy.binlog_chain import PlacedBackup
from backupd.policy.moments import Latest
from backupd.policy.roll_forward import EndCondition, RestorePlan
from backupd.vocabulary.binlogs import BinlogPlace
from tests.binlog_segments import BEGAN, chain_of

AT = datetime(2026, 11, 26, 1, 13, 18, tzinfo=UTC)


def test_a_line_has_the_share_the_log_s_own_time_and_the_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    seconds: Iterator[float] = iter([0.0, 4.0, 6.0, 8.0])
    lines = ApplyingLines(now=lambda: next(seconds))
    for done in (0, 500, 510, 750, 1000):
        lines.tell(ApplyingProgress(done, 1000, AT))
    assert capsys.readouterr().err.splitlines() == [
        "applied 50 %: the log as of about 2026-11-26 01:13:18 UTC, 4.0 s left",
        "applied 70 %: the log as of about 2026-11-26 01:13:18 UTC, 2.0 s left",
        "applied 100 %",
    ]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_once_something_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with log_applied() as told:
        assert "applying" not in screen.getvalue()
        told(ApplyingProgress(300, 1000, AT))
    assert "applying the log as of about 2026-11-26 01:13:18 UTC" in screen.getvalue()
    assert "30%" in screen.getvalue()


def test_behind_the_end_of_a_binlog_that_a_crash_has_ended_the_log_goes_on_in_the_next_one() -> None:
    """Nothing was written behind the backup's place in its file: no rotation leads on."""
    segments = chain_of(6, rotates_after=3)
    before = [segment for segment in segments if segment.file == segments[0].file]
    after = tuple(segments[len(before) :])
    end = BinlogPlace(before[-1].file, before[-1].end)
    backup = PlacedBackup("r1", end, before[-1].gtid_end, BEGAN)
    plan = RestorePlan(backup, after, end, EndCondition(Latest(), met_in_last=False))
    assert first_place(plan, end) == BinlogPlace(after[0].file, 4)
    within = BinlogPlace(after[1].file, after[1].start + 10)
    assert first_place(plan, within) == within
    last = BinlogPlace(after[-1].file, after[-1].end)
    assert first_place(plan, last) == last
