"""What the hosts of a fleet told when they were asked, as a table and as a document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from backupd.config.fleet import FleetConfiguration
from backupd.report.json_document import Document, iso
from backupd.report.words import columns, duration, instant
from backupd.vocabulary.fleet import DescribedJob, SeenHost
from backupd.vocabulary.records import Finding

_HEAD = ("CLUSTER", "HOST", "MACHINE", "VERSION", "JOB", "ROLE", "LAG", "TARGETS", "LAST GOOD")
_SILENT = ("-", "no answer")


def hosts_table(configuration: FleetConfiguration, seen: Mapping[str, SeenHost]) -> str:
    """A line for each host and each of its cluster's jobs."""
    return columns((_HEAD, *_rows(configuration, seen)), right=(6,))


def fleet_check_document(
    configuration: FleetConfiguration, seen: Mapping[str, SeenHost], findings: Sequence[Finding]
) -> Document:
    """What `fleet check --json` prints."""
    return {
        "hosts": [
            {
                "host": one.host,
                "cluster": configuration.hosts[one.host].cluster if one.host in configuration.hosts else None,
                "answered_at": iso(one.answered_at),
                "problem": one.problem,
                "machine": None if one.described is None else one.described.machine,
                "version": None if one.described is None else one.described.version,
                "protocols": None if one.described is None else list(one.described.protocols),
                "clock_ahead_seconds": None if one.described is None else one.described.clock_ahead_seconds,
                "jobs": [_job(job) for job in (() if one.described is None else one.described.jobs)],
            }
            for one in seen.values()
        ],
        "findings": [asdict(finding) for finding in findings],
    }


def _job(job: DescribedJob) -> Document:
    return {
        "job": job.job,
        "targets": list(job.targets),
        "role": job.role,
        "server": job.server,
        "follows": job.follows,
        "lag_seconds": job.lag_seconds,
        "paused": job.paused,
        "running": job.running,
        "last_good_at": iso(job.last_good_at),
        "last_proven_at": iso(job.last_proven_at),
        "expected_seconds": job.expected_seconds,
        "expected_bytes": job.expected_bytes,
        "fallback_after_seconds": job.fallback_after_seconds,
        "problem": job.problem,
    }


def _rows(configuration: FleetConfiguration, seen: Mapping[str, SeenHost]) -> Iterator[tuple[str, ...]]:
    for cluster in sorted(configuration.clusters.values(), key=lambda one: one.name):
        for host in cluster.members:
            one = seen.get(host)
            if one is None or one.described is None:
                yield (cluster.name, host, *_SILENT)
                continue
            told = {job.job: job for job in one.described.jobs}
            for name in cluster.jobs:
                head = (cluster.name, host, one.described.machine, one.described.version, name)
                yield (*head, *_of_job(told[name])) if name in told else (*head, "no such job")


def _of_job(job: DescribedJob) -> tuple[str, ...]:
    lag = "-" if job.lag_seconds is None else duration(job.lag_seconds)
    return job.role.value, lag, ", ".join(job.targets), instant(job.last_good_at)
