"""What the archive of one job works with, from the configuration: made once, for the length of a process."""

from collections.abc import Sequence
from functools import partial

from backupd.catalogue.store import Catalogue
from backupd.config import BinlogConfig, Configuration, JobConfig
from backupd.mysql.binlog.client import matching_client, receiver_id
from backupd.mysql.binlog.promoted import PromotedServer, promoted_server
from backupd.mysql.binlog.receiver import receiving
from backupd.mysql.binlog.source import (
    BinlogSource,
    LogState,
    ServerBinlog,
    binlog_source,
    end_of_log,
    lacks_receiving,
    sizes_of_log,
)
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Connect
from backupd.operations.binlog.archive import ArchiveTools
from backupd.operations.binlog.placed_backups import placed_backups
from backupd.operations.binlog.segment_author import SegmentAuthor
from backupd.operations.binlog.spool import BinlogSpool
from backupd.operations.binlog.storing import SegmentStore
from backupd.operations.configured_servers import connector_anew, login_anew
from backupd.operations.ownership import ownership_of
from backupd.operations.tools import HostTools
from backupd.targets import Target
from backupd.vocabulary.errors import ConfigurationError, ServerError

_UNREAD_BYTES = 256 << 20  # that a receiver may write ahead of us
_BACKUPS = 50  # of which the newest whose place the server still has begins a chain


def binlog_of(job: JobConfig) -> BinlogConfig:
    """How the job's binlog is archived.

    Raises:
        ConfigurationError: it is not.
    """
    if job.binlog is None:
        raise ConfigurationError(
            f"job {job.name} archives no binlog", hint=f"a table [jobs.{job.name}.binlog] turns it on; it may be empty"
        )
    return job.binlog


def archive_tools(
    configuration: Configuration, job: JobConfig, host: HostTools, targets: Sequence[Target], catalogue: Catalogue
) -> ArchiveTools:
    """All of it. The server is not asked: what waits for a target is stored, whether it answers or not.

    Raises:
        ConfigurationError: the job archives no binlog.
        Refused: the catalogue is another machine's, or the signing key cannot be used.
    """
    config, server = binlog_of(job), configuration.hosts[job.host]
    connect = connector_anew(server)
    ownership = ownership_of(catalogue, host)
    machine = ownership.require_here().name
    spool = BinlogSpool(config.spool, job.name)
    server_id = config.server_id if config.server_id is not None else receiver_id(machine, job.name)
    signer = ownership.signer()
    return ArchiveTools(
        claims=host.claims,
        catalogue=catalogue,
        store=SegmentStore(job.name, targets, catalogue, spool, ownership),
        source=partial(_source, connect, server_id),
        end_of_log=partial(_end, connect),
        sizes_of_log=partial(_sizes, connect),
        promoted=partial(_promoted, connect),
        receiving=lambda start: receiving(
            matching_client(MysqlServer(connect).facts(), config.client),
            login_anew(server),
            start,
            spool.received,
            server_id=server_id,
            limit=_UNREAD_BYTES,
        ),
        backups=lambda: placed_backups(catalogue.runs(job=job.name, ours=True, limit=_BACKUPS)),
        minute=partial(minute, connect) if job.canary else lambda: None,
        author=lambda origin: SegmentAuthor(machine, job.name, origin, job.encryption.recipients, signer),
    )


def _end(connect: Connect, of: BinlogSource) -> LogState:
    with connect() as session:
        return end_of_log(session, of=of)


def _promoted(connect: Connect, source: BinlogSource, archived: str) -> PromotedServer:
    with connect() as session:
        return promoted_server(session, source, archived)


def _sizes(connect: Connect) -> tuple[ServerBinlog, ...]:
    with connect() as session:
        return sizes_of_log(session)


def minute(connect: Connect) -> None:
    """A canary row, unless the server's data is not ours to add to: that of a replica, or of one that is read-only."""
    facts = MysqlServer(connect).facts()
    if not (facts.read_only or facts.is_replica):
        MysqlCanary(connect).minute()


def _source(connect: Connect, server_id: int) -> BinlogSource:
    with connect() as session:
        found = binlog_source(session)
        if lacks_receiving(session):
            raise ServerError(
                "the account may not receive the binlog: it lacks REPLICATION SLAVE",
                hint="GRANT REPLICATION SLAVE ON *.* TO the account; see `backupd check JOB`",
            )
    if found.origin.server_id == server_id:
        raise ServerError(
            f"{server_id} is the server's own id: it would send nothing to a receiver that has it",
            hint="choose another one: binlog.server_id",
        )
    return found
