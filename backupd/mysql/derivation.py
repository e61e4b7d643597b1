"""Where a server stood whose snapshot was taken without a lock: found by recovering it, because nothing else can tell.

Knows: what a recovered server says of its last binlog. Refuses to start it.

The server decides about transactions that InnoDB had prepared by what its binlog has of them; so what it has recovered
is exactly what the binlog's whole transactions say, and the position is where the last of these ends. MySQL cuts its
binlog off there itself; of MariaDB's the backup has no more than that (`binlogs`).
"""

from dataclasses import dataclass, replace

from backupd.mysql.proof import Recovered, recovered
from backupd.mysql.recorded import judged_position
from backupd.mysql.scratch import RunningServer
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest


@dataclass(frozen=True, slots=True)
class Derived:
    """A position that was found, and the recovered values that it was found in."""

    position: Position
    found: Recovered


def derive(server: RunningServer, manifest: Manifest) -> Derived:
    """Where the recovered server stands; an empty position where its binlog was off.

    Raises:
        ServerError: the server failed meanwhile, or does not have the binlog that the image ended with.
    """
    found = recovered(server.session, manifest.position, server.error_log, facts=manifest.server)
    if manifest.position.binlog_file is None:
        return Derived(Position(), found)
    if found.binlog_size is None:
        raise ServerError(
            f"the recovered server does not list the binlog {manifest.position.binlog_file}",
            hint="the backup has no position; take a new one, with a lock",
        )
    position = replace(manifest.position, binlog_offset=found.binlog_size, gtid=found.gtid or "")
    return Derived(judged_position(position), found)
