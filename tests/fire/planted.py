"""Faults of the product itself, put into the process under fire: a campaign that does not find them proves nothing.

One each in the lock, in cleaning up, in publishing and in recovering, and two in pruning. Each is a mistake that
somebody could make in a line or two, and harmless for as long as nothing fails, but for the last one in pruning.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from backupd.vocabulary.records import Holding, HoldingKind
from tests.fire.judging import Kind
from tests.fire.under_fire import Planted
from tests.fire.world import KEEP_LESS


def lock_without_guards() -> None:
    """The watchdog is never given a deadline, and the server is not told to end the session either."""
    from backupd.mysql import locksession, watchdog

    _put(watchdog.Watchdog, "allow", lambda self, seconds: None)
    _put(locksession, "whole_seconds", lambda seconds: 3600)


def failed_release_taken_for_done() -> None:
    """The row is struck whatever becomes of the thing, and nobody is told."""
    from backupd.host import holdings

    release = holdings.give_back

    def give_back(journal: Any, holding: Any, releases: Any) -> None:
        if release(journal, holding, releases) is not None:
            journal.released(holding)

    _put(holdings, "give_back", give_back)


def failed_manifest_taken_for_published() -> None:
    """A target that fails while the copy is published has published it."""
    from backupd.operations.copies import publishing
    from backupd.operations.recorded_copy import copy_on
    from backupd.vocabulary.errors import TargetError
    from backupd.vocabulary.penalty import Throughput

    publish = publishing.publish_copy

    def publish_copy(target: Any, manifest: Any, **named: Any) -> publishing.Published:
        try:
            return publish(target, manifest, **named)
        except TargetError:
            backup = copy_on(target, manifest, verified_at=datetime.now(UTC))
            return publishing.Published(target, backup, (), Throughput("read-back", 0, 0.0))

    _put(publishing, "publish_copy", publish_copy)


def pruned_row_before_its_objects() -> None:
    """The catalogue says `removed` before the objects are: whoever dies in between leaves them for ever."""
    from backupd.operations.upkeep import prune

    def carry_out(work: Any, target: Any, stored: Any, fate: Any) -> Any:
        if fate.decision.keep:
            return fate
        work.catalogue.removed(fate.decision.backup_id, target.name, because=fate.decision.reason)
        target.remove(work.job.name, fate.decision.backup_id)
        return replace(fate, removed=True)

    _put(prune, "_carry_out", carry_out)


def pruned_what_it_keeps() -> None:
    """The objects of a backup that the rule keeps go, too, and its row says nothing of it."""
    from backupd.operations.upkeep import prune

    carry_out = prune._carry_out

    def carry_out_too_much(work: Any, target: Any, stored: Any, fate: Any) -> Any:
        if fate.decision.keep and work.job.retention.keep_last == KEEP_LESS:
            target.remove(work.job.name, fate.decision.backup_id)
        return carry_out(work, target, stored, fate)

    _put(prune, "_carry_out", carry_out_too_much)


def recovery_that_passes_over_one() -> None:
    """Of what a dead run holds on its host, the oldest thing is forgotten."""
    from backupd.operations.upkeep import recover

    everything = vars(recover)["holdings_of"]

    def all_but_one(*words: Any) -> list[Holding]:
        held = everything(*words)
        last = next((one for one in reversed(held) if one.kind not in (HoldingKind.PARTIAL, HoldingKind.UPLOAD)), None)
        return [one for one in held if one is not last]

    _put(recover, "holdings_of", all_but_one)


def _put(owner: Any, name: str, value: Any) -> None:
    """For the rest of the process, which a command of backupd has to itself."""
    setattr(owner, name, value)


PLANTS: Mapping[str, Planted] = {
    "lock": lock_without_guards,
    "clean-up": failed_release_taken_for_done,
    "publish": failed_manifest_taken_for_published,
    "prune": pruned_row_before_its_objects,
    "recover": recovery_that_passes_over_one,
    "retention": pruned_what_it_keeps,
}
SHOWS: Mapping[str, Kind] = {  # the promise that each of them breaks
    "lock": Kind.LOCK,
    "clean-up": Kind.LEFT,
    "publish": Kind.FALSE,
    "prune": Kind.LEFT,
    "recover": Kind.LEFT,
    "retention": Kind.LOST,
}
