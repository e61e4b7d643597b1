"""A restore is done when what stands on the disk was compared with what was recorded."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backupd.archive.frames import Reading
from backupd.archive.unpack import Unpacking
from backupd.mysql.tablefiles import tables_in
from backupd.operations.restore import wanted_objects
from backupd.operations.restore.into_folder import restore, unpack_objects
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import ExitStatus, NotAsRecorded, Unreadable
from backupd.vocabulary.storage import MARKER
from tests.fakes.target import MACHINE
from tests.story.stored import JOB, RUN, Stream, files_in, put_in, unpacked
from tests.story.test_restore_resumed import Failing, source

FIRST: Stream = [
    ("./", b""),
    ("ibdata1", b"everybody's"),
    ("shop/", b""),
    *((f"shop/t{i}.ibd", b"%d" % i) for i in range(8)),
]
STREAMS = {"data-1.tar.zst": FIRST, "binlog.tar.zst": [("shop/bin.000001", b"binlog")]}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return put_in(tmp_path / "vault", STREAMS)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "restored"


@pytest.fixture
def meddling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Something else is at work in the folder once an object was unpacked."""

    def meddle(change: Callable[[], None]) -> None:
        run = Unpacking.run

        def told(unpacking: Unpacking, reading: Reading) -> None:
            run(unpacking, reading)
            change()

        monkeypatch.setattr(Unpacking, "run", told)

    return meddle


def test_a_file_that_is_not_as_recorded_is_named_and_the_folder_is_kept_and_compared_again(
    vault: Path, to: Path, meddling: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow() -> None:
        for i in range(7):
            if (to / "shop" / f"t{i}.ibd").exists():
                (to / "shop" / f"t{i}.ibd").write_bytes(b"of somebody else")
                os.utime(to / "shop" / f"t{i}.ibd", ns=(0, 1_700_000_000_500_000_000))

    meddling(grow)
    with pytest.raises(
        NotAsRecorded, match=r"differ from the manifest: shop/t0\.ibd: 16 bytes instead of 1; "
    ) as found:
        restore([source(Failing(vault))], to=to)
    assert found.value.exit_status is ExitStatus.VERIFICATION
    assert found.value.message.endswith("; and 2 more")
    assert f"{to} is kept: fix that" in found.value.hint
    assert (to / MARKER).exists()
    for i in range(7):
        (to / "shop" / f"t{i}.ibd").write_bytes(b"%d" % i)
        os.utime(to / "shop" / f"t{i}.ibd", ns=(0, 1_700_000_000_500_000_000))
    monkeypatch.undo()
    again = Failing(vault)
    restore([source(again)], to=to)
    assert set(again.read) == {"index.jsonl.zst"}
    assert files_in(to) == unpacked(STREAMS)
    assert (to / "shop").stat().st_mtime_ns == 1_700_000_000_500_000_000  # though a binlog came into it beside


def test_a_disk_that_is_full_by_the_second_comparison_costs_nothing_that_is_there(
    vault: Path, to: Path, meddling: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    meddling(lambda: (to / "ibdata1").chmod(0o600) if (to / "ibdata1").exists() else None)
    for _ in range(2):
        with pytest.raises(NotAsRecorded, match=r"ibdata1: mode 0600 instead of 0644"):
            restore([source(Failing(vault))], to=to)
        monkeypatch.setattr("backupd.operations.restore.unfinished._write", full)
    assert files_in(to).items() > unpacked(STREAMS).items()


def full(_to: Path, _text: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_once_everything_is_unpacked_empties_nothing(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.operations.restore.unfinished.Filling.save", lambda folder, objects: full(to, ""))
    with pytest.raises(OSError, match="No space left") as error:
        restore([source(Failing(vault))], to=to)
    assert f"{to} keeps what was restored so far" in error.value.__notes__[0]
    monkeypatch.undo()
    restore([source(Failing(vault))], to=to)
    assert files_in(to) == unpacked(STREAMS)


def test_an_index_that_is_lost_costs_the_comparison_and_nothing_else(vault: Path, to: Path) -> None:
    path = vault / MACHINE / JOB / RUN / "index.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-4] + b"oops")
    with pytest.raises(NotAsRecorded, match="cannot be compared: index"):
        restore([source(Failing(vault))], to=to)
    (to / MARKER).unlink()
    assert files_in(to) == unpacked(STREAMS)


@pytest.mark.parametrize("tables", ["", "shop.t1"], ids=["all", "tables"])
def test_the_index_of_more_files_may_be_larger(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch, tables: str
) -> None:
    monkeypatch.setattr(wanted_objects, "_LEAST_HELD", 10)
    monkeypatch.setattr(wanted_objects, "_MOST_HELD", 100)
    with pytest.raises(
        Unreadable if tables else NotAsRecorded, match="at most 100 B of it are held in memory"
    ) as refused:
        restore([source(Failing(vault))], to=to, tables=tables_in(tables) if tables else ())
    if tables:  # and that is true: of the whole backup, the files stay
        assert "without --tables keeps the files, not compared (status 9)" in refused.value.hint
    assert to.exists() is not bool(tables)
    monkeypatch.setattr(wanted_objects, "_MOST_HELD", 1 << 20)
    restore([source(Failing(vault))], to=to, tables=tables_in(tables) if tables else ())
    assert "shop/t1.ibd" in files_in(to)


def test_of_single_tables_only_what_was_fetched_is_compared(
    vault: Path, to: Path, meddling: Callable[[Callable[[], None]], None]
) -> None:
    restore([source(Failing(vault))], to=to, tables=tables_in("shop.t1"))
    assert set(files_in(to)) == {"ibdata1", "shop/t1.ibd", "shop/bin.000001"}
    meddling(lambda: (to.with_name("other") / "shop" / "t2.ibd").unlink(missing_ok=True))
    with pytest.raises(NotAsRecorded, match=r"shop/t2\.ibd: is missing$"):
        restore([source(Failing(vault))], to=to.with_name("other"), tables=tables_in("shop.t2"))


def test_a_clone_s_and_a_drill_s_copy_is_compared_too(
    vault: Path, to: Path, meddling: Callable[[Callable[[], None]], None]
) -> None:
    to.mkdir()
    meddling(lambda: (to / "ibdata1").unlink(missing_ok=True))
    target = DirectoryTarget("vault", vault, machine=MACHINE)
    with pytest.raises(NotAsRecorded, match="ibdata1: is missing"):
        unpack_objects([source(target)], target.manifest(JOB, RUN), to=to)
