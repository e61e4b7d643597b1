"""A copy that goes nowhere, beside a measurement: it reads before anything is measured, or says why it does not."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from backupd.operations.measure.dry_copy import DryCopy
from backupd.vocabulary.errors import SnapshotError


def mounting(act: Callable[[], Path]) -> Callable[[], AbstractContextManager[Path]]:
    @contextmanager
    def mounted() -> Iterator[Path]:
        yield act()

    return mounted


def test_it_reads_while_its_block_lasts_and_mounts_the_snapshot_for_each_pass(tmp_path: Path) -> None:
    (tmp_path / "ibdata1").write_bytes(bytes(1 << 20))
    passes = threading.Semaphore(0)

    def mount() -> Path:
        passes.release()
        return tmp_path

    with DryCopy(mounting(mount)) as copy:
        copy.require_running()
        assert passes.acquire(timeout=60)
        assert passes.acquire(timeout=60), "read from memory, a second pass would cost nothing"


def test_a_snapshot_that_gives_no_byte_is_told(tmp_path: Path) -> None:
    over = threading.Event()

    def stall() -> Path:
        over.wait()
        return tmp_path

    with DryCopy(mounting(stall)) as copy:
        with pytest.raises(SnapshotError, match=r"nothing could be read from the snapshot within 0 s") as told:
            copy.require_running(within_seconds=0.0)
        over.set()
    assert "dmesg" in told.value.hint


def test_a_snapshot_that_cannot_be_mounted_is_told_as_that() -> None:
    def fail() -> Path:
        raise SnapshotError("it could not be mounted")

    with pytest.raises(SnapshotError, match="it could not be mounted"), DryCopy(mounting(fail)) as copy:
        copy.require_running()
