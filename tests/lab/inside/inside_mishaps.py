"""What goes wrong in mid-run, each with its sentence, hint and status, and nothing left of it."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from backupd.lab.load import longest_stall, parse_heartbeats
from tests.lab.inside.host import GATE_OFF, LONG_SETTLE, SITE, SLOW_COPY, Changes, Host, require_told, tool
from tests.lab.inside.moments import copying, locked, probing, storing_to, unlocked
from tests.lab.inside.places import disk
from tests.lab.inside.sessions import THEIRS, session

MIB = 1 << 20
SERVER, SNAPSHOT, TARGET, VERIFICATION = 6, 7, 8, 9
BRIEF_COPY: Changes = {**GATE_OFF, "jobs.nightly.copy.max_rate": "12MiB"}  # four seconds
AS_IT_IS: Changes = {"jobs.nightly.snapshot.extend": False}  # the COW area gets no more room
SMALL_COW: Changes = {"jobs.nightly.snapshot.size": "16MiB", **AS_IT_IS}
FTWRL: Changes = {
    "jobs.nightly.lock.strategy": "ftwrl",
    "jobs.nightly.lock.wait_timeout": "1s",
    "jobs.nightly.lock.tries": 2,
    "jobs.nightly.lock.pause": "500ms",
}


@contextmanager
def filler() -> Iterator[None]:
    """Forty MiB are written to the volume beside the datadir: more than a small COW area takes."""
    file = SITE.mount_point / "filler"
    tool("dd", "if=/dev/urandom", f"of={file}", "bs=1M", "count=40", "conv=fsync", "status=none")
    try:
        yield
    finally:
        file.unlink()


def stall_since(began: float) -> float:
    """The longest that one of the lab's small inserts has taken, in seconds."""
    beats = parse_heartbeats(SITE.heartbeat_log.read_text())
    stall = longest_stall(beats, began, time.time())
    assert stall is not None
    return stall


def test_server_that_stops_after_the_snapshot_takes_nothing_from_the_backup(host: Host) -> None:
    with host.running({**LONG_SETTLE, "jobs.nightly.settle.max_wait": "7s"}) as run:
        run.until(unlocked)
        host.kill_server()
        ended = run.ended(expect=3)
        host.start_server()
    document = ended.document
    assert document["status"] == "attention"
    assert any("server" in text for text in document["attention"])
    assert "attention: " in ended.stderr
    assert host.backupd("drill", run.run_id, "--json").document["status"] == "proven"


def test_server_that_stops_before_the_lock(host: Host) -> None:
    with host.running({"jobs.nightly.settle.probe": True}) as run:
        run.until(probing)
        host.kill_server()
        ended = run.ended(expect=SERVER)
        host.start_server()
    assert require_told(ended, status=SERVER, says="server")["status"] == "failed"


def test_lock_that_is_not_granted_lets_the_writers_go_between_its_tries(host: Host) -> None:
    began = time.time()
    with session(host, *THEIRS, "LOCK TABLES theirs WRITE"):
        host.fails({**GATE_OFF, **FTWRL}, status=SERVER, says="not granted")
        assert host.seconds_to_write() < 4  # and not for as long as the table is locked
    assert stall_since(began) < 2.5


def test_lock_is_not_even_asked_for_while_a_long_write_runs(host: Host) -> None:
    patience = {"jobs.nightly.lock.wait_timeout": "4s", "jobs.nightly.lock.blocker_age": "100ms"}
    began = time.time()
    with session(host, *THEIRS, last="INSERT INTO theirs SELECT SLEEP(60)"):
        host.fails({**GATE_OFF, **FTWRL, **patience}, status=SERVER, says="INSERT INTO theirs")
    assert stall_since(began) < 3, "a request would have kept every writer waiting for four seconds"


def test_cow_area_that_overflows_voids_the_backup(host: Host) -> None:
    with host.running({**SLOW_COPY, **SMALL_COW, "jobs.nightly.limits.max_cow_fill": 1.0}) as run:
        run.until(copying)
        with filler():
            ended = run.ended(expect=SNAPSHOT)
    document = require_told(ended, status=SNAPSHOT, says="intact")
    assert document["error"]["code"] == "snapshot-void"
    assert "snapshot.size" in document["error"]["hint"]


def test_cow_area_that_fills_is_extended_and_the_backup_is_good(host: Host) -> None:
    small: Changes = {"jobs.nightly.snapshot.size": "64MiB", "jobs.nightly.limits.max_cow_fill": 0.5}
    with host.running({**SLOW_COPY, **small}) as run:
        run.until(copying)
        with filler():
            ended = run.ended(expect=0)
    snapshot = ended.document["snapshot"]
    assert snapshot["cow_extended"] > 0
    assert snapshot["cow_size"] == 64 * MIB + snapshot["cow_extended"]
    assert snapshot["cow_used_peak"] > 40 * MIB


@pytest.mark.parametrize(
    ("changes", "stage"),
    [pytest.param(LONG_SETTLE, "settle", marks=pytest.mark.matrix), (SLOW_COPY, "copy")],
    ids=["settle", "copy"],
)
def test_passed_limit_gives_the_backup_up_in_every_stage(host: Host, changes: Changes, stage: str) -> None:
    with host.running({**changes, **AS_IT_IS, "jobs.nightly.limits.max_cow_fill": 0.03}) as run:
        run.until(unlocked if stage == "settle" else copying)
        with filler():
            ended = run.ended(expect=SNAPSHOT)
    document = require_told(ended, status=SNAPSHOT, says="the limit is 3%")
    assert document["error"]["code"] == "gave-up"
    assert (document["verdict"]["reason"] == "limit") == (stage == "settle")


def test_penalty_beyond_the_limit_gives_the_backup_up(host: Host) -> None:
    changes: Changes = {
        "jobs.nightly.limits.max_penalty": 1.01,
        "jobs.nightly.settle.duty": 0.5,
        "jobs.nightly.settle.baseline_windows": 1,
        "jobs.nightly.settle.patience": 100,
    }
    busy = ["dd", "if=/dev/urandom", "of=/dev/null", "bs=1M"]
    with ExitStack() as owed, host.running(changes) as run:
        run.until(locked)
        for _ in range(8):  # whatever else the machine did while the baseline was measured, it does more now
            owed.callback(owed.enter_context(subprocess.Popen(busy, stderr=subprocess.DEVNULL)).kill)
        ended = run.ended(expect=SNAPSHOT)
    document = require_told(ended, status=SNAPSHOT, says="slower than without the snapshot")
    assert document["penalty"]["settled_ratio"] > 1.01
    assert document["verdict"] == {**document["verdict"], "outcome": "give-up", "reason": "limit"}


def test_target_that_becomes_full(host: Host, tmp_path: Path) -> None:
    with disk(tmp_path) as store:
        with host.running({**SLOW_COPY, "targets.store.path": str(store.path)}) as run:
            run.until(storing_to(store.path))
            store.fill()
            ended = run.ended(expect=TARGET)
        require_told(ended, status=TARGET, says="no space left on target store")
        host.nothing_left()  # while the target is there to be asked


@pytest.mark.matrix
def test_target_that_becomes_read_only_is_cleaned_up_later(host: Host, tmp_path: Path) -> None:
    with disk(tmp_path) as store:
        changes = {**SLOW_COPY, "targets.store.path": str(store.path)}
        with host.running(changes) as run:
            run.until(storing_to(store.path))
            store.refuse_writes()
            ended = run.ended(expect=TARGET)
        require_told(ended, status=TARGET, says="is mounted read-only")
        assert "note: clean-up incomplete" in ended.stderr
        store.mend()
        host.backupd("recover", changes=changes)
        host.nothing_left()  # while the target is there to be asked


def test_target_that_drops_writes_is_found_out_and_nothing_is_published(host: Host, tmp_path: Path) -> None:
    with disk(tmp_path) as store:
        with host.running({**BRIEF_COPY, "targets.store.path": str(store.path)}) as run:
            run.until(storing_to(store.path))
            store.drop_writes()
            ended = run.ended(expect=VERIFICATION)
        assert require_told(ended, status=VERIFICATION, says="data-1.tar.zst")["backup"] is None
        assert not list(store.path.rglob("manifest.json"))
        host.nothing_left()  # while the target is there to be asked
