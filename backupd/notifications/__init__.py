"""Telling people and programs what became of a run. Contracts; `wiring.notifier` puts an implementation together."""

from typing import Protocol

from backupd.vocabulary.schedule import Notice


class Notifier(Protocol):
    """Whoever is to be told. Whatever goes wrong in telling is logged, and never raised: it changes no run's result."""

    def tell(self, notice: Notice) -> None:
        """It was told to everybody who wants to hear of its kind, or it is in the log why not."""


class NotificationChannel(Protocol):
    """One way of telling somebody, whatever it is that is told."""

    def deliver(self, notice: Notice) -> None:
        """The other side has taken it. Returns or raises within the channel's own deadline.

        Raises:
            PerhapsNotified: some have taken it, or may have.
            NotificationError: nobody has.
            ConfigurationError: a secret that is needed for it cannot be had.
        """
