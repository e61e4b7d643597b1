"""How this host and its jobs stand, as a control host wants to know it before it decides.

Knows: that servers are asked side by side, and none for longer than a few seconds: one that hangs is told as unknown.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue

from backupd import __version__
from backupd.catalogue.job_status import JobRecord
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, JobConfig
from backupd.host.claims import Claims
from backupd.host.process import is_alive
from backupd.mysql.role import ServerRole, role_of
from backupd.operations.configured_servers import connect_to
from backupd.vocabulary.errors import BackupdError
from backupd.vocabulary.fleet import PROTOCOLS, DescribedJob, HostDescription, Role
from backupd.vocabulary.records import GOOD, RunKind

SERVER_SECONDS = 6.0  # that all servers together are waited for

_PAST_RUNS = 5  # of which the median is expected again

RoleTold = ServerRole | str  # a server's role, or why it could not be asked


def describe(
    configuration: Configuration, catalogue: Catalogue, *, server_seconds: float = SERVER_SECONDS
) -> HostDescription:
    """The host, its jobs and their servers.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    jobs = configuration.jobs
    servers = told_by_servers(
        {name: partial(_ask, configuration, name) for name in {job.host for job in jobs.values()}},
        within_seconds=server_seconds,
    )
    now, machine = datetime.now(UTC), catalogue.identity().name
    records = catalogue.records(list(jobs), at=now, targets=configuration.targets)
    claims = Claims(configuration.paths.run)
    described = [_job(job, catalogue, records[job.name], servers[job.host], claims) for job in jobs.values()]
    return HostDescription(machine, __version__, (PROTOCOLS[0], PROTOCOLS[-1]), datetime.now(UTC), tuple(described))


def told_by_servers(asking: Mapping[str, Callable[[], ServerRole]], *, within_seconds: float) -> dict[str, RoleTold]:
    """What each of them tells, or why it does not. Who has not answered by then is left to itself: the process ends."""
    answers: SimpleQueue[tuple[str, RoleTold]] = SimpleQueue()

    def ask(name: str) -> None:
        try:
            answers.put((name, asking[name]()))
        except BackupdError as error:
            answers.put((name, error.message))

    for name in asking:
        threading.Thread(target=ask, args=(name,), name=f"ask-{name}", daemon=True).start()
    told: dict[str, RoleTold] = {}
    until = time.monotonic() + within_seconds
    while len(told) < len(asking):
        try:
            name, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            break
        told[name] = answer
    return {name: told.get(name, f"the server did not answer within {within_seconds:g} s") for name in asking}


def _ask(configuration: Configuration, host: str) -> ServerRole:
    with connect_to(configuration, host)(answer_seconds=SERVER_SECONDS) as session:
        return role_of(session)


def _job(job: JobConfig, catalogue: Catalogue, record: JobRecord, told: RoleTold, claims: Claims) -> DescribedJob:
    seconds, stored = _expected(catalogue, job.name)
    good, pause = record.last_good, record.pause
    server = told if isinstance(told, ServerRole) else None
    return DescribedJob(
        job=job.name,
        targets=job.targets,
        role=Role.UNKNOWN if server is None else server.role,
        flavour=None if server is None else server.flavour,
        server="" if server is None else server.server,
        follows="" if server is None else server.follows,
        lag_seconds=None if server is None else server.lag_seconds,
        paused=pause is not None,
        running=_running(record) or claims.run_of_job(job.name) or "",  # a rebuilt catalogue has no row of it
        last_good_at=None if good is None else good.started_at,
        last_proven_at=record.proven_at,
        expected_seconds=seconds,
        expected_bytes=stored,
        fallback_after_seconds=_fallback_seconds(job),
        problem=told if isinstance(told, str) else "",
    )


def _fallback_seconds(job: JobConfig) -> float | None:
    """Of the control host's absence, after which the host's own schedule counts; None: it has none."""
    return None if job.schedules.backup is None else job.schedules.backup.fallback_after_seconds or 0.0


def _running(record: JobRecord) -> str:
    going = (one for one in record.unfinished if one.run.kind is RunKind.BACKUP and is_alive(one.process))
    return next((one.run.run_id for one in going), "")


def _expected(catalogue: Catalogue, job: str) -> tuple[float | None, int | None]:
    """Seconds, and bytes on one target, of the next backup by the last good ones."""
    past = catalogue.runs(job=job, statuses=GOOD, ours=True, limit=_PAST_RUNS)
    seconds = sorted(run.seconds for run in past if run.seconds is not None)
    stored = sorted(run.backups[0].bytes_stored for run in past if run.backups)
    return (
        seconds[len(seconds) // 2] if seconds else None,
        stored[len(stored) // 2] if stored else None,
    )
