"""The record of runs, as the stories need it. The contract; `store` implements it over SQLite.

This file is read whenever backupd starts, so it loads nothing heavy: whoever opens a catalogue imports `store`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from backupd.host.process import ChildLedger
from backupd.vocabulary.penalty import Bill, Losses, PaceChange, Sample, Throughput, Verdict
from backupd.vocabulary.records import Holding, Phase, RunDetails, SnapshotFacts
from backupd.vocabulary.servers import LockReceipt, Position, Preflush
from backupd.vocabulary.storage import Backup

if TYPE_CHECKING:
    from backupd.vocabulary.benches import LayoutBench
    from backupd.vocabulary.probes import Measurement


class RunJournal(ChildLedger, Protocol):
    """What a live run tells the catalogue. Any thread of the run may call any verb.

    What a verb wrote survives a power cut once it has returned, except within `quiet`. As a ledger of children it
    keeps each as a holding, so that a later process can end strays. Every verb raises `CatalogueError` when the
    catalogue cannot be written.
    """

    @property
    def run_id(self) -> str:
        """The run's name."""

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Measure the block and record its seconds when it ends, well or not; seconds of one phase add up."""

    def took(self, phase: Phase, seconds: float) -> None:
        """Record a phase that was measured elsewhere, in place of what was recorded for it."""

    def quiet(self) -> AbstractContextManager[None]:
        """Within the block nothing is written; what the verbs were told is written when it ends, well or not."""

    def hold(self, holding: Holding) -> None:
        """Something on the host will have to be released. Called before it is made."""

    def released(self, holding: Holding) -> None:
        """It has been released; nothing happens when that was known."""

    def verdict(self, verdict: Verdict) -> None:
        """What the settle gate decided; the last one stays."""

    def samples(self, samples: Sequence[Sample]) -> None:
        """Append samples, in one transaction."""

    def position(self, position: Position) -> None:
        """Where the server stood while it was locked."""

    def preflush(self, preflush: Preflush) -> None:
        """What it brought to have the dirty pages written before the lock."""

    def lock(self, receipt: LockReceipt) -> None:
        """What the lock cost."""

    def snapshot(self, facts: SnapshotFacts) -> None:
        """The snapshot that was taken."""

    def cow_extended(self, added: int) -> None:
        """Bytes that the COW area was given while the snapshot was used. Comes after `snapshot`, once."""

    def redo_left_out(self, left_out: int) -> None:
        """Bytes of the redo log that are a hole in the backup. Comes after `snapshot`."""

    def cow_peak(self, used: int) -> None:
        """Bytes of the COW area that were seen in use; the most stays. Comes after `snapshot`."""

    def bill(self, bill: Bill) -> None:
        """What the snapshot cost from the lock to its release: also of a run that failed."""

    def losses(self, losses: Losses) -> None:
        """What the server did meanwhile, and would have done; the last word stays."""

    def attention(self, text: str) -> None:
        """A person should look at this although the backup is good."""

    def copied(self, bytes_read: int, *, of_bytes: int, used_bytes: int) -> None:
        """How far the copy came, and what the volume's file system held: also of a copy that failed."""

    def throughput(self, stages: Sequence[Throughput]) -> None:
        """What each stage of the copy worked, in their order."""

    def paced(self, changes: Sequence[PaceChange]) -> None:
        """How fast the snapshot was read: each change of it, in one transaction."""

    def so_far(self) -> RunDetails:
        """All that the run has told by now, without its samples: what a manifest keeps of it."""

    def audit_head(self) -> str:
        """The digest of the newest row of the audit chain."""

    def finished_manifest(self, text: str) -> None:
        """All copies are written: from now on `recover` can finish what this process does not; until the run ends."""

    def leave_copies(self) -> None:
        """The run is about to fail, and its copies stay for `recover`: its end keeps the finished manifest for them."""

    def published(self, backup: Backup, holding: Holding, *, ordinal: int) -> None:
        """This backup is there, whatever becomes of the run; what it was held by is struck. Both or neither.

        `ordinal` is its target's place in the job's order.
        """

    def complete(self, backups: Sequence[Backup]) -> None:
        """The backups are verified: the run is a success, or needs attention where any was asked for."""

    def measured(self, measurement: "Measurement") -> None:
        """The probe is done: all that it measured, and the run is a success or needs attention, as with `complete`."""

    def benched(self, bench: "LayoutBench") -> None:
        """The bench is done: all that it found, and the run is a success or needs attention, as with `complete`."""
