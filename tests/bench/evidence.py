"""One backup under suspicion: restored, started, questioned, and brought on to what the server held later.

Knows: the order of the questions. Refuses to know what a right answer is: `mysql.proof`, `lab.consistency` and
`lab.replay` do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backupd import wiring
from backupd.host.filesystem import remove_tree
from backupd.mysql.proof import prove
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.operations import context
from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource
from backupd.vocabulary.errors import BackupdError, LabError
from backupd.vocabulary.records import Check
from backupd.vocabulary.storage import Manifest
from tests.bench import consistency
from tests.bench.replay import State, checksums, replay, same_tables


@contextmanager
def restored(run_id: str, folder: Path, *, job: str = "nightly") -> Iterator[tuple[RunningServer, Manifest]]:
    """A server on the restored backup, with what was recorded; server and folder are gone after the block.

    Raises:
        BackupdError: the backup cannot be restored, or no server starts on it, or it does not end well.
    """
    configuration = context.configuration(None)
    with context.catalogue(configuration) as catalogue:
        run = catalogue.run(run_id)
        target = wiring.target(configuration, context.job(configuration, job).targets[0], run.machine)
        recorded = next(backup for backup in run.backups if backup.target == target.name)
        source = BackupSource(target, job, run_id, catalogue.trust(run.machine, recorded))
    try:
        manifest = restore([source], to=folder)
        with ScratchServer(folder, manifest).running() as server:
            yield server, manifest
            ended = server.shut_down()
    finally:
        remove_tree(folder)
    if not ended.ok:
        raise LabError(f"the server on the restored copy did not end cleanly: {ended.found}")


def questioned(server: RunningServer, manifest: Manifest, binlogs: Path, later: State) -> tuple[Check, ...]:
    """The recorded position, the data by itself, and the data after a replay up to the later state.

    Raises:
        BackupdError: the server does not answer, or the binlog cannot be replayed.
    """
    at_rest = (*prove(server, manifest), *consistency.check(server.session))
    socket = server.session.value("SELECT @@global.socket") or ""
    replay(binlogs, manifest.position, later.position, manifest.server.flavour, socket=socket)
    moved_on = (*consistency.check(server.session), same_tables(later.tables, checksums(server.session)))
    return (*at_rest, *moved_on)


def judged(run_id: str, folder: Path, binlogs: Path, later: State) -> tuple[Check, ...]:
    """The answers of one backup; one that cannot even be questioned has an answer too."""
    try:
        with restored(run_id, folder) as (server, manifest):
            return questioned(server, manifest, binlogs, later)
    except BackupdError as error:
        return (Check("evidence", ok=False, expected="restored, started, replayed", found=f"{error}: {error.hint}"),)
