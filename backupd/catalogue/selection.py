"""Which run is meant by what a person calls it: an id, its beginning, or the newest that fits.

Knows: the sentence when there is none, or more than one. What may be typed is `vocabulary.selectors`'.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy import Connection, Select, func, select

from backupd.catalogue import tables
from backupd.catalogue.details import details, newest_first, our_newest
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.records import RunDetails, RunKind
from backupd.vocabulary.selectors import Selector, parse_selector

_LAST = "\U0010ffff"  # sorts after whatever an id continues with
_NAMED_JOBS = 4
_PLACES = {
    RunKind.BACKUP: ("run", "backupd history"),
    RunKind.PROBE: ("probe", "backupd history --probes"),
    RunKind.BENCH: ("bench", "backupd history --benches"),
}


def resolve(connection: Connection, wanted: str, *, latest: RunKind = RunKind.BACKUP) -> str:
    """The id of the one run that is meant; `latest` is of this kind. See `Catalogue.run`, `.probe` and `.bench`.

    `latest`, `latest-good` and `as-of=TIME` are this machine's. An id finds its run, of whatever kind and machine, and
    whatever else begins with it. A beginning finds runs of every kind; but where probes or benches are asked for, one
    that several runs have means the only one of that kind among them. A bench is meant where all the others are its own
    probes.

    Raises:
        UsageError: there is none, or more than one.
    """
    selector = parse_selector(wanted, now=datetime.now(UTC))
    if not selector.said:
        return _identified(connection, wanted, latest)
    if not selector.good:
        return _latest(connection, selector, latest)
    if latest is not RunKind.BACKUP:
        noun, listed = _PLACES[latest]
        raise UsageError(f"{selector.said} selects a backup, not a {noun}", hint=f"use `latest`, or an id: {listed}")
    return with_backup(connection, selector).run_id


def with_backup(
    connection: Connection,
    selector: Selector,
    *,
    target: str | None = None,
    targets: Collection[str] | None = None,
) -> RunDetails:
    """This machine's newest run of which a backup is there, by that time; without its samples. There: on that target,
    else on one of those `targets` (that can be read), else on any.

    Raises:
        UsageError: there is none; or no job is named, and there are backups of several.
    """
    if selector.job is None:
        _require_one_job(connection, selector)
    there = runs_with_backup(selector.job, targets if target is None else (target,))
    if selector.by is None:
        if (newest := _newest(connection, there)) is not None:
            return _details(connection, newest)
    else:
        for run_id in connection.execute(there.where(tables.runs.c.started_at <= selector.by)).scalars():
            run = _details(connection, run_id)
            if run.snapshot_by is not None and run.snapshot_by <= selector.by:
                return run
    oldest = connection.execute(there.order_by(None).order_by(tables.runs.c.started_at).limit(1)).scalar()
    if oldest is None and target is None:
        _require_none_out_of_reach(connection, selector)
    raise _no_backup(connection, selector, target, None if oldest is None else _details(connection, oldest))


def _require_none_out_of_reach(connection: Connection, selector: Selector) -> None:
    """Raises UsageError where there are backups, though on no target that can be read."""
    lost = _newest(connection, runs_with_backup(selector.job))
    if lost is not None:
        of = f" of job {selector.job}" if selector.job else ""
        on = ", ".join(backup.target for backup in _details(connection, lost).backups if backup.is_there)
        raise UsageError(
            f"no backup{of} is on a target that is in the configuration",
            hint=f"the newest one, run {lost}, is on target {on}: if that can still be read, configure it again",
        )


def _details(connection: Connection, run_id: str) -> RunDetails:
    its = select(tables.runs.c.run_id).where(tables.runs.c.run_id == run_id)
    return details(connection, its, samples=False)[0]


def runs_with_backup(
    job: str | None, targets: Collection[str] | None = None, *, broken_too: bool = False
) -> Select[str]:
    """This machine's runs of which a backup is there, of one job and on one of the targets where they are named, newest
    first; one that was found broken counts only when asked for.

    What is there is found first, by the index of what was not removed: that is little, even where runs are many.
    """
    return our_newest(job).where(tables.runs.c.run_id.in_(with_copy(targets, broken_too=broken_too)))


def with_copy(targets: Collection[str] | None, *, broken_too: bool = False) -> Select[str]:
    """Every run, of whichever machine, of which a copy is there (a broken one when asked for): on one of these."""
    there = select(tables.backups.c.run_id).where(tables.THERE)
    there = there if broken_too else there.where(tables.backups.c.broken == "")
    return there if targets is None else there.where(tables.backups.c.target.in_(list(targets)))


def of_kind(connection: Connection, wanted: str, kind: RunKind) -> Select[str]:
    """The one run of this kind that is meant.

    Raises:
        UsageError: there is none, or more than one, or it is of another kind.
    """
    found = resolve(connection, wanted, latest=kind)
    its = connection.execute(select(tables.runs.c.kind).where(tables.runs.c.run_id == found)).scalar_one()
    if its is not kind:
        raise UsageError(f"run {found} is a {its}, not a {kind}", hint=_PLACES[kind][1])
    return newest_first(kind=kind).where(tables.runs.c.run_id == found)


def _latest(connection: Connection, selector: Selector, kind: RunKind) -> str:
    """Whatever became of it."""
    noun, hint = _PLACES[kind]
    if selector.job is None and kind is RunKind.BACKUP:
        _require_one_job(connection, selector)
    newest = _newest(connection, our_newest(selector.job, kind=kind))
    if newest is None:
        if selector.job and kind is RunKind.BACKUP and (jobs := _jobs(connection)):
            hint = f"{hint}; there are runs of {', '.join(jobs)}"
        raise UsageError(f"no {noun} of job {selector.job} yet" if selector.job else f"no {noun} yet", hint=hint)
    return newest


def _newest(connection: Connection, newest_first: Select[str]) -> str | None:
    """The first of these, but for what a clock that was ahead has dated later than now: where there is nothing else."""
    begun = newest_first.where(tables.runs.c.started_at <= datetime.now(UTC))
    for runs in (begun, newest_first):
        if (found := connection.execute(runs.limit(1)).scalar()) is not None:
            return found
    return None


def _identified(connection: Connection, wanted: str, kind: RunKind) -> str:
    """The run of this id, or of this beginning."""
    noun, hint = _PLACES[kind]
    found = _alike(connection, wanted, kind=None)
    if wanted in found:
        return wanted
    if kind is not RunKind.BACKUP:
        found = _alike(connection, wanted, kind=kind) or found
    if len(found) == 1 or (found and _is_of_one_bench(connection, wanted, first=found[0])):
        return found[0]
    if found:
        raise UsageError(f"more than one {noun} begins with {wanted}: {', '.join(found)}", hint=hint)
    if kind is RunKind.BACKUP:
        hint = f"{hint} lists them, and --help says how to name one"
    raise UsageError(f"no {noun} {wanted or repr(wanted)}", hint=hint)


def _alike(connection: Connection, wanted: str, *, kind: RunKind | None) -> list[str]:
    """The first ids that begin so: a range of the key, because a function of it would be a walk through all."""
    column = tables.runs.c.run_id
    if not wanted or not wanted.isascii():  # no id is; and what a terminal sent that is no text, SQLite cannot take
        return []
    return list(connection.execute(_beginning(wanted, kind).order_by(column).limit(4)).scalars())


def _beginning(wanted: str, kind: RunKind | None) -> Select[str]:
    column = tables.runs.c.run_id
    return newest_first(kind=kind).where(column >= wanted, column < wanted + _LAST).order_by(None)


def _is_of_one_bench(connection: Connection, wanted: str, *, first: str) -> bool:
    """Whether of all ids that begin so the first is a bench's, and the others are those of its probes: ID-1, ID-2, ….

    Of ids that begin with another, those that go on with a dash come first: where the last does, all do.
    """
    runs = tables.runs.c
    alike = _beginning(wanted, None)
    no_probes = alike.with_only_columns(runs.run_id, runs.kind).where(runs.kind != RunKind.PROBE)
    if connection.execute(no_probes.order_by(runs.run_id).limit(2)).all() != [(first, RunKind.BENCH)]:
        return False
    return connection.execute(alike.order_by(runs.run_id.desc()).limit(1)).scalar_one().startswith(f"{first}-")


def _no_backup(connection: Connection, selector: Selector, target: str | None, oldest: RunDetails | None) -> UsageError:
    """The oldest of those that are there is too young, where there is one; else a name may be mistyped."""
    of = f" of job {selector.job}" if selector.job else ""
    on = f" on target {target}" if target is not None else ""
    if selector.by is None or oldest is None or oldest.snapshot_by is None:
        known = f"; there are runs of {', '.join(jobs)}" if selector.job and (jobs := _jobs(connection)) else ""
        hint = f"`backupd status` shows what is on which target{known}; name a backup of another machine by its id"
        return UsageError(f"there is no backup{of} yet{on}", hint=f"{hint}{_newest_of_others(connection, target)}")
    return UsageError(
        f"there is no backup{of}{on} that was taken by {to_the_second(selector.by)}",
        hint=f"the oldest one is run {oldest.run_id}, taken by {to_the_second(oldest.snapshot_by)}",
    )


def _newest_of_others(connection: Connection, target: str | None) -> str:
    """The newest that could be meant, where it is another machine's: on a host in the place of one that is lost."""
    there = with_copy(None if target is None else (target,))
    theirs = newest_first().where(tables.runs.c.run_id.in_(there), ~tables.OURS)
    if (run_id := _newest(connection, theirs)) is None:
        return ""
    run = _details(connection, run_id)
    return f", such as {run_id}, the newest one, of job {run.job} of {run.machine}"


def _require_one_job(connection: Connection, selector: Selector) -> None:
    """The newest run says which one is meant: no other job's good one can stand in for one that failed.

    Raises:
        UsageError: there are backups of several jobs; names some.
    """
    jobs = _jobs(connection)
    if len(jobs) > 1:
        raise UsageError(
            f"there are backups of several jobs: `{selector.said}` needs a job",
            hint=f"say {' or '.join(map(selector.of, jobs))}",
        )


def _jobs(connection: Connection) -> list[str]:
    """The first of those that have a run of a backup on this machine."""
    runs = tables.runs.c
    jobs: list[str] = []
    while len(jobs) < _NAMED_JOBS:  # from one to the next in the index: among many runs there are few jobs
        ours = select(func.min(runs.job)).where(runs.kind == RunKind.BACKUP, tables.OURS)
        job = connection.execute(ours.where(runs.job > (jobs[-1] if jobs else ""))).scalar()
        if job is None:
            break
        jobs.append(job)
    return jobs
