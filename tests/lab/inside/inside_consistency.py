"""Proof under load: what was written while backups were taken is whole in each, and their positions are exact."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from backupd.mysql.session import Login, Session
from backupd.vocabulary.records import Check
from backupd.vocabulary.servers import Position
from tests.bench import consistency
from tests.bench.evidence import questioned, restored
from tests.bench.replay import State, checksums, locked_state, replay, same_tables
from tests.lab.inside.host import GATE_OFF, SITE, Host

LOGIN = Login("root", socket=SITE.socket)
MORE_LOAD_SECONDS = 3.0
EVIDENCE = SITE.state / "evidence"


@dataclass(frozen=True)
class Taken:
    """A backup, and what the server held some seconds later."""

    run_id: str
    later: State


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Taken]]:
    """Two backups under load; what writes goes on while they are questioned."""
    host = Host(tmp_path_factory.mktemp("taken"))
    with consistency.workload(LOGIN), closing(Session.open(LOGIN)) as session:
        backups = []
        for _ in range(2):
            run_id = host.backupd("run", "nightly", "--json", changes=GATE_OFF).document["run_id"]
            time.sleep(MORE_LOAD_SECONDS)
            backups.append(Taken(run_id, locked_state(session)))
        yield backups


def wrong(checks: tuple[Check, ...]) -> list[Check]:
    return [check for check in checks if not check.ok]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_restored_data_is_whole_and_a_replay_from_its_position_is_the_later_server(
    host: Host, taken: list[Taken], which: int
) -> None:
    one = taken[which]
    with restored(one.run_id, EVIDENCE) as (server, manifest):
        checks = questioned(server, manifest, SITE.datadir, one.later)
    assert not wrong(checks)
    assert {"binlog position", "canary", "balances", "ledger", "myisam counters", "replay"} <= {
        check.name for check in checks
    }
    assert one.later.position != manifest.position


def test_restored_data_that_is_not_whole_is_called_so(host: Host, taken: list[Taken]) -> None:
    with restored(taken[0].run_id, EVIDENCE) as (server, _):
        assert not wrong(consistency.check(server.session))
        server.session.execute("UPDATE lab_bank.account SET balance = balance + 1 WHERE id = 1")
        server.session.execute("UPDATE lab_bank.myisam_left SET value = value + 1")
        found = wrong(consistency.check(server.session))
    assert [check.name for check in found] == ["balances", "ledger", "myisam counters"]


def test_a_replay_that_lacks_one_transfer_is_found(host: Host, taken: list[Taken]) -> None:
    later = taken[0].later
    with restored(taken[0].run_id, EVIDENCE) as (server, manifest):
        socket = server.session.value("SELECT @@global.socket") or ""
        flavour = manifest.server.flavour
        before = before_the_last_transfer(manifest.position, later.position)
        replay(SITE.datadir, manifest.position, before, flavour, socket=socket)
        lacking = checksums(server.session)
        assert lacking["lab_bank.ledger"] != later.tables["lab_bank.ledger"]
        assert not same_tables(later.tables, lacking).ok
        replay(SITE.datadir, before, later.position, flavour, socket=socket)
        assert same_tables(later.tables, checksums(server.session)).ok


def before_the_last_transfer(start: Position, stop: Position) -> Position:
    """Where the last transaction between the two begins that wrote to the ledger."""
    assert start.binlog_file == stop.binlog_file
    with closing(Session.open(LOGIN)) as session:
        events = session.query(f"SHOW BINLOG EVENTS IN '{start.binlog_file}' FROM {start.binlog_offset}")
    begins = 0
    found = []
    for event in events:
        if int(event["End_log_pos"] or 0) > (stop.binlog_offset or 0):
            break
        if event["Event_type"] == "Gtid":
            begins = int(event["Pos"] or 0)
        elif "lab_bank.ledger" in (event["Info"] or ""):
            found.append(begins)
    return replace(start, binlog_offset=found[-1])
