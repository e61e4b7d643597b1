"""What becomes of what dead runs left, as it is found and as it is told.

Knows: that a target which does not answer is asked once, however much dead runs left on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from backupd.operations.hanging_targets import answer_of
from backupd.targets import Target
from backupd.vocabulary.errors import BackupdError, CleanupIncomplete, TargetAway
from backupd.vocabulary.records import Holding

T = TypeVar("T")

_RESISTS = "stop what keeps it busy, then `backupd recover` again"


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found of dead runs, and what could not be released."""

    runs: tuple[str, ...]
    given_back: tuple[Holding, ...]
    left: tuple[tuple[Holding, str], ...]
    kept: tuple[tuple[Holding, str], ...] = ()  # for now, and why: the next recovery looks again
    finished: tuple[Holding, ...] = ()  # copies that are backups now
    pending: tuple[Holding, ...] = ()  # copies that may be whole, and were not to be finished now
    unseen: tuple[tuple[str, str], ...] = ()  # what could not be looked for, and why: more of that may be left
    hints: tuple[str, ...] = ()  # what to do about what is left, or could not be looked for

    def require_complete(self) -> None:
        """Raise when anything of ours is left, or may be.

        Raises:
            CleanupIncomplete: naming each thing.
        """
        if self.left or self.unseen:
            left = [f"{holding.kind} {holding.name} is left: {why}" for holding, why in self.left]
            unseen = [f"{what} of dead runs could not be looked for: {why}" for what, why in self.unseen]
            raise CleanupIncomplete(
                "; ".join((*left, *unseen)),
                hint="; ".join(self.hints),
            )


@dataclass(slots=True)
class Remains:
    """What has become of dead runs so far."""

    unseen: tuple[tuple[str, BackupdError], ...]
    runs: list[str] = field(default_factory=list)
    given_back: list[Holding] = field(default_factory=list)
    left: list[tuple[Holding, BackupdError]] = field(default_factory=list)
    kept: list[tuple[Holding, str]] = field(default_factory=list)
    finished: list[Holding] = field(default_factory=list)
    copies: dict[str, list[Holding]] = field(default_factory=dict)  # by run: those that may be whole
    away: dict[str, TargetAway] = field(default_factory=dict)  # by target: it is not asked again

    @property
    def pending(self) -> tuple[Holding, ...]:
        """The copies of all runs."""
        return tuple(holding for held in self.copies.values() for holding in held)

    def answer_of(self, target: Target, ask: Callable[[], T]) -> T:
        """What `ask` has of this target, unless it is away.

        Raises:
            TargetAway: it is, or was when it was asked before.
        """
        if target.name in self.away:
            raise self.away[target.name]
        try:
            return answer_of(target, ask)
        except TargetAway as error:
            self.away[target.name] = error
            raise

    def recovery(self, *, pending: Sequence[Holding] = ()) -> Recovery:
        """The same for whoever asked."""
        return Recovery(
            tuple(self.runs),
            tuple(self.given_back),
            tuple((holding, error.message) for holding, error in self.left),
            tuple(self.kept),
            finished=tuple(self.finished),
            pending=tuple(pending),
            unseen=tuple((what, error.message) for what, error in self.unseen),
            hints=tuple(dict.fromkeys(error.hint or _RESISTS for _, error in (*self.left, *self.unseen))),
        )
