"""A replica's beginning: restore a backup, recover it once, tell it where to go on, leave it ready to be started."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.host.filesystem import MORE_ROOM, write_beside
from backupd.mysql.recorded import judged
from backupd.mysql.replica_files import OPTION_FILE, STATEMENTS_FILE, option_file, statements_file
from backupd.mysql.seeding import ReplicaWish, Seeded, seed
from backupd.operations.restore.clonable_copy import clonable_copy
from backupd.operations.restore.moment.moment_copy import RollForward
from backupd.operations.restore.restored_copy import (
    RestoredCopy,
    hand_over,
    recovered_position,
    remove_own_binlogs,
    shut_down,
)
from backupd.targets import BackupSource
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class Clone:
    """A folder in which a new replica can be started."""

    datadir: Path
    option_file: Path
    statements_file: Path
    seeded: Seeded


def clone(
    manifest: Manifest,
    sources: Sequence[BackupSource],
    wanted: ReplicaWish,
    *,
    to: Path,
    forward: RollForward | None = None,
    identities: "Identities | None" = None,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> Clone:
    """The folder holds a recovered copy with an identity of its own that knows its position, and its source if named.

    `sources` are copies of the run, the first of them preferred, whose manifest it is.
    With `forward` it stands at that moment, and an interruption before it is seeded leaves what the same call goes on
    with. Nothing replicates yet. When it raises otherwise, the folder is as empty as before. A password that `wanted`
    has goes to the copy's server alone, which keeps it where it always does.

    Raises:
        UsageError: the folder is not empty, has no room, or cannot be written; the backup is encrypted, and no
            identity opens it.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written, or recovered to another position than was recorded,
            or its manifest names what no server has.
        ServerError: no matching server is here, or it did not start, or refused what it was told.
        As `copy_at_moment`.
    """
    manifest = judged(manifest)
    with clonable_copy(
        *(forward, manifest, sources),
        to=to,
        seeding=True,
        identities=identities,
        confined=confined,
        telling=telling,
    ) as copy:
        relocation = copy.relocation
        telling("recovering it and setting its replication source")
        seeded = _seeded(copy, manifest, wanted)
        remove_own_binlogs(relocation, manifest)
        moment = None if forward is None else str(forward.plan.end.moment)
        written = Clone(relocation.datadir, to / OPTION_FILE, to / STATEMENTS_FILE, seeded)
        write_beside(written.option_file, option_file(manifest, relocation, wanted), hint=MORE_ROOM)
        write_beside(written.statements_file, statements_file(manifest, seeded, wanted, moment), hint=MORE_ROOM)
        hand_over(relocation, copy.recorded, made=copy.made)
    return written


def require_another_id(manifest: Manifest, server_id: int) -> None:
    """The replica will not be taken for the server that was backed up.

    Raises:
        UsageError: it is that server's id.
    """
    if str(server_id) == manifest.server.settings.get("server_id"):
        raise UsageError(
            f"{server_id} is the server_id of {manifest.host} itself",
            hint="a source ignores a replica with its own id: choose another, or omit --server-id",
        )


def new_server_id(manifest: Manifest) -> int:
    """An id that the server that was backed up has not, and others hardly: one of four thousand million."""
    while True:
        chosen = int.from_bytes(os.urandom(4))
        if chosen and str(chosen) != manifest.server.settings.get("server_id"):
            return chosen


def _seeded(copy: RestoredCopy, manifest: Manifest, wanted: ReplicaWish) -> Seeded:
    with copy.server.running() as server:
        seeded = seed(server.session, copy.position or recovered_position(server, manifest), wanted)
        shut_down(server)
    return seeded
