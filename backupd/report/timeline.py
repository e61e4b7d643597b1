"""When each phase of a run began and how long it took: what a timeline is drawn from.

Knows: the order in which phases follow one another. The catalogue keeps durations only, so a beginning is the sum of
what came before; what passed between two phases is seen nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backupd.vocabulary.records import Phase

_ORDER = (  # the snapshot is released before the backup is read back: it costs the server until it is gone
    Phase.PREFLIGHT,
    Phase.BASELINE,
    Phase.PREFLUSH,
    Phase.LOCK_WAIT,
    Phase.LOCK_HOLD,
    Phase.SNAPSHOT,
    Phase.SETTLE,
    Phase.COPY,
    Phase.RELEASE,
    Phase.SEND,
    Phase.VERIFY,
)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase, in seconds since the first phase began."""

    phase: Phase
    begin: float
    seconds: float
    whole: bool = True  # False: it goes on

    @property
    def end(self) -> float:
        """When it was over."""
        return self.begin + self.seconds


def spans(phases: Mapping[Phase, float], *, now: tuple[Phase, float] | None = None) -> tuple[PhaseSpan, ...]:
    """The phases in the order in which they happened; `now` is the one that goes on, and its seconds so far."""
    found: list[PhaseSpan] = []
    at = 0.0
    for phase in _ORDER:
        goes_on = now is not None and now[0] is phase
        seconds = now[1] if now is not None and goes_on else phases.get(phase)
        if seconds is None:
            continue
        if phase is Phase.SNAPSHOT:  # it lies inside the lock's time
            held = found[-1] if found and found[-1].phase is Phase.LOCK_HOLD else None
            found.append(PhaseSpan(phase, held.begin if held is not None else at, seconds))
            continue
        found.append(PhaseSpan(phase, at, seconds, whole=not goes_on))
        at += seconds
    return tuple(found)
