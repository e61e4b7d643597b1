"""What a dead run had copied whole, or one that could not record it, becomes the backup that it would have been.

Knows: that a run keeps its finished manifest in the catalogue before it reads its copies back; what is whole by that
manifest, and what is not. Nothing is removed here on the word of a target that could not be asked.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from backupd.catalogue.store import Catalogue
from backupd.host.signals import shielded
from backupd.operations.copies.publishing import Published, publish_copies, require_published
from backupd.operations.recorded_copy import copy_on
from backupd.operations.upkeep.dead_run_journal import why_unfinished
from backupd.targets import Target
from backupd.targets.listing import require_listed, unknown_beside
from backupd.vocabulary.errors import BackupdError, Cancelled, VerificationError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.storage import Backup, Manifest

log = logging.getLogger(__name__)


MaxRate = Callable[[str], int | None]  # of a job, bytes a second; None: it has none, or is no job any more


@dataclass(slots=True)
class Finished:
    """What became of a dead run's copies."""

    finished: list[Holding] = field(default_factory=list)  # backups now
    broken: list[Holding] = field(default_factory=list)  # not whole: to be removed
    left: list[tuple[Holding, BackupdError]] = field(default_factory=list)  # nobody knows: the target cannot be asked


def finish(
    catalogue: Catalogue,
    manifest: Manifest,
    copies: Sequence[Holding],
    *,
    target_of: Callable[[Holding], Target],
    max_rate: MaxRate,
    require_ours: Callable[[Target], object],
) -> Finished:
    """Each of these copies that is whole is read back, published and recorded as a living run's is.

    Reading back can take hours: `require_ours` raises where another machine has written meanwhile. Raises `Cancelled`
    by a signal; what was not recorded by then stays as it is.
    """
    done, why = Finished(), why_unfinished(catalogue.run(manifest.run_id))
    unread: dict[str, tuple[Target, Holding]] = {}

    def record(backup: Backup, holding: Holding, unknown: Sequence[str]) -> None:
        text = f"{why}; `backupd recover` finished it on {backup.target}"
        with shielded():
            catalogue.finish_dead_run(manifest.run_id, backup, holding, text)
            done.finished.append(holding)
        if unknown:
            catalogue.attention(manifest.run_id, unknown_beside(unknown, backup.target))

    @contextmanager
    def failing(holding: Holding) -> Iterator[None]:
        try:
            yield
        except VerificationError as error:
            log.warning("copy %s is not complete: %s", holding.name, error.message)
            done.broken.append(holding)
        except Cancelled:
            raise
        except BackupdError as error:
            log.error("copy %s cannot be finished: %s", holding.name, error.message)
            done.left.append((holding, error))

    for holding in copies:
        with failing(holding):
            target = target_of(holding)
            require_listed(target, manifest)
            if _is_published(target, manifest):  # it was read back before its manifest was written
                record(copy_on(target, manifest), holding, require_published(target, manifest))
            else:
                unread[target.name] = target, holding

    def published(one: Published) -> None:
        record(one.backup, unread[one.target.name][1], one.unknown)

    if unread:
        publish_copies(
            manifest,
            [target for target, _ in unread.values()],
            max_rate=max_rate(manifest.job),
            failing=lambda target: failing(unread[target.name][1]),
            published=published,
            require_ours=require_ours,
        )
    return done


def _is_published(target: Target, manifest: Manifest) -> bool:
    """Some manifest is there.

    Raises:
        TargetError: nobody knows.
    """
    return any(one.finished and one.backup_id == manifest.run_id for one in target.backups(manifest.job))
