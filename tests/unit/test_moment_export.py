"""A copy at a moment outlives an export that cannot be made of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd.mysql.relocation import Relocation
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.moment import moment_export
from backupd.operations.restore.moment.moment_copy import MomentCopy
from backupd.operations.restore.table_export import FOLDER
from backupd.operations.restore.unfinished import resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.vocabulary.errors import UsageError, VerificationError
from backupd.vocabulary.records import CLEAN_SHUTDOWN, Check
from backupd.vocabulary.servers import Position
from tests.unit.test_seeding import MARIADB


class FakeServer:
    session = None

    def __init__(self, *_asked: object, trace: ServerTrace, **_more: object) -> None:
        """Any copy is taken."""
        self._trace = trace

    @contextmanager
    def running(self) -> Iterator["FakeServer"]:
        self._trace.child = self._trace.server = True
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


class NeverThere(FakeServer):
    @contextmanager
    def running(self) -> Iterator[FakeServer]:
        raise UsageError("the server on the restored files cannot be confined on this host: no Landlock here")
        yield self


def test_a_copy_stays_at_its_moment_where_no_server_could_be_started_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moment_export, "ScratchServer", NeverThere)
    to, what, at = tmp_path / "to", Unfinished("nightly", "r1", "c", moment="m"), Position("bin.000002", 400)
    with pytest.raises(UsageError, match="cannot be confined") as ended, resumable(to, what) as folder:
        with folder.worked_in() as trace:
            trace.child = trace.server = True
            folder.stands(at, as_replica=False)
        copy = MomentCopy(Relocation(to, MARIADB.datadir, MARIADB.server.datadir), at, None, folder, None)
        moment_export.export_at_moment(copy, MARIADB, [Table("shop", "orders")])
    assert "keeps what was restored so far: run the same command to continue" in ended.value.__notes__[0]
    assert not (to / FOLDER).exists()
    with resumable(to, what) as folder:
        assert folder.reached == at
