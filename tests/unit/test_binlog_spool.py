"""Segments that wait for their targets: whole and durable, or not there."""

import errno
import os
from pathlib import Path

import pytest

from backupd.operations.binlog.spool import BinlogSpool
from backupd.vocabulary.errors import UsageError

FIRST, SECOND = (f"20261120T040000Z-0123abcd-{number:010}.binlog" for number in (1, 2))


@pytest.fixture
def spool(tmp_path: Path) -> BinlogSpool:
    found = BinlogSpool(tmp_path / "spool", "nightly")
    found.open()
    return found


def test_what_was_kept_is_read_and_forgotten(spool: BinlogSpool) -> None:
    spool.keep(SECOND, b"{}\n", b"two")
    spool.keep(FIRST, b"{}\n", b"one")
    assert spool.sizes() == {FIRST: 6, SECOND: 6}
    with spool.reading(FIRST) as file:
        assert file.read() == b"{}\none"
    spool.forget(FIRST)
    spool.forget(FIRST)
    assert list(spool.sizes()) == [SECOND]
    with pytest.raises(FileNotFoundError), spool.reading(FIRST):
        pytest.fail("it was forgotten")


def test_nobody_else_may_look_into_it_and_what_is_not_a_segment_stays(spool: BinlogSpool, tmp_path: Path) -> None:
    folder = tmp_path / "spool" / "nightly"
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "note").write_text("a person's")
    (folder / f"{FIRST}.part").write_text("half")
    spool.open()
    assert sorted(path.name for path in folder.iterdir()) == ["note"]
    assert spool.sizes() == {}


def test_a_spool_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "nightly").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="the binlog spool cannot be used"):
        BinlogSpool(tmp_path / "spool", "nightly").open()


def test_a_full_disk_leaves_nothing_and_what_waited_there_stays(
    spool: BinlogSpool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.keep(FIRST, b"{}\n", b"one")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        spool.keep(SECOND, b"{}\n", b"two")
    assert [path.name for path in (tmp_path / "spool" / "nightly").iterdir()] == [FIRST]
