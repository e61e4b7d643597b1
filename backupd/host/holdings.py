"""Things on the host that must be released: row first, effect second, release the same in every case.

Knows: the order in which a holding is written, made and released, and what becomes of a release that fails.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from backupd.host.daemon_thread import answered
from backupd.host.signals import shielded
from backupd.vocabulary.errors import BackupdError, CleanupIncomplete
from backupd.vocabulary.records import Holding, HoldingKind

log = logging.getLogger(__name__)

_STORAGE_SECONDS = 120.0  # for storage to remove what a run has left there: terabytes take a while

Release = Callable[[Holding], None]
Releases = Mapping[HoldingKind, Release]


def child_holding(pid: int, start_time: int, program: str, *, must_finish: bool) -> Holding:
    """What a later process needs to end this child, or to wait for its end."""
    detail = {"start_time": str(start_time), "program": program, "must_finish": "yes" if must_finish else "no"}
    return Holding(HoldingKind.CHILD, str(pid), detail)


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
        self.is_released = False

    def keep(self) -> None:
        """It need not be released any more. A row that cannot be struck is raised, and `kept` stays as it was."""
        self._journal.released(self.holding)
        self.kept = True

    @contextmanager
    def released_after(self, releases: Releases) -> Iterator[None]:
        """It is released when this block ends, which is within its own: before anything is written that may hang.

        Where that fails, its own block's end tries again; there the row is struck.
        """
        try:
            yield
        finally:
            with shielded():
                try:
                    releases[self.holding.kind](self.holding)
                    self.is_released = True
                except BackupdError as error:
                    log.info("%s %s is not released yet: %s", self.holding.kind, self.holding.name, error.message)


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
            failure = _end(claim, journal, releases) if written else None
        if failure is not None:
            first.add_note(f"clean-up incomplete: {failure.message}")
        raise
    with shielded():
        failure = _end(claim, journal, releases)
        if failure is not None:
            journal.attention(f"clean-up incomplete: {failure.message}; `backupd recover` tries again")


def _end(claim: Claim, journal: HoldingJournal, releases: Releases) -> BackupdError | None:
    if claim.kept:
        return None
    kind = claim.holding.kind
    return give_back(journal, claim.holding, {kind: lambda _released: None} if claim.is_released else releases)


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


def not_waiting_for_ever(release: Release, *, where: str) -> Release:
    """The same release where it touches storage, which may hang: then the row stays for `recover`, and the run ends.

    Raises, when called:
        CleanupIncomplete: it has not ended within two minutes.
        Anything that it raises itself.
    """

    def released(holding: Holding) -> None:
        try:
            answered(lambda: release(holding), within_seconds=_STORAGE_SECONDS, name=f"backupd release {where}")
        except TimeoutError as error:
            raise CleanupIncomplete(
                f"{where} does not answer: {holding.name} was not removed within {_STORAGE_SECONDS:g} s",
                hint="`backupd recover` removes it once that storage answers again",
            ) from error

    return released
