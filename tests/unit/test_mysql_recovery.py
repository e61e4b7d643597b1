"""What a recovery is given follows from the redo that it may have to read; running into that limit decides nothing."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from backupd.mysql.own_limits import LONGEST_LINE, ran_out
from backupd.mysql.proof import with_its_end
from backupd.mysql.recovery import (
    LEAST_POOL,
    LEAST_SECONDS,
    buffer_pool_bytes,
    memory_available,
    recovery_seconds,
    redo_bytes,
    stop_seconds,
)
from backupd.mysql.scratch import RunningServer, _within_limits
from backupd.mysql.scratch_places import ScratchPlaces
from backupd.mysql.session import Session
from backupd.vocabulary.errors import ServerError, Undecided
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Flavour
from tests.fakes.server import FACTS

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("flavour", "settings", "redo"),
    [
        (Flavour.MARIADB, {"innodb_log_file_size": str(8 * GIB)}, 8 * GIB),
        (Flavour.MARIADB, {"innodb_log_file_size": str(GIB), "innodb_log_files_in_group": "3"}, 3 * GIB),
        (Flavour.MYSQL, {"innodb_log_file_size": str(GIB)}, 2 * GIB),
        (Flavour.MYSQL, {"innodb_log_file_size": str(48 * MIB), "innodb_redo_log_capacity": str(GIB)}, GIB),
        (Flavour.MYSQL, {}, 0),
        (Flavour.MYSQL, {"innodb_redo_log_capacity": "9" * 20}, 512 * GIB),
        (Flavour.MARIADB, {"innodb_log_file_size": "9" * 20, "innodb_log_files_in_group": "9" * 20}, 512 * GIB),
        (Flavour.MARIADB, {"innodb_log_file_size": "9" * 5000}, 0),
    ],
)
def test_the_redo_of_a_backup_is_what_its_server_s_log_can_hold(
    flavour: Flavour, settings: dict[str, str], redo: int
) -> None:
    assert redo_bytes(replace(FACTS, flavour=flavour, settings=settings)) == redo


def test_a_log_of_32_gib_may_take_two_and_three_quarter_hours() -> None:
    assert recovery_seconds(0) == LEAST_SECONDS == 1800
    assert recovery_seconds(32 * GIB) == 1800 + 8192


@given(redo=some.integers(0, 1 << 44), available=some.integers(0, 1 << 44))
def test_the_pool_holds_the_redo_but_never_takes_more_than_a_fourth_of_what_is_available(
    redo: int, available: int
) -> None:
    pool = buffer_pool_bytes(redo, available=available)
    assert pool >= LEAST_POOL
    assert pool % LEAST_POOL == 0
    assert pool == LEAST_POOL or pool <= min(redo, available // 4)
    assert pool > min(redo, available // 4) - LEAST_POOL


def test_a_full_pool_of_16_gib_may_take_four_and_a_half_hours_to_be_written(tmp_path: Path) -> None:
    assert stop_seconds(LEAST_POOL) == 600
    waited: list[float] = []

    class Writing:
        def wait(self, seconds: float) -> int:
            waited.append(seconds)
            raise subprocess.TimeoutExpired("mariadbd", seconds)

    class Told:
        def value(self, _statement: str) -> str:
            return str(16 * GIB)

        def execute(self, _statement: str) -> None: ...

        def close(self) -> None: ...

    for asked, granted in ((0.0, 16384.0), (20000.0, 20000.0)):
        server = RunningServer(Writing(), Told(), ScratchPlaces(tmp_path))  # type: ignore[arg-type]
        with pytest.raises(Undecided, match=f"did not shut down within {granted:g} s"):
            server.shut_down(within_seconds=asked)
    assert waited == [16384.0, 20000.0]


class Asked:
    """A session that the server still answers."""

    def value(self, _statement: str) -> str:
        return str(LEAST_POOL)

    def execute(self, _statement: str) -> None: ...

    def close(self) -> None: ...


@contextmanager
def served_by(script: str, folder: Path, log: str = "") -> Iterator[RunningServer]:
    """A server whose process does this, and which has written this line to its log."""
    (folder / "log.err").write_text(f"[Note] before\n{log}\n")
    with subprocess.Popen(["sh", "-c", script]) as process:
        yield RunningServer(process, cast(Session, Asked()), ScratchPlaces(folder))


@pytest.mark.parametrize(
    ("script", "log", "says"),
    [
        ("kill -9 $$", "[Note] mariadbd: Shutdown complete", r"was killed \(out of memory\?\)"),
        (
            "exit 1",
            "[ERROR] InnoDB: Write to file ./t/a.ibd failed at offset 0: No space left on device",
            "ran out of resources: .*No space left",
        ),
    ],
)
def test_a_server_that_ran_into_a_limit_as_it_ended_decides_nothing(
    tmp_path: Path, script: str, log: str, says: str
) -> None:
    with served_by(script, tmp_path, log) as server, pytest.raises(Undecided, match=says):
        server.shut_down()


@pytest.mark.parametrize("sound", [True, False])
def test_a_server_that_is_killed_while_it_is_asked_hides_nothing_that_was_found_wrong(
    tmp_path: Path, sound: bool
) -> None:
    before = Check("gtid", ok=sound, expected="0-1-7", found="0-1-7" if sound else "0-1-6")

    def asked() -> Iterator[Check]:
        yield before
        raise ServerError("the session with the server ended")

    with served_by("kill -9 $$", tmp_path) as server:
        if sound:
            with pytest.raises(Undecided, match=r"was killed \(out of memory\?\)"):
                with_its_end(server, asked())
        else:
            assert with_its_end(server, asked()) == (before,)


@pytest.mark.parametrize("sound", [True, False])
def test_a_server_that_dies_while_it_is_asked_hides_nothing_that_was_found_wrong(tmp_path: Path, sound: bool) -> None:
    """It has died of a damaged table, say; the check behind that finds nobody to ask."""
    before = Check("tables", ok=sound, expected="9 tables OK", found="9 tables OK" if sound else "a.b: error: Corrupt")

    def asked() -> Iterator[Check]:
        yield before
        raise ServerError("cannot connect to the database server: connection refused")

    with served_by("kill -11 $$", tmp_path) as server:
        if sound:
            with pytest.raises(ServerError, match="cannot connect"):
                with_its_end(server, asked())
        else:
            found, end = with_its_end(server, asked())
            assert (found, end.ok) == (before, False)
            assert end.found == "cannot connect to the database server: connection refused"


@pytest.mark.parametrize(("script", "ok", "found"), [("exit 0", True, "status 0"), ("kill -6 $$", False, "status -6")])
def test_any_other_end_of_its_own_is_an_answer(tmp_path: Path, script: str, ok: bool, found: str) -> None:
    with served_by(script, tmp_path) as server:
        ended = server.shut_down()
    assert (ended.ok, ended.expected, ended.found) == (ok, "status 0", found)


def test_the_words_of_a_limit_are_found_in_lines_of_any_length() -> None:
    filler = "x" * (4 << 20)  # a server that a copy has taken over writes what it likes
    assert ran_out(f"{filler}\nother\n") == ""
    assert (
        ran_out(f"{filler}\n  [ERROR] Disk is full writing './t/a.MYD' {filler}\nother")
        == (f"[ERROR] Disk is full writing './t/a.MYD' {filler}"[:LONGEST_LINE])
    )
    assert ran_out("Got error 28 from storage engine") == "Got error 28 from storage engine"
    assert ran_out("error 281") == ""


def test_this_machine_tells_what_is_available() -> None:
    assert memory_available() > 0


@pytest.mark.parametrize(
    ("script", "log", "says"),
    [
        ("kill -9 $$", "[Note] Starting crash recovery", "was killed"),
        (
            "exit 1",
            "[ERROR] InnoDB: Cannot allocate memory for the buffer pool",
            "ran out of resources: .*Cannot allocate memory",
        ),
        (
            "exit 1",
            "[Warning] mysqld: Disk is full writing './t/a.MYD' (Errcode: 28)",
            "ran out of resources: .*Disk is full",
        ),
    ],
)
def test_a_server_that_ran_into_a_limit_of_the_drill_decides_nothing(
    tmp_path: Path, script: str, log: str, says: str
) -> None:
    (tmp_path / "log.err").write_text(f"[Note] before\n{log}\n")
    with (
        subprocess.Popen(["sh", "-c", script]) as process,
        pytest.raises(Undecided, match=says) as undecided,
        _within_limits(process, ScratchPlaces(tmp_path)),
    ):
        raise ServerError("the server did not start")
    assert (
        "nothing was learned about the backup: drill it again with more time, memory or disk space"
        in undecided.value.hint
    )


@pytest.mark.parametrize(
    ("script", "log"),
    [
        ("kill -6 $$", "[ERROR] InnoDB: Page [page id: space=5] log sequence number is in the future"),
        ("exit 127", "mariadbd: symbol lookup error: ha_rocksdb.so: undefined symbol"),  # the loader's, of one that ran
    ],
)
def test_any_other_end_of_the_server_is_an_answer(tmp_path: Path, script: str, log: str) -> None:
    (tmp_path / "log.err").write_text(f"{log}\n")
    with (
        subprocess.Popen(["sh", "-c", script]) as process,
        pytest.raises(ServerError) as failed,
        _within_limits(process, ScratchPlaces(tmp_path)),
    ):
        raise ServerError("the server did not start")
    assert not isinstance(failed.value, Undecided)
