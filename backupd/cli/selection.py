"""Which run, and which of its copies, a command line means."""

from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import tell
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.instants import to_the_second

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.targets import BackupSource
    from backupd.vocabulary.records import RunDetails
    from backupd.vocabulary.storage import Backup

# What RUN may be is the same everywhere; only `latest` alone is not, where a run without a backup cannot be used.
_AS_OF = "`as-of=TIME[:JOB]` (the newest good one of that time or earlier). With several jobs, `:JOB` is required."
ANY_RUN = f"An id, its beginning, `latest[:JOB]`, `latest-good[:JOB]`, or {_AS_OF}"
GOOD_RUN = f"An id, its beginning, `latest[:JOB]` or `latest-good[:JOB]` (both: the newest good one), or {_AS_OF}"
AnyRunArgument = Annotated[str, typer.Argument(metavar="RUN", help=ANY_RUN)]
GoodRunArgument = Annotated[str, typer.Argument(metavar="RUN", help=GOOD_RUN)]
TargetOption = Annotated[
    str | None, typer.Option("--target", help=("Use only the copy on this target."), show_default=False)
]


def identities_in(file: "Path | None") -> "Identities | None":
    """What an encrypted backup is opened with; None where no file is named.

    Raises:
        UsageError: the file holds no identities, or others can read it.
    """
    if file is None:
        return None
    from backupd.archive.encryption import read_identities

    return read_identities(file)


def run_of(
    configuration: "Configuration", catalogue: "Catalogue", wanted: str, *, target: str | None = None
) -> "RunDetails":
    """The run that is meant. `latest`, as all but an id, looks past runs that left no backup on that target, or else on
    any that is configured; of a newer one that is on another, that is told.

    Which one was found by a time is told: the time of its snapshot is in no list.

    Raises:
        UsageError: there is none; no job is named where there are backups of several.
    """
    from backupd.vocabulary.selectors import parse_selector

    selector = parse_selector(wanted, now=datetime.now(UTC))
    if not selector.said:
        return catalogue.run(wanted)
    readable = configuration.targets or None  # a host that has no configuration yet can tell nothing by it
    run = catalogue.run_with_backup(selector, target=target, targets=readable)
    if target is None:
        newest = catalogue.run_with_backup(selector)
        if newest.run_id != run.run_id:
            on = ", ".join(backup.target for backup in newest.backups if backup.is_there)
            passed = f"run {newest.run_id} of job {newest.job} is passed over"
            tell(f"attention: {passed}: it is on target {on}, which is no longer in the configuration")
    if selector.by is not None and run.snapshot_by is not None:
        tell(f"run {run.run_id} of job {run.job}: its snapshot was taken by {to_the_second(run.snapshot_by)}")
    return run


def any_run_of(configuration: "Configuration", catalogue: "Catalogue", wanted: str) -> "RunDetails":
    """The run that is meant, with its samples, where it needs no backup: `latest` is the newest, whatever became of it.

    Raises:
        UsageError: there is none, or more than one; no job is named where there are backups of several.
    """
    from backupd.vocabulary.selectors import parse_selector

    if parse_selector(wanted, now=datetime.now(UTC)).good:
        wanted = run_of(configuration, catalogue, wanted).run_id
    return catalogue.run(wanted)


def copies_of(
    run: "RunDetails", *, target: str | None, broken_too: bool = False, broken_last: bool = False
) -> "Sequence[Backup]":
    """The copies that are meant, in the job's order. One that was found broken is among them only when asked for.

    With `broken_last` such ones come after the others, also where there are none but several of them: whoever takes
    each object from the first copy that still has it whole can do with copies of which none is whole.

    Raises:
        UsageError: there is none.
    """
    there = [backup for backup in run.backups if backup.removed_at is None]
    if not there:
        raise UsageError(f"run {run.run_id} has no backup (status {run.status})", hint="see `backupd history`")
    chosen = [backup for backup in there if target in (None, backup.target)]
    if not chosen:
        raise UsageError(
            f"run {run.run_id} has no copy on target {target!r}",
            hint=f"it has one on {', '.join(backup.target for backup in there)}",
        )
    good = [backup for backup in chosen if not backup.broken]
    broken = [backup for backup in chosen if backup.broken]
    if broken_too or (good and not broken_last):
        return chosen if broken_too else good
    if target is None and not good and not (broken_last and len(broken) > 1):
        raise UsageError(
            f"all copies of run {run.run_id} are broken",
            hint="to try one anyway, name it: --target " + chosen[0].target,
        )
    for backup in broken:
        tell(f"warning: the copy on target {backup.target} is broken: {backup.broken}")
    return [*good, *broken]


def sources_of(
    configuration: "Configuration", catalogue: "Catalogue", run: "RunDetails", copies: "Sequence[Backup]"
) -> "Sequence[BackupSource]":
    """Where these copies are read from, and what they have to be, by what the catalogue recorded of each.

    A target that is no longer configured is passed over, if another is left.

    Raises:
        UsageError: none of them is configured.
    """
    from backupd import wiring
    from backupd.targets import BackupSource

    known = [backup for backup in copies if backup.target in configuration.targets]
    for backup in copies:
        if backup not in known and known:
            tell(f"warning: target {backup.target}, which also has a copy, is not in the configuration")
    if not known:
        raise _out_of_reach(configuration, catalogue, run, copies)
    return [
        BackupSource(
            wiring.target(configuration, backup.target, run.machine),
            run.job,
            run.run_id,
            catalogue.trust(run.machine, backup),
        )
        for backup in known
    ]


def _out_of_reach(
    configuration: "Configuration", catalogue: "Catalogue", run: "RunDetails", copies: "Sequence[Backup]"
) -> UsageError:
    """None of these copies of the run can be read; names the newest backup of its job that can."""
    from backupd.vocabulary.selectors import Selector

    on = ", ".join(backup.target for backup in copies)
    hint = f"if it can still be read, configure it again; configured targets: {', '.join(configuration.targets)}"
    if run.machine == catalogue.identity().name:
        with suppress(UsageError):  # there is none
            newest = Selector(said="latest", job=run.job)
            found = catalogue.run_with_backup(newest, targets=configuration.targets)
            where = ", ".join(
                one.target for one in found.backups if one.is_there and one.target in configuration.targets
            )
            hint = (
                f"the newest backup of job {run.job} that can be read is run {found.run_id}, on target {where}; {hint}"
            )
    return UsageError(
        f"run {run.run_id} cannot be read from target {on}, which is no longer in the configuration", hint=hint
    )


def tell_out_of_reach(configuration: "Configuration", runs: "Iterable[RunDetails]") -> None:
    """Of the backups of these runs on targets that are no longer configured: they are passed over."""
    from collections import Counter

    from backupd.report.words import many

    left = Counter(
        (run.job, backup.target)
        for run in runs
        for backup in run.backups
        if backup.removed_at is None and backup.target not in configuration.targets
    )
    for (job, target), backups in sorted(left.items()):
        tell(
            f"attention: {many(backups, 'backup')} of job {job} cannot be read: the configuration no longer has target"
            f" {target}, where the catalogue lists {'it' if backups == 1 else 'them'}"
        )


def targets_with_segments(configuration: "Configuration", job: str, stored: "Collection[str]") -> list[str]:
    """The job's targets, and those that it has left and that still have segments (`stored`): a moment may need both.

    Raises:
        UsageError: there is no such job.
    """
    from backupd.operations import context

    left = sorted(configuration.targets.keys() & stored)
    return list(dict.fromkeys([*context.job(configuration, job).targets, *left]))


@contextmanager
def unpruned(configuration: "Configuration", run: "RunDetails") -> "Iterator[None]":
    """While the block lasts, no pruning on this host removes the backups of this run.

    Raises:
        Busy: they are being removed.
    """
    from backupd.host.claims import Claims

    with Claims(configuration.paths.run).reading(run.run_id):
        yield
