"""Copies at a moment: a restore over a kill and an interruption, replicas, scrubbed clones, single tables.

All of it is real: the server, its client program that receives, the commands as a person types them.
"""

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from stat import S_IMODE

import pytest

from backupd.cli.moments import AskedMoment, found_moment, restore_moment
from backupd.host.signals import cancellable
from backupd.mysql import scratch
from backupd.mysql.binlog.applying import ApplyingProgress
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.mysql.session import Session
from backupd.mysql.startup import RELAY_FOLDER
from backupd.mysql.tablefiles import Table
from backupd.operations import context
from backupd.operations.restore import restored_copy
from backupd.operations.restore.into_folder import unpacked_bytes
from backupd.operations.restore.moment import moment_copy, to_moment
from backupd.operations.restore.moment.moment_copy import copy_at_moment
from backupd.operations.restore.moment.to_moment import restore_to_moment
from backupd.operations.restore.unfinished import unfinished_in
from backupd.policy.moments import BeforeGtid, ToGtid
from backupd.vocabulary.errors import Cancelled, NotHeld, ServerError, UsageError
from backupd.vocabulary.storage import MARKER
from tests.archive_site import Moment, Site, rows_of, started_on
from tests.contract.mariadb import mariadb, wait_until
from tests.contract.test_exporting import source
from tests.hostile.backups import RUN
from tests.servers.ports import free_port
from tests.story.test_restore_tables_recovered import NotConfined

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, Moment], str]]:
    """A backup, work over a rotation and a crash of the server, and a table that somebody drops; the drop's GTID."""
    base = tmp_path_factory.mktemp("site")
    listening = ("--skip-networking=0", "--bind-address=127.0.0.1", f"--port={free_port()}")
    with mariadb("--gtid-strict-mode=1", "--binlog-format=ROW", *listening) as server:
        site = Site(base, server)
        site.back_up()
        moments: dict[str, Moment] = {}
        with site.archiving():
            with server.session() as root:
                for number in range(30):
                    root.execute(f"INSERT INTO t.innodb (v) VALUES ('after the backup {number}')")
                    root.execute("UPDATE t.myisam SET v = CONCAT(v, 'x') LIMIT 1")
            moments["busy"] = site.moment()
            with server.session() as root:
                root.execute("FLUSH BINARY LOGS")
                root.execute("CREATE TABLE t.more (id INT PRIMARY KEY, v TEXT)")
                root.execute("INSERT INTO t.more VALUES (1, 'one')")
            server.stop(signal.SIGKILL)
            server.start()
            with server.session() as root:
                root.execute("INSERT INTO t.more VALUES (2, 'after the crash')")
            moments["before the accident"] = site.moment()
            with server.session() as root:
                root.execute("DROP TABLE t.innodb")
                drop = root.value("SELECT @@global.gtid_binlog_pos") or ""
                root.execute("INSERT INTO t.more VALUES (3, 'after the accident')")
            moments["at the end"] = site.moment()
            wait_until(lambda: site.stored(moments["at the end"].gtid))
        yield site, moments, drop


History = tuple[Site, dict[str, Moment], str]


def interrupted(history: History, to: Path, by: signal.Signals, told: list[str]) -> None:
    """A restore to the second before the accident, which gets a signal once its server has begun to apply the log."""
    site, _, drop = history
    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue, cancellable():
        asked = AskedMoment(BeforeGtid(drop), run_id=None)
        found = found_moment(
            *(configuration, catalogue, asked),
            to=to,
            target=None,
            identities=None,
            applied=lambda _progress: os.kill(os.getpid(), by),
        )
        restore_to_moment(found.forward, found.manifest, found.sources, to=to, telling=told.append)


def test_without_room_for_the_log_too_nothing_is_begun(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies beside the files while it is applied to them, and the tables grow by it."""
    site, _, drop = history
    configuration, to = context.configuration(site.configuration), tmp_path / "to"
    with context.catalogue(configuration) as catalogue:
        asked = AskedMoment(BeforeGtid(drop), run_id=None)
        found = found_moment(*(configuration, catalogue, asked), to=to, target=None, identities=None)
    log = found.forward.plan.log_bytes
    usage = shutil.disk_usage(tmp_path)._replace(free=unpacked_bytes(found.manifest) + log + log // 10 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(UsageError, match="the backup needs"):
        restore_to_moment(found.forward, found.manifest, found.sources, to=to)
    assert not to.exists()


def test_the_second_before_the_accident_is_reached_over_a_kill_and_an_interruption(
    history: History, tmp_path: Path
) -> None:
    site, moments, drop = history
    to, asked = tmp_path / "to", ("--before-gtid", drop)
    killed = multiprocessing.get_context("fork").Process(target=interrupted, args=(history, to, signal.SIGKILL, []))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert (to / MARKER).exists()
    refused = site.run("restore", "--to", str(to), "--to-latest", expect=2)
    assert f"unfinished restore of something else: run {RUN} of job nightly to the moment before" in refused.stderr
    (to / "of the killed server").touch()
    told: list[str] = []
    with pytest.raises(Cancelled) as cancelled:
        interrupted(history, to, signal.SIGTERM, told)
    assert "an earlier restore was killed while a server worked on these files: restoring all files again" in told
    assert not (to / "of the killed server").exists()
    assert "run the same command to continue" in (cancelled.value.hint or "")
    assert not (to / RELAY_FOLDER).exists()
    site.run("restore", "--to", str(to), "--to-latest", expect=2)
    done = site.run("restore", "--to", str(to), *asked)
    assert "continuing the interrupted restore at" in done.stderr
    assert "restoring\n" not in done.stderr
    expected = moments["before the accident"]
    with started_on(to) as server, server.session() as root:
        assert (rows_of(root), root.value("SELECT @@global.gtid_slave_pos")) == (expected.rows, expected.gtid)
    assert f"restored run {RUN} and its binlog up to the moment before GTID {drop}" in done.stdout
    assert f"position: {expected.place}" in done.stdout


@pytest.mark.parametrize("as_replica", [True, False])
@pytest.mark.parametrize("noted", [True, False], ids=["", "by a backupd that did not note it"])
def test_what_was_applied_for_a_replica_becomes_no_other_copy_and_the_other_way_round(
    history: History, tmp_path: Path, as_replica: bool, noted: bool
) -> None:
    """Scheduled events of the log are disabled in the one and as their server had them in the other."""
    site, moments, drop = history
    to, told = tmp_path / "to", list[str]()

    def copy(*, as_replica: bool, applied: Callable[[ApplyingProgress], None]) -> None:
        configuration = context.configuration(site.configuration)
        with context.catalogue(configuration) as catalogue:
            asked = AskedMoment(BeforeGtid(drop), run_id=None)
            found = found_moment(configuration, catalogue, asked, to=to, target=None, identities=None, applied=applied)
            copying = copy_at_moment(
                found.forward, found.manifest, found.sources, to=to, as_replica=as_replica, telling=told.append
            )
            with copying:
                pass

    def interrupt(_progress: ApplyingProgress) -> None:
        raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        copy(as_replica=as_replica, applied=interrupt)
    if not noted:
        marker = json.loads((to / MARKER).read_text())
        marker.pop("as_replica", None)
        (to / MARKER).write_text(json.dumps(marker))
    told.clear()
    copy(as_replica=as_replica ^ noted, applied=lambda _progress: None)
    wanted = "for a server that is no replica" if not as_replica ^ noted else "for a replica"
    assert f"an earlier command is not known to have applied the binlog {wanted}: restoring all files again" in told
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == moments["before the accident"].rows


def test_a_copy_that_nobody_keeps_is_ended_at_once(history: History, tmp_path: Path) -> None:
    """A clean shutdown may take hours, and what it writes is removed."""
    site, _, drop = history
    to, told = tmp_path / "to", list[str]()

    def interrupt(_progress: ApplyingProgress) -> None:
        raise Cancelled("cancelled")

    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue:
        asked = AskedMoment(BeforeGtid(drop), run_id=None)
        found = found_moment(configuration, catalogue, asked, to=to, target=None, identities=None, applied=interrupt)
        with pytest.raises(Cancelled):
            restore_to_moment(found.forward, found.manifest, found.sources, to=to, keeps=False, telling=told.append)
    assert told[-1].startswith("applying the binlog from ")
    assert not to.exists()


def test_a_copy_that_leads_out_of_itself_once_the_log_is_applied_is_none(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that the log put elsewhere would be lost with the folder's next move, and the next start refused."""
    site, moments, _ = history
    to = tmp_path / "to"

    def leaving(server: RunningServer) -> None:
        restored_copy.shut_down(server)
        (to / found.manifest.datadir / "t" / "elsewhere.isl").write_text("/srv/elsewhere/t/elsewhere.ibd")

    monkeypatch.setattr(moment_copy, "shut_down", leaving)
    monkeypatch.setattr(moment_copy, "remove_own_binlogs", lambda *_: None)  # as where the backup has none
    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue:
        asked = AskedMoment(ToGtid(moments["busy"].gtid), run_id=None)
        found = found_moment(configuration, catalogue, asked, to=to, target=None, identities=None)
        with pytest.raises(ServerError, match=r"elsewhere\.isl points outside the restored copy"):
            restore_to_moment(found.forward, found.manifest, found.sources, to=to)
    assert not to.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_nobody_else_can_enter_a_copy_as_long_as_root_works_in_it(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's account, in a folder of its own, could put links in root's way. It gets the folder last of all."""
    site, moments, _ = history
    to, seen = tmp_path / "to", dict[str, tuple[int, int]]()
    to.mkdir()

    def look(step: str) -> None:
        seen[step.partition(" ")[0]] = to.stat().st_uid, S_IMODE(to.stat().st_mode)

    def looking(name: str, work: Callable[..., None]) -> Callable[..., None]:
        def look_and_work(*told: object, **more: object) -> None:
            look(name)
            work(*told, **more)

        return look_and_work

    monkeypatch.setattr(moment_copy, "remove_own_binlogs", looking("binlogs", restored_copy.remove_own_binlogs))
    monkeypatch.setattr(to_moment, "hand_over", looking("hand_over", restored_copy.hand_over))
    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue:
        asked = AskedMoment(ToGtid(moments["busy"].gtid), run_id=None)
        found = found_moment(configuration, catalogue, asked, to=to, target=None, identities=None)
        restore_to_moment(found.forward, found.manifest, found.sources, to=to, telling=look)
    lent = {step: seen.pop(step) for step in ("recovering", "applying")}
    assert {step: seen[step] for step in ("restoring", "fetching", "binlogs", "hand_over")} == dict.fromkeys(
        ("restoring", "fetching", "binlogs", "hand_over"), (0, 0o700)
    )
    owner = to.stat().st_uid
    assert all(uid not in (0, owner) and mode == 0o700 for uid, mode in lent.values())
    assert S_IMODE(to.stat().st_mode) == 0o750
    assert {path.stat().st_uid for path in to.rglob("*")} == {owner} != {0}


def test_a_copy_that_cannot_be_opened_as_recorded_is_kept(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has arrived, and a file system that lacks access lists may be told to have them."""
    site, moments, _ = history
    to, asked = tmp_path / "to", AskedMoment(ToGtid(moments["busy"].gtid), run_id=None)

    def refuse(*_told: object) -> None:
        raise NotHeld("cannot be set as recorded")

    monkeypatch.setattr(restored_copy, "open_as_recorded", refuse)
    configuration = context.configuration(site.configuration)
    with context.catalogue(configuration) as catalogue:
        found = found_moment(configuration, catalogue, asked, to=to, target=None, identities=None)
        with pytest.raises(NotHeld) as refused:
            restore_to_moment(found.forward, found.manifest, found.sources, to=to)
    assert "run the same command to continue" in str(refused.value.__notes__)
    done = site.run("restore", "--to", str(to), "--to-gtid", moments["busy"].gtid)
    assert "continuing the interrupted restore at" in done.stderr


def test_a_clone_at_a_moment_goes_on_as_a_replica_from_exactly_there(history: History, tmp_path: Path) -> None:
    site, moments, _ = history
    busy, clone = moments["busy"], tmp_path / "clone"
    with site.server.session() as root:
        source = f"127.0.0.1:{root.value('SELECT @@port')}"
        written = root.value("SELECT @@global.gtid_binlog_pos")
    words = ("--as-replica", "--source", source, "--source-user", "root", "--server-id", "8")
    done = site.run("clone", "--to", str(clone), *words, "--to-gtid", busy.gtid)
    assert f"cloned run {RUN} and its binlog up to GTID {busy.gtid}" in done.stdout
    assert busy.gtid in (clone / "replica.sql").read_text()
    audited = json.loads(site.run("audit", "list", "--json").stdout)
    assert busy.place in json.dumps(audited)
    options = ("--server-id=8", "--gtid-strict-mode=1", "--relay-log=replica-relay-bin")
    with started_on(clone, *options) as replica, replica.session() as root:
        assert (rows_of(root), root.value("SELECT @@global.gtid_slave_pos")) == (busy.rows, busy.gtid)
        root.execute("START SLAVE")
        wait_until(lambda: root.value("SELECT @@global.gtid_slave_pos") == written or _error(root) != "")
        assert _error(root) == ""
        assert rows_of(root) == moments["at the end"].rows


def _error(root: Session) -> str:
    status = root.one("SHOW SLAVE STATUS") or {}
    return f"{status.get('Last_IO_Error')}{status.get('Last_SQL_Error')}"


def test_a_scrubbed_clone_can_be_one_of_a_moment(history: History, tmp_path: Path) -> None:
    site, moments, drop = history
    sql, clone = tmp_path / "scrub.sql", tmp_path / "clone"
    sql.write_text("UPDATE t.innodb SET v = 'nobody';\n")
    site.run("clone", "--to", str(clone), "--scrub", str(sql), "--before-gtid", drop)
    assert f"the moment before GTID {drop}" in (clone / "backupd-scrub.json").read_text()
    with started_on(clone) as server, server.session() as root:
        assert root.value("SELECT MIN(v) = MAX(v) AND COUNT(*) = 32 FROM t.innodb") == "1"
        assert rows_of(root)["more"] == moments["before the accident"].rows["more"]


def test_single_tables_come_as_of_a_moment(history: History, tmp_path: Path) -> None:
    site, moments, _ = history
    expected, to = moments["before the accident"], tmp_path / "to"
    tables = ("--tables", "t.innodb,t.more")  # one was dropped later, one was made after the backup
    done = site.run("restore", "--to", str(to), *tables, "--to-time", expected.at.isoformat())
    assert "to import t.innodb: follow" in done.stdout
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == expected.rows
        for table in ("innodb", "more"):
            statements = to / "tables" / "t" / f"{table}.sql"
            before, told, after = statements.read_text().partition("-- now copy ")
            fresh = told + after.split("into the folder ")[1].split()[0]
            schema = fresh.removeprefix(told)
            source(server, before)
            for ending in ("ibd", "cfg"):
                shutil.copy(statements.with_suffix(f".{ending}"), to / schema)
            source(server, after.partition("\n")[2])
            assert (root.one(f"CHECKSUM TABLE {schema}.{table}") or {})["Checksum"] == expected.rows[table]


def exporting(history: History, to: Path, *, ends: Callable[[], None], at: str = "exporting t.more") -> None:
    """A restore of two tables as of the second before the accident, which ends when it tells that."""
    site, _, drop = history

    def told(text: str) -> None:
        if text == at:
            ends()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backupd.cli.moments.tell", told)
        configuration, asked = context.configuration(site.configuration), AskedMoment(BeforeGtid(drop), run_id=None)
        tables = (Table("t", "innodb"), Table("t", "more"))
        restore_moment(configuration, asked, to=to, target=None, identities=None, tables=tables)


def ended_by(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def without_room() -> None:
    raise UsageError("t.more cannot be copied: No space left on device")


@pytest.mark.parametrize("ends", [partial(ended_by, signal.SIGTERM), without_room])
def test_an_export_that_is_interrupted_is_gone_on_with_at_the_moment(
    history: History, tmp_path: Path, ends: Callable[[], None]
) -> None:
    site, moments, drop = history
    to = tmp_path / "to"
    with pytest.raises((Cancelled, UsageError)) as ended:
        exporting(history, to, ends=ends)
    assert "run the same command to continue" in f"{ended.value.hint} {getattr(ended.value, '__notes__', ())}"
    assert not (to / "tables").exists()
    done = site.run("restore", "--to", str(to), "--tables", "t.innodb,t.more", "--before-gtid", drop)
    assert "continuing the interrupted restore at" in done.stderr
    assert {path.name for path in (to / "tables" / "t").glob("*.sql")} == {"innodb.sql", "more.sql"}
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == moments["before the accident"].rows


def test_who_is_stopped_once_all_is_exported_exports_it_again(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _, drop = history
    to = tmp_path / "to"

    def cancelled(*_told: object, **_more: object) -> None:
        raise Cancelled("cancelled")

    monkeypatch.setattr(to_moment, "hand_over", cancelled)
    with pytest.raises(Cancelled):
        exporting(history, to, ends=lambda: None)
    site.run("restore", "--to", str(to), "--tables", "t.innodb,t.more", "--before-gtid", drop)
    assert (to / "tables" / "t" / "more.sql").exists()


def test_an_export_that_is_killed_leaves_a_folder_that_is_marked(history: History, tmp_path: Path) -> None:
    """Its server was killed on the files: nothing tells whether they are whole."""
    site, _, drop = history
    to, end = tmp_path / "to", partial(ended_by, signal.SIGKILL)
    killed = multiprocessing.get_context("fork").Process(target=exporting, args=(history, to), kwargs={"ends": end})
    killed.start()
    killed.join()
    assert (to / MARKER).exists()
    done = site.run("restore", "--to", str(to), "--tables", "t.innodb,t.more", "--before-gtid", drop)
    assert "was killed while a server worked on these files: restoring all files again" in done.stderr
    assert (to / "tables" / "t" / "more.sql").exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_table_that_was_not_there_costs_no_other(history: History, tmp_path: Path, there: bool) -> None:
    site, moments, _ = history
    expected, to = moments["at the end"], tmp_path / "to"
    tables = "t.innodb,t.more" if there else "t.innodb"
    done = site.run("restore", "--to", str(to), "--tables", tables, "--to-gtid", expected.gtid, expect=3)
    assert "attention: t.innodb was not there at the moment" in done.stderr
    assert ("to import t.more: follow" in done.stdout) == there
    assert (to / "tables").exists() == there
    assert not (to / "tables" / "t" / "innodb.sql").exists()
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == expected.rows


def test_a_table_that_never_was_is_refused_before_anything_is_restored(history: History, tmp_path: Path) -> None:
    site, _, _ = history
    to = tmp_path / "to"
    refused = site.run("restore", "--to", str(to), "--tables", "t.inodb", "--to-latest", expect=2)
    assert "t.inodb" in refused.stderr
    assert not to.exists()


def test_where_no_server_can_be_confined_nothing_that_was_restored_is_lost(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel lets tar be bound, and not what needs another user and no network."""
    site, moments, drop = history
    to = tmp_path / "to"
    with monkeypatch.context() as now:
        now.setattr(scratch, "Bounds", NotConfined)
        with pytest.raises(UsageError, match="cannot be confined on this host") as ended:
            interrupted(history, to, signal.SIGTERM, [])
    assert "keeps what was restored so far: run the same command to continue" in ended.value.__notes__[0]
    noted = unfinished_in(to)
    assert noted is not None
    assert not noted.worked_in
    assert all(progress.done for progress in noted.objects.values())
    assert not (to / RELAY_FOLDER).exists()
    site.run("restore", "--to", str(to), "--before-gtid", drop)
    with started_on(to) as server, server.session() as root:
        assert rows_of(root) == moments["before the accident"].rows


@pytest.mark.parametrize("by", [None, signal.SIGTERM])
def test_a_copy_stands_nowhere_as_long_as_its_files_are_lent_to_a_server(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: signal.Signals | None
) -> None:
    """Root lends them to an account that nobody has: who is killed before they are given back goes on from nothing."""
    to, seen = tmp_path / "to", []

    class Watched(ScratchServer):
        @contextmanager
        def running(self) -> Iterator[RunningServer]:
            with ScratchServer.running(self) as server:
                try:
                    yield server
                finally:
                    noted = unfinished_in(to)
                    seen.append(noted and noted.reached)

    monkeypatch.setattr(moment_copy, "ScratchServer", Watched)
    if by is None:
        monkeypatch.setattr(os, "kill", lambda *_: None)  # what `interrupted` does to itself
        interrupted(history, to, signal.SIGTERM, [])
    else:
        with pytest.raises(Cancelled):
            interrupted(history, to, by, [])
    assert seen == [None]
