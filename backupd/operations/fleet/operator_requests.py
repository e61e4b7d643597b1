"""What people want of the fleet: what is to be cancelled, what is paused. Read every few seconds, asked for by all."""

from collections.abc import Collection, Mapping

from backupd.fleet.records import Records
from backupd.vocabulary.fleet import OwedBackup, PauseScope


class Wishes:
    """As they were when they were read last: hundreds that wait ask here, and not the database."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._cancelled: Mapping[str, str] = {}
        self._paused: Mapping[tuple[PauseScope, str], str] = {}

    def read(self) -> None:
        """They are as they stand now.

        Raises:
            FleetDatabaseAway: the database does not answer; they are as they were.
        """
        cancelled = self._records.cancels()
        paused = {(pause.scope, pause.name): pause.note for pause in self._records.pauses()}
        self._cancelled, self._paused = cancelled, paused

    def cancelled(self, owed: OwedBackup) -> str | None:
        """Why it is to end; None where nobody wants that."""
        return self._cancelled.get(owed.id)

    def paused(self, owed: OwedBackup) -> str | None:
        """The sentence that says why it may not begin; None where it may."""
        for scope, name, whose in (
            (PauseScope.FLEET, "", "the fleet"),
            (PauseScope.CLUSTER, owed.cluster, f"cluster {owed.cluster}"),
        ):
            if (note := self._paused.get((scope, name))) is not None:
                return _said(whose, note)
        return None

    def keep_from(self, cluster: str, members: Collection[str]) -> bool:
        """Nothing of the cluster may begin, for it, the whole fleet or every member of it is paused."""
        whole = (PauseScope.FLEET, "") in self._paused or (PauseScope.CLUSTER, cluster) in self._paused
        return whole or len(self.paused_hosts(members)) == len(members)

    def paused_hosts(self, hosts: Collection[str]) -> dict[str, str]:
        """Of these, those that are paused, each with the sentence that says so."""
        notes = {host: self._paused.get((PauseScope.HOST, host)) for host in hosts}
        return {host: _said("it", note) for host, note in notes.items() if note is not None}


def _said(whose: str, note: str) -> str:
    return f"{whose} is paused: {note}" if note else f"{whose} is paused"
