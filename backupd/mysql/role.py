"""What a server is within its replication cluster, asked for in few and cheap statements.

Knows: which columns and variables tell it on MariaDB and on MySQL. Of several channels the largest lag counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backupd.mysql.facts import flavour_of
from backupd.mysql.positions import lag_seconds, replica_status
from backupd.mysql.replication import membership
from backupd.mysql.session import Row, Session
from backupd.vocabulary.fleet import Role
from backupd.vocabulary.servers import Flavour


@dataclass(frozen=True, slots=True)
class ServerRole:
    """A server, as others in its cluster see it."""

    role: Role
    flavour: Flavour
    server: str  # MySQL's `server_uuid`, MariaDB's server id
    follows: str = ""  # HOST:PORT of each source
    lag_seconds: float | None = None


def role_of(session: Session) -> ServerRole:
    """What this server is now. A secondary of a group follows the group, and lists no channel for that.

    Raises:
        ServerError: it cannot be asked: a privilege is missing, or the session is over.
    """
    flavour = flavour_of(session)
    name = "server_id" if flavour is Flavour.MARIADB else "server_uuid"
    server = session.value(f"SELECT @@global.{name}") or ""
    channels = replica_status(session)
    if channels:
        return ServerRole(Role.REPLICA, flavour, server, _sources(channels), lag_seconds(channels))
    member = membership(session, session.variables())
    role = Role.SOURCE if member is None or member.primary else Role.REPLICA
    return ServerRole(role, flavour, server)


def _sources(channels: Sequence[Row]) -> str:
    """Seen on MariaDB 10.11.19 and 11.8.6: `Master_Host`; on MySQL 9.7.4: `Source_Host`."""
    found = [
        f"{row.get('Source_Host') or row.get('Master_Host')}:{row.get('Source_Port') or row.get('Master_Port')}"
        for row in channels
    ]
    return ", ".join(sorted(set(found)))
