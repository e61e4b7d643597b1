"""The archive of a real server's binlog: what lies on the target is what the server wrote, whatever died meanwhile."""

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backupd.archive.segment_bytes import unseal
from backupd.mysql.binlog.layout import BEGINNINGS, BETWEEN_TRANSACTIONS
from backupd.mysql.binlog.sifting import BinlogBytes
from backupd.operations.binlog.tools import minute
from backupd.policy.binlog_chain import ChainRow
from backupd.policy.segment_file import from_line
from backupd.vocabulary.binlogs import BinlogSegment
from tests.archive_site import Site
from tests.contract.mariadb import PASSWORD, MariadbServer, mariadb, wait_until
from tests.fakes.chain_rows import rows
from tests.processes import children
from tests.share import seeded

IN_USE_AT = 21  # of a file: a flag in its format description that the server clears when it has written the file


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with mariadb() as server:
        yield Site(tmp_path, server)


def stored(site: Site) -> list[tuple[BinlogSegment, bytes]]:
    """The segments on the target in their order, and the bytes of their events."""
    found = []
    for path in sorted(site.vault.glob("*/nightly/binlog/*.binlog")):
        with path.open("rb") as file:
            segment = from_line(file.readline())
            found.append((segment, b"".join(unseal(segment, [file.read()], None))))
    return found


def require_as_the_server_has_it(site: Site) -> ChainRow:
    """One row without a gap, of which each byte is the server's own, once."""
    found = stored(site)
    [row] = rows([segment for segment, _ in found])
    texts: dict[str, bytearray] = {}
    for segment, events in found:
        text = texts.setdefault(segment.file, bytearray())
        assert len(text) == (0 if not text else segment.start - first_start(found, segment.file))
        text += events
    for file, text in texts.items():
        whole = bytearray((site.server.datadir / file).read_bytes())
        begin = first_start(found, file)
        whole[IN_USE_AT] &= ~1
        if begin == 4:
            text[IN_USE_AT - 4] &= ~1
        assert not _first_difference(whole[begin : begin + len(text)], text), file
    return row


def _first_difference(one: bytes | bytearray, other: bytes | bytearray) -> str:
    """Where; empty: nowhere. pytest would take minutes to compare megabytes for its report."""
    if one == other:
        return ""
    at = next((n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), len(one))
    return (
        f"{len(one)} bytes and {len(other)}, of which those at {at} are {one[at : at + 40]!r}, {other[at : at + 40]!r}"
    )


def first_start(found: list[tuple[BinlogSegment, bytes]], file: str) -> int:
    return min(segment.start for segment, _ in found if segment.file == file)


def write(server: MariadbServer, times: int = 5) -> str:
    """Some transactions; the last one's GTID."""
    with server.session() as root:
        for number in range(times):
            root.execute(f"INSERT INTO t.innodb (v) VALUES ('row {number}')")
            root.execute("UPDATE t.aria SET v = 'y' LIMIT 1")
        return root.value("SELECT @@global.gtid_binlog_pos") or ""


def contact(site: Site) -> tuple[str, str, int | None] | None:
    """When the archive last had all of the server's log, what has kept it from that since, and the bytes it lacked."""
    with closing(sqlite3.connect(site.base / "state" / "catalogue.sqlite")) as connection:
        query = "SELECT at, refused, behind_bytes FROM archive_contacts"
        found: tuple[str, str, int | None] | None = connection.execute(query).fetchone()
        return found


def gaps(site: Site) -> list[str]:
    """Why chains ended, as the catalogue has it."""
    with closing(sqlite3.connect(site.base / "state" / "catalogue.sqlite")) as connection:
        return [reason for (reason,) in connection.execute("SELECT reason FROM archive_gaps ORDER BY noticed_at")]


def test_the_archive_and_its_client_give_way_to_the_server(site: Site) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with site.archiving() as receiver:
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        found = {os.getpriority(os.PRIO_PROCESS, pid) for pid in (receiver.pid, client_of(receiver))}
    assert found == {max(5, own)}


def test_what_the_server_wrote_is_on_the_target_over_rotations_and_the_spool_is_empty(site: Site) -> None:
    with site.archiving():
        write(site.server)
        with site.server.session() as root:
            root.execute("FLUSH BINARY LOGS")
            root.execute("FLUSH BINARY LOGS")
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        wait_until(lambda: not list((site.base / "spool" / "nightly").glob("*.binlog")))
        busy = subprocess.run(site.command("binlog", "receive", "nightly"), capture_output=True, text=True, check=False)
        assert busy.returncode == 4
        assert "the archive of the binlog of job nightly" in busy.stderr
        wait_until(lambda: contact(site) is not None)
        assert (contact(site) or ("", "?"))[1:] == ("", 0)
        site.server.stop()
        wait_until(lambda: (contact(site) or ("", "", 0))[1] != "")
        site.server.start()
    assert require_as_the_server_has_it(site).gtid_end == last
    assert gaps(site) == []


def test_kills_of_whatever_takes_part_leave_no_gap_and_double_nothing(site: Site) -> None:
    chance = random.Random(17)
    last = ""
    for number in range(seeded(50, usual=4)):
        with site.archiving() as receiver:
            last = write(site.server, chance.randrange(1, 20))
            time.sleep(chance.random() * 2)  # the moment of the kill is drawn
            match number % 4:
                case 0:
                    receiver.kill()
                case 1:
                    os.kill(client_of(receiver), signal.SIGKILL)
                    require_stored(site, last)  # by another one, which the receiver has started
                case 2:
                    site.server.stop(signal.SIGKILL)
                    site.server.start()
                case 3:  # as if by a power cut, but for what the disk loses
                    receiver.send_signal(signal.SIGSTOP)
                    site.server.stop(signal.SIGKILL)
                    receiver.kill()
                    site.server.start()
    last = write(site.server)
    with site.archiving():
        wait_until(lambda: site.stored(last))
    assert require_as_the_server_has_it(site).gtid_end == last
    assert gaps(site) == []


def require_stored(site: Site, gtid: str) -> None:
    wait_until(lambda: site.stored(gtid))


def client_of(receiver: "subprocess.Popen[bytes]") -> int:
    """The program that receives for it: its only child, once it has one."""
    wait_until(lambda: len(children(receiver.pid)) == 1)
    [child] = children(receiver.pid)
    return int(child)


def with_changes(*lines: str) -> tuple[str, str]:
    """What starts backupd in a process of its own, in which these lines have changed something first."""
    modules = "from backupd.operations.binlog import archive, storing"
    return "-c", "\n".join(("from backupd.cli.main import main", modules, *lines, "main()"))


def test_a_client_that_receives_nothing_more_is_ended_and_another_one_goes_on(site: Site) -> None:
    """As where the other end of its connection is gone without a word."""
    site.module = with_changes("archive._ASK_SECONDS = archive._SILENT_SECONDS = 1")
    with site.archiving() as receiver:
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        deaf = client_of(receiver)
        os.kill(deaf, signal.SIGSTOP)
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        assert client_of(receiver) != deaf
    assert require_as_the_server_has_it(site).gtid_end == last
    assert "nothing has arrived for" in (site.base / "receiver.log").read_text()
    assert gaps(site) == []


def test_segments_wait_in_the_spool_while_the_target_is_away_and_are_stored_when_it_is_back(site: Site) -> None:
    with site.archiving():
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        away = site.vault.with_name("away")
        site.vault.rename(away)
        last = write(site.server)
        wait_until(lambda: bool(list((site.base / "spool" / "nightly").glob("*.binlog"))))
        away.rename(site.vault)
        wait_until(lambda: site.stored(last))
    require_as_the_server_has_it(site)


def test_an_archive_ends_although_a_target_hangs(site: Site) -> None:
    """Whoever asks for it waits some seconds, and its process is gone: the next one can begin."""
    site.module = with_changes(
        "import sys, time",
        "from backupd.targets.directory import DirectoryTarget",
        "storing._END_SECONDS = 1",
        "def hangs(*given, **named):",
        "    print('it hangs', file=sys.stderr, flush=True)",
        "    time.sleep(10**6)",  # as an NFS server that is away: its end is what is not waited for
        "DirectoryTarget.writing = hangs",
    )
    with site.archiving() as receiver:
        write(site.server)
        wait_until(lambda: "it hangs" in (site.base / "receiver.log").read_text())
    assert receiver.returncode == 15


NEW_PASSWORD = "battery staple"


def test_a_password_that_is_changed_while_the_archive_is_at_work_is_read_at_its_next_try(site: Site) -> None:
    """A try a minute with the old one would have the account locked on a MySQL with FAILED_LOGIN_ATTEMPTS."""
    file = site.base / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    as_archiver(site, f'password_file = "{file}"')
    site.module = with_changes("archive._ASK_SECONDS = 1")
    with site.archiving() as receiver:
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        file.write_text(NEW_PASSWORD)
        change_password(site)
        os.kill(client_of(receiver), signal.SIGKILL)
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert gaps(site) == []


def test_an_archive_whose_password_is_as_old_as_its_process_ends_once_that_is_refused(site: Site) -> None:
    """It is started again, and that process has the variable or the credential as it is then."""
    as_archiver(site, 'password_env = "ARCHIVER"')
    site._environment["ARCHIVER"] = PASSWORD
    with site.archiving() as receiver:
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        change_password(site)
        os.kill(client_of(receiver), signal.SIGKILL)
        wait_until(lambda: receiver.poll() is not None)
        assert receiver.returncode == 2
    assert "refused user 'archiver': wrong password" in (contact(site) or ("", ""))[1]


def as_archiver(site: Site, source: str) -> None:
    """The archive is this account's from now on, whose password comes from there."""
    site.server.account("archiver", "GRANT ALL PRIVILEGES ON *.* TO archiver@localhost")
    text = site.configuration.read_text()
    site.configuration.write_text(text.replace('user = "root"', f'user = "archiver"\n{source}'))


def change_password(site: Site) -> None:
    with site.server.session() as root:
        root.execute(f"ALTER USER archiver@localhost IDENTIFIED BY '{NEW_PASSWORD}'")


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_log_that_was_reset_is_a_gap_that_is_told_and_another_chain(site: Site, while_it_runs: bool) -> None:
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
        if while_it_runs:
            with site.server.session() as root:
                root.execute("RESET MASTER")
            wait_until(lambda: bool(gaps(site)))
    if not while_it_runs:
        with site.server.session() as root:
            root.execute("RESET MASTER")
        write(site.server, 100)  # the new file is longer than the old one was
    begun = site.connections()  # a second one is that of the new chain
    with site.archiving():
        wait_until(lambda: site.connections() >= begun + (1 if while_it_runs else 2))
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert len({segment.chain for segment, _ in stored(site)}) == 2
    assert len(gaps(site)) == 1


def test_binlogs_that_were_purged_meanwhile_are_a_gap_that_is_told(site: Site) -> None:
    with site.archiving():
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    with site.server.session() as root:

        def all_but_the_newest_are_gone() -> bool:
            """The server keeps what it sends, until it notices that nobody receives it any more."""
            root.execute("FLUSH BINARY LOGS")
            root.execute(f"PURGE BINARY LOGS TO '{(root.one('SHOW MASTER STATUS') or {})['File']}'")
            return len(root.query("SHOW BINARY LOGS")) == 1

        wait_until(all_but_the_newest_are_gone)
    with site.archiving():
        wait_until(lambda: bool(gaps(site)))
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert "no longer has" in gaps(site)[0]


def test_what_a_client_has_dated_1970_or_into_the_future_is_archived_and_read(site: Site) -> None:
    with site.archiving():
        with site.server.session() as root:
            root.execute("SET GLOBAL max_binlog_size = 4096")
            for timestamp in (1, (1 << 31) - 1):
                root.execute(f"SET timestamp = {timestamp}")
                root.execute(f"INSERT INTO t.innodb (v) VALUES ('{'x' * 5000}')")
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    row = require_as_the_server_has_it(site)
    assert {at.year for one in row.segments for at in (one.first_at, one.last_at) if at is not None} >= {1970, 2038}


def test_a_full_spool_drops_the_oldest_with_a_gap_and_goes_on(site: Site) -> None:
    text = site.configuration.read_text()
    site.configuration.write_text(f'{text}\nsegment_size = "1MiB"\nspool_limit = "64MiB"\n')
    with site.server.session() as root:
        root.execute("SET GLOBAL max_binlog_size = 1073741824")
    with site.archiving():
        first = write(site.server)
        wait_until(lambda: site.stored(first))
        away = site.vault.with_name("away")
        site.vault.rename(away)
        with site.server.session() as root:
            root.execute("CREATE TABLE t.noise (b LONGBLOB)")
            for _ in range(9):
                root.execute("INSERT INTO t.noise SELECT RANDOM_BYTES(1024) FROM t.seq_1_to_9000")
        wait_until(lambda: bool(gaps(site)))
        away.rename(site.vault)
        last = write(site.server)
        wait_until(lambda: site.stored(last))
    assert "the binlog spool was full" in gaps(site)[0]
    assert len(rows([segment for segment, _ in stored(site)])) > 1
    beginnings = [(segment, events) for segment, events in stored(site) if segment.number == 1]
    kinds = [
        next(BinlogBytes(events, segment.start, True).events(0, len(events))).kind for segment, events in beginnings
    ]
    assert all(kind in BEGINNINGS | BETWEEN_TRANSACTIONS for kind in kinds), "no chain begins within a transaction"
    with closing(sqlite3.connect(site.base / "state" / "catalogue.sqlite")) as connection:
        lying = "id IN (SELECT segment_id FROM stored_segments)"
        nowhere = f"SELECT count(*) FROM binlog_segments WHERE NOT spooled AND NOT {lying}"
        assert connection.execute(nowhere).fetchone() == (0,), "what was dropped is not told as restorable"


def test_what_a_target_misses_that_is_away_for_too_long_is_no_gap_of_the_others(site: Site) -> None:
    cold = site.base / "cold"
    cold.mkdir()
    text = site.configuration.read_text().replace('["vault"]', '["vault", "cold"]')
    of_cold = f'segment_size = "1MiB"\nspool_limit = "64MiB"\n[targets.cold]\ntype = "directory"\npath = "{cold}"\n'
    site.configuration.write_text(f"{text}\n{of_cold}")

    def numbers() -> list[int]:
        return [int(path.stem[-10:]) for path in sorted(cold.glob("*/nightly/binlog/*.binlog"))]

    with site.archiving():
        first = write(site.server)
        wait_until(lambda: site.stored(first) and bool(numbers()))
        away = cold.with_name("away")
        cold.rename(away)
        with site.server.session() as root:
            root.execute("CREATE TABLE t.noise (b LONGBLOB)")
            for _ in range(9):
                root.execute("INSERT INTO t.noise SELECT RANDOM_BYTES(1024) FROM t.seq_1_to_9000")
        wait_until(lambda: bool(gaps(site)))
        away.rename(cold)
        last = write(site.server)
        wait_until(lambda: site.stored(last) and numbers()[-1] == stored(site)[-1][0].number)
    assert require_as_the_server_has_it(site).gtid_end == last
    there = numbers()
    assert len(there) < there[-1], "it lacks some"
    assert [reason.partition(" from ")[0] for reason in gaps(site)] == ["target cold lacks segments"]


def test_a_canary_row_a_minute_moves_the_log_of_a_quiet_server_and_not_of_a_read_only_one(site: Site) -> None:
    connect = site.server.connect()
    with site.server.session() as root:
        minute(connect)
        minute(connect)
        assert root.value("SELECT COUNT(*) FROM backupd_canary.minutes") == "2"
        root.execute("UPDATE backupd_canary.minutes SET at = at - INTERVAL 40 DAY")
        minute(connect)
        assert root.value("SELECT COUNT(*) FROM backupd_canary.minutes") == "1"
        root.execute("SET GLOBAL read_only = 1")
        minute(connect)
        assert root.value("SELECT COUNT(*) FROM backupd_canary.minutes") == "1"
