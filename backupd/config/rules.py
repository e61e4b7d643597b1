"""What takes more than one key to see: names that must exist, keys that exclude each other, tables that must not lack.

Knows: the rules. Reads the TOML tables as they were written rather than the schema's values, so that a fault in one key
hides none of these. Refuses to judge a single value (`fields` does).
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backupd.config.binlog import BinlogConfig
from backupd.config.exposure import target_in_the_clear
from backupd.config.schema import BackupScheduleConfig, JobConfig
from backupd.config.targets import TargetKind
from backupd.config.wording import keys_of, unknown_key
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.faults import BadValue, Fault, dotted, nearest, quoted
from backupd.vocabulary.units import format_duration, format_size, parse_duration, parse_size

Tables = Mapping[str, Any]

PASSWORD_SOURCES = ("password_file", "password_env", "password_credential", "defaults_file")
_EVERY = format_duration(keys_of(JobConfig)["every"].default)
MOST_CHECKS = 50  # of a job: all of them go into each proof
_EXPECTATIONS = (("equals",), ("at_least", "at_most"), ("newer_than",))
_NO_JOB = "owner"  # on every target, beside the jobs' folders


def broken(document: Tables) -> Iterator[Fault]:
    """Every rule that this document breaks."""
    for kind in ("hosts", "targets", "notifications", "jobs"):
        for name, table in _named(document, kind):
            if "name" in table:  # the schema's own field for the table's key
                yield unknown_key((kind, name, "name"))
    for name, host in _named(document, "hosts"):
        yield from _host(name, host)
    for name, target in _named(document, "targets"):
        yield from _locking(name, target)
        yield from target_in_the_clear(name, target)
    for name, notification in _named(document, "notifications"):
        yield from _notification(document, name, notification)
    yield from _proof_checks(document)
    if not document.get("jobs") and "prove" not in document:
        yield Fault("jobs", "no job is configured", "add a table [jobs.NAME] with a host and targets")
    for name, job in _named(document, "jobs"):
        if name == _NO_JOB:
            yield Fault(
                f"jobs.{name}", "cannot be a job's name", ("every target uses a folder of that name for owner records")
            )
        yield from _job(document, name, job)


def _named(document: object, kind: str) -> Iterator[tuple[str, Tables]]:
    tables = _at(document, kind)
    if isinstance(tables, dict):
        yield from ((name, table) for name, table in tables.items() if isinstance(table, dict))


def _host(name: str, host: Tables) -> Iterator[Fault]:
    path = dotted(("hosts", name))
    sources = [key for key in PASSWORD_SOURCES if key in host]
    if len(sources) > 1:
        yield Fault(path, f"has {len(sources)} sources for one password: {', '.join(sources)}", "keep one of them")
    if "socket" in host and "address" in host:
        yield Fault(path, "has both a socket and an address", "keep socket if the server is on this machine")
    if not {"socket", "address", "defaults_file"} & host.keys():
        yield Fault(path, "does not say where the server is", "add a socket or an address")
    if not {"user", "defaults_file"} & host.keys():
        yield Fault(f"{path}.user", "is missing", "add it, or use a defaults_file that names the user")


def _locking(name: str, target: Tables) -> Iterator[Fault]:
    if "lock_mode" in target and target.get("checksum") == "none":
        path = dotted(("targets", name, "checksum"))
        yield Fault(path, 'cannot be "none" with lock_mode', "S3 can only lock objects with a checksum: use sha256")


def _notification(document: Tables, name: str, table: Tables) -> Iterator[Fault]:
    path = dotted(("notifications", name))
    if table.get("type") in ("webhook", "ping") and len({"url", "url_file"} & table.keys()) != 1:
        yield Fault(path, "needs either url or url_file", "url_file names a file that holds the address, mode 0600")
    if ("user" in table) != ("password_file" in table):
        yield Fault(path, "has only one of user and password_file", "set both or neither")
    if "password_file" in table and table.get("security") == "none":
        yield Fault(
            f"{path}.security",
            'cannot be "none" with a password',
            "anybody on the network path could read it: use starttls or tls",
        )
    jobs = table.get("jobs")
    for index, job in enumerate(jobs if isinstance(jobs, list) else ()):
        if isinstance(job, str):
            yield from _known(document, "jobs", f"{path}.jobs[{index}]", name=job)


def _job(document: Tables, name: str, job: Tables) -> Iterator[Fault]:
    path = dotted(("jobs", name))
    if isinstance(host := job.get("host"), str):
        yield from _known(document, "hosts", f"{path}.host", name=host)
    targets = job.get("targets")
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        if isinstance(target, str):
            yield from _known(document, "targets", f"{path}.targets[{index}]", name=target)
    for hook, table in _named(job, "hooks"):
        if "name" in table:
            yield unknown_key(("jobs", name, "hooks", hook, "name"))
    retention = job.get("retention")
    for target, table in retention.items() if isinstance(retention, dict) else ():
        if isinstance(table, dict):
            yield from _known(document, "targets", f"{path}.retention.{target}", name=target)
    yield from _drill_checks(name, job)
    yield from _drilled_moment(path, job)
    yield from _encrypted(document, path, job)
    yield from _as_often(path, job)
    yield from _retried(path, job)
    yield from _binlog(path, job)
    copy = job.get("copy")
    if isinstance(copy, dict) and "spool_size" in copy and "spool" not in copy:
        yield Fault(f"{path}.copy.spool_size", "there is no spool", "set spool to a folder on other disks")


def _binlog(path: str, job: Tables) -> Iterator[Fault]:
    """Its spool holds a segment that waits beside the one that is being cut."""
    binlog, keys = job.get("binlog"), keys_of(BinlogConfig)
    if not isinstance(binlog, dict):
        return
    with contextlib.suppress(BadValue):  # of which the schema tells
        segment, limit = (parse_size(binlog.get(key, keys[key].default)) for key in ("segment_size", "spool_limit"))
        if limit < 2 * segment:
            yield Fault(
                f"{path}.binlog.spool_limit",
                f"is {format_size(limit)}, but a segment can have {format_size(segment)}",
                f'write "{format_size(2 * segment)}" or more: that much can wait while a target is away',
            )


def _proof_checks(document: Tables) -> Iterator[Fault]:
    """Those of a proof host, which can be of several jobs."""
    where = ("prove", "checks")
    checks = list(_named(_at(document, "prove"), "checks"))
    jobs = Counter(job for _, check in checks if isinstance(job := check.get("job"), str))
    for job, number in jobs.items():
        yield from _too_many(where, number, f" for job {job}")
    yield from _checks(where, checks)


def _drill_checks(job_name: str, job: Tables) -> Iterator[Fault]:
    where = ("jobs", job_name, "drill", "checks")
    checks = list(_named(_at(job, "drill"), "checks"))
    yield from _too_many(where, len(checks))
    yield from _checks(where, checks)


def _drilled_moment(path: str, job: Tables) -> Iterator[Fault]:
    """A moment is one of the job's binlog archive."""
    if _at(job, "drill", "moment") is not None and "binlog" not in job:
        yield Fault(
            f"{path}.drill.moment",
            "there is no binlog archive whose moments a drill could prove",
            f"add a table [{path}.binlog], or remove moment: a drill then proves a backup",
        )


def _too_many(where: tuple[str, ...], number: int, whose: str = "") -> Iterator[Fault]:
    if number > MOST_CHECKS:
        yield Fault(dotted(where), f"has {number} checks{whose}", f"a job can have {MOST_CHECKS}")


def _checks(place: tuple[str, ...], checks: Iterable[tuple[str, Tables]]) -> Iterator[Fault]:
    """Each expects one thing, that some value can be."""
    for name, check in checks:
        where = (*place, name)
        if "name" in check:
            yield unknown_key((*where, "name"))
        kinds = [keys for keys in _EXPECTATIONS if any(key in check for key in keys)]
        if not kinds:
            yield Fault(dotted(where), "does not say what is expected", "add equals, at_least, at_most or newer_than")
        elif len(kinds) > 1:
            found = ", ".join(key for keys in kinds for key in keys if key in check)
            yield Fault(
                dotted(where),
                f"has more than one expectation: {found}",
                "keep equals, or newer_than, or at_least and at_most; another check can expect the rest",
            )
        least, most = check.get("at_least"), check.get("at_most")
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            yield Fault(
                dotted(where),
                f"at_least ({quoted(least)}) is above at_most ({quoted(most)})",
                "no number can meet both",
            )


def _as_often(path: str, job: Tables) -> Iterator[Fault]:
    """Backups are at most `every` apart: preflight holds that beside how long the server keeps its binlogs."""
    cron = _at(job, "schedules", "backup", "cron")
    if not isinstance(cron, str):
        return
    with contextlib.suppress(BadValue, UsageError):  # of which the schema tells
        every = parse_duration(job.get("every", _EVERY))
        gap = _longest_gap(cron)
        if gap > every:
            yield Fault(
                f"{path}.every",
                f"is {format_duration(every)}, but the backup schedule {quoted(cron)} leaves {format_duration(gap)}",
                f'write every = "{format_duration(gap)}": binlogs must be kept that long, which preflight checks',
            )


def _retried(path: str, job: Tables) -> Iterator[Fault]:
    """Another try fits into `start_within`."""
    backup, keys = _at(job, "schedules", "backup"), keys_of(BackupScheduleConfig)
    if not isinstance(backup, dict) or backup.get("retries", 0) in (0, False):
        return
    with contextlib.suppress(BadValue):  # of which the schema tells
        after, within = (parse_duration(backup.get(key, keys[key].default)) for key in ("retry_after", "start_within"))
        if after >= within:
            yield Fault(
                f"{path}.schedules.backup.retry_after",
                f"is {format_duration(after)}, but a backup must start within {format_duration(within)}",
                "lower retry_after or raise start_within: no other try could start in time",
            )


def _longest_gap(cron: str) -> float:
    """Imported here, for most files have no schedule."""
    from backupd.policy.timetable import longest_gap_seconds

    return longest_gap_seconds(cron)


def _at(table: object, *keys: str) -> object:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _encrypted(document: Tables, path: str, job: Tables) -> Iterator[Fault]:
    """Nothing goes unencrypted to another machine unless the target says in words that it may."""
    encryption = job.get("encryption", {})
    if not isinstance(encryption, dict) or encryption.get("recipients", []) != []:
        return
    targets = job.get("targets")
    chosen = targets if isinstance(targets, list) else []
    exposed = [
        name
        for name, target in _named(document, "targets")
        if name in chosen and _is_remote(target) and target.get("accept_unencrypted") is not True
    ]
    if exposed:
        tables = ", ".join(f"[{dotted(('targets', name))}]" for name in exposed)
        yield Fault(
            f"{path}.encryption.recipients",
            f"there is none, but {', '.join(exposed)} {'is' if len(exposed) == 1 else 'are'} not on this machine: "
            "its backups would be sent there unencrypted",
            "add an age recipient (age-keygen makes a key; only its public key belongs here), "
            f"or write accept_unencrypted = true in {tables}: whoever runs that machine can then read the backups",
        )


def _is_remote(target: Tables) -> bool:
    """Of a kind that is not said to be on this machine. One of an unknown kind is a fault of its own."""
    return any(kind == target.get("type") and not kind.on_this_machine for kind in TargetKind)


def _known(document: Tables, kind: str, path: str, *, name: str) -> Iterator[Fault]:
    tables = document.get(kind)
    known = list(tables) if isinstance(tables, dict) else []
    if not name or name in known:
        return
    meant = nearest(name, known)
    if meant is not None:
        hint = f"did you mean {meant}?"
    else:
        hint = f"there are: {', '.join(known)}" if known else f"add a table [{dotted((kind, name))}]"
    yield Fault(path, f"there is no {kind[:-1]} {quoted(name)}", hint)
