"""What a control host tells people, and its log: backups that there are not, inventories that are wrong, hosts gone.

Knows: that an error is logged whoever is told, and that what stays wrong is told once a night, what has gone once.
"""

import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final
from urllib.parse import quote

from backupd.fleet.records import Records
from backupd.policy.member_choice import own_clock_fault
from backupd.policy.one_machine import ONE_MACHINE_HINT, CountedAs, hosts_by_machine, taken_for_another
from backupd.vocabulary.escaping import on_one_line, some
from backupd.vocabulary.fleet import FleetBackup, FleetState, SeenHost
from backupd.vocabulary.schedule import Notice, NoticeKind

log = logging.getLogger(__name__)

Tell = Callable[[Notice], None]

_SHOWN: Final = 20  # hosts
_LONGEST_SUBJECT: Final = 500  # characters
_TOLD: Final = {
    FleetState.MISSED: (NoticeKind.MISSED, "was missed"),
    FleetState.RUNNING: (NoticeKind.ATTENTION, "is taking far too long"),
}


def with_page(tell: Tell, pages: str | None) -> Tell:
    """The same, with the address at which people see what they are told of; as it is where nobody has said which."""
    if pages is None:
        return tell

    def told(notice: Notice) -> None:
        backup = notice.detail.get("backup")
        page = pages if backup is None else f"{pages}/backups/{quote(backup, safe='')}"
        tell(replace(notice, detail={**notice.detail, "page": page}))

    return told


def tell_end(backup: FleetBackup, tell: Tell) -> None:
    """A backup has failed, was missed, or does not end."""
    notice = notice_of(backup)
    log.error("%s: %s", backup.owed.id, notice.text)
    tell(notice)


def tell_problems(records: Records, night: date, problems: Collection[str], tell: Tell) -> None:
    """These are wrong with what the fleet goes by.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    for problem in problems:
        log.warning("%s", problem)
        subject = f"{night} {problem}"[:_LONGEST_SUBJECT]
        if records.first_told(subject):
            tell(_attention(subject, problem, "`backupd fleet check` says all that is wrong"))


def tell_unplanned(records: Records, night: date, error: Exception, tell: Tell) -> None:
    """This night could not be planned, for this reason, which nobody foresaw: told once a night.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    text = on_one_line(f"the night of {night} could not be planned: {type(error).__name__}: {error}")
    log.error("%s", text, exc_info=error)
    if records.first_told(f"{night} unplanned"):
        hint = "it is tried again every few minutes; hosts go on alone once their fallback_after is over; see the log"
        tell(_attention(f"{night} unplanned", text, hint))


def tell_gone(records: Records, hosts: Collection[str], tell: Tell) -> None:
    """Hosts that have answered once and are not in the fleet's configuration any more: nobody plans their backups.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    once = [one for one in records.seen() if one.host not in hosts and one.answered_at is not None]
    gone = [one.host for one in once if records.first_told(f"gone {one.host} {one.answered_at}")]
    if gone:
        text = f"the fleet no longer has {some(gone, _SHOWN)}: no backup of theirs is planned"
        log.warning("%s", text)
        tell(_attention(f"gone {gone[0]}", text, "if they still exist, see the inventory and fleet.toml"))


def tell_own_clock(records: Records, seen: Iterable[SeenHost], tell: Tell) -> None:
    """The clock of this control host is wrong, by what these hosts have just told: once a day, by that clock.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    fault = own_clock_fault(seen)
    if fault is None:
        return
    host = socket.gethostname()
    text = f"the clock of control host {host} seems to be {fault}"
    log.error("%s", text)
    subject = f"{datetime.now(UTC).date()} clock of {host}"
    if records.first_told(subject):
        tell(_attention(subject, text, "set it by NTP; `backupd fleet status` tells what was missed meanwhile"))


def tell_one_machine(records: Records, counted: CountedAs, tell: Tell) -> Collection[str]:
    """Hosts of different clusters that are one machine, by what they told last: once a day. Returned are all of them.

    Raises:
        FleetDatabaseAway: the database does not answer.
    """
    seen = records.seen()
    apart = taken_for_another({one.host: one for one in seen}, counted)
    for machine, hosts in hosts_by_machine(one for one in seen if one.host in apart).items():
        of_clusters = some([f"{host} of cluster {counted[host][0]}" for host in hosts], _SHOWN)
        text = f"{of_clusters} are one machine, {machine}, and none of their backups begins"
        log.error("%s", text)
        subject = f"{datetime.now(UTC).date()} machine {machine}"
        if records.first_told(subject):
            tell(_attention(subject, text, ONE_MACHINE_HINT))
    return apart.keys()


def tell_moved(machines: Mapping[str, tuple[str, str]], tell: Tell) -> None:
    """Hosts that are another machine than they were, of which both are named: an address that leads elsewhere now."""
    if not machines:
        return
    moved = [f"{host} was {before} and is {now}" for host, (before, now) in sorted(machines.items())]
    text = f"another machine answers than before: {some(moved, _SHOWN)}"
    log.warning("%s", text)
    hint = "after `backupd identity new` or a new installation that is right; else see the address of that host"
    tell(_attention(f"moved {min(machines)}", text, hint))


def _attention(subject: str, text: str, hint: str) -> Notice:
    return Notice(NoticeKind.ATTENTION, "", datetime.now(UTC), subject, text, {"hint": hint}, cluster="")


def notice_of(backup: FleetBackup) -> Notice:
    """What people are told of a backup that there is not, or that takes far too long."""
    kind, what = _TOLD.get(backup.state, (NoticeKind.FAILED, "failed"))
    owed = backup.owed
    hint = f"backupd fleet run {owed.cluster} makes it now; `backupd fleet check` asks its hosts"
    if backup.state is FleetState.RUNNING:
        hint = f"see `backupd status` on that host; backupd fleet cancel {owed.id} ends it"
    detail = {"backup": owed.id, "tried on": ", ".join(dict.fromkeys(one.host for one in backup.tries)) or "no host"}
    return Notice(
        kind,
        owed.job,
        datetime.now(UTC),
        owed.id,
        f"the backup of cluster {owed.cluster} {what}: {backup.said}",
        {**detail, "hint": hint},
        cluster=owed.cluster,
    )
