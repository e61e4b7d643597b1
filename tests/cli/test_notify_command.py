"""Who is told of what becomes of a run, a drill, a dead run; and that telling changes nothing else."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.record import RunRecord
from backupd.targets import BackupSource
from backupd.vocabulary.errors import CatalogueUnavailable, ExitStatus, SnapshotError
from backupd.vocabulary.records import Check, Drill, RunKind, RunStatus
from backupd.vocabulary.schedule import Activity, Slot, SlotState
from backupd.vocabulary.storage import Backup
from tests.cli.terminal import Terminal
from tests.contract.peers import Manner, WebPeer, web_server
from tests.fakes.target import MemoryTarget
from tests.story.world import World

EVERYTHING = '["started", "succeeded", "failed", "attention", "recovered", "missed", "alarm", "over"]'


@pytest.fixture
def peer() -> Iterator[WebPeer]:
    """Who is told."""
    with web_server(WebPeer()) as peer:
        yield peer


@pytest.fixture
def terminal(
    world: World, peer: WebPeer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    """`backupd` on that host, with somebody who wants to hear of everything."""
    terminal = Terminal(world, monkeypatch, capsys)
    add(terminal, f'[notifications.all]\ntype = "webhook"\nurl = "http://127.0.0.1:{peer.port}/"\non = {EVERYTHING}\n')
    return terminal


def add(terminal: Terminal, table: str) -> None:
    with terminal.configuration.open("a") as file:
        file.write(f"\n{table}")


def told(peer: WebPeer) -> list[dict[str, Any]]:
    """What was sent; of each failure with the answers to what is asked then."""
    documents = [json.loads(body) for _, _, body in peer.requests]
    for document in documents:
        if document["kind"] in ("failed", "missed"):
            assert {"another good copy", "next try", "type now"} <= document["detail"].keys()
    return documents


def kinds(peer: WebPeer) -> list[str]:
    return [document["kind"] for document in told(peer)]


def fail(world: World) -> None:
    def refuse() -> None:
        raise SnapshotError("no room in the group", hint="make some")

    world.at["host.mount"] = refuse


def die(world: World, run_id: str, *, at: str = "target.writing") -> None:
    """A run whose process ends in the middle of its copy, or elsewhere."""
    child = os.fork()
    if child == 0:
        world.at[at] = lambda: os._exit(1)
        world.back_up(run_id)
    os.waitpid(child, 0)


def test_a_good_run_is_told_when_it_begins_and_when_it_ends(terminal: Terminal, peer: WebPeer) -> None:
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.OK
    begun, ended = told(peer)
    assert (begun["kind"], begun["subject"], begun["job"]) == ("started", "r1", "nightly")
    assert (ended["kind"], ended["subject"]) == ("succeeded", "r1")
    assert ended["text"].startswith("job nightly has a good backup, run r1: ")
    assert " on vault, in " in ended["text"]


def test_a_failed_run_is_told_with_why_and_how_things_stand(terminal: Terminal, peer: WebPeer, world: World) -> None:
    fail(world)
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.SNAPSHOT
    failed = told(peer)[-1]
    assert (failed["kind"], failed["subject"]) == ("failed", "r1")
    assert failed["text"] == (
        "the backup of job nightly failed: no room in the group; the run left nothing on the host"
    )
    assert failed["detail"]["hint"] == "make some"
    assert failed["detail"]["exit status"].startswith("7 (")


def test_what_is_left_on_the_host_is_told(terminal: Terminal, peer: WebPeer, world: World) -> None:
    fail(world)
    world.host.fail("remove")
    terminal.run("run", "nightly")
    assert "the run left something on the host: `backupd recover` cleans it up" in told(peer)[-1]["text"]


def test_the_first_good_run_after_a_failed_one_has_recovered(terminal: Terminal, peer: WebPeer, world: World) -> None:
    fail(world)
    terminal.run("run", "nightly", "--run-id", "r1")
    world.at.clear()
    terminal.run("run", "nightly", "--run-id", "r2")
    terminal.run("run", "nightly", "--run-id", "r3")
    assert kinds(peer) == ["started", "failed", "started", "recovered", "started", "succeeded"]
    assert told(peer)[3]["text"].endswith("; before it run r1 had none")


def test_the_first_good_run_after_a_missed_one_has_recovered(terminal: Terminal, peer: WebPeer, world: World) -> None:
    world.back_up("r1")
    due = datetime.now(UTC)
    with world.catalogue() as catalogue:
        catalogue.take_slot(Slot("nightly", Activity.BACKUP, due, SlotState.MISSED, due, reason="the daemon was down"))
    terminal.run("run", "nightly")
    assert kinds(peer) == ["started", "recovered"]
    assert told(peer)[1]["text"].endswith(f"; before it that of {due:%Y-%m-%d %H:%M} UTC was missed")


def test_one_that_was_missed_before_the_last_good_run_is_old_news(
    terminal: Terminal, peer: WebPeer, world: World
) -> None:
    due = datetime.now(UTC) - timedelta(hours=1)
    with world.catalogue() as catalogue:
        catalogue.take_slot(Slot("nightly", Activity.BACKUP, due, SlotState.MISSED, due))
    world.back_up("r1")
    terminal.run("run", "nightly")
    assert kinds(peer) == ["started", "succeeded"]


def test_what_was_missed_in_years_to_come_by_a_clock_that_was_ahead_is_no_news(
    terminal: Terminal, peer: WebPeer, world: World
) -> None:
    due = datetime.now(UTC) + timedelta(days=3650)
    world.back_up("r1")
    with world.catalogue() as catalogue:
        catalogue.take_slot(Slot("nightly", Activity.BACKUP, due, SlotState.MISSED, due))
    terminal.run("run", "nightly")
    assert kinds(peer) == ["started", "succeeded"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, ExitStatus.CANCELLED), (signal.SIGTERM, ExitStatus.TERMINATED)]
)
def test_a_run_of_a_persons_that_was_cancelled_wakes_nobody_and_changes_nothing(
    terminal: Terminal, peer: WebPeer, world: World, number: signal.Signals, status: ExitStatus
) -> None:
    world.at["host.mount"] = lambda: os.kill(os.getpid(), number)
    assert terminal.run("run", "nightly").status == status
    world.at.clear()
    terminal.run("run", "nightly")
    assert kinds(peer) == ["started", "started", "succeeded"]


def test_a_busy_job_wakes_nobody(terminal: Terminal, peer: WebPeer, world: World) -> None:
    with world.tools.claims.job("nightly", "other"):
        assert terminal.run("run", "nightly").status == ExitStatus.BUSY
    assert told(peer) == []


def test_a_backup_that_wants_attention_says_why(terminal: Terminal, peer: WebPeer, world: World) -> None:
    world.host.fail("remove")
    assert terminal.run("run", "nightly").status == ExitStatus.ATTENTION
    assert kinds(peer) == ["started", "attention"]
    assert "but it needs attention: clean-up incomplete" in told(peer)[1]["text"]


def test_a_catalogue_that_cannot_be_used_for_a_run_is_told(terminal: Terminal, peer: WebPeer, world: World) -> None:
    world.places.catalogue.parent.mkdir(exist_ok=True)
    world.places.catalogue.write_text("no database")
    assert terminal.run("run", "nightly").status == ExitStatus.CATALOGUE
    assert kinds(peer) == ["failed"]


@pytest.mark.parametrize("command", [["recover"], ["run", "nightly"]])
def test_a_dead_run_is_told_of_once(terminal: Terminal, peer: WebPeer, world: World, command: list[str]) -> None:
    die(world, "r1")
    terminal.run(*command)
    terminal.run(*command)
    terminal.run("recover")
    of_the_dead = [document for document in told(peer) if document["subject"] == "r1"]
    assert [document["kind"] for document in of_the_dead] == ["failed"]
    assert "process died without reporting an error" in of_the_dead[0]["text"]
    assert of_the_dead[0]["text"].startswith("run r1 of job nightly, started ")


def test_a_dead_run_whose_copy_is_a_backup_is_told_of_once(terminal: Terminal, peer: WebPeer, world: World) -> None:
    die(world, "r1", at="target.reading")
    assert "it is now a complete backup" in terminal.run("recover").stdout
    terminal.run("recover")
    (of_the_dead,) = [document for document in told(peer) if document["subject"] == "r1"]
    assert of_the_dead["kind"] == "attention"
    assert "its process died; `backupd recover` finished it on vault" in of_the_dead["text"]


def test_a_run_that_could_not_record_its_backup_is_told_of_twice(
    terminal: Terminal, peer: WebPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it has failed, and that there is a backup after all."""

    def full(*_what: object, **_how: object) -> None:
        raise CatalogueUnavailable("the catalogue cannot be written: no space left", hint="free some space")

    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "published", full)
        ended = terminal.run("run", "nightly", "--run-id", "r1")
    assert ended.status == ExitStatus.CATALOGUE
    assert "the copy on vault could not be recorded: the catalogue cannot be written: no space left" in ended.stderr
    assert "then `backupd recover`: the copy on vault stays" in ended.stderr
    assert "it is now a complete backup" in terminal.run("recover").stdout
    terminal.run("recover")
    failed, good = [document for document in told(peer) if document["kind"] != "started"]
    assert (failed["kind"], failed["subject"], good["kind"], good["subject"]) == ("failed", "r1", "attention", "r1")
    assert "its run could not write to the catalogue; `backupd recover` finished it on vault" in good["text"]


@pytest.mark.parametrize("kind", [RunKind.BENCH, RunKind.PROBE])
def test_nobody_is_woken_for_what_is_no_job_s(terminal: Terminal, peer: WebPeer, world: World, kind: RunKind) -> None:
    child = os.fork()
    if child == 0:
        with world.catalogue() as catalogue, catalogue.open_run("", "", run_id="b1", kind=kind):
            os._exit(0)
    os.waitpid(child, 0)
    assert terminal.run("recover").stdout.startswith("run b1: dead, cleaned up\n")
    assert told(peer) == []


def test_a_good_run_after_a_dead_one_has_recovered(terminal: Terminal, peer: WebPeer, world: World) -> None:
    die(world, "r1")
    terminal.run("run", "nightly")
    assert kinds(peer) == ["started", "failed", "recovered"]


def test_telling_that_fails_changes_neither_status_nor_result(terminal: Terminal, peer: WebPeer, world: World) -> None:
    peer.manner = Manner.HANGING_UP
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--json")
    assert ended.status == ExitStatus.OK
    assert ended.document["status"] == "success"
    assert ended.stderr.count("WARNING [r1] notification all was not delivered") == 2
    assert world.row().status is RunStatus.SUCCESS
    assert world.row().attention == ()


def test_a_drill_that_fails_is_told(terminal: Terminal, peer: WebPeer, world: World) -> None:
    with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.complete((Backup("vault", "/vault", bytes_read=1, bytes_stored=1, files=1, sha256=""),))
    assert terminal.run("drill", "r1").status != ExitStatus.OK
    (failed,) = told(peer)
    assert (failed["kind"], failed["subject"]) == ("failed", "drill r1")
    assert failed["text"].startswith("the drill of job nightly failed: ")
    assert failed["detail"]["another good copy"] == "NO: no other good backup of this job is left"
    assert "backupd run nightly" in failed["detail"]["type now"]


def test_a_scheduled_check_tells_what_would_be_refused_and_one_by_hand_does_not(
    terminal: Terminal, peer: WebPeer, world: World
) -> None:
    world.database.missing = ("RELOAD",)
    assert terminal.run("check", "nightly").status == ExitStatus.REFUSED
    assert told(peer) == []
    assert terminal.run("check", "nightly", "--notify").status == ExitStatus.REFUSED
    (found,) = told(peer)
    assert (found["kind"], found["job"]) == ("failed", "nightly")
    assert found["text"].startswith(
        "the next backup of job nightly would be refused: grants: missing for ftwrl: RELOAD"
    )
    assert found["detail"]["hint for grants"].startswith("GRANT ")
    assert found["detail"]["more"] == "backupd check nightly"
    world.database.missing = ()
    assert terminal.run("check", "nightly", "--notify").status == ExitStatus.OK
    assert len(told(peer)) == 1


def test_a_scheduled_check_tells_what_the_next_backup_would_need_attention_for(
    terminal: Terminal, peer: WebPeer
) -> None:
    add(terminal, '[jobs.nightly.snapshot]\npvs = ["/dev/sdz"]\n')
    assert terminal.run("check", "nightly").status == ExitStatus.ATTENTION
    assert told(peer) == []
    assert terminal.run("check", "nightly", "--notify").status == ExitStatus.ATTENTION
    (found,) = told(peer)
    assert (found["kind"], found["job"]) == ("attention", "nightly")
    assert found["text"] == (
        "the next backup of job nightly would need attention: COW area: on any PV, not as snapshot.pvs says:"
        " /dev/sdz is not a PV of labvg"
    )
    assert found["detail"]["hint for COW area"].startswith("backupd probe nightly --tune --write ")
    assert found["detail"]["more"] == "backupd check nightly"


# --- backupd notify test ----------------------------------------------------------------------------------------------


def test_a_test_tells_each_and_says_what_became_of_it(terminal: Terminal, peer: WebPeer) -> None:
    add(
        terminal,
        f'[notifications.pings]\ntype = "ping"\nurl = "http://127.0.0.1:{peer.port}/ping"\njobs = ["nightly"]\n',
    )
    ended = terminal.run("notify", "test")
    assert ended.status == ExitStatus.OK
    assert [line.partition(" in ")[0] for line in ended.stdout.splitlines()] == ["all: delivered", "pings: delivered"]
    assert all(b"this is a test" in body for _, _, body in peer.requests)
    assert all(len(body) > 8_000 for _, _, body in peer.requests)  # as a failure with the end of its log


def test_a_test_is_no_good_backup_for_a_watcher(terminal: Terminal, peer: WebPeer) -> None:
    add(terminal, f'[notifications.pings]\ntype = "ping"\nurl = "http://127.0.0.1:{peer.port}/ping"\n')
    assert terminal.run("notify", "test").status == ExitStatus.OK
    assert sorted(path for path, _, _ in peer.requests) == ["/", "/ping/log"]
    (document,) = (json.loads(body) for path, _, body in peer.requests if path == "/")
    assert document["backed_up"] is False
    peer.requests.clear()
    assert terminal.run("run", "nightly").status == ExitStatus.OK
    assert [json.loads(body)["backed_up"] for path, _, body in peer.requests if path == "/"] == [False, True]


def test_a_test_names_who_was_not_reached(terminal: Terminal, peer: WebPeer) -> None:
    peer.status = 404
    ended = terminal.run("notify", "test", "all")
    assert ended.status == ExitStatus.USAGE
    assert f"http://127.0.0.1:{peer.port} answered 404 Not Found; hint: " in ended.stdout
    assert "error: not delivered: all" in ended.stderr
    ended = terminal.run("notify", "test", "--json")
    assert ended.status == ExitStatus.USAGE
    (channel,) = ended.document["notifications"]
    assert (channel["name"], channel["delivered"]) == ("all", False)
    assert channel["error"]["code"] == "notification-error"


def test_a_test_of_nobody_says_who_there_is(terminal: Terminal) -> None:
    ended = terminal.run("notify", "test", "somebody")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert ended.stderr == "error: no notification 'somebody'\nhint: configured notifications: all\n"


# --- backupd notify digest --------------------------------------------------------------------------------------------


def test_the_digest_is_shown_as_a_mail_and_sent_to_nobody(terminal: Terminal, peer: WebPeer, world: World) -> None:
    world.back_up("r1")
    shown = terminal.run("notify", "digest")
    assert shown.status == ExitStatus.OK
    subject, _, text = shown.stdout.partition("\n\n")
    assert subject.startswith("Subject: backupd on ")
    assert ": digest: all is well with 1 job and " in subject
    assert "newest good copies:\n    JOB      TARGET  NEWEST GOOD COPY" in text
    document = terminal.run("notify", "digest", "--json").document
    assert (document["kind"], document["job"]) == ("digest", "")
    assert told(peer) == []


def test_the_digest_is_sent_at_once_to_those_who_want_it(terminal: Terminal, peer: WebPeer) -> None:
    refused = terminal.run("notify", "digest", "--send")
    assert refused.status == ExitStatus.USAGE
    assert "no notification wants the digest" in refused.stderr
    add(terminal, f'[notifications.week]\ntype = "webhook"\nurl = "http://127.0.0.1:{peer.port}/"\non = ["digest"]\n')
    sent = terminal.run("notify", "digest", "--send")
    assert sent.status == ExitStatus.OK
    assert sent.stdout.startswith("week: delivered in ")
    (document,) = told(peer)
    assert (document["kind"], document["text"]) == ("digest", "1 of 1 job needs attention")
    assert "there is no good backup" in document["detail"]["alarms"]


def test_a_digest_that_nobody_takes_is_an_error(terminal: Terminal, peer: WebPeer) -> None:
    add(terminal, f'[notifications.week]\ntype = "webhook"\nurl = "http://127.0.0.1:{peer.port}/"\non = ["digest"]\n')
    peer.manner = Manner.HANGING_UP
    failed = terminal.run("notify", "digest", "--send")
    assert failed.status == ExitStatus.USAGE
    assert "not delivered: week" in failed.stderr


def test_what_a_check_finds_is_no_good_backup_for_a_watcher(terminal: Terminal, peer: WebPeer) -> None:
    add(terminal, f'[notifications.pings]\ntype = "ping"\nurl = "http://127.0.0.1:{peer.port}/ping"\n')
    add(terminal, '[jobs.nightly.snapshot]\npvs = ["/dev/sdz"]\n')
    assert terminal.run("check", "nightly", "--notify").status == ExitStatus.ATTENTION
    assert sorted(path for path, _, _ in peer.requests) == ["/", "/ping/log"]
    peer.requests.clear()
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.ATTENTION
    assert [path for path, _, _ in peer.requests if path != "/"] == ["/ping/start", "/ping"]


def test_a_scheduled_check_tells_of_one_of_several_targets_that_takes_no_copy(
    terminal: Terminal, peer: WebPeer, world: World
) -> None:
    world.others = [MemoryTarget(name="offsite", fail_at_call=1)]
    assert terminal.run("check", "nightly", "--notify").status == ExitStatus.ATTENTION
    (found,) = told(peer)
    assert (found["kind"], found["job"]) == ("attention", "nightly")
    assert "target offsite failed at call 1; the run would continue without it" in found["text"]


def drill_well(terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a backup whose folder is gone, so that no proof can be left there."""
    with world.catalogue() as catalogue, catalogue.open_run("nightly", "db1", run_id="r1") as run:
        run.complete((Backup("vault", "/vault", bytes_read=1, bytes_stored=1, files=1, sha256=""),))
    good = Drill("r1", True, (Check("tables", True, "3", "3"),), seconds=1, at=datetime.now(UTC))

    def drilled(sources: Sequence[BackupSource], *_told: object, **_options: object) -> Drill:
        for source in sources:
            source.was_read.set()
        return good

    monkeypatch.setattr("backupd.operations.restore.drill.drill", drilled)
    assert terminal.run("drill", "r1").status == ExitStatus.OK


def test_a_drill_that_takes_longer_than_restore_within_is_told(
    terminal: Terminal, peer: WebPeer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = terminal.configuration.read_text()
    terminal.configuration.write_text(text.replace('host = "db1"', 'host = "db1"\nrestore_within = "500ms"'))
    drill_well(terminal, world, monkeypatch)
    *_, found = told(peer)
    assert (found["kind"], found["subject"]) == ("attention", "drill r1")
    assert "longer than restore_within: 1.0 s instead of 500 ms" in found["text"]


# --- what becomes known of a good backup after its run --------------------------------------------------------------


def test_what_a_verification_finds_beside_a_backup_is_told_once(
    terminal: Terminal, peer: WebPeer, world: World
) -> None:
    world.back_up("r1")
    (Path(world.target.location("nightly", "r1")) / "Thumbs.db").write_text("a thumb")
    for _ in range(2):
        assert terminal.run("verify", "--job", "nightly").status == ExitStatus.OK
    (found,) = told(peer)
    assert (found["kind"], found["job"], found["subject"]) == ("attention", "nightly", "verification r1")
    assert "Thumbs.db" in found["text"]
    assert found["backed_up"] is False
    with world.catalogue() as catalogue:
        (text,) = catalogue.run("r1").attention
    assert text in found["text"]


def test_a_proof_that_could_not_be_left_is_told(
    terminal: Terminal, peer: WebPeer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drill_well(terminal, world, monkeypatch)
    (found,) = told(peer)
    assert (found["kind"], found["subject"], found["backed_up"]) == ("attention", "drill r1", False)
    assert "the result of the drill could not be stored on target vault" in found["text"]
