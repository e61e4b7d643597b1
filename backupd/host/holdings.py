"""Things on the host that must be released: row first, effect second, release the same in every case.

Knows: the order in which a holding is written, made and released, and what becomes of a release that fails.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from backupd.host.signals import shielded
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.records import Holding, HoldingKind

log = logging.getLogger(__name__)

Releases = Mapping[HoldingKind, Callable[[Holding], None]]


class HoldingJournal(Protocol):
    """Where holdings are written; a run's record, or the catalogue on behalf of a dead run."""

    def hold(self, holding: Holding) -> None:
        """Durable when it returns."""

    def released(self, holding: Holding) -> None:
        """The holding is no more; telling it twice changes nothing."""

    def attention(self, text: str) -> None:
        """A person should look at this although the backup may be good."""


class Claim:
    """A holding in its scope; `keep` hands it over for good, as a published backup is."""

    def __init__(self, journal: HoldingJournal, holding: Holding) -> None:
        self._journal = journal
        self.holding = holding
        self.kept = False

    def keep(self) -> None:
        """It need not be released any more. A row that cannot be struck is raised, and `kept` stays as it was."""
        self._journal.released(self.holding)
        self.kept = True


@contextmanager
def held(journal: HoldingJournal, holding: Holding, releases: Releases) -> Iterator[Claim]:
    """Answer for a holding: its row is durable before the block makes it, and when the block ends it is released.

    A release that fails raises nothing: a good backup stays good, and the first error keeps the stage. The failure is
    logged as ERROR, becomes a note on the block's error or else an attention, and the row stays for `recover`.
    """
    claim = Claim(journal, holding)
    written = False
    try:
        with shielded():  # a signal that waited for the row is raised here, where the row is struck again
            journal.hold(holding)
            written = True
        yield claim
    except BaseException as first:
        with shielded():
            failure = give_back(journal, holding, releases) if written and not claim.kept else None
        if failure is not None:
            first.add_note(f"clean-up incomplete: {failure.message}")
        raise
    with shielded():
        failure = None if claim.kept else give_back(journal, holding, releases)
        if failure is not None:
            journal.attention(f"clean-up incomplete: {failure.message}; `backupd recover` tries again")


def give_back(journal: HoldingJournal, holding: Holding, releases: Releases) -> BackupdError | None:
    """Release one holding and strike its row; where that fails the row stays, and the failure is returned."""
    try:
        releases[holding.kind](holding)
        journal.released(holding)
    except BackupdError as error:
        log.error("could not release %s %s: %s", holding.kind, holding.name, error.message)
        return error
    log.debug("released %s %s", holding.kind, holding.name)
    return None
