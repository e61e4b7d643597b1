"""Everything that can go wrong, as one tree.

Knows: the sentence, the hint and the exit status of each kind of failure.

A message is a lower-case fact; a hint says what to do about it. The exit statuses are part of the command line's
contract: docs/pages/reference/exit-statuses.md is made from them.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitStatus(IntEnum):
    """What a `backupd` command ends with."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    ATTENTION = 3
    BUSY = 4
    REFUSED = 5
    SERVER = 6
    SNAPSHOT = 7
    TARGET = 8
    VERIFICATION = 9
    CLEANUP = 10
    CANCELLED = 11
    PROBE = 12
    CATALOGUE = 13
    UNDECIDED = 14
    TERMINATED = 15

    @property
    def meaning(self) -> str:
        """The words that the documentation and `--help` use for this status."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitStatus.OK: "done",
    ExitStatus.INTERNAL: "internal error: a bug in backupd",
    ExitStatus.USAGE: "usage or configuration",
    ExitStatus.ATTENTION: "good, but attention needed",
    ExitStatus.BUSY: "busy: another process holds what this needs",
    ExitStatus.REFUSED: "refused by preflight, nothing touched",
    ExitStatus.SERVER: "server or lock",
    ExitStatus.SNAPSHOT: "snapshot failed or is void, or the backup was aborted: a limit was exceeded",
    ExitStatus.TARGET: "target, or the spool",
    ExitStatus.VERIFICATION: "verification",
    ExitStatus.CLEANUP: "clean-up incomplete",
    ExitStatus.CANCELLED: "cancelled",
    ExitStatus.PROBE: "probe or bench: its load or the disk under it failed",
    ExitStatus.CATALOGUE: "the catalogue cannot be opened, read or written",
    ExitStatus.UNDECIDED: "undecided: this host ran out of memory, room or time; nothing was learned about the backup",
    ExitStatus.TERMINATED: "terminated by the system: SIGTERM or SIGHUP",
}


class BackupdError(Exception):
    """A failure that backupd can explain: a fact, a hint, an exit status and a stable code."""

    exit_status = ExitStatus.INTERNAL

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def code(self) -> str:
        """Stable name for machines: the class name in kebab-case (`no-room`)."""
        name = type(self).__name__
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")


class InternalError(BackupdError):
    """A bug in backupd; stderr has all that Python says of it."""


class UsageError(BackupdError):
    """The command line asks for something that cannot be: an unknown job, a folder that is not empty."""

    exit_status = ExitStatus.USAGE


class OutputError(UsageError):
    """A result could not be written to stdout: what the command did is done, and recorded."""


class NoKey(UsageError):
    """A backup is encrypted, and no identity that was given opens it; another copy of it may be for others."""


class NotUnderstood(UsageError):
    """A request to an agent is damaged or too large, asks for what agents do not do, or is of an unknown protocol."""


class ConfigurationError(BackupdError):
    """The configuration cannot be used; `message` lists every fault, one a line."""

    exit_status = ExitStatus.USAGE


class Busy(BackupdError):
    """Another live run holds the job or the volume group."""

    exit_status = ExitStatus.BUSY


class Refused(BackupdError):
    """Preflight found something that forbids a run; nothing was touched."""

    exit_status = ExitStatus.REFUSED


class ServerError(BackupdError):
    """The database server could not be reached, refused us, or gave an unexpected answer."""

    exit_status = ExitStatus.SERVER


class LockNotGranted(ServerError):
    """The lock was not granted within its retry budget; nothing is locked any more."""


class LockLost(ServerError):
    """There is no proof that the lock held while the snapshot was taken; the snapshot must be dropped."""


class Undecided(ServerError):
    """A drill's server ran into a limit of its own (time, memory, room), or this host kept it from the restored files:
    nothing was found out about the backup.
    """

    exit_status = ExitStatus.UNDECIDED


class KeyUnreadable(Undecided):
    """The account that owns restored files may not read their server's key here: nothing was found out about them."""

    exit_status = ServerError.exit_status  # of a drill it is the result


class NeverStarted(Undecided):
    """The account that owns restored files may not execute the server program here: nothing has touched them."""


class ScrubFailed(BackupdError):
    """The SQL that was to be run on a copy before it is handed over did not run to its end; the copy was removed."""

    exit_status = ExitStatus.SERVER


class NoTargetAnswers(Refused):
    """Preflight found that every target is away, and nothing else that forbids a run; that may pass by itself."""


class SnapshotError(BackupdError):
    """The snapshot could not be taken, seen or mounted."""

    exit_status = ExitStatus.SNAPSHOT


class GroupBusy(SnapshotError):
    """Another LVM command has the volume group locked, and kept it for longer than was worth waiting."""


class SnapshotVoid(SnapshotError):
    """The snapshot is no longer intact: its COW area overflowed or failed. What was read from it is not a backup."""


class GaveUp(SnapshotError):
    """The backup was aborted: a limit was exceeded."""


class AbortedImpact(GaveUp):
    """The copy could not be done in its time without taking more from the server than the job allows."""


class ProbeError(BackupdError):
    """A probe or a bench could not measure: its load or the disk under it failed, or printed something unexpected."""

    exit_status = ExitStatus.PROBE


class TargetError(BackupdError):
    """The target could not be read or written."""

    exit_status = ExitStatus.TARGET


class TargetAway(TargetError):
    """The target does not answer, or its file system is not mounted: it may come back by itself."""


class NoRoom(TargetError):
    """The storage reports that the target is full."""


class AlreadyThere(TargetError):
    """What was to be written has a name that something on the target has already; that was not overwritten."""


class NotOurs(TargetError):
    """Another machine writes into this machine's folder on the target, or nobody can tell whose folder it is."""

    exit_status = ExitStatus.REFUSED


class SpoolError(BackupdError):
    """The spool, where what was read from the snapshot waits to be sent, could not be written or read back."""

    exit_status = ExitStatus.TARGET


class VerificationError(BackupdError):
    """What was read back is not what was stored, or a restored server is not what was recorded."""

    exit_status = ExitStatus.VERIFICATION


def worst_of(errors: Sequence[BackupdError]) -> BackupdError:
    """Of what went wrong with several things, of which there is one at least: that bytes are not what they should be,
    else the first that is about the things; that a result could not be printed comes last.
    """
    about_things = [error for error in errors if not isinstance(error, OutputError)]
    return next((error for error in errors if isinstance(error, VerificationError)), (about_things or errors)[0])


def worst_of_all(errors: Sequence[BackupdError]) -> BackupdError:
    """The same, with what else went wrong as notes."""
    worst = worst_of(errors)
    for other in errors:
        if other is not worst:
            worst.add_note(other.message)
    return worst


class NotAsRecorded(VerificationError):
    """What a restore has left on the disk differs from what was recorded, or could not be compared with it."""


class NotHeld(NotAsRecorded):
    """All that differs are modes, owners, times and attributes: the backup is sound, and the disk did not take them."""


class Unreadable(VerificationError):
    """What was read back is as it was written, and this backupd cannot understand it: nothing was found damaged."""


class Untrusted(VerificationError):
    """What is on the target is not the backup that was recorded, or it is not signed by a trusted key."""


class CleanupIncomplete(BackupdError):
    """Something of ours is left on the host; the message names each thing."""

    exit_status = ExitStatus.CLEANUP


class Cancelled(BackupdError):
    """A person asked the run to stop (`backupd cancel`, Ctrl-C: SIGINT)."""

    exit_status = ExitStatus.CANCELLED


class Terminated(Cancelled):
    """The system asked the run to stop (SIGTERM, SIGHUP), as a reboot does; nobody need have wanted that."""

    exit_status = ExitStatus.TERMINATED


class NotificationError(BackupdError):
    """A notification could not be delivered. Only `backupd notify` ends with it: it changes no run's result."""

    exit_status = ExitStatus.USAGE


class PerhapsNotified(NotificationError):
    """A notification was not delivered to all, or nobody knows: another try could tell somebody twice."""


class CommandError(BackupdError):
    """Another program failed, was not found, or passed its deadline. Adapters wrap it in their own kind."""

    never_began = False  # it is certain that the program did nothing: no process became it


class HostExhausted(CommandError):
    """This host has no memory, process, descriptor or room left for what was to be done, and nothing was found out."""

    exit_status = ExitStatus.UNDECIDED


class UnexpectedOutput(BackupdError):
    """Another program printed something that the parser does not know; the message carries the text."""


class CatalogueError(BackupdError):
    """The catalogue could not be opened, read or written."""

    exit_status = ExitStatus.CATALOGUE


class CatalogueUnavailable(CatalogueError):
    """The catalogue is locked by another process, or its disk is full or failed: it may recover by itself."""


class FleetDatabaseError(CatalogueError):
    """The fleet's database could not be opened, read or written."""


class FleetDatabaseAway(FleetDatabaseError):
    """The fleet's database does not answer, or is locked: it may come back by itself."""


class LabError(BackupdError):
    """The lab could not start or failed. The lab's commands end with 125 for it, 124 at a deadline."""


def missing_package(extra: str, *, packaged: bool = True) -> str:
    """The hint where a Python package is missing that comes with this extra; `packaged`: our own packages have it."""
    checkout = f"in a checkout: pip install '.[{extra}]'"
    return f"the .deb and the .rpm have it; {checkout}" if packaged else checkout
