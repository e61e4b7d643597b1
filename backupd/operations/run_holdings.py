"""What a restore or a copy of a backup holds, long after the backup's run has ended.

Knows: that `recover` finds it with that run.
"""

from dataclasses import dataclass, field

from backupd.catalogue.store import Catalogue
from backupd.host.holdings import child_holding
from backupd.vocabulary.records import Holding, HoldingKind


@dataclass(slots=True)
class RunHoldings:
    """Where it is written down what is held: with the run whose backup it is about.

    A `HoldingJournal`, and a `ChildLedger`.
    """

    catalogue: Catalogue
    run_id: str
    attentions: list[str] = field(default_factory=list)

    def hold(self, holding: Holding) -> None:
        """Durable when it returns."""
        self.catalogue.hold(self.run_id, holding)

    def released(self, holding: Holding) -> None:
        """The holding is no more."""
        self.catalogue.released(self.run_id, holding)

    def started(self, pid: int, start_time: int, program: str, *, must_finish: bool) -> None:
        """A child runs."""
        self.hold(child_holding(pid, start_time, program, must_finish=must_finish))

    def ended(self, pid: int, start_time: int) -> None:  # noqa: ARG002  # a pid has one living owner
        """It does so no more."""
        self.released(Holding(HoldingKind.CHILD, str(pid)))

    def attention(self, text: str) -> None:
        """Kept for whoever asked for the restore or the copy."""
        self.attentions.append(text)
