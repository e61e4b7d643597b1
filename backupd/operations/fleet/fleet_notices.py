"""What a control host tells people, and its log: backups that there are not, inventories that are wrong, hosts gone.

Knows: that an error is logged whoever is told, and that what stays wrong is told once a night, what has gone once. All
of it is owed here, in the fleet's records, and told by `telling`: nothing here waits for a mail server.
"""

import logging
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final
from urllib.parse import quote

from backupd.fleet.records import Records
from backupd.policy.member_choice import own_clock_fault
from backupd.policy.one_machine import ONE_MACHINE_HINT, CountedAs, alike, taken_for_another
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


def tell_end(records: Records, backup: FleetBackup) -> None:
    """A backup has failed, was missed, or does not end: people are told once that it stands so.

    Raises:
        FleetDatabaseAway: the database does not answer. So it is of all below.
    """
    notice = notice_of(backup)
    if records.notices.owe(notice, f"{backup.owed.id} {backup.state}"):
        log.error("%s: %s", backup.owed.id, notice.text)


def tell_problems(records: Records, night: date, problems: Collection[str]) -> None:
    """These are wrong with what the fleet goes by."""
    for problem in problems:
        log.warning("%s", problem)
        subject = f"{night} {problem}"[:_LONGEST_SUBJECT]
        records.notices.owe(_attention(subject, problem, "`backupd fleet check` says all that is wrong"), subject)


def tell_unplanned(records: Records, night: date, error: Exception) -> None:
    """This night could not be planned, for this reason, which nobody foresaw: told once a night."""
    text = on_one_line(f"the night of {night} could not be planned: {type(error).__name__}: {error}")
    log.error("%s", text, exc_info=error)
    subject = f"{night} unplanned"
    hint = "it is tried again every few minutes; hosts go on alone once their fallback_after is over; see the log"
    records.notices.owe(_attention(subject, text, hint), subject)


def tell_gone(records: Records, hosts: Collection[str]) -> None:
    """Hosts that have answered once and are not in the fleet's configuration any more: nobody plans their backups."""
    once = [one for one in records.seen() if one.host not in hosts and one.answered_at is not None]
    gone = {f"gone {one.host} {one.answered_at}": one.host for one in once}
    if new := records.notices.never_owed(gone):
        names = [gone[one] for one in new]
        text = f"the fleet no longer has {some(names, _SHOWN)}: no backup of theirs is planned"
        log.warning("%s", text)
        hint = "if they still exist, see the inventory and fleet.toml"
        records.notices.owe(_attention(f"gone {names[0]}", text, hint), *new)


def tell_own_clock(records: Records, seen: Iterable[SeenHost]) -> None:
    """The clock of this control host is wrong, by what these hosts have just told: once a day, by that clock."""
    fault = own_clock_fault(seen)
    if fault is None:
        return
    host = socket.gethostname()
    text = f"the clock of control host {host} seems to be {fault}"
    log.error("%s", text)
    subject = f"{datetime.now(UTC).date()} clock of {host}"
    hint = "set it by NTP; `backupd fleet status` tells what was missed meanwhile"
    records.notices.owe(_attention(subject, text, hint), subject)


def tell_one_machine(records: Records, counted: CountedAs) -> Collection[str]:
    """Hosts of different clusters that are one machine, by what they told last: once a day. Those that make no
    backup because of that are returned.
    """
    seen = {one.host: one for one in records.seen()}
    apart = taken_for_another(seen, counted)
    for machine, hosts in alike(seen, counted).items():
        text = f"{some([f'{host} of cluster {counted[host].cluster}' for host in hosts], _SHOWN)} have one identity"
        text, subject = f"{text}, {machine}", f"{datetime.now(UTC).date()} machine {machine} of {' '.join(hosts)}"
        if stopped := [host for host in hosts if host in apart]:
            text += f", and one server: no backup of {some(stopped, _SHOWN)} begins"
            subject = f"{datetime.now(UTC).date()} machine {machine}"
            log.error("%s", text)
        subject = subject[:_LONGEST_SUBJECT]
        if records.notices.owe(_attention(subject, text, ONE_MACHINE_HINT), subject) and not stopped:
            log.warning("%s", text)
    return apart.keys()


def tell_moved(records: Records) -> None:
    """Hosts that are another machine than they were, whoever asked them: an address that leads elsewhere now.

    Each is told once for each machine and day on which it has become that.
    """
    moved = {
        f"{told.machine_since.date()} {one.host} is {told.machine}": f"{one.host} was {told.machine_before} and is"
        f" {told.machine}"
        for one in records.seen()
        if (told := one.described) is not None and told.machine_before and told.machine_since is not None
    }
    if new := records.notices.never_owed(moved):
        text = f"another machine answers than before: {some([moved[one] for one in new], _SHOWN)}"
        log.warning("%s", text)
        hint = "after `backupd identity new` or a new installation that is right; else see the address of that host"
        records.notices.owe(_attention(f"moved {new[0]}", text, hint), *new)


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
