"""What a restore or a copy of a backup holds, long after the backup's run has ended.

Knows: that `recover` finds it with that run.
"""

from dataclasses import dataclass, field

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.records import Holding


@dataclass(slots=True)
class RunHoldings:
    """Where it is written down what is held: with the run whose backup it is about. A `HoldingJournal`."""

    catalogue: Catalogue
    run_id: str
    attentions: list[str] = field(default_factory=list)

    def hold(self, holding: Holding) -> None:
        """Durable when it returns."""
        self.catalogue.hold(self.run_id, holding)

    def released(self, holding: Holding) -> None:
        """The holding is no more."""
        self.catalogue.released(self.run_id, holding)

    def attention(self, text: str) -> None:
        """Kept for whoever asked for the restore or the copy."""
        self.attentions.append(text)
