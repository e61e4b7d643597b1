"""What is accepted, for no backup is to stop for it, and yet is useless, dangerous or refused by somebody else later.

Knows: the sentences, for `config check` and for a daemon that reads the file. Refuses to be asked by other commands:
it may take a while.
"""

from collections.abc import Iterator
from pathlib import Path

from backupd.config.exposure import leaves_in_clear, pages_unguarded
from backupd.config.notifications import NotificationConfig, WebhookConfig
from backupd.config.own_files import shared
from backupd.config.schema import Configuration, JobConfig, archived_twice
from backupd.config.targets import S3Config, TargetConfig, parts_beyond
from backupd.config.wording import keys_of
from backupd.policy.blackouts import week_of
from backupd.vocabulary.faults import Fault, dotted, quoted
from backupd.vocabulary.schedule import NoticeKind
from backupd.vocabulary.units import format_duration

_SHORTEST_LOCK_SECONDS = 3600.0


def warnings_of(configuration: Configuration, path: Path) -> Iterator[str]:
    """One sentence for each thing in this configuration, which this file is, that a person should look at."""
    yield from (f"{found}{found.hint and f'; {found.hint}'}" for found in _found(configuration, path))


def _found(configuration: Configuration, path: Path) -> Iterator[Fault]:
    yield from shared(path)
    service = configuration.service
    if service.digest is not None and not any(
        NoticeKind.DIGEST in told.on for told in configuration.notifications.values()
    ):
        yield Fault("service.digest", 'nobody is told, because no notification has "digest" in its `on`')
    if unguarded := pages_unguarded(service.address, service.token_file, table="service"):
        yield Fault(unguarded.path, f"{unguarded.fact}: `backupd serve` refuses to start", unguarded.hint)
    for target in configuration.targets.values():
        yield from _target(target)
    for notification in configuration.notifications.values():
        yield from _notification(notification)
    for job in configuration.jobs.values():
        yield from _schedules(job)
        yield from _hooks(job)
    for host, jobs in archived_twice(configuration).items():
        yield Fault(
            dotted(("hosts", host)),
            f"jobs {', '.join(jobs)} each archive its binlog: the server sends everything {len(jobs)} times",
            "keep [jobs.NAME.binlog] in one of them, with the targets of both",
        )


def _target(target: TargetConfig) -> Iterator[Fault]:
    path = dotted(("targets", target.name))
    if isinstance(target, S3Config) and target.lock_mode is None:
        if target.lock_seconds != keys_of(S3Config)["lock_for"].default:
            yield Fault(
                f"{path}.lock_for", "locks nothing without lock_mode", 'add lock_mode = "governance" or "compliance"'
            )
    elif isinstance(target, S3Config) and target.lock_seconds < _SHORTEST_LOCK_SECONDS:
        yield Fault(
            f"{path}.lock_for",
            "is less than an hour",
            'anybody could remove the backups soon: write for example "7d"',
        )
    if too_much := parts_beyond(target):
        yield Fault(f"{path}.part_size", too_much, "backups of that size fail: lower it")


def _notification(notification: NotificationConfig) -> Iterator[Fault]:
    path = dotted(("notifications", notification.name))
    if not notification.on:
        yield Fault(f"{path}.on", "is empty, so nobody is told of anything", "list kinds, or remove the notification")
    if (
        isinstance(notification, WebhookConfig)
        and notification.token_file is not None
        and leaves_in_clear(notification.url or "")
    ):
        yield Fault(f"{path}.url", "is http, over which the token is not sent: nobody is told", "write https://")


def _schedules(job: JobConfig) -> Iterator[Fault]:
    """What a schedule's own blackout keeps from starting. What leaves no minute free is a fault."""
    for activity, schedule in job.schedules.items():
        within = schedule.start_within_seconds
        week = week_of(schedule.cron, schedule.blackout, within + schedule.spread_seconds)
        path = f"{dotted(('jobs', job.name))}.schedules.{activity}.blackout"
        longer = f"it lasts longer than start_within ({format_duration(within)})"
        if not week.missed:
            continue
        if week.missed == week.due:
            yield Fault(
                path,
                f"nothing ever starts: {longer} whenever {quoted(schedule.cron)} is due",
                "shorten it, raise start_within, or choose another time",
            )
        else:
            told = f"{len(week.missed)} of {len(week.due)} times of a week are always missed, such as {week.example}"
            yield Fault(path, f"{told}: {longer}")


def _hooks(job: JobConfig) -> Iterator[Fault]:
    for hook in job.hooks.values():
        if len(set(hook.when)) < len(hook.when):
            yield Fault(
                dotted(("jobs", job.name, "hooks", hook.name, "when")),
                "names a point twice, at which the program runs once",
                "list each once, or the one that was meant",
            )
