"""Telling people and programs what became of a run. The contract; `wiring.notifier` puts an implementation together."""

from typing import Protocol

from backupd.agenda import Notice


class Notifier(Protocol):
    """Whoever is to be told. Whatever goes wrong in telling is logged, and never raised: it changes no run's result."""

    def tell(self, notice: Notice) -> None:
        """It was told to everybody who wants to hear of its kind, or it is in the log why not."""
