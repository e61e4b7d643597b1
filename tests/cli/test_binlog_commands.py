"""`backupd binlog list`, `status` and `search`, over the binlogs of a real MariaDB in a folder target."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyrage import x25519

from backupd.catalogue.database import direct
from backupd.operations.ownership import ownership_of, signer_of
from backupd.operations.restore.unfinished_marker import Unfinished, to_text
from backupd.policy.moments import Latest
from backupd.vocabulary.binlogs import ArchiveGap, BinlogSegment
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import Drill
from backupd.vocabulary.storage import MARKER
from tests.binlog_archives import Archiver, WrittenBinlogs, written_binlogs
from tests.cli.terminal import Ended, Terminal
from tests.contract.mariadb import mariadb
from tests.hostile_words import HOSTILE, faults
from tests.story.world import World

TABLE = "or`ders\x1b[31m"  # that a server takes
SMALL = 600  # bytes of a segment: some transactions


@pytest.fixture(scope="module")
def written() -> WrittenBinlogs:
    """Two binlogs: three rows in and out of a table, a large transaction, an accident."""
    with mariadb() as server, server.session() as root:
        root.execute("SET SESSION binlog_format = ROW")
        root.execute("CREATE TABLE t.`or``ders\x1b[31m` (id INT PRIMARY KEY)")
        for number in range(3):
            root.execute(f"INSERT INTO t.`or``ders\x1b[31m` VALUES ({number}), ({number + 10})")
        root.execute("DELETE FROM t.`or``ders\x1b[31m` WHERE id < 2")
        root.execute("FLUSH BINARY LOGS")
        root.execute("INSERT INTO t.innodb (v) SELECT REPEAT('x', 3000) FROM t.seq_1_to_20")
        root.execute("CREATE DATABASE gone")
        root.execute("CREATE TABLE gone.a (id INT)")
        root.execute("DROP DATABASE gone")
        root.execute("DROP TABLE t.aria -- accident\n, t.myisam")
        return written_binlogs(server)


@pytest.fixture
def archiver(world: World, terminal: Terminal) -> Iterator[Archiver]:
    with terminal.configuration.open("a") as file:
        file.write("\n[jobs.nightly.binlog]\n")
    with world.catalogue() as catalogue:
        ownership_of(catalogue, world.tools_of(catalogue.identity().name)).take(world.target)
        yield Archiver(catalogue, world.target, signer_of(catalogue, world.machine))


@pytest.fixture
def archived(archiver: Archiver, written: WrittenBinlogs) -> list[BinlogSegment]:
    return archiver.archive(written.origin, written.pieces(SMALL))


def found(ended: Ended) -> list[str]:
    """What the transactions that were found change."""
    assert ended.status == ExitStatus.OK, ended.stderr
    return list(map(changes_of, ended.document["transactions"]))


def changes_of(transaction: Any) -> str:
    return " ".join(f"{one['kind']} {one['schema']}.{one['table']} {one['rows']}" for one in transaction["changes"])


def test_a_job_without_an_archive_is_told_so(terminal: Terminal) -> None:
    for words in (["list", "nightly"], ["status", "nightly"], ["search", "nightly"]):
        ended = terminal.run("binlog", *words)
        assert ended.status == ExitStatus.USAGE
        assert "job nightly archives no binlog\nhint: a table [jobs.nightly.binlog] turns it on" in ended.stderr
    assert "no job archives its binlog" in terminal.run("binlog", "status").stdout


def test_an_accident_is_found_and_what_to_type_next(terminal: Terminal, archived: list[BinlogSegment]) -> None:
    ended = terminal.run("binlog", "search", "nightly", "--table", "t.aria", "--kind", "drop,truncate")
    assert ended.status == ExitStatus.OK, ended.stderr
    head, line = ended.stdout.splitlines()
    assert head.split() == ["COMMITTED", "(UTC)", "GTID", "POSITION", "CHANGES", "STATEMENT"]
    (gtid,) = re.findall(r"0-7-\d+", line)
    assert "drop t.aria; drop t.myisam" in line
    assert "DROP TABLE " in line
    assert f"backupd restore --to DIR --job nightly --before-gtid {gtid}" in ended.stderr
    spread = sum(segment.within_transaction for segment in archived)  # what began there ends beside the accident
    assert f"read {spread + 1} of {len(archived)} segments" in ended.stderr


def test_rows_are_counted_by_table_and_kind(terminal: Terminal, archived: list[BinlogSegment]) -> None:
    everything = found(terminal.run("binlog", "search", "nightly", "--json"))
    of_table = found(terminal.run("binlog", "search", "nightly", "--table", "t.`OR``ders\x1b[31m`", "--json"))
    assert of_table == [f"create t.{TABLE} 0", *[f"insert t.{TABLE} 2"] * 3, f"delete t.{TABLE} 2"]
    assert [each for each in everything if TABLE in each] == of_table
    assert found(terminal.run("binlog", "search", "nightly", "--kind", "delete", "--json")) == of_table[-1:]
    assert found(terminal.run("binlog", "search", "nightly", "--table", "gone.a", "--json")) == [
        *("create gone.a 0", "drop gone. 0")  # which was its end
    ]


def test_a_transaction_that_lies_in_several_segments_is_read_whole(
    terminal: Terminal, archived: list[BinlogSegment]
) -> None:
    spread = [segment for segment in archived if segment.within_transaction]
    assert len(spread) > 2
    for options in (["--table", "t.innodb"], ["--kind", "insert"], []):
        ended = terminal.run("binlog", "search", "nightly", *options, "--json")
        (whole,) = [one for one in ended.document["transactions"] if changes_of(one) == "insert t.innodb 20"]
        assert spread[0].start <= whole["start"]["offset"] < spread[0].end
        assert spread[-1].end < whole["end"]["offset"] <= archived[archived.index(spread[-1]) + 1].end


def test_what_is_encrypted_is_found_with_its_identity_alone(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, tmp_path: Path
) -> None:
    identity = x25519.Identity.generate()
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(f"{identity}\n")
    replace(archiver, recipients=[str(identity.to_public())]).archive(written.origin, written.pieces(SMALL))
    words = ("binlog", "search", "nightly", "--kind", "drop", "--json")
    without = terminal.run(*words)
    assert without.status == ExitStatus.USAGE
    assert "pass the file with the identity of one of these: --identity FILE" in without.stderr
    assert found(terminal.run(*words, "--identity", str(key))) == ["drop gone. 0", "drop t.aria 0 drop t.myisam 0"]


def test_nothing_found_is_no_failure(terminal: Terminal, archived: list[BinlogSegment]) -> None:
    ended = terminal.run("binlog", "search", "nightly", "--table", "t.nowhere")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "nothing found\n")
    assert "read 0 of" in ended.stderr


def test_an_archive_that_has_nothing_yet_is_not_told_as_one_in_which_nothing_happened(
    terminal: Terminal, archiver: Archiver
) -> None:
    assert not archiver.catalogue.archived_jobs(["nightly"])
    ended = terminal.run("binlog", "search", "nightly", "--kind", "drop")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "nothing found\n")
    assert "hint: nothing is archived: `backupd binlog status nightly` says how far" in ended.stderr


def test_an_archive_that_is_behind_is_not_told_as_one_in_which_nothing_happened(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs
) -> None:
    until = datetime.now(UTC) - timedelta(minutes=30)
    replace(archiver, at=lambda: until).archive(written.origin, written.pieces(SMALL))
    words = ("binlog", "search", "nightly", "--kind", "truncate")
    ended = terminal.run(*words, "--since", "10m")
    assert ended.stdout == "nothing found\n"
    assert f"hint: nothing later than {until:%Y-%m-%d %H:%M:%S} UTC is archived: `backupd binlog status" in ended.stderr
    assert "hint" not in terminal.run(*words, "--until", "40m").stderr


def test_what_is_beyond_the_limit_is_told(terminal: Terminal, archived: list[BinlogSegment]) -> None:
    ended = terminal.run("binlog", "search", "nightly", "--limit", "2")
    assert ended.stdout.count("\n") == 1 + 2 + 1
    assert ended.stdout.endswith("there are more: these are the oldest 2; ask for more with --limit\n")
    whole = terminal.run("binlog", "search", "nightly", "--json").document
    assert not whole["more"]
    exact = terminal.run("binlog", "search", "nightly", "--limit", str(len(whole["transactions"])), "--json").document
    assert (exact["transactions"], exact["more"]) == (whole["transactions"], False)


def test_one_transaction_is_found_by_its_gtid_and_by_its_time(
    terminal: Terminal, archived: list[BinlogSegment]
) -> None:
    whole = terminal.run("binlog", "search", "nightly", "--json").document["transactions"]
    wanted = whole[len(whole) // 2]
    by_gtid = terminal.run("binlog", "search", "nightly", "--gtid", wanted["gtid"], "--json").document
    assert (by_gtid["transactions"], by_gtid["read"]) == ([wanted], by_gtid["read"])
    assert by_gtid["read"] < len(archived)
    at = whole[0]["committed_at"]
    early = terminal.run("binlog", "search", "nightly", "--until", at, "--json").document
    late = terminal.run("binlog", "search", "nightly", "--since", at, "--json").document
    assert (early["transactions"], late["transactions"]) == ([], whole)


def test_a_chain_within_another_one_tells_nothing_twice(
    terminal: Terminal, archiver: Archiver, archived: list[BinlogSegment], written: WrittenBinlogs
) -> None:
    before = found(terminal.run("binlog", "search", "nightly", "--json"))
    archiver.archive(written.origin, written.pieces(SMALL * 2))
    assert found(terminal.run("binlog", "search", "nightly", "--json")) == before


def test_a_segment_that_cannot_be_read_is_told_and_the_others_are_searched(
    terminal: Terminal, archived: list[BinlogSegment], world: World
) -> None:
    whole = terminal.run("binlog", "search", "nightly", "--json").document["transactions"]
    lost, changed = archived[1], [segment for segment in archived if segment.transactions][-1]
    files = {path.name: path for path in world.vault.rglob("*.binlog")}
    files[lost.name].unlink()
    content = files[changed.name].read_bytes()
    files[changed.name].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ended = terminal.run("binlog", "search", "nightly", "--json")
    assert ended.status == ExitStatus.TARGET
    found_still = ended.document["transactions"]
    there = [
        each
        for each in whole
        if all(
            (each["end"]["file"], bad.start < each["end"]["offset"] <= bad.end) != (bad.file, True)
            for bad in (lost, changed)
        )
    ]
    assert found_still == there
    assert [one["code"] for one in ended.document["unread"]] == ["target-error", "verification-error"]


@pytest.mark.parametrize("lost", [0, 1, -1])
def test_of_a_transaction_with_a_lost_piece_nothing_is_made_up(
    terminal: Terminal, archived: list[BinlogSegment], world: World, lost: int
) -> None:
    spread = [segment for segment in archived if segment.within_transaction]
    next(path for path in world.vault.rglob("*.binlog") if path.name == spread[lost].name).unlink()
    ended = terminal.run("binlog", "search", "nightly", "--json")
    assert ended.status == ExitStatus.TARGET
    assert "insert t.innodb" not in str([each["changes"] for each in ended.document["transactions"]][8:])
    assert ended.document["transactions"][-1]["changes"][0]["kind"] == "drop"


def test_what_a_server_calls_things_is_shown_plain(
    terminal: Terminal, archived: list[BinlogSegment], archiver: Archiver
) -> None:
    gap = ArchiveGap(archived[-1].chain, HOSTILE, archived[-1].received_at, archived[-1].last_at)
    archiver.catalogue.archive_gap("nightly", gap)
    for words in (["search", "nightly"], ["list", "nightly"], ["status"]):
        ended = terminal.run("binlog", *words)
        assert ended.status == ExitStatus.OK
        assert faults(ended.stdout) == faults(ended.stderr) == []
    assert "or`ders\\x1b[31m" in terminal.run("binlog", "search", "nightly").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kind", "drp"], "--kind: 'drp' is not a kind of change\nhint: use insert, update,"),
        (["--table", "orders"], "'orders' is not a list of tables"),
        (["--gtid", "latest"], "--gtid: 'latest' is not the GTID of a transaction"),
        (["--since", "noon"], "--since: 'noon' is not a time"),
        (["--since", "1h", "--until", "2h"], "--since 1h is not before --until 2h"),
        (["--target", "nowhere"], "no target 'nowhere'\nhint: configured targets: vault"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(
    terminal: Terminal, archiver: Archiver, words: list[str], said: str
) -> None:
    ended = terminal.run("binlog", "search", "nightly", *words)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert said in ended.stderr


def placed(world: World, segment: BinlogSegment, run_id: str = "r1") -> None:
    """A good backup is there, which the segment follows."""
    world.back_up(run_id)
    followed_by(world, segment, run_id)


def followed_by(world: World, segment: BinlogSegment, run_id: str) -> None:
    """The backup that is there was taken where the segment begins."""
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute(
            "UPDATE positions SET binlog_file = ?, binlog_offset = ?, gtid = ? WHERE run_id = ?",
            (segment.file, segment.start, segment.gtid_start, run_id),
        )


def test_what_can_be_restored_is_listed(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    assert "nothing is archived yet" in terminal.run("binlog", "list", "nightly").stdout
    pieces = written.pieces(SMALL)
    archived = archiver.archive(written.origin, pieces)
    assert (
        "nothing can be restored to a moment yet: no good backup tells"
        in terminal.run(*("binlog", "list", "nightly")).stdout
    )
    placed(world, archived[3], "r1")
    document = terminal.run("binlog", "list", "nightly", "--json").document
    assert [one["run_id"] for one in document["backups"]] == ["r1"]
    assert [(one["run_id"], one["chain"]) for one in document["stretches"]] == [("r1", archived[0].chain)]
    assert document["targets"] == [
        {
            "target": "vault",
            "segments": len(archived),
            "bytes_stored": sum(segment.stored_bytes for segment in archived),
            "until": {"file": archived[-1].file, "offset": archived[-1].end},
            "received_at": archived[-1].received_at.isoformat(),
        }
    ]
    text = terminal.run("binlog", "list", "nightly").stdout
    assert "from backup r1" in text
    assert "the last moment that can be restored: " in text
    assert f"bin.000002:{archived[-1].end}" in text


def test_no_run_is_read_of_which_nothing_is_left(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    """Whose row could not even be read: of an hourly job there are tens of thousands."""
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    for run_id in ("r1", "r2"):
        placed(world, archived[3], run_id)
    archiver.catalogue.removed("r1", "vault", because="expired")
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE runs SET ended_at = 'no instant' WHERE run_id = 'r1'")
    listed = terminal.run("binlog", "list", "nightly", "--target", "vault", "--json")
    assert [one["run_id"] for one in listed.document["backups"]] == ["r2"]
    reached = terminal.run("restore", "--to-latest", "--job", "nightly", "--to", str(world.base / "to"))
    assert f"from run r2 and {len(archived) - 3} binlog segments after it" in reached.stderr


def test_a_backup_that_is_restored_alone_tells_where_its_archive_leads_on_to(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    world.back_up("r1")
    assert "the binlog archive reaches" not in terminal.run("restore", "r1", "--to", str(world.base / "before")).stderr
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    followed_by(world, archived[3], "r1")
    said = terminal.run("restore", "r1", "--to", str(world.base / "alone")).stderr
    assert "this restores the backup alone, as of " in said
    assert "To include all of it: backupd restore r1 --to-latest --to DIR" in said


def test_another_machine_s_backup_is_led_on_by_no_archive_of_this_one(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    """Its job may have the same name, and its server's binlogs the same places."""
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    placed(world, archived[3])
    archiver.catalogue.import_run(replace(world.row("r1"), run_id="theirs", machine="db9-00000000"))
    assert terminal.run("show", "r1", "--json").document["archive"] is not None
    assert terminal.run("show", "theirs", "--json").document["archive"] is None


def test_who_restores_a_backup_of_before_a_gap_is_not_told_to_use_latest(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    *before, behind = archiver.archive(written.origin, written.pieces(SMALL))
    placed(world, before[3])
    other = replace(behind, chain="29991120T040000Z-0123abcd", number=1, previous="", digest="f" * 64)
    archiver.catalogue.add_segment(other, spooled=False)
    said = terminal.run("restore", "r1", "--to", str(world.base / "alone")).stderr
    assert "To restore a moment until then: backupd restore r1 --to-time TIME --to DIR" in said
    refused = terminal.run("restore", "r1", "--to-latest", "--to", str(world.base / "latest"))
    assert "there is a gap between the last good backup and the newest segments" in refused.stderr


@pytest.mark.parametrize("damage", ["UPDATE binlog_segments SET changes = '{'", "DELETE FROM identities"])
def test_a_backup_is_restored_though_the_catalogue_does_not_tell_where_its_archive_leads(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World, damage: str
) -> None:
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    placed(world, archived[3])
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute(damage)
    ended = terminal.run("restore", "r1", "--to", str(world.base / "alone"))
    assert (ended.status, "the binlog archive reaches" in ended.stderr) == (ExitStatus.OK, False)


def test_a_backup_whose_drill_failed_leads_to_a_moment_where_it_is_named(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    """A check of one's own has failed, say: without it there may be nothing at all."""
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    placed(world, archived[3], "r1")
    archiver.catalogue.record_drill(Drill("r1", ok=False, checks=(), seconds=1.0, at=datetime.now(UTC)))
    refused = terminal.run("restore", "--to-latest", "--job", "nightly", "--to", str(world.base / "to"))
    assert refused.status == ExitStatus.USAGE
    assert "run r1 is passed over: its last drill failed. To use it all the same, name it" in refused.stderr
    named = terminal.run("restore", "r1", "--to-latest", "--to", str(world.base / "to"))
    assert "the last drill of run r1 failed; it is used because you named it" in named.stderr
    assert f"from run r1 and {len(archived) - 3} binlog segments after it" in named.stderr


def test_what_another_job_s_restore_has_begun_is_not_gone_on_with(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    """Nor is a run rolled forward that is of another job than --job says."""
    archived = archiver.archive(written.origin, written.pieces(SMALL))
    placed(world, archived[3], "r1")
    with terminal.configuration.open("a") as file:
        file.write('\n[jobs.billing]\nhost = "db1"\ntargets = ["vault"]\n[jobs.billing.binlog]\n')
    (to := world.base / "to").mkdir()
    (to / MARKER).write_text(to_text(Unfinished("nightly", "r1", "of nothing", moment=str(Latest()))))
    for command in (("restore",), ("clone", "--as-replica")):
        refused = terminal.run(*command, "--to", str(to), "--job", "billing", "--to-latest")
        assert refused.status == ExitStatus.USAGE
        assert "unfinished restore of something else: run r1 of job nightly to the latest moment" in refused.stderr
        assert f"or discard it: rm -r {to}" in refused.stderr
        assert "from run r1" not in refused.stderr
    named = terminal.run("restore", "r1", "--to", str(world.base / "another"), "--job", "billing", "--to-latest")
    assert named.status == ExitStatus.USAGE
    assert "run r1 is of job nightly, not of billing\nhint: omit --job, or the run" in named.stderr


def test_how_far_the_archive_is_behind_a_server_that_does_not_answer_is_not_known(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World
) -> None:
    *stored, last = written.pieces(SMALL)
    chain = archiver.archive(written.origin, stored)
    waiting = replace(chain[-1], number=len(chain) + 1, previous=chain[-1].digest, digest="f" * 64, stored_bytes=1024)
    archiver.catalogue.add_segment(waiting)
    assert last.file == waiting.file
    with world.tools.claims.archiving("nightly"):
        (job,) = terminal.run("binlog", "status", "--json").document["jobs"]
    assert (job["receiving"], job["behind_bytes"], job["behind_seconds"]) == (True, None, None)
    assert job["server_error"]
    assert job["spool"] == {"segments": 1, "bytes": 1024, "limit": 1 << 30}
    text = terminal.run("binlog", "status", "nightly").stdout
    assert "none is running: nothing is archived now" in text
    assert "spool:             1 segment, 1.0 KiB of 1.0 GiB" in text


@pytest.mark.parametrize("job", ["nightly", "renamed"])
def test_segments_that_wait_for_a_target_and_that_nobody_sends_any_more_are_named(
    terminal: Terminal, archiver: Archiver, written: WrittenBinlogs, world: World, job: str
) -> None:
    """The archive was turned off, or its job was given another name, while a target was away."""
    (stored,) = archiver.archive(written.origin, written.pieces(SMALL)[:1])
    archiver.catalogue.add_segment(replace(stored, job=job, chain="29991120T040000Z-0123abcd", digest="f" * 64))
    said = f"left in the binlog spool of job {job}, for a target that lacks it: 1 segment; no archive of that job is"
    text = terminal.configuration.read_text()
    assert (said in terminal.run("status").stderr) is (job == "renamed"), "its archive is configured"
    terminal.configuration.write_text(text.replace("[jobs.nightly.binlog]", ""))
    for command in (("status",), ("binlog", "status")):
        assert said in terminal.run(*command).stderr
    found = {one["name"]: one for one in terminal.run("check", "nightly", "--json").document["findings"]}
    assert (said in found["binlog spool"]["detail"], found["binlog spool"]["level"]) == (True, "warning")
    assert f"[jobs.{job}.binlog]" in found["binlog spool"]["hint"]


def test_the_command_line_is_documented_as_json(terminal: Terminal, archived: list[BinlogSegment]) -> None:
    document = json.loads(terminal.run("binlog", "search", "nightly", "--limit", "1", "--json").stdout)
    assert list(document) == ["schema", "job", "transactions", "more", "segments", "read", "unread"]
    assert Path(document["transactions"][0]["start"]["file"]).name == "bin.000001"
