"""The proof of a moment: restore it, start a server on it, and compare that with what the archived log says of it.

Read `drill_to_moment` aloud. Knows: what is compared; that a moment which could not be restored proves nothing against
the backup alone. How a moment is restored is `to_moment`'s.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.config import DrillCheckConfig
from backupd.host.filesystem import remove_tree
from backupd.host.signals import shielded
from backupd.mysql.binlog.applying import executed_gtids
from backupd.mysql.canary import minutes_there
from backupd.mysql.own_checks import own_checks
from backupd.mysql.proof import check_tables, tables_check, with_its_end
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.operations.restore.into_folder import require_room
from backupd.operations.restore.moment.moment_copy import RollForward, doubt_of_log
from backupd.operations.restore.moment.moment_in_log import MomentInLog, moment_in_log
from backupd.operations.restore.moment.to_moment import RestoredMoment, restore_to_moment
from backupd.operations.restore.next_copy import agreed
from backupd.operations.tools import HostTools
from backupd.policy import gtid
from backupd.policy.canary_minutes import minutes_check
from backupd.policy.moments import ToTime
from backupd.policy.roll_forward import RestorePlan
from backupd.targets import BackupSource
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    CleanupIncomplete,
    HostExhausted,
    NotHeld,
    TargetError,
    Undecided,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.records import Check, Drill, DrilledMoment
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

log = logging.getLogger(__name__)

_AS_LOGGED = "backup and log as recorded, applied up to the moment"

_Answer = tuple[tuple[Check, ...], str]  # and why it is undecided


@dataclass(frozen=True, slots=True)
class MomentToProve:
    """What is to be proven, and what opens it."""

    plan: RestorePlan
    sources: Sequence[BackupSource]  # copies of the plan's backup, the first of them preferred
    reader: SegmentReader
    identities: "Identities | None" = None
    confined: bool = True

    @property
    def told(self) -> DrilledMoment:
        """As it is recorded, as far as it is known before. A time has itself; of all else the log tells."""
        moment = self.plan.end.moment
        return DrilledMoment(str(moment), moment.at if isinstance(moment, ToTime) else None)


def drill_to_moment(
    wanted: MomentToProve,
    tools: HostTools,
    *,
    checks: Sequence[DrillCheckConfig] = (),
    telling: Callable[[str], None] = lambda _step: None,
) -> Drill:
    """Restore the moment into the staging folder, start the matching server there, check, shut down, remove.

    `checks` are the job's own, beside those of every drill.
    Returns the drill's result whether or not its checks agree; nothing is left in the staging folder either way.

    Raises:
        UsageError: no room in the staging folder; something is encrypted, and no identity opens it; nothing here can
            keep a server within its bounds.
        TargetError: the backup or a segment cannot be read.
        ServerError: no matching server is here, or not its keys, or they cannot be given to a second one.
    """
    began = time.monotonic()
    run_id = wanted.plan.backup.run_id
    folder = tools.places.drill_folder(run_id)
    with tools.claims.run(folder.name):
        remove_tree(folder)
        proving = _Proving(wanted, folder, checks, telling)
        try:
            found, undecided = proving.answer()
        finally:
            with shielded():
                remove_tree(folder)
    return Drill(
        run_id,
        ok=not undecided and all(check.ok for check in found),
        checks=found,
        seconds=time.monotonic() - began,
        at=datetime.now(UTC),
        undecided=undecided,
        moment=proving.moment,
    )


class _Proving:
    """One drill."""

    def __init__(
        self,
        wanted: MomentToProve,
        folder: Path,
        checks: Sequence[DrillCheckConfig],
        telling: Callable[[str], None],
    ) -> None:
        self._wanted, self._folder, self._checks, self._telling = wanted, folder, checks, telling
        self.moment = wanted.told

    def answer(self) -> _Answer:
        """Each step that fails is a failed check, but for a limit of the drill's own: that is no answer."""
        wanted = self._wanted
        try:
            manifest, readable = agreed(wanted.sources, wanted.identities)
        except VerificationError as error:
            return self._failed((), error)
        self._scratch(manifest).require_startable()  # what this host lacks says nothing of the moment
        require_room(self._folder, manifest, log=wanted.plan.log_bytes, staging=True)
        try:
            restored = restore_to_moment(
                *(RollForward(wanted.plan, wanted.reader), manifest, readable),
                to=self._folder,
                keeps=False,
                identities=wanted.identities,
                confined=wanted.confined,
                telling=self._telling,
            )
        except (Cancelled, CleanupIncomplete, UsageError, TargetError):
            raise
        except (HostExhausted, NotHeld, Undecided) as error:
            return self._undecided((), error)
        except BackupdError as error:
            return self._failed((), error)
        self.moment = replace(self.moment, at=self.moment.at or restored.committed_at or wanted.plan.backup.taken_at)
        done = (Check("restore", ok=True, expected=_AS_LOGGED, found=_AS_LOGGED),)
        try:
            found = (*done, *self._compared(manifest, restored))
        except (Cancelled, CleanupIncomplete, UsageError, TargetError):
            raise
        except (HostExhausted, Undecided) as error:
            return self._undecided(done, error)
        except BackupdError as error:
            return self._failed(done, error)
        doubt = doubt_of_log(wanted.plan, manifest)
        return found, doubt if all(check.ok for check in found) else ""

    def _undecided(self, done: tuple[Check, ...], error: BackupdError) -> _Answer:
        log.warning("drill: %s", error.message)
        return done, error.message

    def _failed(self, done: tuple[Check, ...], error: BackupdError) -> _Answer:
        log.warning("drill: %s", error.message)
        if isinstance(error, VerificationError) and not done:
            return (Check("restore", ok=False, expected=_AS_LOGGED, found=error.message),), ""
        name, expected = (
            ("log", "can be read") if isinstance(error, VerificationError) else ("server", "starts, answers")
        )
        return (*done, Check(name, ok=False, expected=expected, found=error.message)), ""

    def _compared(self, manifest: Manifest, restored: RestoredMoment) -> tuple[Check, ...]:
        self._telling("reading what the log says of the moment")
        logged = moment_in_log(self._wanted.plan, self._wanted.reader)
        self._telling("starting a server on the restored files")
        with self._scratch(manifest).running() as server:
            self._telling("comparing the server's answers with the log")
            return with_its_end(server, self._asked(server, manifest, restored, logged))

    def _asked(
        self, server: RunningServer, manifest: Manifest, restored: RestoredMoment, logged: MomentInLog
    ) -> Iterator[Check]:
        yield _gtid_check(restored, server, logged.gtids)
        found = minutes_there(server.session)
        if logged.has_minutes or found:
            yield minutes_check(logged.minutes, found)
        yield tables_check(check_tables(server))
        yield from self._own(server, manifest)

    def _scratch(self, manifest: Manifest) -> ScratchServer:
        """It has no binlog: the log that was applied is the source's."""
        return ScratchServer(self._folder, replace(manifest, binlog=None), confined=self._wanted.confined)

    def _own(self, server: RunningServer, manifest: Manifest) -> Iterator[Check]:
        if not self._checks:
            return
        self._telling("running the job's own checks")
        at = self.moment.at or self._wanted.plan.backup.taken_at
        yield from own_checks(server, self._checks, flavour=manifest.server.flavour, taken_at=at)


def _gtid_check(restored: RestoredMoment, server: RunningServer, logged: str) -> Check:
    """What the server says that it has executed, against what the log says; without GTIDs only the place is told."""
    place = f"{restored.position.binlog_file}:{restored.position.binlog_offset}"
    found = executed_gtids(server.session)
    if not logged and not found:
        return Check("gtid", ok=True, expected=f"none, at {place}", found=f"none, at {place}")
    return Check("gtid", ok=gtid.same(found, logged), expected=logged or "none", found=found or "none")
