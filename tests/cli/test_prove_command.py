"""`backupd prove`: which copies it drills, what it says of each, and what a host that lacks something ends with."""

import errno
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backupd.host.claims import Claims
from backupd.operations.restore.proofs import last_tried, leave_proof_of_host
from backupd.policy.trust import Trust
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ServerError, TargetAway, TargetError
from backupd.vocabulary.records import Check, Drill
from tests.cli.terminal import Terminal
from tests.fakes.target import BELIEVED
from tests.signers import signer
from tests.story import stored
from tests.story.world import World

STREAMS = {"data-1.tar.zst": [("./", b""), ("ibdata1", b"x" * 5000)]}


class Drills:
    """What was drilled, and what each finds, a minute after the one before it; nothing is restored."""

    def __init__(self) -> None:
        self.of: list[tuple[str, str]] = []  # machine and run
        self.confined: list[object] = []
        self.digests: list[str] = []  # of the manifest that each was bound to
        self.ok = True
        self.own_ok = True
        self.own: list[list[str]] = []  # the checks of one's own, of each
        self.undecided = ""
        self.bug_of = ""  # the run whose drill a bug of ours ends
        self.bug: Exception = ZeroDivisionError("division by zero\x1b[2J")

    def __call__(self, sources: Sequence[BackupSource], tools: object, **how: Any) -> Drill:
        (source,) = sources
        self.of.append((source.target.machine, source.run_id))
        self.confined.append(how.get("confined", True))
        assert source.trust.recorded is not None
        self.digests.append(source.trust.recorded.manifest_digest)
        self.own.append([check.sql for check in how["checks"]])
        if source.run_id == self.bug_of:
            raise self.bug
        own = (Check("checks.own", self.own_ok, "at least 1", "0", asked=sql) for sql in self.own[-1])
        checks = (Check("tables", self.ok, "3", "3" if self.ok else "2"), *own)
        ok = all(check.ok for check in checks) and not self.undecided
        at = datetime.now(UTC) - timedelta(minutes=60 - len(self.of))
        return Drill(source.run_id, ok, checks, 2.0, at, undecided=self.undecided)


@pytest.fixture
def drills(monkeypatch: pytest.MonkeyPatch) -> Drills:
    made = Drills()
    monkeypatch.setattr("backupd.operations.restore.proof_host.drill", made)
    monkeypatch.setattr("backupd.mysql.scratch.ScratchServer.require_startable", lambda self: "10.11.6-MariaDB")
    return made


@pytest.fixture
def backed_up(world: World) -> World:
    """The runs r1 and r2 have backups on the target; r2 is newer."""
    world.back_up("r1")
    world.back_up("r2")
    for path in world.backups.rglob("manifest.json"):
        os.utime(path, (1_700_000_000, 1_700_000_000 + int(path.parent.name[1:]) * 3600))
    return world


def with_settings(terminal: Terminal, text: str) -> Path:
    path = terminal.configuration.with_name("prove.toml")
    path.write_text(f"{terminal.configuration.read_text()}\n{text}")
    return path


def proofs(world: World) -> list[str]:
    """The runs that have one beside them, each as often as it has."""
    return sorted(path.parent.name for path in world.vault.rglob("proof-*.json"))


def test_nothing_to_prove_is_a_matter_of_usage(terminal: Terminal) -> None:
    ended = terminal.run("prove")
    assert (ended.status, "there is no backup to prove" in ended.stderr) == (2, True)


def test_once_is_the_newest_and_all_is_everything_each_in_one_line_with_a_proof_beside_it(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    ended = terminal.run("prove")
    assert (ended.status, drills.of, proofs(backed_up)) == (0, [(backed_up.name, "r2")], ["r2"])
    assert ended.stdout == (
        f"proven: run r2 of job nightly of machine {backed_up.name} on target vault: 1 checks,"
        " server 10.11.6-MariaDB, in 2.0 s\n"
    )
    assert terminal.run("prove", "--all").status == 0
    assert [run_id for _, run_id in drills.of] == ["r2", "r1", "r2"]
    assert drills.confined == [True] * 3
    assert drills.digests[0] == backed_up.target.manifest("nightly", "r2").digest


def test_a_proof_that_somebody_else_has_put_there_keeps_no_copy_from_being_drilled(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    (backed_up.backups / "r2" / "proof-20990101T000000Z.json").write_text('{"run_id": "r2", "ok": true}')
    assert terminal.run("prove").status == 0
    assert drills.of == [(backed_up.name, "r2")]


def test_the_limit_counts_what_was_drilled(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    assert terminal.run("prove", "--limit", "2").status == 0
    assert [run_id for _, run_id in drills.of] == ["r2", "r1"]
    both = terminal.run("prove", "--limit", "2", "--all")
    assert (both.status, "--all and --limit cannot be combined" in both.stderr) == (2, True)


def test_a_bug_that_a_copy_meets_is_told_in_full_as_one_and_keeps_no_other_from_its_turn(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    drills.bug_of = "r2"
    ended = terminal.run("prove")
    assert (ended.status, proofs(backed_up)) == (1, ["r1"])
    assert [run_id for _, run_id in drills.of] == ["r2", "r1"]
    not_drilled, proven = ended.stdout.splitlines()
    assert not_drilled.startswith(f"not drilled: run r2 of job nightly of machine {backed_up.name} on target vault: ")
    assert not_drilled.endswith(r": internal error: ZeroDivisionError: division by zero\x1b[2J")
    assert proven.startswith("proven: run r1 ")
    assert "Traceback (most recent call last)" in ended.stderr
    assert "error: internal error: ZeroDivisionError" in ended.stderr
    assert "hint: this is a bug in backupd; please report it" in ended.stderr
    assert "\x1b" not in ended.stderr
    drills.ok = False
    assert terminal.run("prove", "--all").status == 9, "a copy that failed goes before a bug"


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (MemoryError(), "this host has no memory left for the drill"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "this host has no room left for the drill: /x"),
    ],
)
def test_memory_or_room_that_this_host_lacks_is_no_bug_and_keeps_no_other_copy_from_its_turn(
    terminal: Terminal, drills: Drills, backed_up: World, lacking: Exception, said: str
) -> None:
    drills.bug_of, drills.bug = "r2", lacking
    ended = terminal.run("prove")
    assert (ended.status, proofs(backed_up)) == (14, ["r1"])
    assert ended.stdout.splitlines()[0].endswith(f": {said}")
    assert "report it" not in ended.stderr
    drills.bug = OSError(errno.EIO, "Input/output error")
    assert terminal.run("prove", "--all").status == 1


def test_a_copy_that_fails_is_told_left_as_a_proof_and_status_9(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    drills.ok = False
    ended = terminal.run("prove", "--all")
    assert ended.status == 9
    assert ended.stdout.count("NOT proven: run r") == 2
    assert "tables: found 2, expected 3" in ended.stdout
    assert proofs(backed_up) == ["r1", "r2"]


def check(name: str, **keys: str) -> str:
    written = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    return f"[prove.checks.{name}]\nsql = \"SELECT '{name}'\"\nat_least = 1\n{written}"


def test_the_checks_of_a_job_are_asked_and_kept_in_its_proofs(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    checks = [
        check("any", job="nightly"),
        check("ours", job="nightly", machine=backed_up.name),
        check("theirs", job="nightly", machine="db9-0a1b2c3d"),
        check("other", job="hourly"),
    ]
    ended = terminal.run("prove", configuration=with_settings(terminal, "".join(checks)))
    assert (ended.status, drills.own) == (0, [["SELECT 'any'", "SELECT 'ours'"]])
    (proof,) = backed_up.vault.rglob("proof-*.json")
    assert [one["asked"] for one in json.loads(proof.read_text())["checks"]] == ["", "SELECT 'any'", "SELECT 'ours'"]
    unasked = [line for line in ended.stderr.splitlines() if "is never asked" in line]
    assert unasked == [
        "attention: prove.checks.theirs is never asked: no backup of job nightly of machine db9-0a1b2c3d was found",
        "attention: prove.checks.other is never asked: no backup of job hourly was found",
    ]


def test_a_copy_that_fails_the_checks_of_one_s_own_alone_is_not_called_unreliable(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    drills.own_ok = False
    own = with_settings(terminal, check("any", job="nightly"))
    ended = terminal.run("prove", configuration=own)
    assert (ended.status, "checks.own: found 0, expected at least 1" in ended.stdout) == (9, True)
    assert "the copy restores, but its data is not what [prove.checks] expects: look at the data" in ended.stderr
    drills.ok = False
    assert "do not rely on this copy" in terminal.run("prove", configuration=own).stderr


def test_an_undecided_drill_is_status_14(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    drills.undecided = "the server on the restored files was killed"
    ended = terminal.run("prove")
    assert (ended.status, "undecided: run r2" in ended.stdout) == (14, True)


def test_a_target_that_takes_no_proof_is_told_with_the_result_and_status_8(
    terminal: Terminal, drills: Drills, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_what: object) -> None:
        raise TargetError("cannot write to target vault: permission denied", hint="grant it")

    monkeypatch.setattr("backupd.targets.directory.DirectoryTarget.attach", refuse)
    ended = terminal.run("prove")
    assert ended.status == 8
    assert "proven: run r2" in ended.stdout
    assert "the proof could not be written: cannot write to target vault: permission denied" in ended.stderr
    assert "hint: grant it" in ended.stderr


def test_without_a_server_of_the_series_nothing_is_restored_and_nothing_is_proven_or_disproven(
    terminal: Terminal, drills: Drills, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_self: object) -> str:
        raise ServerError("no mariadb 10.11 server is installed here; found: none", hint="install it")

    monkeypatch.setattr("backupd.mysql.scratch.ScratchServer.require_startable", missing)
    ended = terminal.run("prove", "--all")
    assert ended.status == 6
    assert ended.stdout.count("not drilled: run r") == 2
    assert "hint: install it" in ended.stderr
    assert (drills.of, proofs(backed_up)) == ([], [])


def test_without_the_identity_an_encrypted_backup_is_not_drilled(
    terminal: Terminal, drills: Drills, world: World
) -> None:
    recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
    stored.put(world.target, STREAMS, recipients=[recipient])
    ended = terminal.run("prove")
    assert ended.status == 2
    assert f"run r1 is encrypted for {recipient}" in ended.stdout
    assert (drills.of, proofs(world)) == ([], [])


def test_without_room_nothing_is_restored_and_nothing_is_proven_or_disproven(
    terminal: Terminal, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.scratch.ScratchServer.require_startable", lambda self: "10.11.6")
    monkeypatch.setattr("backupd.operations.restore.into_folder.shutil.disk_usage", lambda _path: Free())
    ended = terminal.run("prove")
    assert ended.status == 2
    assert "has 10 B free, and the backup needs" in ended.stdout
    assert proofs(backed_up) == []


class Free:
    """A file system that is full."""

    free, total = 10, 1000


def test_what_is_larger_than_allowed_is_passed_over_and_no_fault(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    ended = terminal.run("prove", configuration=with_settings(terminal, '[prove]\nmax_size = "10KiB"\n'))
    assert (ended.status, drills.of) == (0, [])
    assert "passed over: run r2 of job nightly" in ended.stdout
    assert "prove.max_size is 10.0 KiB" in ended.stdout


def test_in_a_blackout_no_drill_begins(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    now = datetime.now(UTC)
    hours = f"{(now.hour - 1) % 24:02}:00-{(now.hour + 2) % 24:02}:00"
    dark = with_settings(terminal, f'[prove]\nzone = "UTC"\nblackout = ["{hours}"]\n')
    ended = terminal.run("prove", "--all", configuration=dark)
    assert (ended.status, drills.of) == (0, [])
    assert f"no drill may begin now (prove.blackout): the next one at {(now.hour + 2) % 24:02}:00 UTC" in ended.stdout


def test_an_unconfined_host_is_no_proof_host(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    ended = terminal.run("prove", configuration=with_settings(terminal, "[restore]\nunconfined = true\n"))
    assert (ended.status, drills.of) == (2, [])
    assert "restore.unconfined = true is not allowed on a proof host" in ended.stderr


def test_a_target_that_cannot_be_read_keeps_no_other_from_being_proven(
    terminal: Terminal, drills: Drills, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_self: object) -> list[str]:
        raise TargetError("target vault cannot be listed")

    monkeypatch.setattr("backupd.targets.directory.DirectoryTarget.machines", unreadable)
    ended = terminal.run("prove")
    assert (ended.status, "target vault cannot be listed" in ended.stderr) == (8, True)


def test_two_at_once_do_not_drill_the_same(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    with Claims(backed_up.places.run).proving():
        ended = terminal.run("prove", "--all")
    assert (ended.status, drills.of) == (4, [])
    assert "the proving is held by another `backupd prove` (process" in ended.stderr
    assert terminal.run("prove").status == 0


def test_what_a_killed_drill_left_is_removed_and_a_live_one_is_left_alone(
    terminal: Terminal, drills: Drills, backed_up: World
) -> None:
    dead, live = (backed_up.places.drill_folder(run_id) for run_id in ("r7", "r8"))
    for folder in (dead, live):
        (folder / "data").mkdir(parents=True)
    with Claims(backed_up.places.run).run(live.name):
        assert terminal.run("prove").status == 0
    assert (dead.exists(), (live / "data").exists()) == (False, True)


@pytest.mark.parametrize("moment", ["drilled", "proof written"])
def test_a_target_that_vanishes_in_the_middle_is_told_once_and_its_rest_is_passed_over(
    terminal: Terminal, drills: Drills, backed_up: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    gone = TargetAway("target vault (/mnt/vault) is not there", hint="is its file system mounted?")

    def vanish(*_what: object, **_how: object) -> Drill:
        raise gone

    if moment == "drilled":
        monkeypatch.setattr("backupd.operations.restore.proof_host.drill", vanish)
    else:
        monkeypatch.setattr("backupd.targets.directory.DirectoryTarget.attach", vanish)
    ended = terminal.run("prove", "--all")
    assert ended.status == 8
    assert len(ended.stdout.splitlines()) == 1
    assert f"target vault: {gone.message}; copies on it that are passed over: 1" in ended.stderr
    assert "hint: is its file system mounted?" in ended.stderr


def test_a_proof_host_needs_no_job(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    text = terminal.configuration.read_text()
    hosts = text.index("[hosts.db1]"), text.index("[targets.vault]"), text.index("[jobs.nightly]")
    path = terminal.configuration.with_name("host.toml")
    path.write_text(f"{text[: hosts[0]]}{text[hosts[1] : hosts[2]]}\n[prove]\n")
    assert terminal.run("config", "check", configuration=path).status == 0
    assert terminal.run("prove", configuration=path).status == 0
    assert len(drills.of) == 1
    path.write_text(f'{path.read_text()}[notifications.chat]\ntype = "webhook"\nurl = "http://127.0.0.1:9/"\n')
    assert "not delivered: chat" in terminal.run("notify", "test", configuration=path).stderr
    path.write_text(path.read_text().replace("[prove]", ""))
    assert "no job is configured" in terminal.run("config", "check", configuration=path).stderr


def test_its_key_is_the_one_that_is_shown(terminal: Terminal, drills: Drills, backed_up: World) -> None:
    assert terminal.run("prove").status == 0
    key = next(word for word in terminal.run("identity", "show").stdout.split() if word.startswith("backupd-ed25519:"))
    source = BackupSource(backed_up.target, "nightly", "r2", Trust())
    assert last_tried(source, frozenset({key})) is not None


@pytest.mark.parametrize("command", [["prune"], ["run", "nightly", "--run-id", "r3"]], ids=["prune", "run"])
def test_a_database_host_reads_proofs_after_each_backup_and_when_it_prunes(
    terminal: Terminal, backed_up: World, command: list[str]
) -> None:
    host = signer()
    drill = Drill("r1", True, (Check("tables", True, "3", "3"),), 2.0, datetime.now(UTC))
    source = BackupSource(backed_up.target, "nightly", "r1", BELIEVED)
    digest = backed_up.target.manifest("nightly", "r1").digest
    leave_proof_of_host(source, drill, digest=digest, by="proof-0a1b2c3d", server="10.11.6", signer=host)
    believing = with_settings(terminal, f'[proofs]\nsigners = ["{host.public}"]\n')
    assert terminal.run("prune", "--dry-run", configuration=believing).status == 0
    assert backed_up.row("r1").drills == ()
    assert terminal.run(*command).status == 0
    assert backed_up.row("r1").drills == ()
    ended = terminal.run(*[word.replace("r3", "r4") for word in command], configuration=believing)
    assert (ended.status, backed_up.row("r1").drills) == (0, (drill,)), ended.stderr


def test_what_is_no_public_key_is_a_fault_of_the_configuration(terminal: Terminal) -> None:
    ended = terminal.run(
        "config", "check", configuration=with_settings(terminal, '[proofs]\nsigners = ["ssh-ed25519 A"]\n')
    )
    assert ended.status == 2
    assert "proofs.signers[0]: 'ssh-ed25519 A' is not a public key of a machine" in ended.stderr
    assert "as `backupd identity show` prints it" in ended.stderr
