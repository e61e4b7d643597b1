"""A ledger of children, in memory: the contract `ChildLedger`."""

from dataclasses import dataclass, field

from backupd.host.process import start_time as started_at
from backupd.vocabulary.errors import CatalogueError


@dataclass
class Ledger:
    """What runs, and all that was told; one that is `full` cannot write that down."""

    full: bool = False
    alive: list[tuple[int, str, bool]] = field(default_factory=list)  # pid, program, whether it must finish
    told: list[str] = field(default_factory=list)

    def started(self, pid: int, start_time: int, program: str, *, must_finish: bool) -> None:
        """Once it runs; it may have ended since."""
        assert started_at(pid) in (start_time, None)
        self.told.append(program)
        if self.full:
            raise CatalogueError("no room for a row")
        self.alive.append((pid, program, must_finish))

    def ended(self, pid: int, start_time: int) -> None:
        """It is gone."""
        self.alive = [one for one in self.alive if one[0] != pid]
