"""What a clone is made of: a copy that stands at the backup, or one that was rolled forward to a moment."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.mysql.scratch import ScratchServer
from backupd.operations.restore.moment.moment_copy import RollForward, copy_at_moment
from backupd.operations.restore.restored_copy import RestoredCopy, restored_copy
from backupd.targets import BackupSource
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@contextmanager
def clonable_copy(
    forward: RollForward | None,
    manifest: Manifest,
    sources: Sequence[BackupSource],
    *,
    to: Path,
    seeding: bool = False,
    keeps: bool = True,
    identities: "Identities | None",
    confined: bool,
    telling: Callable[[str], None],
) -> Iterator[RestoredCopy]:
    """Within the block the folder has the files, marked as incomplete.

    With a moment, an interruption before the block leaves what the same call goes on with, if that `keeps` it. The
    server of the block is not the one that has applied the log: what a replica knows of its relay logs must be its own.

    Raises:
        As `restored_copy`, and as `copy_at_moment`.
    """
    if forward is None:
        with restored_copy(
            manifest, sources, to=to, seeding=seeding, identities=identities, confined=confined, telling=telling
        ) as copy:
            yield copy
        return
    rolled = copy_at_moment(
        *(forward, manifest, sources),
        to=to,
        keeps=keeps,
        as_replica=seeding,
        identities=identities,
        confined=confined,
        telling=telling,
    )
    with rolled as there, there.folder.worked_in() as trace:
        server = ScratchServer(to, manifest, seeding=seeding, without_binlogs=True, confined=confined, trace=trace)
        yield RestoredCopy(server, there.relocation, there.made, there.recorded, there.position)
