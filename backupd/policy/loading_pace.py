"""How long loading pauses after each piece, so that the running server's own clients come first.

Knows: what a piece takes when the server has time for it, by those that went before. One that takes longer has waited
for what clients wait for as well: the processors, the disk, room in the redo log. A pause as long as that wait lets the
server catch up, and leaves a server that is only slow alone. Nothing here tells time or waits.
"""

from dataclasses import dataclass

LONGEST_SECONDS = 2.0  # after one piece: loading goes on, however busy the server is

_WEIGHT = 0.1  # of the last piece in what is usual: a server that is busy for good is not waited for
_NOTICED = 3.0  # times what is usual; less is noise, and clients hardly notice


@dataclass(frozen=True, slots=True)
class LoadingPace:
    """What was seen so far, and what to do about the last piece."""

    usual_seconds: float | None = None
    pause_seconds: float = 0.0

    def after(self, seconds: float) -> "LoadingPace":
        """Once a piece has taken so long."""
        if self.usual_seconds is None:
            return LoadingPace(seconds)
        usual = self.usual_seconds
        waited = seconds - usual if seconds > _NOTICED * usual else 0.0
        return LoadingPace(usual + _WEIGHT * (seconds - usual), min(waited, LONGEST_SECONDS))
