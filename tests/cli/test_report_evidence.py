"""`backupd report --evidence`: what an auditor gets, in each form, and how it is checked."""

import csv
import html
import io
import json
import re
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from backupd.catalogue.audit import Event
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.host.operator_name import operator
from backupd.operations.ownership import ownership_of
from backupd.operations.restore.on_record import Deed, on_record
from backupd.operations.restore.proofs import leave_proof
from backupd.operations.upkeep.rebuild import rebuild
from backupd.report.evidence import EvidenceSources, evidence_rows, not_known
from backupd.targets import BackupSource, targets_read
from backupd.targets.names import proof_name
from backupd.vocabulary.errors import ExitStatus, ServerError, VerificationError
from backupd.vocabulary.records import Check, Drill
from tests.cli.terminal import Ended, Terminal
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.hostile_words import HOSTILE, MARKUP, faults
from tests.story.test_proof_hosts import drilled, leave, read
from tests.story.world import World

US = f"{operator().name} (uid {operator().uid})"
EVIDENCE = ("report", "--evidence", "--since", "365d")
BROKEN = VerificationError("a frame is damaged", hint="")
DIGEST = "1f2e" * 16
LONG_AGO = "2020-01-01T00:00:00.000000+00:00"
HUGE = {"statements": 10**400, "rows_affected": 1, "seconds": 1}
NAN = {"statements": 1, "rows_affected": 1, "seconds": float("nan")}
TOTALS = {"statements": 12, "rows_affected": 4822, "server_version": "10.11.19-MariaDB", "seconds": 3.25}


@pytest.fixture
def year(terminal: Terminal, world: World) -> Terminal:
    """A backup, one that failed and a good one after it; a verification, two drills, two restores and a clone."""
    world.back_up("r1")
    with world.catalogue() as catalogue, suppress(ServerError), catalogue.open_run("nightly", "db1", run_id="r2"):
        raise ServerError("the server went away", hint="")
    world.back_up("r3")
    assert terminal.run("verify", "r1").status == ExitStatus.OK
    with world.catalogue() as catalogue:
        drill(world, catalogue, ok=False)
        drill(world, catalogue, ok=True, later=1)
        deed(catalogue, Deed.RESTORE, "/srv/back", error=BROKEN)
        deed(catalogue, Deed.RESTORE, "/srv/other")
        deed(catalogue, Deed.CLONE, "/srv/clone")
        scrubbed(catalogue, {"scrub": {"/etc/scrub.sql": DIGEST}, "scrubbed": TOTALS})
    return terminal


def drill(world: World, catalogue: Catalogue, *, ok: bool, later: int = 0) -> None:
    check = Check("tables", ok, "3 tables", "3 tables" if ok else "2 tables")
    made = Drill("r1", ok, (check,), 7.5, datetime.now(UTC) + timedelta(seconds=later))
    source = BackupSource(world.target, "nightly", "r1", BELIEVED)
    source.was_read.set()
    catalogue.record_drill(made, targets=targets_read([source]))
    assert leave_proof([source], made, ownership_of(catalogue, world.tools), host="db1") == ()


def deed(catalogue: Catalogue, what: Deed, to: str, *, error: Exception | None = None, **asked: Any) -> None:
    source = BackupSource(MemoryTarget("vault"), "nightly", "r1", BELIEVED)
    with suppress(VerificationError), on_record(catalogue, "r1", what, to, [source], telling=print, **asked):
        source.was_read.set()
        if error is not None:
            raise error


def scrubbed(catalogue: Catalogue, told: dict[str, Any]) -> None:
    with on_record(catalogue, "r1", Deed.CLONE, "/srv/dev", (), telling=print, scrub=told["scrub"]) as done:
        done.detail |= told


def rows(ended: Ended, kind: str) -> list[dict[str, Any]]:
    return [row for row in ended.document["rows"] if row["kind"] == kind]


def configure(terminal: Terminal, text: str) -> None:
    with terminal.configuration.open("a") as file:
        file.write(f"\n{text}\n")


def force(world: World, *statements: str) -> None:
    """As somebody does who can write the catalogue's file, and takes the triggers out first."""
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        for name in ("no_update", "no_delete", "next_number"):
            connection.execute(f"DROP TRIGGER IF EXISTS audit_{name}")
        for statement in statements:
            assert connection.execute(statement).rowcount != 0


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_everything_that_was_done_is_a_row_with_who_did_it_and_what_became_of_it(year: Terminal) -> None:
    ended = year.run(*EVIDENCE, "--json")
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")
    told = [(row["kind"], row["run_id"], row["outcome"], row["good"]) for row in ended.document["rows"]]
    assert sorted(told, key=lambda row: row[0]) == [
        ("backup", "r1", "success", True),
        ("backup", "r2", "failed", False),
        ("backup", "r3", "success", True),
        ("clone", "r1", "success", True),
        ("clone", "r1", "success", True),
        ("drill", "r1", "failed", False),
        ("drill", "r1", "proven", True),
        ("restore", "r1", "failed", False),
        ("restore", "r1", "success", True),
        ("verification", "r1", "good", True),
    ]
    instants = [row["at"] for row in ended.document["rows"]]
    assert instants == sorted(instants)
    assert {(row["operator"], row["job"], row["machine"]) for row in ended.document["rows"]} == {
        (US, "nightly", ended.document["machine"])
    }
    assert rows(ended, "backup")[0]["targets"] == ["vault"]
    assert rows(ended, "backup")[0]["copies"][0]["verified_at"] is not None
    assert rows(ended, "verification")[0]["targets"] == ["vault"]
    assert rows(ended, "drill")[0]["checks"][0] == {
        "name": "tables", "ok": False, "expected": "3 tables", "found": "2 tables", "asked": ""
    }  # fmt: skip
    assert rows(ended, "restore")[0]["remarks"] == ["to /srv/back", "a frame is damaged"]
    assert ended.document["counts"]["backup"] == {
        "all": 3, "good": 2, "not_good": 1, "longer_than_restore_within": 0
    }  # fmt: skip
    assert (ended.document["audit_chain"]["sound"], ended.document["signature"]["signed"]) == (True, False)


def test_drills_restores_and_clones_are_shown_with_the_copies_that_were_read(year: Terminal, tmp_path: Path) -> None:
    ended = year.run(*EVIDENCE, "--json", "--html", str(tmp_path / "e.html"), "--csv", str(tmp_path / "e.csv"))
    told = [row["targets"] for kind in ("drill", "restore", "clone") for row in rows(ended, kind)]
    assert told == [["vault"]] * 5 + [[]]  # of the last one none was read
    cells = list(csv.DictReader(io.StringIO((tmp_path / "e.csv").read_text())))
    assert [row["copies"] for row in cells if row["kind"] in ("drill", "restore")] == ["vault"] * 4
    assert (tmp_path / "e.html").read_text().count("<li>vault</li>") == 6  # with the verification
    assert len(re.findall(r"(?m)^.* (drill|restore|clone) .* vault ", year.run(*EVIDENCE).stdout)) == 5


def test_rows_that_tell_no_copy_are_shown_without_one(year: Terminal, world: World) -> None:
    force(world, "UPDATE audit SET detail = json_remove(detail, '$.targets')")
    assert [row["targets"] for row in rows(year.run(*EVIDENCE, "--json"), "drill")] == [[], []]
    force(world, "UPDATE audit SET detail = json_set(detail, '$.targets', json('{\"a\": [1]}'))")
    assert [row["targets"] for row in rows(year.run(*EVIDENCE, "--json"), "restore")] == [[], []]


def test_a_proof_hosts_drill_is_shown_with_its_proof_its_copy_and_the_proof_host(
    year: Terminal, world: World, tmp_path: Path
) -> None:
    with world.catalogue() as catalogue:
        drill(world, catalogue, ok=True, later=9)
    file = leave(world, drilled(at=datetime.now(UTC) + timedelta(seconds=5)))  # before the one that is on record
    assert read(world, later=timedelta(minutes=1)) == []
    ended = year.run(*EVIDENCE, "--json", "--html", str(tmp_path / "e.html"), "--csv", str(tmp_path / "e.csv"))
    told = [row for row in rows(ended, "drill") if row["good"]]
    assert [row["operator"] for row in told] == [US, "proof host proof-0a1b2c3d", US]
    proof = told[1]
    assert (proof["targets"], proof["checks"][0]["found"]) == (["vault"], "3")
    said = f"proof {file.name}, by proof host proof-0a1b2c3d; taken in by {US}"
    assert proof["remarks"] == [said]
    text = year.run(*EVIDENCE).stdout
    assert all(said in form for form in (text, (tmp_path / "e.html").read_text(), (tmp_path / "e.csv").read_text()))
    force(world, "UPDATE audit SET detail = json_remove(detail, '$.by')")  # as rows of earlier versions are
    older = year.run(*EVIDENCE, "--json")
    assert [row["operator"] for row in rows(older, "drill") if row["good"]] == [US, "a proof host", US]
    assert re.search(r"(?m) drill .* vault .* proof host proof-0a1b2c3d .* proven", text)


def test_a_drill_that_a_rebuild_found_beside_a_known_backup_is_shown_as_nobodys_with_its_proof(
    year: Terminal, world: World
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=5)
    with world.catalogue() as catalogue:
        source = BackupSource(world.target, "nightly", "r1", catalogue.trust(world.name))
        source.was_read.set()
        assert leave_proof([source], drilled(at=at), ownership_of(catalogue, world.tools), host="db1") == ()
        assert rebuild(world.target, catalogue, source.trust).imported == ("r1",)
    ended = year.run(*EVIDENCE, "--json")
    told = [row for row in rows(ended, "drill") if row["good"]][-1]
    assert (told["operator"], told["targets"]) == ("", ["vault"])
    assert told["remarks"] == [f"from proof {proof_name(at)}; taken in by {US}"]


def test_a_scrubbed_clone_is_shown_with_what_ran_and_a_failed_one_with_what_was_to_run(year: Terminal) -> None:
    with year.world.catalogue() as catalogue:
        deed(catalogue, Deed.CLONE, "/srv/none", error=BROKEN, scrub={"/etc/scrub.sql": DIGEST})
    file = f"scrub /etc/scrub.sql (sha256 {DIGEST})"
    ran = "scrubbed: 12 statements ran, 4822 rows affected, in 3.2 s, on server 10.11.19-MariaDB"
    ended = year.run(*EVIDENCE, "--json")
    told = {row["remarks"][0]: row["remarks"][1:] for row in rows(ended, "clone")}
    assert told == {"to /srv/clone": [], "to /srv/dev": [file, ran], "to /srv/none": [file, BROKEN.message]}
    assert f"{file}; {ran}" in year.run(*EVIDENCE).stdout


@pytest.mark.parametrize(
    ("scrub", "totals"),
    [([1], "x"), ({"a": 1}, {"statements": True, "rows_affected": 1, "seconds": 1}), (None, {}), ({}, HUGE), ({}, NAN)],
)
def test_a_row_of_the_chain_that_somebody_changed_proves_no_scrub(
    terminal: Terminal, world: World, scrub: Any, totals: Any
) -> None:
    world.back_up("r1")
    with world.catalogue() as catalogue:
        scrubbed(catalogue, {"scrub": scrub, "scrubbed": totals})
    (clone,) = rows(terminal.run(*EVIDENCE, "--json"), "clone")
    assert [remark for remark in clone["remarks"] if remark.startswith("scrubbed")] == []


def test_what_failed_is_told_with_the_next_one_that_went_well(year: Terminal, world: World) -> None:
    ended = year.run(*EVIDENCE, "--json")
    followed = {
        (row["kind"], row["run_id"]): row["followed"]["run_id"] for row in ended.document["rows"] if row["followed"]
    }
    assert followed == {("backup", "r2"): "r3", ("drill", "r1"): "r1", ("restore", "r1"): "r1"}
    (failed,) = (row for row in rows(ended, "backup") if not row["good"])
    assert failed["followed"]["at"] == rows(ended, "backup")[2]["at"]
    with world.catalogue() as catalogue:
        catalogue.found_broken("r3", "vault", "a frame is damaged")
    broken = rows(year.run(*EVIDENCE, "--json"), "verification")[1]
    assert (broken["outcome"], broken["good"], broken["followed"]) == ("broken", False, None)
    assert "broken; none was good since" in year.run(*EVIDENCE).stdout
    world.back_up("r4")
    assert rows(year.run(*EVIDENCE, "--json"), "verification")[1]["followed"]["run_id"] == "r4"


def test_a_process_that_was_killed_in_a_restore_is_told(year: Terminal, world: World) -> None:
    with world.catalogue() as catalogue:
        deed(catalogue, Deed.RESTORE, "/srv/third")
    force(world, "DELETE FROM audit WHERE number = (SELECT MAX(number) FROM audit)")
    last = rows(year.run(*EVIDENCE, "--json"), "restore")[-1]
    assert (last["outcome"], last["good"], last["seconds"]) == ("no end recorded", None, None)


def test_only_what_lies_in_the_time_and_in_the_job_is_told(year: Terminal, world: World) -> None:
    force(world, "UPDATE runs SET started_at = '2020-01-01T00:00:00.000000+00:00' WHERE run_id = 'r3'")
    ended = year.run(*EVIDENCE, "--json")
    assert [row["run_id"] for row in rows(ended, "backup")] == ["r1", "r2"]
    assert rows(ended, "backup")[1]["followed"] is None
    assert len(rows(year.run(*EVIDENCE, "--until", "2026-01-01", "--json"), "backup")) == 0
    assert year.run(*EVIDENCE, "nightly", "--json").document["job"] == "nightly"
    assert year.run(*EVIDENCE, "hourly").status == ExitStatus.USAGE
    with world.catalogue() as catalogue, suppress(ServerError), catalogue.open_run("other", "db1", run_id="r9"):
        raise ServerError("of another job", hint="")
    assert "r9" in year.run(*EVIDENCE).stdout
    assert "r9" not in year.run(*EVIDENCE, "nightly").stdout


# --- restore_within ---------------------------------------------------------------------------------------------------


def test_a_drill_or_a_restore_that_took_longer_than_restore_within_is_told(year: Terminal, world: World) -> None:
    text = year.configuration.read_text().replace('host = "db1"', 'host = "db1"\nrestore_within = "7s"')
    year.configuration.write_text(text)
    with world.catalogue() as catalogue:
        deed(catalogue, Deed.RESTORE, "/srv/one", tables=["shop.orders"])
        deed(catalogue, Deed.RESTORE, "/srv/back")  # goes on where one had failed
    ended = year.run(*EVIDENCE, "--json")
    assert [row["longer_than_restore_within"] for row in rows(ended, "drill")] == [None, True]
    restores = rows(ended, "restore")
    assert [row["restore_within_seconds"] for row in restores] == [None, 7.0, None, None]
    assert "its time is not that of a whole restore" in restores[3]["remarks"][1]
    assert "longer than restore_within: 7.5 s instead of 7.0 s" in year.run(*EVIDENCE).stdout


@pytest.mark.parametrize(
    ("change", "seconds"),
    [("json_set(detail, '$.seconds', 10800.0)", 10800.0), ("json_remove(detail, '$.seconds')", None)],
)
def test_a_restore_is_not_shorter_by_a_clock_that_was_set_back_meanwhile(
    year: Terminal, world: World, change: str, seconds: float | None
) -> None:
    """Rows that an earlier backupd has written tell instants only: how long it was is not known then."""
    text = year.configuration.read_text().replace('host = "db1"', 'host = "db1"\nrestore_within = "7s"')
    year.configuration.write_text(text)
    force(
        world,
        f"UPDATE audit SET detail = {change} WHERE event = 'restore-ended'",
        "UPDATE audit SET at = (SELECT min(at) FROM audit) WHERE event = 'restore-ended'",
        "UPDATE runs SET ended_at = (SELECT min(at) FROM audit) WHERE run_id = 'r1'",
    )
    ended = year.run(*EVIDENCE, "--json")
    restores = rows(ended, "restore")
    assert [row["seconds"] for row in restores] == [seconds] * len(restores)
    assert True not in [row["longer_than_restore_within"] for row in restores if seconds is None]
    assert False not in [row["longer_than_restore_within"] for row in restores]
    assert next(row["seconds"] for row in rows(ended, "backup") if row["run_id"] == "r1") is None


# --- whether it can be believed ---------------------------------------------------------------------------------------


def test_a_changed_row_of_the_chain_is_told_in_the_document_and_by_the_status(
    year: Terminal, world: World, tmp_path: Path
) -> None:
    force(world, "UPDATE audit SET detail = 'nonsense' WHERE event = 'restore-ended'")
    ended = year.run(*EVIDENCE, "--json", "--html", str(tmp_path / "e.html"), "--csv", str(tmp_path / "e.csv"))
    assert ended.status == ExitStatus.VERIFICATION
    assert "the audit trail is broken: row " in ended.stderr
    assert (ended.document["audit_chain"]["sound"], len(ended.document["audit_chain"]["flaws"])) == (False, 1)
    assert "2 rows of the audit chain cannot be parsed" in " ".join(ended.document["unknown"])
    assert len(rows(ended, "restore")) == 4  # both beginnings, and both ends, which belong to none any more
    assert "NOT SOUND" in (tmp_path / "e.html").read_text()
    assert "is missing or was changed" in (tmp_path / "e.csv").read_text()
    assert "NOT RIGHT: row " in year.run(*EVIDENCE).stdout


@pytest.mark.parametrize("at", ["yesterday", "2026-11-25T03:00:00", ""])
def test_a_row_whose_time_is_none_is_told_without_it(year: Terminal, world: World, at: str) -> None:
    force(world, f"UPDATE audit SET at = '{at}' WHERE event IN ('restore-started', 'verified', 'run-started')")
    ended = year.run(*EVIDENCE, "--json")
    assert ended.status == ExitStatus.VERIFICATION
    told = rows(ended, "restore")
    assert [(row["at"] is None, row["good"]) for row in told] == [(True, None)] * 2 + [(False, False), (False, True)]
    assert [row["remarks"][0] for row in told[2:]] == ["its beginning was not recorded"] * 2
    assert "cannot be read" in year.run(*EVIDENCE).stdout


@pytest.mark.parametrize(
    ("statement", "remark"),
    [
        ("UPDATE drills SET ok = 1, checks = '[]'", "the audit chain has no record of it"),
        ("DELETE FROM drills WHERE ok = 0", "the catalogue has no such result any more"),
        ("UPDATE runs SET status = 'success' WHERE run_id = 'r2'", "the audit chain has it as failed"),
    ],
)
def test_a_failure_that_somebody_took_out_of_the_catalogue_is_told_all_the_same(
    year: Terminal, world: World, statement: str, remark: str
) -> None:
    assert remark not in year.run(*EVIDENCE).stdout
    force(world, statement)
    ended = year.run(*EVIDENCE, "--json")
    assert remark in ended.stdout
    assert [row["good"] for row in rows(ended, "drill")].count(False) == 1
    assert [row["good"] for row in rows(ended, "backup")] == [True, False, True]


@pytest.mark.parametrize(
    ("statement", "flaw"),
    [
        ("UPDATE runs SET status = 'success' WHERE run_id = 'r2'", "has run r2 as failed, the catalogue as success"),
        ("UPDATE runs SET status = 'failed' WHERE run_id = 'r3'", "has run r3 as success, the catalogue as failed"),
        ("UPDATE drills SET ok = 1", "has 1 failed drill of run r1, the catalogue 0"),
        ("DELETE FROM drills", "has 1 failed drill of run r1, the catalogue 0"),
    ],
)
def test_the_verdict_is_not_sound_where_the_chain_has_another_outcome(
    year: Terminal, world: World, statement: str, flaw: str
) -> None:
    assert year.run("audit", "verify").status == ExitStatus.OK
    force(world, statement)
    ended = year.run(*EVIDENCE, "--json")
    assert (ended.status, flaw in ended.stderr) == (ExitStatus.VERIFICATION, True), ended.stderr
    assert not ended.document["audit_chain"]["sound"]


def test_a_target_that_cannot_be_read_is_told_and_the_document_is_there(
    year: Terminal, world: World, tmp_path: Path
) -> None:
    world.vault.rename(world.base / "away")
    ended = year.run(*EVIDENCE, "--output", str(tmp_path / "e.txt"))
    assert (ended.status, ended.stdout) == (ExitStatus.TARGET, "")
    assert "could not be read" in (tmp_path / "e.txt").read_text()


def test_after_a_lost_catalogue_backups_and_drills_are_told_again_and_what_is_not_known_is_said(
    year: Terminal, world: World
) -> None:
    before = year.run(*EVIDENCE, "--json")
    assert any("The audit chain begins on " in words for words in before.document["unknown"])
    for file in world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    name, world.machine = world.name, replace(world.machine, host="reinstalled")
    assert year.run("identity", "adopt", name, "--yes").status == ExitStatus.OK
    assert year.run("catalogue", "rebuild", "--target", "vault").status == ExitStatus.OK
    after = year.run(*EVIDENCE, "--json")
    assert after.status == ExitStatus.OK, after.stderr
    good = [row["run_id"] for row in rows(before, "backup") if row["good"]]
    assert [row["run_id"] for row in rows(after, "backup")] == good == ["r1", "r3"]
    drilled = [[(row["at"], row["outcome"], row["checks"]) for row in rows(told, "drill")] for told in (before, after)]
    assert drilled[0] == drilled[1]
    assert [row["remarks"] for row in rows(after, "drill")] == [[], []]
    assert {row["operator"] for row in after.document["rows"]} == {""}
    (rebuilt,) = (words for words in after.document["unknown"] if "was rebuilt on" in words)
    assert "2 backups of machine" in rebuilt
    assert "restores, clones and missed slots are not known" in rebuilt
    assert rebuilt in re.sub(r"\s+", " ", year.run(*EVIDENCE).stdout)


# --- the signature ----------------------------------------------------------------------------------------------------


@pytest.fixture
def key(year: Terminal, tmp_path: Path) -> Path:
    made = tmp_path / "evidence_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True)
    configure(year, f'[evidence]\nsigning_key = "{made}"')
    return made


def verified(document: Path, key: Path) -> bool:
    """What the auditor types, as the document says."""
    (document.parent / "allowed_signers").write_text(f"backupd {key.with_suffix('.pub').read_text()}")
    command = re.findall(r"ssh-keygen -Y verify .*? < [\w.]+", html.unescape(document.read_text()))[0]
    ended = subprocess.run(command, shell=True, cwd=document.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 or "Could not verify signature" in ended.stdout, ended
    return ended.returncode == 0


def test_each_file_is_signed_and_a_changed_byte_shows(year: Terminal, key: Path, tmp_path: Path) -> None:
    page, table, document = (tmp_path / f"evidence.{form}" for form in ("html", "csv", "json"))
    written = ("--html", str(page), "--csv", str(table), "--output", str(document), "--json")
    ended = year.run(*EVIDENCE, *written)
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "")
    for path in (page, table, document):
        assert f"wrote {path}.sig" in ended.stderr
        assert verified(path, key), path
        path.write_bytes(path.read_bytes().replace(b"r2", b"r3", 1))
        assert not verified(path, key), path
    told = json.loads(document.read_text())["signature"]
    public = key.with_suffix(".pub").read_text().split()[:2]
    assert (told["signed"], told["file"], told["public_key"].split()) == (True, "evidence.json.sig", public)
    listed = subprocess.run(["ssh-keygen", "-lf", key], check=True, capture_output=True, text=True)
    assert listed.stdout.split()[1] == told["fingerprint"]


def test_without_a_key_the_document_says_that_it_is_not_signed(year: Terminal, tmp_path: Path) -> None:
    assert year.run(*EVIDENCE, "--output", str(tmp_path / "e.txt")).status == ExitStatus.OK
    assert "Not signed: no key is configured" in (tmp_path / "e.txt").read_text()
    assert [path.name for path in tmp_path.glob("e.txt*")] == ["e.txt"]
    assert "Not signed: only a file has a signature" in year.run(*EVIDENCE).stdout


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda key: key.unlink(), "cannot read"),
        (lambda key: key.chmod(0o644), "can be read or written by others (mode 0644)"),
        (lambda key: key.write_text("garbage"), "has no private key that ssh-keygen can read"),
        (lambda key: (key.unlink(), key.mkdir()), "is a directory"),
        (
            lambda key: subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True),
            "is protected by a passphrase",
        ),
    ],
    ids=["missing", "readable by others", "no key", "a folder", "with a passphrase"],
)
def test_with_a_key_that_cannot_be_used_nothing_is_written(
    year: Terminal, key: Path, tmp_path: Path, spoil: Any, sentence: str
) -> None:
    spoil(key)
    ended = year.run(*EVIDENCE, "--html", str(tmp_path / "e.html"))
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert re.fullmatch(r"error: evidence\.signing_key: [^\n]+\nhint: [^\n]+\n", ended.stderr)
    assert sentence in ended.stderr
    assert list(tmp_path.glob("e.html*")) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("report", "--csv", "a"), "--csv needs --evidence"),
        (("report", "--output", "a"), "--output needs --evidence"),
        ((*EVIDENCE, "--csv", "a", "--html", "a"), "two documents cannot go into one file"),
        ((*EVIDENCE, "--csv", "a", "--html", "a.sig"), "two documents cannot go into one file"),
        ((*EVIDENCE, "--csv", "/nowhere/a"), "/nowhere/a could not be written"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(
    year: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = year.run(*words)
    assert (ended.status, ended.stdout, hint in ended.stderr) == (ExitStatus.USAGE, "", True)
    assert list(tmp_path.glob("a*")) == []


# --- strangers' words -------------------------------------------------------------------------------------------------


def test_names_of_strangers_are_shown_plain_and_are_no_markup(year: Terminal, world: World, tmp_path: Path) -> None:
    with world.catalogue() as catalogue:
        deed(catalogue, Deed.RESTORE, HOSTILE, error=VerificationError(HOSTILE, hint=HOSTILE), tables=[HOSTILE])
        catalogue.found_broken("r3", "vault", HOSTILE)
        made = Drill("r3", False, (Check(HOSTILE, False, HOSTILE, HOSTILE),), 1.0, datetime.now(UTC))
        catalogue.record_drill(made)
    ended = year.run(*EVIDENCE, "--html", str(tmp_path / "e.html"), "--csv", str(tmp_path / "e.csv"))
    page, table = (tmp_path / "e.html").read_text(), (tmp_path / "e.csv").read_text()
    assert [faults(text) for text in (ended.stdout, page, table)] == [[], [], []]
    assert MARKUP not in page
    assert MARKUP.replace("<", "&lt;").replace(">", "&gt;") in page
    assert not re.search(r"(src|href)=|@import|url\(", page)


@pytest.mark.parametrize("formula", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", " =1", "\uff1d1", "\t=1"])
def test_no_cell_is_a_formula_to_a_spreadsheet(year: Terminal, world: World, tmp_path: Path, formula: str) -> None:
    with world.catalogue() as catalogue, suppress(ServerError), catalogue.open_run("nightly", "db1", run_id="r9"):
        raise ServerError(formula, hint="")
    assert year.run(*EVIDENCE, "--csv", str(tmp_path / "e.csv")).status == ExitStatus.OK
    cells = list(csv.DictReader(io.StringIO((tmp_path / "e.csv").read_text())))
    (row,) = (row for row in cells if row["run_id"] == "r9")
    assert row["remarks"][0] in "'\\"
    assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d")) for one in cells for cell in one.values())


# --- how it is gathered ----------------------------------------------------------------------------------------------


def test_the_chain_is_read_once_for_its_rows_and_for_its_verdict(year: Terminal) -> None:
    asked: list[str] = []

    def hear(*told: Any) -> None:
        asked.append(told[2])

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        ended = year.run(*EVIDENCE, "--json")
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    assert rows(ended, "restore")
    assert len([one for one in asked if one.startswith("SELECT audit.number")]) == 1


@pytest.fixture
def told_late(year: Terminal, world: World) -> World:
    """The same, but all runs began long ago; one is not in the catalogue any more, and others' restores go on."""
    with world.catalogue() as catalogue:
        with on_record(catalogue, "r2", Deed.RESTORE, "/srv/r2", (), telling=print):
            deed(catalogue, Deed.RESTORE, "/srv/back", error=BROKEN)
        with on_record(catalogue, "r3", Deed.CLONE, "/srv/r3", (), telling=print):
            catalogue.found_broken("r3", "vault", "flipped")
        catalogue.note(Event.MISSED, "nightly", activity="backup", due="then", reason="it was off")
        assert year.run("verify", "--job", "nightly").status == ExitStatus.OK
    force(world, f"UPDATE runs SET started_at = '{LONG_AGO}'", "DELETE FROM runs WHERE run_id = 'r2'")
    return world


def test_what_is_told_of_a_time_is_the_same_without_the_rows_that_are_not_kept(told_late: World) -> None:
    """Whichever of the chain's rows were written before that time, and whichever can be read."""
    since, left_out = datetime.now(UTC) - timedelta(days=30), 0
    with told_late.catalogue() as catalogue:
        for last in range(1, len(catalogue.audit_entries(limit=None)) + 1):
            for at in ("nonsense", LONG_AGO):
                force(told_late, f"UPDATE audit SET at = '{at}' WHERE number = {last}")
                runs, kept, _ = catalogue.told_since(since)
                whole = catalogue.audit_entries(limit=None)[::-1]
                told, as_before = (
                    EvidenceSources(catalogue.identity().name, since, runs, entries, {}) for entries in (kept, whole)
                )
                assert evidence_rows(told, job=None, until=None) == evidence_rows(as_before, job=None, until=None)
                assert list(not_known(told)) == list(not_known(as_before))
                left_out += len(whole) - len(kept)
    assert left_out > 0


def test_no_row_of_long_ago_is_kept_that_tells_nothing_of_the_time(told_late: World) -> None:
    force(told_late, f"UPDATE audit SET at = '{LONG_AGO}' WHERE event <> 'restore-ended'")
    with told_late.catalogue() as catalogue:
        _, (first, *others), trail = catalogue.told_since(datetime.now(UTC) - timedelta(days=30))
    assert first.number == 1
    assert {entry.subject for entry in others} == {"r1", "r2", "r3"}
    assert {entry.event for entry in others if entry.subject == "r3"} == {"clone-started", "clone-ended"}
    assert len(others) < trail.chain.rows - 1
