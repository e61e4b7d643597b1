"""Would a job's binlog be archived, and could it be rolled forward by? What `backupd check` tells of it.

Knows: what of the server, its account and the client program stands in an archive's way. Knows too that none of it
stops a backup, so that nothing here is more than a warning. Refuses to change anything.
"""

from collections.abc import Iterator

from backupd.config import BinlogConfig, Configuration, JobConfig
from backupd.mysql.binlog.client import matching_client, receiver_id
from backupd.mysql.binlog.source import RECEIVING, BinlogSource, binlog_source, lacks_receiving
from backupd.mysql.login import Login
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import connector
from backupd.operations.configured_servers import login_of
from backupd.operations.findings import ok
from backupd.vocabulary.errors import BackupdError, ConfigurationError, ServerError
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import ServerFacts
from backupd.vocabulary.units import format_duration, size_words

_SHORTEST_EXPIRY_SECONDS = 86400  # an outage over a night must not be a gap


def examine(configuration: Configuration, job: JobConfig, machine: str) -> Iterator[Finding]:
    """Everything at once; nothing where the job archives no binlog. The server is asked."""
    if job.binlog is None:
        return
    try:
        login = login_of(configuration.hosts[job.host])
        facts = MysqlServer(connector(login)).facts()
        source, lacks = _asked(login)
    except (ServerError, ConfigurationError) as error:
        yield _warning("binlog archive", f"the server cannot be asked: {error.message}", error.hint)
        return
    yield of_client(job.binlog, facts)
    yield of_account(job.host, lacks=lacks)
    own = job.binlog.server_id if job.binlog.server_id is not None else receiver_id(machine, job.name)
    yield of_receiver_id(source, own)
    yield from of_log(source)


def of_client(config: BinlogConfig, facts: ServerFacts) -> Finding:
    """The program that receives: there, and no older than the server."""
    try:
        client = matching_client(facts, config.client)
    except BackupdError as error:
        return _warning("binlog client", error.message, error.hint)
    if told := client.warning(facts):
        return _warning("binlog client", told, "")
    return ok("binlog client", client.path)


def of_account(host: str, *, lacks: bool) -> Finding:
    """The one privilege that an archive needs and a backup does not."""
    if lacks:
        hint = f"GRANT {RECEIVING} ON *.* TO the account of host {host}, as SELECT CURRENT_USER() shows it"
        return _warning("binlog account", f"the account may not receive the binlog: it lacks {RECEIVING}", hint)
    return ok("binlog account", "may receive the binlog")


def of_receiver_id(source: BinlogSource, own: int) -> Finding:
    """A server sends nothing to a receiver that has its own id. The ids of its other replicas are not known here."""
    if source.origin.server_id == own:
        return _warning("binlog server id", f"{own} is the server's own id", "choose another one: binlog.server_id")
    return ok("binlog server id", f"{own} is not the server's")


def of_log(source: BinlogSource) -> Iterator[Finding]:
    """The log: there, such that it has the same result again, and kept for as long as an outage lasts."""
    if source.end is None:
        yield _warning("binlog archive", "the server's binlog is off", "set log_bin, and restart the server")
        return
    if source.left_out:
        told = f"{source.left_out}; it is not archived"
        yield _warning("binlog archive", told, "change that on the server, or archive its source instead")
    else:
        yield ok("binlog archive", f"the log ends at {source.end.file}:{source.end.offset}")
    if source.may_replay_otherwise:
        told = "binlog_format is STATEMENT: some statements give a different result when applied again"
        yield _warning("binlog format", told, "set binlog_format = ROW")
    else:
        yield ok("binlog format", source.format)
    kept = source.expire_seconds
    if kept is not None and kept < _SHORTEST_EXPIRY_SECONDS:
        told = f"binlogs are kept for {format_duration(kept)}: an outage that is longer leaves a gap in the archive"
        yield _warning("binlog expiry", told, "set binlog_expire_logs_seconds to a day at least, better a few")
    elif source.most_bytes:
        told = f"binlogs are removed beyond {size_words(source.most_bytes)}, however young they are"
        yield _warning(
            "binlog expiry", told, "set max_binlog_total_size to more than the server logs in a day, or to 0"
        )
    else:
        yield ok("binlog expiry", "kept indefinitely" if kept is None else f"kept for {format_duration(kept)}")


def _asked(login: Login) -> tuple[BinlogSource, bool]:
    with connector(login)() as session:
        return binlog_source(session), lacks_receiving(session)


def _warning(name: str, detail: str, hint: str) -> Finding:
    return Finding(name, Level.WARNING, detail, hint)
