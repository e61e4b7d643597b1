"""A restore to a moment: the backup, and then what its server logged after it, applied up to exactly there.

Read `restore_to_moment` aloud. Knows: in which order it is done, and that a copy which is not at the moment is none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.mysql.binlog.applying import ApplyingProgress, apply
from backupd.mysql.binlog.relay_logs import RelayLogs, laid_down
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import require_self_contained
from backupd.mysql.seeding import remove_binlogs
from backupd.operations.binlog.reading import SegmentReader
from backupd.operations.restore.clone import (
    RestoredCopy,
    hand_over,
    recovered_position,
    restored_copy,
    shut_down,
)
from backupd.operations.restore.log_to_moment import LogEnd, log_end, log_pieces
from backupd.policy.roll_forward import RestorePlan
from backupd.targets import BackupSource
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.units import format_size

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


@dataclass(frozen=True, slots=True)
class RestoredMoment:
    """Files that are at exactly a moment."""

    datadir: Path
    position: Position  # where the source stood then: a replica goes on from there
    committed_at: datetime | None  # the last transaction of the log that is in it; None where none was applied


def restore_to_moment(
    plan: RestorePlan,
    manifest: Manifest,
    sources: Sequence[BackupSource],
    reader: SegmentReader,
    *,
    to: Path,
    identities: "Identities | None" = None,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> RestoredMoment:
    """The folder has the server's files as they would be at the moment, cleanly shut down, and no binlog.

    `sources` are copies of the plan's backup, whose manifest it is. When it raises, the folder is as empty as before.

    Raises:
        UsageError: the folder is not empty, has no room, or cannot be written; something is encrypted, and no identity
            opens it.
        TargetError: no target gives the backup, or a segment.
        VerificationError: what is stored is not what was written, recovered to another position than was recorded, or
            does not lead to the moment.
        Undecided: the server ran out of memory or room.
        ServerError: no matching server is here, or it did not start, or failed.
    """
    manifest = judged(manifest)
    reader.require_key(plan.segments)
    telling(f"looking for {plan.end.moment} in the binlog archive")
    end = log_end(plan, reader)
    with restored_copy(
        manifest, sources, to=to, applying=True, identities=identities, confined=confined, telling=telling
    ) as copy:
        size = sum(segment.plain_bytes for segment in plan.segments)
        telling(f"fetching {format_size(size, separator=' ')} of binlog in {len(plan.segments)} segments")
        with laid_down(log_pieces(plan, end, reader), copy.relocation) as logs:
            position = _applied(copy, manifest, plan, end, logs, telling)
        if manifest.binlog is not None:
            require_self_contained(copy.relocation, (to / manifest.binlog).parent)  # a server has worked in it since
            remove_binlogs(to / manifest.binlog)
        hand_over(to, like=copy.relocation.datadir, itself=copy.made)
    return RestoredMoment(copy.relocation.datadir, position, end.committed_at)


def _applied(
    copy: RestoredCopy,
    manifest: Manifest,
    plan: RestorePlan,
    end: LogEnd,
    logs: RelayLogs,
    telling: Callable[[str], None],
) -> Position:
    telling("recovering the backup")
    with copy.server.running() as server:
        start = recovered_position(server, manifest)
        _require_planned(start, plan)
        telling(f"applying the binlog from {_words(plan.start)} to {_words(end.place)}")
        begun = Position(plan.start.file, plan.start.offset, start.gtid)
        wanted = Position(end.place.file, end.place.offset, end.gtids)
        applied = apply(server, logs, start=begun, end=wanted, telling=_Progress(telling).tell)
        shut_down(server)
    return applied.position


def _require_planned(start: Position, plan: RestorePlan) -> None:
    """A position that was found by a drill is found again.

    Raises:
        VerificationError: the copy recovered to another one.
    """
    place = plan.backup.place
    if (start.binlog_file, start.binlog_offset) != (place.file, place.offset):
        raise VerificationError(
            f"run {plan.backup.run_id} recovered to {start.binlog_file}:{start.binlog_offset}, not to"
            f" {_words(place)}, from where its binlog was to be applied",
            hint="restore from another backup",
        )


class _Progress:
    """Told when another hundredth is done."""

    def __init__(self, telling: Callable[[str], None]) -> None:
        self._telling, self._told = telling, 0

    def tell(self, progress: ApplyingProgress) -> None:
        """As a sentence, where there is something new."""
        hundredths = 100 * progress.done // progress.of if progress.of else 100
        if hundredths >= self._told + 10 and progress.logged_at is not None:
            self._told = hundredths
            self._telling(f"applied {hundredths} %: the log as of {progress.logged_at:%Y-%m-%d %H:%M:%S} UTC")


def _words(place: BinlogPlace) -> str:
    return f"{place.file}:{place.offset}"
