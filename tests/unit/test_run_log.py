"""The log of a run: whole, readable by its group alone, and never a reason for a run to fail."""

import errno
import io
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.cli.run import new_run_id
from backupd.host import run_log
from backupd.host.run_log import RunLogs
from backupd.service.launch import name_of
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.schedule import Activity, Slot, SlotState

log = logging.getLogger("backupd.of_this_test")

DUE = datetime(2025, 11, 21, 8, tzinfo=UTC)
SLOTS = [Slot("nightly", activity, DUE, SlotState.STARTED, DUE) for activity in (Activity.DRILL, Activity.CHECK)]
STARTED = [*map(name_of, SLOTS), f"{DUE:%Y%m%d}-shop-nightly.1", new_run_id()]  # where there is no systemd


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def aged(path: Path, *, days: float) -> None:
    """It was written to last so long ago."""
    os.utime(path, (time.time() - days * 86400,) * 2, follow_symlinks=False)


def messages(folder: Path, run_id: str = "r1") -> list[str]:
    return [line.partition("] ")[2] for line in RunLogs(folder).tail(run_id, lines=1000)]


@pytest.mark.parametrize("broken", ["a file in the folder's place", "a folder in the file's place", "a link"])
def test_a_log_that_cannot_be_made_is_a_warning_and_the_run_goes_on(
    folder: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    if broken.startswith("a file"):
        folder.write_text("")
    elif broken == "a link":
        folder.mkdir()
        (folder / "r1.log").symlink_to(folder.parent / "elsewhere")
    else:
        (folder / "r1.log").mkdir(parents=True)
    ran = []
    with RunLogs(folder).kept("r1"):
        log.warning("said")
        ran.append(True)
    assert ran
    assert len([text for text in caplog.messages if text.startswith("this run has no log")]) == 1
    assert not (folder.parent / "elsewhere").exists()


def test_a_disk_that_becomes_full_is_told_once_and_the_run_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / "r1.log").touch()
    logs = RunLogs(folder)
    handler = logs._handler("r1")
    assert handler is not None
    with Path("/dev/full").open("w") as full:
        handler.setStream(full)
        with run_log._listening(logging.getLogger(), handler):
            for _ in range(3):
                log.warning("said")
    assert capsys.readouterr().err.count("No space left on device") == 1


class Gone(io.StringIO):
    """A stderr whose reader has ended."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stderr", [Gone, closed, lambda: None], ids=["broken", "closed", "none"])
def test_a_disk_that_becomes_full_ends_no_run_although_nobody_can_be_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stderr: Callable[[], io.StringIO | None]
) -> None:
    folder.mkdir()
    handler = RunLogs(folder)._handler("r1")
    assert handler is not None
    monkeypatch.setattr(sys, "stderr", stderr())
    with Path("/dev/full").open("w") as full:
        handler.setStream(full)
        with run_log._listening(logging.getLogger(), handler):
            log.warning("said")
    assert isinstance(handler, run_log._Handler)
    assert handler.failed


def test_lines_have_instant_level_and_run(folder: Path) -> None:
    with RunLogs(folder).kept("r1"):
        log.info("the copy has begun: %d", 1)
    (line,) = RunLogs(folder).tail("r1", lines=10)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    \[r1\] the copy has begun: 1", line)


def test_others_cannot_read_it(folder: Path) -> None:
    with RunLogs(folder).kept("r1"):
        pass
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "r1.log")]
    assert modes == [0o750, 0o640]


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO, logging.DEBUG])
def test_info_and_up_is_in_it_however_loud_the_console_is(folder: Path, level: int) -> None:
    console: list[int] = []

    class Console(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.append(record.levelno)

    root, handler = logging.getLogger(), Console()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        with RunLogs(folder).kept("r1"):
            for each in (logging.DEBUG, logging.INFO, logging.WARNING):
                log.log(each, "%d", each)
        assert (root.level, handler.level) == (level, logging.NOTSET)
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
    assert messages(folder) == ["20", "30"]
    assert console == [each for each in (10, 20, 30) if each >= level]


def test_the_error_that_ends_the_run_is_its_last_line(folder: Path) -> None:
    error = TargetError("the vault is full", hint="make room")
    error.add_note("a snapshot is left")
    with pytest.raises(TargetError), RunLogs(folder).kept("r1"):
        log.info("begun")
        raise error
    assert messages(folder) == ["begun", "the vault is full; a snapshot is left; hint: make room"]


def test_a_fault_of_ours_is_there_with_its_traceback(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunLogs(folder).kept("r1"):
        1 / 0  # noqa: B018
    assert RunLogs(folder).tail("r1", lines=1) == ["    ZeroDivisionError: division by zero"]


def test_nothing_is_logged_there_after_the_run(folder: Path) -> None:
    with RunLogs(folder).kept("r1"):
        log.info("within")
    log.warning("after")
    assert messages(folder) == ["within"]


def test_a_second_process_of_the_run_appends(folder: Path) -> None:
    for words in ("first", "second"):
        with RunLogs(folder).kept("r1"):
            log.info(words)
    assert messages(folder) == ["first", "second"]


def test_the_tail_of_a_long_log_is_its_last_whole_lines(folder: Path) -> None:
    folder.mkdir()
    (folder / "r1.log").write_text("".join(f"line {number} {'x' * 300}\n" for number in range(5000)))
    tail = RunLogs(folder).tail("r1", lines=200)
    assert [line.split()[1] for line in tail] == [str(number) for number in range(4800, 5000)]
    assert RunLogs(folder).tail("r2", lines=200) == []


def test_logs_of_a_year_ago_are_there_and_older_ones_go(folder: Path) -> None:
    for run_id, days in (("r-last-year", 366), ("r-older", 401)):
        with RunLogs(folder).kept(run_id):
            log.info("[r1] is not its name")
        aged(folder / f"{run_id}.log", days=days)
    for name in STARTED:
        (folder / f"{name}.out.log").write_text("its output\n")
        aged(folder / f"{name}.out.log", days=401)
    with RunLogs(folder).kept("r1"):
        pass
    assert sorted(path.name for path in folder.iterdir()) == ["r-last-year.log", "r1.log"]


def test_no_log_of_anybody_else_goes_from_a_folder_that_is_not_ours_alone(folder: Path) -> None:
    """`paths.log` may be /var/log."""
    folder.mkdir()
    texts = {"dpkg.log": "2024-11-21 08:00:00 install [r1]\n", "r2.log": "", "app.out.log": "up\n", "r3.txt": "[r3] \n"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "a-link.log").symlink_to("dpkg.log")
    (folder / "leads-nowhere.log").symlink_to("nothing")
    os.mkfifo(folder / "fifo.log")
    before = sorted(folder.iterdir())
    for path in before:
        aged(path, days=900)
    with RunLogs(folder).kept("r1"):
        pass
    assert sorted(folder.iterdir()) == sorted([*before, folder / "r1.log"])
