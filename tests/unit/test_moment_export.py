"""A copy at a moment outlives an export that cannot be made of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.relocation import Relocation
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.moment import moment_export
from backupd.operations.restore.moment.moment_copy import MomentCopy
from backupd.operations.restore.table_export import FOLDER
from backupd.operations.restore.unfinished import resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.records import CLEAN_SHUTDOWN, Check
from backupd.vocabulary.servers import Position
from tests.unit.test_seeding import MARIADB


class FakeServer:
    session = None

    def __init__(self, *_asked: object, **_more: object) -> None:
        """Any copy is taken."""

    @contextmanager
    def running(self) -> Iterator["FakeServer"]:
        yield self

    def renew_session(self) -> None:
        """It has none."""

    def shut_down(self) -> Check:
        return Check(CLEAN_SHUTDOWN, ok=True, expected="status 0", found="status 0")


def test_a_damaged_table_is_told_and_the_copy_stays_at_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_asked: object) -> None:
        raise VerificationError("shop.orders, as restored, is damaged: error: Corrupt", hint="")

    monkeypatch.setattr(moment_export, "ScratchServer", FakeServer)
    monkeypatch.setattr(moment_export, "_is_there", lambda *_asked: True)
    monkeypatch.setattr(moment_export, "exported", damaged)
    with resumable(tmp_path / "to", Unfinished("nightly", "r1", "c", moment="m")) as folder:
        relocation = Relocation(tmp_path / "to", MARIADB.datadir, MARIADB.server.datadir)
        copy = MomentCopy(relocation, Position("bin.000002", 400), None, folder, None)
        [told] = moment_export.export_at_moment(copy, MARIADB, [Table("shop", "orders")])
        assert folder.reached == copy.position
    assert told.attention is not None
    assert "shop.orders, as restored, is damaged" in told.attention
    assert not (tmp_path / "to" / FOLDER).exists()
