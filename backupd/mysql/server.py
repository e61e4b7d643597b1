"""The contract's `Server` on a real one: each question in a session of its own.

Knows: which module answers which question. Refuses to lock or to write.
"""

from collections.abc import Mapping

from backupd.mysql import activity, engines, grants, layout, replication
from backupd.mysql.facts import flavour_of, server_facts
from backupd.mysql.positions import lag_seconds, replica_status
from backupd.mysql.session import Connect
from backupd.vocabulary.servers import Blocker, DataPath, Membership, Replication, ServerFacts

_PROMPT_SECONDS = 2.0  # for an answer that whoever watches a snapshot waits for: it may stand behind a STOP REPLICA


class MysqlServer:
    """What the preflight and the gate ask of a MariaDB or MySQL server."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    def facts(self) -> ServerFacts:
        """What kind of server it is.

        Raises:
            ServerError: it cannot be reached, or does not let us in.
        """
        with self._connect() as session:
            return server_facts(session)

    def data_paths(self, facts: ServerFacts) -> tuple[DataPath, ...]:
        """Every file and folder that a backup must think of, symlinks in the datadir included.

        Raises:
            ServerError: the server cannot be asked, or its datadir cannot be read.
        """
        with self._connect() as session:
            return layout.data_paths(session, facts)

    def tablespaces(self, facts: ServerFacts) -> Mapping[str, int]:
        """The file of every InnoDB table and general tablespace as it is now, with its space id.

        Raises:
            ServerError: the server cannot be asked, or is not that of the datadir here.
        """
        with self._connect() as session:
            return layout.tablespaces(session, facts)

    def unsafe_tables(self, facts: ServerFacts) -> tuple[str, ...]:
        """Tables that no crash recovery makes whole, as `schema/table (ENGINE)`; the server's own schemas included.

        Raises:
            ServerError: its datadir cannot be read.
        """
        return engines.unsafe_tables(facts.datadir)

    def missing_grants(self, strategy: str, *, stop_applier: bool = False, preflush: bool = False) -> tuple[str, ...]:
        """The privileges that this lock strategy needs and the user lacks, as GRANT spells them.

        Raises:
            ServerError: the server failed otherwise than by refusing.
        """
        with self._connect() as session:
            flavour = flavour_of(session)
            return grants.missing(session, flavour, strategy=strategy, stop_applier=stop_applier, preflush=preflush)

    def blockers(self, older_than_seconds: float) -> tuple[Blocker, ...]:
        """Statements of others that a lock would wait behind, longest first.

        Raises:
            ServerError: the server cannot be asked.
        """
        with self._connect() as session:
            return activity.blockers(session, flavour_of(session), older_than_seconds=older_than_seconds)

    def replica_lag_seconds(self) -> float | None:
        """The largest lag over all channels; None when it is no replica or the lag is unknown.

        Raises:
            ServerError: the server cannot be asked, or does not answer within 2 s.
        """
        with self._connect(answer_seconds=_PROMPT_SECONDS) as session:
            return lag_seconds(replica_status(session))

    def replication(self) -> Replication:
        """Every channel and how it is applied; none where it is no replica.

        Raises:
            ServerError: the server cannot be asked.
        """
        with self._connect() as session:
            return replication.replication(session)

    def membership(self) -> Membership | None:
        """How it is in its cluster; None where it is in none.

        Raises:
            ServerError: the server cannot be asked, or does not let us know how it stands.
        """
        with self._connect() as session:
            return replication.membership(session, session.variables())
