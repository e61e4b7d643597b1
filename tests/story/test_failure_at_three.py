"""A failure at three in the morning: what the mail says that wakes somebody, the next try, and the all-clear."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import Message

import pytest

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import BackupdError, ExitStatus, LockNotGranted, SnapshotError
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from tests.cli.terminal import Terminal
from tests.contract.peers import MailPeer, mail_server, page_of, words_of
from tests.docs.places import typed
from tests.story.world import World

_SETTINGS = """
[jobs.nightly.schedules.backup]
cron = "0 {hour} * * *"
retries = 1
start_within = "12h"
[service]
zone = "UTC"
public_url = "https://db1.example.com:9476/"
[notifications.dba]
type = "mail"
on = ["failed", "retrying", "recovered"]
address = "127.0.0.1"
port = {port}
security = "none"
sender = "backupd@example.com"
recipients = ["dba@example.com"]
"""


# Half a day off, at whatever hour this is run: a slot that is due before a retry would take its place.
_NEXT_SLOT = (datetime.now(UTC) + timedelta(hours=12)).replace(minute=0)


def settings(port: int) -> str:
    """Of a job that is due once a day."""
    return _SETTINGS.format(port=port, hour=_NEXT_SLOT.hour)


@pytest.fixture
def peer() -> Iterator[MailPeer]:
    """The mail server of whoever is woken."""
    with mail_server(MailPeer()) as peer:
        yield peer


@pytest.fixture
def terminal(
    world: World, peer: MailPeer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """`backupd` on that host, as its schedule starts it."""
    terminal = Terminal(world, monkeypatch, capsys)
    with terminal.configuration.open("a") as file:
        file.write(settings(peer.port))
    return terminal


def fail(world: World, error: BackupdError) -> None:
    def refuse() -> None:
        raise error

    world.at["host.mount"] = refuse


def lines_after(question: str, mail: Message) -> list[str]:
    """The answer that is indented below it."""
    _, _, rest = words_of(mail).partition(f"\n{question}:\n")
    answer = []
    for line in rest.splitlines():
        if not line.startswith("    "):
            break
        answer.append(line.removeprefix("    "))
    return answer


def started(catalogue: Catalogue, run_id: str) -> Slot:
    """What the daemon writes down before it starts the run that was due a minute ago."""
    now = datetime.now(UTC)
    slot = Slot("nightly", Activity.BACKUP, now - timedelta(minutes=1), SlotState.STARTED, now, run_id)
    assert catalogue.take_slot(slot)
    return slot


def tried_again(catalogue: Catalogue, run_id: str) -> None:
    """The same, for the next try of the slot whose run has failed."""
    (slot,) = catalogue.slots(state=SlotState.RETRYING)
    again = replace(slot, state=SlotState.STARTED, run_id=run_id, tried=(slot.run_id,), ended_at=None, retry_at=None)
    assert catalogue.take_retry(slot, again)


@pytest.mark.thorough
def test_a_failure_at_three(terminal: Terminal, peer: MailPeer, world: World) -> None:
    assert terminal.run("run", "nightly", "--run-id", "good").status == ExitStatus.OK

    with world.catalogue() as catalogue:
        slot = started(catalogue, "r1")
    fail(world, LockNotGranted("the lock was not granted in 10 tries\na statement of root", hint="wait"))
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.SERVER
    (mail,) = peer.mails
    said = words_of(mail)
    assert mail["Subject"].endswith(": nightly failed and will be tried again")
    assert said.startswith("the backup of job nightly failed: the lock was not granted in 10 tries; a statement")
    assert "\nhint: wait\n" in said
    assert re.search(r"^another good copy: yes, \d+ s old: run good on vault \(read back \d+ s ago\)$", said, re.M)
    with world.catalogue() as catalogue:
        (waiting,) = catalogue.slots(state=SlotState.STARTED)
    assert waiting.retry_at is not None
    assert f"\nnext try: {waiting.retry_at:%Y-%m-%d %H:%M} UTC (try 2 of 2)\n" in said
    assert [line.partition("  #")[0] for line in lines_after("type now", mail)] == [
        "backupd log r1",
        "backupd check nightly",
    ]
    assert "\npage: https://db1.example.com:9476/runs/r1\n" in said
    told_lines = re.search(r"^(the last (\d+) lines of its log):$", said, re.M)
    assert told_lines is not None
    shown = lines_after(told_lines[1], mail)
    log = terminal.run("log", "r1").stdout.splitlines()
    assert len(shown) == int(told_lines[2]) <= 20
    assert shown == log[: len(shown)][-20:]  # what comes after it is the error itself

    with world.catalogue() as catalogue:
        catalogue.slot_ended(slot, exit_status=ExitStatus.SERVER)
        tried_again(catalogue, "r2")
    fail(world, SnapshotError("no room in the group"))
    assert terminal.run("run", "nightly", "--run-id", "r2").status == ExitStatus.SNAPSHOT
    failed = peer.mails[1]
    assert failed["Subject"].endswith(": nightly failed")
    assert f"\nnext try: the backup of {_NEXT_SLOT:%Y-%m-%d %H:%M} UTC\n" in words_of(failed)
    assert lines_after("type now", failed)[-1] == "backupd run nightly  # once the cause is gone: take the backup now"

    world.at.clear()
    assert terminal.run("run", "nightly", "--run-id", "r3").status == ExitStatus.OK
    assert len(peer.mails) == 3
    assert peer.mails[2]["Subject"].endswith(": nightly is good again")
    assert words_of(peer.mails[2]).partition("\n")[0].endswith("; before it run r2 had none")


def test_what_the_runbook_says_to_type_then(terminal: Terminal, peer: MailPeer, world: World) -> None:
    show, log, check, run, status, _ = typed("restore.md", "A failure at three")
    free, world.host.free_by_pv = world.host.free_by_pv, dict.fromkeys(world.host.free_by_pv, 0)
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.REFUSED
    (mail,) = peer.mails
    assert "another good copy: NO" in words_of(mail)
    assert "<h2>type now</h2>" in page_of(mail)
    assert "snapshot room: not enough free extents on labvg: need 30, have 0" in terminal.run(*show).stdout
    assert "need 30, have 0" in terminal.run(*log).stdout
    refused = terminal.run(*check)
    assert (refused.status, "refused  snapshot room" in refused.stdout) == (ExitStatus.REFUSED, True)
    world.host.free_by_pv = free
    assert terminal.run(*check).status == ExitStatus.OK
    assert terminal.run(*run).status == ExitStatus.OK
    assert terminal.run(*status).stdout.startswith("nightly: OK\n")
    assert peer.mails[-1]["Subject"].endswith(": nightly is good again")


def test_the_first_failure_of_all_says_that_there_is_no_copy(terminal: Terminal, peer: MailPeer, world: World) -> None:
    fail(world, SnapshotError("no room in the group"))
    world.host.fail("remove")
    terminal.run("run", "nightly", "--run-id", "r1")
    (mail,) = peer.mails
    assert "\nanother good copy: NO: no good backup of this job is left\n" in words_of(mail)
    assert lines_after("type now", mail)[0].startswith("backupd recover  # ")


def test_a_copy_that_is_broken_or_removed_is_no_other_good_copy(
    terminal: Terminal, peer: MailPeer, world: World
) -> None:
    for run_id in ("removed", "broken"):
        terminal.run("run", "nightly", "--run-id", run_id)
    with world.catalogue() as catalogue:
        catalogue.removed("removed", "vault", because="retention")
        catalogue.found_broken("broken", "vault", "sha256 differs")
    fail(world, SnapshotError("no room in the group"))
    terminal.run("run", "nightly", "--run-id", "r1")
    assert "\nanother good copy: NO: no good backup of this job is left\n" in words_of(peer.mails[-1])


def test_what_a_catalogue_that_cannot_be_used_would_tell_is_unknown(
    terminal: Terminal, peer: MailPeer, world: World
) -> None:
    world.places.catalogue.parent.mkdir(exist_ok=True)
    world.places.catalogue.write_text("no database")
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.CATALOGUE
    (mail,) = peer.mails
    assert "\nanother good copy: unknown: the catalogue cannot be used\n" in words_of(mail)
    assert lines_after("type now", mail)[0].startswith("backupd log r1  # ")


def test_words_of_a_server_move_no_cursor_and_begin_no_line_of_ours(
    terminal: Terminal, peer: MailPeer, world: World
) -> None:
    fail(world, SnapshotError("lvcreate said \x1b[2J\nnext try: never\r\nBcc: eve@example.com"))
    terminal.run("run", "nightly", "--run-id", "r1")
    (mail,) = peer.mails
    assert mail["Bcc"] is None
    assert "\x1b" not in words_of(mail)
    assert "\\x1b[2J" in words_of(mail)
    assert words_of(mail).count("\nnext try: ") == 1


def test_a_paused_job_is_said_to_be(terminal: Terminal, peer: MailPeer, world: World) -> None:
    with world.catalogue() as catalogue:
        catalogue.pause("nightly", "new disks")
    fail(world, SnapshotError("no room in the group"))
    terminal.run("run", "nightly", "--run-id", "r1")
    assert "\nnext try: none: the job is paused; backupd schedule resume nightly\n" in words_of(peer.mails[0])


@pytest.mark.parametrize("url", ["db1.example.com", "https://db1.example.com/?token=x", "https://u:p@db1.example.com"])
def test_an_address_of_pages_that_is_none_is_refused(terminal: Terminal, url: str) -> None:
    written = terminal.configuration.read_text()
    terminal.configuration.write_text(written.replace("https://db1.example.com:9476/", url))
    ended = terminal.run("status")
    assert ended.status == ExitStatus.USAGE
    assert "service.public_url" in ended.stderr
    assert 'such as "https://db1.example.com:9476"' in ended.stderr
    assert "token" not in ended.stderr
    assert "u:p" not in ended.stderr


def test_a_backup_that_found_another_at_work_to_the_last_is_told_as_every_other(
    terminal: Terminal, peer: MailPeer, world: World
) -> None:
    with world.catalogue() as catalogue:
        slot = started(catalogue, "r1")
    fail(world, LockNotGranted("the lock was not granted in 10 tries", hint="wait"))
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.SERVER
    with world.catalogue() as catalogue:
        catalogue.slot_ended(slot, exit_status=ExitStatus.SERVER)
        tried_again(catalogue, "r2")
    with world.tools.claims.job("nightly", "by-hand"):
        assert terminal.run("run", "nightly", "--run-id", "r2").status == ExitStatus.BUSY
        assert terminal.run("run", "nightly", "--run-id", "r3").status == ExitStatus.BUSY  # a person's: no mail
    _, mail = peer.mails
    said = words_of(mail)
    assert "; the first try failed: the lock was not granted in 10 tries; it is not tried again: " in said
    assert re.search(r"^exit status: 4 \(busy: ", said, re.M)
    assert lines_after("type now", mail)[-1].startswith("backupd run nightly")
