"""A copy at a moment: restored, rolled forward by what its server logged after the backup, and shut down there.

Restores, clones and tables to a moment are made of it. Knows: what of it can be gone on with once it is interrupted. As
long as the files are as they were unpacked, they stay. Once a server works on them, only its clean shutdown tells that
they are whole, MyISAM's and Aria's files too; so a signal has it stop between two transactions and shut down, and what
was killed is restored anew.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.archive.index import Recorded
from backupd.host.filesystem import remove_tree
from backupd.host.signals import shielded
from backupd.mysql.binlog.applying import LOST_AT_A_SHUTDOWN, AppliedPosition, ApplyingProgress, apply, stop
from backupd.mysql.binlog.memory_tables import leave_alone
from backupd.mysql.binlog.relay_logs import RelayLogs, laid_down
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation, require_self_contained
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.seeding import old_server_aside
from backupd.mysql.server_programs import matching_program
from backupd.mysql.startup import RELAY_FOLDER, stopwords_doubt
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.operations.restore.as_recorded import recorded_itself
from backupd.operations.restore.into_folder import fill, occupied_bytes, require_room
from backupd.operations.restore.moment.events_in_log import EventsInLog
from backupd.operations.restore.moment.log_to_moment import LogEnd, first_place, log_end, log_pieces, tells_places
from backupd.operations.restore.next_copy import AgreedCopies, content_of
from backupd.operations.restore.restored_copy import recovered_position, remove_own_binlogs, shut_down
from backupd.operations.restore.table_export import FOLDER
from backupd.operations.restore.unfinished import Filling, resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.operations.restore.wanted_objects import parts_of
from backupd.policy.log_clock import clock_doubt
from backupd.policy.log_modes import definition_doubt, misfit_doubt, mode_doubt, statement_doubt
from backupd.policy.log_zone import LogZone, log_zone
from backupd.policy.roll_forward import RestorePlan
from backupd.policy.time_zones import require_rules
from backupd.targets import BackupSource
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import BackupdError, Cancelled, VerificationError
from backupd.vocabulary.escaping import on_one_line, some
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest
from backupd.vocabulary.units import size_words

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

_TOLD = 3  # tables
_LOST = "what was applied so far is lost"


@dataclass(frozen=True, slots=True)
class RollForward:
    """The moment, and how a copy gets there."""

    plan: RestorePlan
    reader: SegmentReader
    applied: Callable[[ApplyingProgress], None] = lambda _progress: None  # told while the log is applied


def zone_of_log(plan: RestorePlan, manifest: Manifest) -> LogZone:
    """In which time zone the plan's segments are applied; TZ of our environment counts where nothing is recorded."""
    return log_zone(manifest.server, plan.segments, named=bool(os.environ.get("TZ")))


def doubt_of_log(plan: RestorePlan, manifest: Manifest) -> str:
    """Why the plan's segments may give something else than the source had; empty: nothing is known to.

    Raises:
        Unreadable: the manifest names what no server has; see `recorded`.
    """
    facts = judged(manifest).server
    doubts = (
        zone_of_log(plan, manifest).doubt,
        mode_doubt(facts, plan.segments),
        statement_doubt(facts, plan.segments),
        definition_doubt(facts, plan.segments),
        misfit_doubt(facts, plan.segments),
        stopwords_doubt(facts) if plan.segments else "",
        clock_doubt(plan),
    )
    return "; ".join(filter(None, doubts))


@dataclass(frozen=True, slots=True)
class MomentCopy:
    """Files that are at exactly a moment, cleanly shut down, without a binlog."""

    relocation: Relocation
    position: Position  # where the source stood then: a replica goes on from there
    committed_at: datetime | None  # the last transaction of the log that is in it; None where none was applied
    folder: Filling
    recorded: Recorded | None  # of the folder itself, which is ours alone until it is handed over

    @property
    def made(self) -> bool:
        """The folder was made for them."""
        return self.folder.made


@contextmanager
def copy_at_moment(
    forward: RollForward,
    manifest: Manifest,
    sources: Sequence[BackupSource],
    *,
    to: Path,
    keeps: bool = True,
    as_replica: bool = False,
    identities: "Identities | None" = None,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> Iterator[MomentCopy]:
    """Within the block the folder has the files, marked as incomplete.

    Nobody else can enter it until it is handed over, but the account of the copy's server while that runs.

    Scheduled events are as their server had them; what the log says of them does not run on a copy that is to be
    used `as_replica`.

    `sources` are copies of the plan's backup, whose manifest it is, one that was `judged`. What an interruption leaves
    is gone on with by the same call if that `keeps` it; after any other error the folder is as empty as before.

    Raises:
        UsageError: the folder is not empty, has no room, cannot be written, or has an unfinished restore of something
            else; something is encrypted, and no identity opens it; servers here do not know the log's time zone.
        TargetError: no target gives the backup, or a segment.
        VerificationError: what is stored is not what was written, recovered to another position than was recorded, or
            does not lead to the moment.
        Undecided: the server ran out of memory or room.
        ServerError: no matching server is here, or it did not start, or failed; the copy leads out of itself.
    """
    plan = forward.plan
    matching_program(manifest.server)
    if zone := zone_of_log(plan, manifest).name:
        require_rules(zone)
    copies = AgreedCopies(sources, manifest, identities)
    forward.reader.require_key(plan.segments)
    telling(f"looking for {plan.end.moment} in the binlog archive")
    end = log_end(plan, forward.reader)
    what = Unfinished(manifest.job, manifest.run_id, content_of(manifest), moment=str(plan.end.moment))
    there = occupied_bytes(to)
    if there == 0:
        require_room(to, manifest, log=plan.log_bytes)
    with resumable(to, what, keeps=keeps) as folder:
        relocation = Relocation(to, manifest.datadir, manifest.server.datadir)
        itself = _restored(folder, copies, relocation, plan, as_replica=as_replica, confined=confined, telling=telling)
        rolling = _Rolling(
            *(forward, manifest, relocation, folder, end, telling), as_replica=as_replica, confined=confined, zone=zone
        )
        yield MomentCopy(relocation, rolling.done(), end.committed_at, folder, itself)


def _restored(
    folder: Filling,
    copies: AgreedCopies,
    relocation: Relocation,
    plan: RestorePlan,
    *,
    as_replica: bool,
    confined: bool,
    telling: Callable[[str], None],
) -> Recorded | None:
    """The files are as they were unpacked, or as a server has left them that was shut down.

    Returns what is recorded of the folder itself.
    """
    manifest, to = copies.manifest, relocation.folder
    if folder.reached is not None and not tells_places(plan):  # even a copy that had arrived: handing it over failed
        telling("an earlier restore had reached another server's binlog: restoring all files again")
        folder.emptied()
    if folder.reached is not None and folder.as_replica is not as_replica:  # events of the log differ
        wanted = "for a replica" if as_replica else "for a server that is no replica"
        telling(f"an earlier command is not known to have applied the binlog {wanted}: restoring all files again")
        folder.emptied()
    if folder.is_spoilt:
        telling("an earlier restore was killed while a server worked on these files: restoring all files again")
        folder.emptied()
    if folder.exported:
        remove_tree(to / FOLDER)  # what is asked for now may be other tables
    parts = parts_of(manifest)
    if folder.reached is not None or all(
        part.stored.plain_name in folder.begun and folder.begun[part.stored.plain_name].done for part in parts
    ):
        remove_tree(to / RELAY_FOLDER)  # ours: nothing else has made one since all was unpacked
    if folder.reached is None:
        telling("restoring")
        require_room(to, manifest, there=occupied_bytes(to), log=plan.log_bytes)
        itself = fill(folder, copies, parts, to=to, confined=confined)
    else:
        itself = recorded_itself(to, copies)
    require_self_contained(relocation)  # before a file is removed in it
    return itself


@dataclass
class _Rolling:
    """Files on their way to the moment, by a server of their own."""

    forward: RollForward
    manifest: Manifest
    relocation: Relocation
    folder: Filling
    end: LogEnd
    telling: Callable[[str], None]
    as_replica: bool
    confined: bool
    zone: str  # of the log
    ended_at: Position | None = None  # where the server has been shut down cleanly

    def done(self) -> Position:
        """They are there, and the server has ended cleanly."""
        plan, reached = self.forward.plan, self.folder.reached
        at = plan.start if reached is None else BinlogPlace(reached.binlog_file or "", reached.binlog_offset or 0)
        first = first_place(plan, at)
        size = plan.log_bytes
        unit = 1 << 20 if size >= 10 << 20 else 1 << 10
        rounded = size_words(-(-size // unit) * unit)
        self.telling(f"fetching {rounded} of binlog in {len(plan.segments)} segment{'s'[len(plan.segments) == 1 :]}")
        events = EventsInLog(passed_by=self.as_replica)
        pieces = log_pieces(plan, first, self.end, self.forward.reader, events.look)
        with laid_down(pieces, self.relocation) as logs, self.folder.worked_in() as trace, ExitStack() as forgotten:
            server = ScratchServer(
                *(self.relocation.folder, self.manifest),
                applying=True,
                without_binlogs=reached is not None,
                confined=self.confined,
                zone=self.zone,
                trace=trace,
            )
            if reached is None:
                aside = self.relocation.folder / RELAY_FOLDER
                forgotten.enter_context(old_server_aside(self.relocation.datadir, aside, trace))
            try:
                with server.running() as running:
                    position = self._applied(running, reached, first, logs, events)
            except Cancelled as interrupted:
                with shielded(), _noted_if_lost(interrupted):
                    self._stand()
                raise
            self._stand()
        return position

    def _applied(
        self,
        server: RunningServer,
        reached: Position | None,
        first: BinlogPlace,
        logs: RelayLogs,
        events: EventsInLog,
    ) -> Position:
        plan = self.forward.plan
        if reached is None:
            self.telling("recovering the backup")
            reached = recovered_position(server, self.manifest)
            _require_planned(reached, plan)
        else:
            self.telling(f"continuing the interrupted restore at {reached.binlog_file}:{reached.binlog_offset}")
        start = Position(first.file, first.offset, reached.gtid) if logs.sizes else reached
        wanted = Position(self.end.place.file, self.end.place.offset, self.end.gtids)
        self.telling(f"applying the binlog from {_words(first)} to {_words(self.end.place)}")
        events.begin(server.session)
        if memory := leave_alone(server.session, plan.segments):
            named = some([on_one_line(str(table)) for table in memory], _TOLD)
            self.telling(f"{named} (MEMORY) stays empty, as after any restart: its rows in the log are skipped")
        applied, progress = AppliedPosition(), self.forward.applied
        try:
            position = apply(
                *(server, logs), start=start, end=wanted, applied=applied, telling=progress, waiting=self.telling
            ).position
        except Cancelled as interrupted:
            with shielded(), _noted_if_lost(interrupted):
                self._keep(server, applied, events, interrupted)
            raise
        self._put_back(events, server)
        self._shut_down(server, position)
        return position

    def _keep(
        self, server: RunningServer, applied: AppliedPosition, events: EventsInLog, interrupted: Cancelled
    ) -> None:
        """What is applied so far is not lost, if the server can be stopped there, and anybody goes on with it."""
        if not (self.folder.keeps and tells_places(self.forward.plan)):
            return
        self.telling("stopping between two transactions")
        position = stop(server, applied)
        if position is None:
            interrupted.add_note(f"{_LOST}: {LOST_AT_A_SHUTDOWN}")
            return
        self._put_back(events, server, position)
        self._shut_down(server, position)

    def _put_back(self, events: EventsInLog, server: RunningServer, reached: Position | None = None) -> None:
        if left := events.put_back(server.session, reached):
            named = some([on_one_line(f"{schema}.{event}") for schema, event in left], _TOLD)
            self.telling(f"scheduled events whose statements in the log backupd cannot parse stay disabled: {named}")

    def _shut_down(self, server: RunningServer, position: Position) -> None:
        shut_down(server)
        self.ended_at = position

    def _stand(self) -> None:
        """Only now that its server is gone: the files were an account's of its own, and are their owner's again."""
        if self.ended_at is not None:
            require_self_contained(self.relocation)  # nor does anything that the log has made
            remove_own_binlogs(self.relocation, self.manifest)
            self.folder.stands(self.ended_at, as_replica=self.as_replica)


@contextmanager
def _noted_if_lost(interrupted: Cancelled) -> Iterator[None]:
    """An error in the block is a note on the interruption: what was applied is lost by it."""
    try:
        yield
    except BackupdError as error:
        interrupted.add_note(f"{_LOST}: {error.message}")


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


def _words(place: BinlogPlace) -> str:
    return f"{place.file}:{place.offset}"
