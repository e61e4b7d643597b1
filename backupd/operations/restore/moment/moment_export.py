"""Tables of a copy at a moment, made ready for import as long as the copy is not handed over.

Knows: that a server works on the copy once more for it, after which the copy is whole only if that server was shut
down; and that the copy then stands at its moment, whatever became of the export.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from backupd.host.signals import shielded
from backupd.mysql.refusals import StatementError
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.session import Session
from backupd.mysql.tablefiles import Table
from backupd.operations.restore.moment.moment_copy import MomentCopy
from backupd.operations.restore.restored_copy import shut_down
from backupd.operations.restore.table_export import FOLDER, Exported, export_place, exported
from backupd.vocabulary.errors import BackupdError, ServerError, VerificationError
from backupd.vocabulary.storage import Manifest


def export_at_moment(
    copy: MomentCopy,
    manifest: Manifest,
    tables: Sequence[Table],
    *,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> tuple[Exported, ...]:
    """Each of these tables is in `tables/SCHEMA/` of the folder, and the copy stands at its moment, shut down.

    A table that was not there then has no files, and says so; where one is damaged, or the server refused to export
    it, none has. When it raises, the folder has no `tables`, and keeps the copy if the server could be shut down, or
    was never there.

    Raises:
        ServerError: the server did not start, or was not shut down cleanly.
        UsageError: a table could not be copied; nothing here can keep a server within its bounds.
    """
    return _Export(copy, manifest, tables, confined, telling).done()


@dataclass
class _Export:
    copy: MomentCopy
    manifest: Manifest
    tables: Sequence[Table]
    confined: bool
    telling: Callable[[str], None]
    ended: bool = False  # the server, cleanly

    def done(self) -> tuple[Exported, ...]:
        with self.copy.folder.worked_in() as trace:
            try:
                found = self._exported(trace)
            except BaseException as error:
                if not self.ended:
                    raise
                with shielded(), _noted_on(error):
                    self._stand()
                if not isinstance(error, ServerError | VerificationError):
                    raise
                return tuple(self._none(table, f"could not be exported: {error.message}") for table in self.tables)
            with shielded():
                self._stand(exported=any(each.files for each in found))
        return found

    def _exported(self, trace: ServerTrace) -> tuple[Exported, ...]:
        folder = self.copy.relocation.folder
        scratch = ScratchServer(folder, replace(self.manifest, binlog=None), confined=self.confined, trace=trace)
        with export_place(folder) as to, scratch.running() as server, self._shut_down(server):
            found = tuple(
                exported(server, to, self.manifest, table, self.telling)
                if _is_there(server.session, table)
                else self._none(table, "was not there at the moment")
                for table in self.tables
            )
        if not any(each.files for each in found):
            (folder / FOLDER).rmdir()
        return found

    def _none(self, table: Table, why: str) -> Exported:
        return Exported(table, (), self.copy.relocation.folder / FOLDER, f"{table} {why}")

    @contextmanager
    def _shut_down(self, server: RunningServer) -> Iterator[None]:
        """After the block, however that ends."""
        try:
            yield
        except BaseException as error:
            with shielded(), _noted_on(error):
                server.renew_session()
                self._end(server)
            raise
        with shielded():
            self._end(server)

    def _end(self, server: RunningServer) -> None:
        shut_down(server)
        self.ended = True

    def _stand(self, *, exported: bool = False) -> None:
        """Only now that its server is gone: the files are their owner's again."""
        self.copy.folder.stands(self.copy.position, as_replica=False, exported=exported)
        self.copy.folder.stays = True


def _is_there(session: Session, table: Table) -> bool:
    """That it cannot be opened is another matter."""
    try:
        session.execute(f"SHOW CREATE TABLE {table.in_sql}")
    except StatementError as error:
        if not error.no_such_table:
            raise
        return False
    return True


@contextmanager
def _noted_on(first: BaseException) -> Iterator[None]:
    try:
        yield
    except BackupdError as error:
        first.add_note(error.message)
