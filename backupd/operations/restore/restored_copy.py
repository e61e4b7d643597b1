"""Restored files for another server than the one that was backed up: what every clone and every moment begins with.

Knows: what is checked before and after such a server has run on them, and whose they are in the end.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.archive.index import Recorded
from backupd.host.filesystem import explained_write, walked
from backupd.mysql.derivation import derive
from backupd.mysql.proof import position_checks, recovered
from backupd.mysql.relocation import Relocation, owner_of, require_self_contained
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.seeding import forget_the_old_server, remove_binlogs
from backupd.mysql.server_programs import matching_program
from backupd.operations.restore.as_recorded import open_as_recorded
from backupd.operations.restore.decryption_key import key_of
from backupd.operations.restore.into_folder import require_room, unpack_objects
from backupd.operations.restore.unfinished import MARKERS, filling
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ServerError, VerificationError
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class RestoredCopy:
    """Restored files for another server than the one that was backed up."""

    server: ScratchServer  # which recovers them
    relocation: Relocation
    made: bool  # the folder was made for them
    recorded: Recorded | None  # of the folder itself, which is ours alone until it is handed over
    position: Position | None = None  # where a server was shut down on them; None: they are to be recovered yet


@contextmanager
def restored_copy(
    manifest: Manifest,
    sources: Sequence[BackupSource],
    *,
    to: Path,
    seeding: bool = False,
    identities: "Identities | None",
    confined: bool,
    telling: Callable[[str], None],
) -> Iterator[RestoredCopy]:
    """Within the block the folder has the files, without what the old server knew of itself, marked as incomplete.
    Nobody else can enter it until it is handed over, but the account of the copy's server while that runs.

    When it raises, the folder is as empty as before. `manifest` is one that was `judged`, `seeding` is the
    server's.

    Raises:
        UsageError: the folder is not empty, has no room, or cannot be written; the backup is encrypted, and no
            identity opens it.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written, or its manifest names what no server has.
        ServerError: no matching server is here.
    """
    matching_program(manifest.server)
    server = ScratchServer(to, manifest, seeding=seeding, confined=confined)
    key_of(manifest, identities)
    require_room(to, manifest)
    with filling(to, {"run": manifest.run_id, "job": manifest.job}) as made:
        telling("restoring")
        itself = unpack_objects(sources, manifest, to=to, identities=identities, confined=confined)
        relocation = Relocation(to, manifest.datadir, manifest.server.datadir)
        require_self_contained(relocation)  # before a file is removed in it
        forget_the_old_server(relocation.datadir)
        yield RestoredCopy(server, relocation, made, itself)


def shut_down(server: RunningServer) -> None:
    """It has ended cleanly: its files are whole.

    Raises:
        ServerError: it has not.
    """
    ended = server.shut_down()
    if not ended.ok:
        raise ServerError(
            f"the server on the restored files did not shut down cleanly: {ended.found}",
            hint="`backupd drill` checks whether the backup is sound",
        )


def remove_own_binlogs(relocation: Relocation, manifest: Manifest) -> None:
    """None of the old server's binlogs is left, nor of those that ours wrote beside them.

    Raises:
        ServerError: the copy leads out of itself.
        UsageError: a file could not be removed.
    """
    if manifest.binlog is None:
        return
    named = relocation.folder / manifest.binlog
    require_self_contained(relocation, named.parent)  # a server has worked in it since
    remove_binlogs(named)


def recovered_position(server: RunningServer, manifest: Manifest) -> Position:
    """What was recorded, once recovery has led there; where nothing was recorded under a lock, what recovery led to.

    Raises:
        VerificationError: recovery led elsewhere, or nothing tells where.
        ServerError: the server failed.
    """
    if not manifest.locked:
        position = derive(server, manifest).position
        if position.binlog_file is None:
            raise VerificationError(
                f"run {manifest.run_id} was taken without a lock, and its copy has no binlog to take a position from",
                hint="take a backup with lock.strategy set to anything but none",
            )
        return position
    found = recovered(server.session, manifest.position, server.error_log, facts=manifest.server)
    wrong = [check for check in position_checks(manifest, found) if not check.ok]
    if wrong:
        said = "; ".join(f"{check.name}: expected {check.expected}, found {check.found}" for check in wrong)
        raise VerificationError(
            f"run {manifest.run_id} did not recover to its recorded position: {said}",
            hint="a replica of it would diverge from its source: clone another backup",
        )
    return manifest.position


def hand_over(copy: Relocation, recorded: Recorded | None, *, made: bool) -> None:
    """What root wrote into the copy belongs to the copy's owner, as whom the new server will run; its mark stays ours.

    Then the folder itself is opened as was recorded. Until here nobody else could enter it: who can, could put a link
    in the way of all that root does by path.

    Raises:
        UsageError: the file system refuses.
        NotHeld: the folder cannot be as recorded.
    """
    folder, owner = copy.folder, owner_of(copy)
    is_anothers = os.geteuid() == 0 and owner.st_uid != 0
    if is_anothers:
        with explained_write(folder, hint=_hint_of(owner)):
            for within, names, descriptor in walked(folder):
                for name in names:
                    if str(within / name) not in MARKERS:
                        _give(folder / within / name, owner, name, dir_fd=descriptor)
    open_as_recorded(folder, recorded)
    if is_anothers and made:
        _give(folder, owner, folder)


def _give(path: Path, owner: os.stat_result, name: str | Path, *, dir_fd: int | None = None) -> None:
    """What is root's there is theirs; no link is followed."""
    if os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_uid == 0:
        with explained_write(path, hint=_hint_of(owner)):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=dir_fd, follow_symlinks=False)


def _hint_of(owner: os.stat_result) -> str:
    return f"it must be owned by user {owner.st_uid}, who owns the restored files"
